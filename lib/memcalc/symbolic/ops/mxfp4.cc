// kernels-community/gpt-oss-triton-kernels (August 2026): matmul_ogs.py, matmul_ogs_details/opt_flags.py and
// opt_flags_details/opt_flags_nvidia.py, routing.py, topk.py, reduction_details/reduce_bitmatrix.py,
// tensor_details/layout_details/hopper_value.py.
#include "memcalc/symbolic/ops/mxfp4.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/block_fp8.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kPack{"_pack_bits"};
constexpr Operator kTopK{"_topk_forward"}, kSumBits{"_sum_bitmatrix_rows"}, kRoute{"_combined_routing_compute"};
constexpr Operator kMatmul{"_matmul_ogs"}, kWriteback{"_compute_writeback_idx"};

/// What HopperMXValueLayout pads to: rows of the matrix, and bytes of a row.
constexpr std::int64_t kRowTile = 16;
constexpr std::int64_t kByteTile = 32;

bool reorders(const DeviceSpec& device) { return is_of(device, CudaArchitecture::kHopper); }

std::int64_t block_bytes(const ExpertMatrices& matrices) { return matrices.elements() / 2; }

std::int64_t kept_block_bytes(const ExpertMatrices& matrices, const DeviceSpec& device) {
  if (!reorders(device)) return block_bytes(matrices);
  return checked_multiply(matrices.experts, checked_multiply(round_up(matrices.out_features, kRowTile),
                                                             round_up(matrices.in_features / 2, kByteTile)));
}

/// HopperMXValueLayout.swizzle_data with its _pack_bits, which works in int32 on a fourth of the bytes each time: each
/// of its tensors is as large as the blocks.
Tensor reordered(Tape& tape, std::int64_t bytes) {
  const auto temporary = [&](const Operator& op) { return tape.empty({bytes}, DType::kUInt8, op); };
  Tensor padded = temporary(aten::kConstantPadNd);
  Tensor data = temporary(aten::kContiguous);
  padded.reset();
  // first, second and third; then of the fourth what is shifted left, and the operands and results of the right half.
  std::vector<Tensor> quarters;
  constexpr int kDone = 3;
  for (int i = 0; i < kDone; ++i) quarters.push_back(temporary(kPack));
  tape.memory.scratch(checked_multiply(5, bytes), kPack);
  quarters.push_back(temporary(kPack));
  Tensor packed = tape.empty({bytes}, DType::kUInt8, kPack, Category::kWeights);
  data.reset();
  return packed;
}

/// How matmul_ogs divides its work: opt_flags_nvidia.py, for a kernel that is not persistent (MXFP4 blocks lie so that
/// TMA cannot load them).
std::int64_t split_k_of(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t experts,
                        const DeviceSpec& device) {
  const std::int64_t tokens = std::max<std::int64_t>(1, m / experts);
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(tokens)));
  const std::int64_t block_m =
      std::max<std::int64_t>(is_of(device, CudaArchitecture::kBlackwell) ? 64 : 16, std::min<std::int64_t>(power, 128));
  const std::int64_t block_n =
      n > 128 ? 256
              : std::max<std::int64_t>(16, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n))));
  const std::int64_t block_k = architecture_of(device) >= CudaArchitecture::kBlackwell ? 256 : 128;
  const std::int64_t grid = ceil_div(m, block_m) * ceil_div(n, block_n);
  const std::int64_t split = std::min(device.multiprocessors / grid, ceil_div(k, block_k) / 4);
  return std::max<std::int64_t>(split, 1);
}

/// The scratchpad of a product that is split along k, which lives until the call returns.
Tensor scratchpad(Tape& tape, std::int64_t split_k, std::int64_t rows, std::int64_t width) {
  if (split_k == 1) return {};
  return tape.empty({split_k, rows, width}, DType::kFloat32, kMatmul, Category::kWorkspaces);
}

}  // namespace

Tensor load_mxfp4(Tape& tape, ExpertMatrices& matrices) {
  Tensor blocks = tape.empty({block_bytes(matrices)}, DType::kUInt8, aten::kToCopy, Category::kWeights);
  matrices.scales = tape.empty({matrices.experts, matrices.out_features, matrices.in_features / kMxfp4Block},
                               DType::kUInt8, aten::kToCopy, Category::kWeights);
  if (!reorders(tape.device)) return blocks;
  return reordered(tape, kept_block_bytes(matrices, tape.device));
}

