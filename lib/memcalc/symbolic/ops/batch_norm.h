// Batch normalisation in training.
#pragma once

#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

namespace rules {
extern const BuiltRule kBatchNormOfSeveral;  // built_rules.cc
}

/// F.batch_norm over [N, C], [N, C, L] or [N, C, H, W]; running statistics are updated in place. Throws Error where a
/// channel has one value in training.
[[nodiscard]] Tensor batch_norm(Arg x, const Tensor& weight, const Tensor& bias);

/// F.instance_norm over [N, C, …] with the statistics of its input; weight and bias may be undefined.
[[nodiscard]] Tensor instance_norm(Arg x, const Tensor& weight, const Tensor& bias);

}  // namespace memcalc
