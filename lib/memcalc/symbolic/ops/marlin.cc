// gptqmodel (August 2026): nn_modules/qlinear/marlin.py and marlin_awq.py (post_init, forward), utils/marlin.py,
// gptqmodel_ext/marlin/gptq_marlin.cu.
#include "memcalc/symbolic/ops/marlin.h"

#include <algorithm>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kRepack{"gptq_marlin_repack"};
constexpr Operator kGemm{"gptq_marlin_gemm"};

constexpr std::int64_t kLeastBlocks = 128;  // marlin_make_workspace_new
constexpr std::int64_t kMaxThreadN = 256;   // max_thread_n

bool has_zeros(const QuantizedWeight& weight) { return weight.kind == Quantization::kAwq4; }

/// pack_factor: of 4 bits 8, of 8 bits 4.
std::int64_t numbers_in_int32(const QuantizedWeight& weight) { return weight.kind == Quantization::kGptq8 ? 4 : 8; }

Shape scales_shape(const QuantizedWeight& weight) {
  return {weight.in_features / weight.group_size, weight.out_features};
}

Shape zeros_shape(const QuantizedWeight& weight) {
  return {weight.in_features / weight.group_size, weight.out_features / numbers_in_int32(weight)};
}

Tensor packed_weight(Tape& tape, const QuantizedWeight& weight, const Operator& op) {
  return tape.empty({weight.in_features / numbers_in_int32(weight), weight.out_features}, DType::kInt32, op,
                    Category::kWeights);
}

std::int64_t workspace_blocks(const DeviceSpec& device) {
  return std::max<std::int64_t>(device.multiprocessors, kLeastBlocks);
}

enum Part : std::size_t { kWeight, kScales, kZeros, kGroupIndex, kParts };

}  // namespace

void load_marlin(Tape& tape, QuantizedWeight& weight) {
  const auto part = [&](const Shape& shape, DType dtype) {
    return tape.empty(shape, dtype, aten::kToCopy, Category::kWeights);
  };
  weight.scales.resize(kParts);
  if (!has_zeros(weight)) weight.scales[kGroupIndex] = part({weight.in_features}, DType::kInt32);
  weight.scales[kWeight] = packed_weight(tape, weight, aten::kToCopy);
  weight.scales[kZeros] = part(zeros_shape(weight), DType::kInt32);
  weight.scales[kScales] = part(scales_shape(weight), weight.dtype);
}

void repack_marlin(Tape& tape, QuantizedWeight& weight) {
  weight.scales.push_back(tape.empty({workspace_blocks(tape.device)}, DType::kInt32, aten::kZeros, Category::kWeights));
  if (!has_zeros(weight)) drop(weight.scales[kGroupIndex], weight.scales[kZeros]);
  weight.scales[kWeight] = packed_weight(tape, weight, kRepack);
  weight.scales[kScales] = tape.empty(scales_shape(weight), weight.dtype, aten::kIndexSelect, Category::kWeights);
  if (!has_zeros(weight)) return;
  // Unpacked to a number each, interleaved anew, packed again.
  Tensor unpacked = tape.empty(scales_shape(weight), DType::kInt32, aten::kIndexSelect);
  Tensor zeros = tape.empty(zeros_shape(weight), DType::kInt32, aten::kIndexSelect, Category::kWeights);
  unpacked.reset();
  weight.scales[kZeros] = std::move(zeros);
}

Tensor marlin_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias) {
  Tape& tape = x.tape();
  const Tensor flat = reshape(x, {x.elements() / x.size(-1), x.size(-1)});
  const std::int64_t rows = flat.size(0);
  Tensor result = tape.empty({rows, weight.out_features}, x.dtype(), kGemm);
  const std::int64_t block_rows = std::min<std::int64_t>(round_up(rows, 16), 64);
  tape.memory.scratch(4 * tape.device.multiprocessors * block_rows * kMaxThreadN, kGemm, Category::kWorkspaces);
  tape.kernels.product(kGemm, x.dtype(), 1, rows, weight.out_features, weight.in_features);
  (void)bias;  // added by the kernel
  Shape shape = x.shape();
  shape[-1] = weight.out_features;
  return view(std::move(result), shape);
}

PackedBytes marlin_bytes(const QuantizedWeight& weight, const DeviceSpec& device) {
  const Bytes scales = checked_multiply(scales_shape(weight).elements(), size_of(weight.dtype));
  const Bytes zeros = has_zeros(weight) ? checked_multiply(zeros_shape(weight).elements(), 4) : 0;
  return {.weight = checked_multiply(weight.in_features, weight.out_features) * 4 / numbers_in_int32(weight),
          .constants = scales + zeros + 4 * workspace_blocks(device)};
}

}  // namespace memcalc
