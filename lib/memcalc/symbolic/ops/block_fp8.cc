// transformers 5.17: integrations/finegrained_fp8.py, core_model_loading.py. kernels-community/finegrained-fp8:
// matmul.py, grouped.py, batched.py (their block_dynamic functions).
// MIRRORS(transformers, "core_model_loading.py", "5.17.0")
// MIRRORS(transformers, "integrations/finegrained_fp8.py", "5.17.0")
#include "memcalc/symbolic/ops/block_fp8.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kMatmul{"w8a8_block_dynamic_fp8_matmul"}, kGrouped{"w8a8_block_dynamic_fp8_matmul_grouped"},
    kBatched{"w8a8_block_dynamic_fp8_matmul_batched"};

/// A tensor of a checkpoint on the card: FP8 values are as wide as bytes.
Tensor loaded(Tape& tape, const Shape& shape, DType dtype) {
  return tape.empty(shape, dtype, aten::kToCopy, Category::kWeights);
}

/// `parts` tensors, each of all experts by themselves, become one: each part is stacked and its own tensors die, then
/// the parts are put one below the other.
Tensor merged(Tape& tape, const ExpertMatrices& matrices, std::int64_t rows, std::int64_t columns, DType dtype) {
  const Shape part{matrices.experts, rows / matrices.parts, columns};
  std::vector<Tensor> apart, stacked;
  for (std::int64_t i = 0; i < matrices.parts; ++i) apart.push_back(loaded(tape, part, dtype));
  for (Tensor& each : apart) {
    stacked.push_back(tape.empty(part, dtype, aten::kStack, Category::kWeights));
    each.reset();
  }
  if (matrices.parts == 1) return std::move(stacked.front());
  return tape.empty({matrices.experts, rows, columns}, dtype, aten::kCat, Category::kWeights);
}

/// Triton's autotuner measures a kernel at its first call for a shape; between two runs it overwrites this much memory,
/// so that the L2 cache holds nothing (triton/runtime/driver.py, get_empty_cache_for_benchmark).
void tune(Tape& tape, bool& is_tuned, const Operator& op) {
  if (is_tuned) return;
  is_tuned = true;
  tape.memory.scratch(Bytes{256} << 20, op, Category::kWorkspaces);
}

}  // namespace

Tensor load_block_fp8(Tape& tape, QuantizedWeight& weight) {
  Tensor values = loaded(tape, {weight.out_features, weight.in_features}, DType::kUInt8);
  weight.scales.push_back(loaded(
      tape, {ceil_div(weight.out_features, kFp8Block), ceil_div(weight.in_features, kFp8Block)}, DType::kFloat32));
  return values;
}

Tensor block_fp8_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias) {
  Tape& tape = x.tape();
  Shape shape = x.shape();
  shape[-1] = weight.out_features;
  Tensor result = tape.empty(shape, x.dtype(), kMatmul);
  tune(tape, weight.is_tuned, kMatmul);
  tape.kernels.product(kMatmul, x.dtype(), 1, x.elements() / x.size(-1), weight.out_features, weight.in_features);
  (void)bias;  // output.add_(bias)
  return result;
}

PackedBytes block_fp8_bytes(const QuantizedWeight& weight) {
  const std::int64_t blocks =
      checked_multiply(ceil_div(weight.out_features, kFp8Block), ceil_div(weight.in_features, kFp8Block));
  return {.weight = checked_multiply(weight.out_features, weight.in_features),
          .constants = checked_multiply(4, blocks)};
}

Tensor load_block_fp8(Tape& tape, ExpertMatrices& matrices) {
  Tensor values = merged(tape, matrices, matrices.out_features, matrices.in_features, DType::kUInt8);
  matrices.scales =
      merged(tape, matrices, matrices.out_features / kFp8Block, matrices.in_features / kFp8Block, DType::kFloat32);
  return values;
}

Tensor block_fp8_grouped_mm(const Tensor& rows, const ExpertMatrices& matrices, const Tensor& tokens_per_expert) {
  Tape& tape = rows.tape();
  Tensor result = tape.empty({rows.size(0), matrices.out_features}, rows.dtype(), kGrouped);
  // _grouped_tile_layout: (tokens + block - 1) // block, summed up, in int32.
  Tensor tiles = pointwise(aten::kAdd, {&tokens_per_expert}, 1);
  tiles = pointwise(aten::kSub, {&tiles}, 1);
  tiles = pointwise(aten::kFloorDivide, {&tiles}, 1);
  Tensor ends = tape.empty(tiles.shape(), DType::kInt64, aten::kCumsum);
  const Tensor offsets = tape.empty(tiles.shape(), DType::kInt32, aten::kToCopy);
  ends.reset();
  tune(tape, matrices.is_tuned, kGrouped);
  tape.kernels.grouped_product(kGrouped, rows.dtype(), matrices.experts, rows.size(0), matrices.in_features,
                               matrices.out_features);
  return result;
}

Tensor block_fp8_batched_mm(const Tensor& rows, const ExpertMatrices& matrices) {
  Tape& tape = rows.tape();
  Tensor result = tape.empty({rows.size(0), matrices.out_features}, rows.dtype(), kBatched);
  tune(tape, matrices.is_tuned_for_decode, kBatched);
  tape.kernels.product(kBatched, rows.dtype(), rows.size(0), 1, matrices.out_features, matrices.in_features);
  return result;
}

PackedBytes block_fp8_bytes(const ExpertMatrices& matrices) {
  const std::int64_t blocks = checked_multiply(matrices.out_features / kFp8Block, matrices.in_features / kFp8Block);
  return {.weight = matrices.elements(), .constants = checked_multiply(4, checked_multiply(matrices.experts, blocks))};
}

}  // namespace memcalc
