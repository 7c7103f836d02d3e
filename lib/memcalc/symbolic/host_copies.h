// What a run keeps in host memory instead of on the card: copies of saved tensors (HostCopies), an optimizer.
#pragma once

#include <cstdint>

#include "memcalc/base/bytes.h"

namespace memcalc {

struct HostCopies {
  std::int64_t count = 0;
  Bytes bytes = 0;
  Bytes pinned_bytes = 0;  // as the pinned allocator rounds each
};

/// What an optimizer whose states live in host memory holds there.
struct HostOptimizer {
  std::int64_t tensors = 0;     // parameters that are stepped on the host
  Bytes pinned_parameters = 0;  // their copies, as the pinned allocator rounds each
  Bytes pinned_gradients = 0;
  Bytes states = 0;  // pageable
};

}  // namespace memcalc
