// Products of matrices by those that were timed on a Hopper card: which of its kernels cuBLAS takes, and how well that
// one fills the card, is told by no formula of few numbers. Covered by tests/unit/product_times_test.cc.
#pragma once

#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// How many times as long as product_seconds() says a product takes: of the nearest that were timed the median. 1 on
/// other cards, and where none of those is near. Of products left out half are within 6 % (bfloat16 5, TF32 6, float32
/// 7; nine in ten 16, 21, 23), where the formula alone has 9 (31 to 45; TF32 in batches 36), and no bias.
[[nodiscard]] double measured_product_ratio(const Kernel& kernel, const work::Product& product,
                                            const DeviceSpec& device, const DeviceRates& rates);

}  // namespace memcalc
