// HostCopies: what a forward pass keeps in pinned host memory instead of on the card.
#pragma once

#include <cstdint>

#include "memcalc/base/bytes.h"

namespace memcalc {

struct HostCopies {
  std::int64_t count = 0;
  Bytes bytes = 0;
  Bytes pinned_bytes = 0;  // as the pinned allocator rounds each
};

}  // namespace memcalc