PackedBytes mxfp4_bytes(const ExpertMatrices& matrices, const DeviceSpec& device) {
  return {.weight = kept_block_bytes(matrices, device), .constants = matrices.elements() / kMxfp4Block};
}

PackedBytes packed_bytes(const ExpertMatrices& matrices, const DeviceSpec& device) {
  return matrices.kind == Quantization::kFp8 ? block_fp8_bytes(matrices) : mxfp4_bytes(matrices, device);
}

Mxfp4Routing mxfp4_routing(const Tensor& router_logits, std::int64_t per_token) {
  Tape& tape = router_logits.tape();
  Mxfp4Routing routing{.tokens = router_logits.size(0), .experts = router_logits.size(1), .per_token = per_token};
  const std::int64_t tokens = routing.tokens;
  const std::int64_t experts = routing.experts;
  const std::int64_t gates = tokens * per_token;
  const auto int32 = [&](std::int64_t numbers, const Operator& op) { return tape.empty({numbers}, DType::kInt32, op); };
  // topk.py
  const Tensor values = tape.empty({tokens, per_token}, router_logits.dtype(), kTopK);
  const Tensor indices = tape.empty({tokens, per_token}, DType::kFloat16, kTopK);  // int16
  const Tensor bits = int32(ceil_div(experts, 32) * round_up(tokens, 32), kTopK);
  Tensor histogram = int32(round_up(experts, 128), kTopK);
  // sort_tokens
  const Tensor partial = int32(round_up(experts, 32) * ceil_div(tokens, 128) * 4, kSumBits);
  const Tensor offsets = int32(experts, kRoute);
  Tensor order = int32(2 * gates, kRoute);
  Tensor scales = tape.empty({gates}, router_logits.dtype(), kRoute);
  // _compute_expt_data_internal: blocks of 16, 32, 64 and 128 rows.
  constexpr std::int64_t kBlockSizes = 4;
  const std::int64_t tiles = gates <= experts ? gates : experts - 1 + ceil_div(gates + 1 - experts, 16);
  Tensor token_offsets = int32((kBlockSizes + 1) * round_up(experts + 1, 512), kRoute);
  Tensor block_map = int32(kBlockSizes * round_up(tiles, 512), kRoute);
  const auto bytes = static_cast<double>(router_logits.bytes() + order.bytes());
  tape.kernels.add(kRoute, OperatorClass::kMovement, router_logits.dtype(), 0, bytes);
  for (Tensor* each : {&histogram, &order, &scales, &token_offsets, &block_map}) {
    routing.tensors.push_back(std::move(*each));
  }
  return routing;
}

Tensor mxfp4_gathered_swiglu(const Tensor& x, const ExpertMatrices& matrices, const Mxfp4Routing& routing) {
  Tape& tape = x.tape();
  const std::int64_t rows = routing.tokens * routing.per_token;
  Tensor result = tape.empty({rows, matrices.out_features / 2}, x.dtype(), kMatmul);
  const std::int64_t split =
      split_k_of(rows, matrices.out_features, matrices.in_features, routing.experts, tape.device);
  const Tensor scratch = scratchpad(tape, split, rows, matrices.out_features);
  tape.kernels.grouped_product(kMatmul, x.dtype(), matrices.experts, rows, matrices.in_features, matrices.out_features);
  return result;
}

Tensor mxfp4_scattered(const Tensor& rows, const ExpertMatrices& matrices, const Mxfp4Routing& routing) {
  Tape& tape = rows.tape();
  const std::int64_t count = rows.size(0);
  const std::int64_t split =
      split_k_of(count, matrices.out_features, matrices.in_features, routing.experts, tape.device);
  // The rows of each expert and their sums are one tensor where the kernel scatters them itself.
  const bool scatters = split == 1 && routing.per_token > 1;
  const std::int64_t height = scatters ? count + routing.tokens : routing.tokens;
  Tensor output = tape.empty({height, matrices.out_features}, rows.dtype(), kMatmul);
  const Tensor scratch = scratchpad(tape, split, count, matrices.out_features);
  Tensor writeback, finalize;
  if (scatters) {
    writeback = tape.empty({count}, DType::kInt32, kWriteback);
    finalize = tape.empty({routing.tokens + count + 1}, DType::kInt32, kWriteback);
  }
  tape.kernels.grouped_product(kMatmul, rows.dtype(), matrices.experts, count, matrices.in_features,
                               matrices.out_features);
  return slice(output, 0, 0, routing.tokens);
}

}  // namespace memcalc
