// A hash of numbers in their order: sizes of a kernel, of a batch.
// Covered by tests/unit/first_calls_test.cc and tests/unit/data_steps_test.cc.
#pragma once

#include <cstdint>

namespace memcalc {

class MixedHash {
 public:
  void add(std::int64_t number) {
    hash_ = (hash_ ^ static_cast<std::uint64_t>(number)) * 0x9E3779B97F4A7C15U;
    hash_ ^= hash_ >> 29U;
  }
  [[nodiscard]] std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325U;
};

}  // namespace memcalc
