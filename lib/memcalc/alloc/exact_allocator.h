// The lower bound: an allocator that wastes nothing. With the interface of CachingAllocator.
// Covered by tests/unit/alloc_test.cc.
#pragma once

#include "memcalc/base/bytes.h"

namespace memcalc {

class ExactAllocator {
 public:
  using Handle = Bytes;  // the size is all that there is to know of a block

  /// Throws Error(kOverflow) where the sum leaves 63 bits.
  [[nodiscard]] Handle allocate(Bytes requested) {
    allocated_ = checked_add(allocated_, requested);
    return requested;
  }

  void free(Handle block) { allocated_ -= block; }

  void empty_cache() {}

  [[nodiscard]] Bytes allocated() const { return allocated_; }
  [[nodiscard]] Bytes reserved() const { return allocated_; }

  [[nodiscard]] static Bytes size_of(Handle block) { return block; }

 private:
  Bytes allocated_ = 0;
};

}  // namespace memcalc
