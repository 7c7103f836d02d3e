// Statistical normalisation: layer norm, RMS norm, group norm and softmax.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// F.layer_norm over the last dimension, or the last `dims`; weight and bias may be undefined. float32 under autocast.
[[nodiscard]] Tensor layer_norm(Arg x, const Tensor& weight, const Tensor& bias, int dims = 1);
/// F.rms_norm over the last dimension: one kernel where input and weight have one dtype or there is no weight, else
/// written out in float32.
[[nodiscard]] Tensor rms_norm(Arg x, const Tensor& weight);
/// F.group_norm over [N, C, ...]; weight and bias may be undefined. float32 under autocast.
[[nodiscard]] Tensor group_norm(Arg x, const Tensor& weight, const Tensor& bias, std::int64_t groups);
/// softmax over the last dimension. `dtype`: the result's type where it is not the input's (fused conversion).
[[nodiscard]] Tensor softmax(Arg x);
[[nodiscard]] Tensor softmax(Arg x, DType dtype);
/// log_softmax over the last dimension, in its input's type: its callers name it, so autocast keeps out.
[[nodiscard]] Tensor log_softmax(Arg x);
/// The result in `dtype`, as autocast asks for it.
[[nodiscard]] Tensor log_softmax(Arg x, DType dtype);
/// softmax that gives 0 for rows that are fully masked: SDPA's math backend.
[[nodiscard]] Tensor safe_softmax(Arg x);

}  // namespace memcalc
