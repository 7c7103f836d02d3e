// What torchvision's own operators of detectors take.
#pragma once

#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

[[nodiscard]] bool is_of_regions(const Kernel& kernel);

/// Seconds of a kernel of which is_of_regions() is true; `rows` is its work.
[[nodiscard]] double regions_seconds(const Kernel& kernel, const work::Rows& rows);

}  // namespace memcalc
