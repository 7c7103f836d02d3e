// Sorts, running sums and the largest of rows, as drawing tokens asks for them. Covered by
// tests/unit/sampled_scores_test.cc.
#pragma once

#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// Seconds of aten::topk.
[[nodiscard]] double topk_seconds(const Kernel& kernel, const work::Rows& slices, const DeviceSpec& device,
                                  const DeviceRates& rates);

/// Seconds of aten::sort of several long rows, and of aten::cumsum along several rows.
[[nodiscard]] double sorted_rows_seconds(const work::Rows& rows, const DeviceSpec& device);
[[nodiscard]] double summed_rows_seconds(const Kernel& kernel, const work::Rows& rows);

}  // namespace memcalc
