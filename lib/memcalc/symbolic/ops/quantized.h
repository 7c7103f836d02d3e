// Products with a quantised weight, as bitsandbytes 0.50 does them: the weight stays packed, each product unpacks it
// for a moment.
#pragma once

#include <vector>

#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/fine_tuning.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// The packed weight is the layer's parameter; beside it lie what its blocks are scaled with.
struct QuantizedWeight {
  Quantization kind = Quantization::kNone;
  std::int64_t out_features = 0;
  std::int64_t in_features = 0;
  DType dtype = DType::kBFloat16;         // in which products are computed
  DType source_dtype = DType::kBFloat16;  // of the weight that was packed: what backward unpacks to
  bool keeps_input = false;               // bitsandbytes before 0.43.2
  bool transposes = false;                // Conv1D: the source is [in, out]
  std::int64_t group_size = 128;          // GPTQ and AWQ
  mutable bool is_tuned = true;           // FP8: its kernel was tried out for a weight of this shape
  std::vector<Tensor> scales;
};

/// Blocks of NF4 (bitsandbytes' default) and of the block scales, where these are quantised again.
inline constexpr std::int64_t kNf4Block = 64;
inline constexpr std::int64_t kScaleBlock = 256;

/// Of kFp8Scaled: how many scales a row has. One where its numbers make no whole blocks of 64.
[[nodiscard]] constexpr std::int64_t fp8_scales_of_row(std::int64_t in_features) {
  constexpr std::int64_t kBlock = 64;
  return in_features % kBlock == 0 ? in_features / kBlock : 1;
}

/// What a packed weight of [out, in] takes: its codes, and what they are scaled with. Closed form of quantize(). The
/// map of 256 codes that all doubly quantised weights share is not in it (kSharedMapBytes).
struct PackedBytes {
  Bytes weight = 0;
  Bytes constants = 0;
};
[[nodiscard]] PackedBytes packed_bytes(Quantization kind, std::int64_t out_features, std::int64_t in_features);
[[nodiscard]] PackedBytes packed_bytes(const QuantizedWeight& weight, const DeviceSpec& device);
inline constexpr Bytes kSharedMapBytes = 1024;

/// Linear4bit.forward and Linear8bitLt.forward: `bias` may be undefined. `gathered`: the packed weight where ranks
/// share it; a 4-bit product keeps a view of it for backward.
[[nodiscard]] Tensor quantized_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias,
                                      const Tensor& gathered = {});

/// quantize_4bit or int8_vectorwise_quant of a weight on the card that holds `source`: what it leaves is in
/// `weight.scales`, the packed weight itself is returned.
[[nodiscard]] Tensor quantize(const Tensor& source, QuantizedWeight& weight);

/// dequantize_4bit in full, of a tensor of `shape` that nobody differentiates.
[[nodiscard]] Tensor unpacked(Tape& tape, const QuantizedWeight& weight, const Shape& shape);

}  // namespace memcalc
