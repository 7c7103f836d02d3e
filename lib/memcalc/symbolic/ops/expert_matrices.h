// One weight matrix for each expert of a layer, all in one tensor, in a format that was quantised beforehand.
#pragma once

#include <cstdint>

#include "memcalc/symbolic/ops/quantized.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// The packed matrices are the module's parameter; beside it lies what their blocks are scaled with.
struct ExpertMatrices {
  Quantization kind = Quantization::kNone;
  std::int64_t experts = 0;
  std::int64_t out_features = 0;
  std::int64_t in_features = 0;
  std::int64_t parts = 1;  // matrices of an expert that a checkpoint holds apart and loading puts together: gate and up
  Tensor scales;
  mutable bool is_tuned = true, is_tuned_for_decode = true;  // FP8: its two kernels were tried out for this shape

  [[nodiscard]] std::int64_t elements() const {
    return checked_multiply(checked_multiply(experts, out_features), in_features);
  }
};

/// What the matrices take: their values, and what these are scaled with.
[[nodiscard]] PackedBytes packed_bytes(const ExpertMatrices& matrices, const DeviceSpec& device);

}  // namespace memcalc
