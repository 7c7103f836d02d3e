// gpt-oss' experts as they are published, in MXFP4: two numbers of 4 bits in a byte, an exponent of 8 bits for each 32
// of them. transformers 5.17 integrations/mxfp4.py with the Triton kernels kernels-community/gpt-oss-triton-kernels
// (August 2026).
// Covered by tests/unit/native_formats_test.cc; rows: tests/measured/rows_native_formats_h200.jsonl.
// MIRRORS(transformers, "integrations/mxfp4.py", "5.17.0")
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/symbolic/ops/expert_matrices.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// Numbers that share an exponent.
inline constexpr std::int64_t kMxfp4Block = 32;

/// The blocks and scales of a checkpoint; on compute capability 9.x the blocks are put into another order, by way of
/// copies that are several times as large (swizzle_mxfp4_convertops, HopperMXValueLayout). Returns the blocks.
[[nodiscard]] Tensor load_mxfp4(Tape& tape, ExpertMatrices& matrices);
[[nodiscard]] PackedBytes mxfp4_bytes(const ExpertMatrices& matrices, const DeviceSpec& device);

/// How many times as large as the blocks what that takes beside them is.
inline constexpr std::int64_t kReorderingCopies = 9;

/// RoutingData, GatherIndx and ScatterIndx: which rows of which expert.
struct Mxfp4Routing {
  std::int64_t tokens = 0;
  std::int64_t experts = 0;
  std::int64_t per_token = 0;
  std::vector<Tensor> tensors;
};

/// routing.routing(router_logits, top_k)
[[nodiscard]] Mxfp4Routing mxfp4_routing(const Tensor& router_logits, std::int64_t per_token);

/// matmul_ogs of each token with the matrices of its experts, and the clamped SwiGLU of the result: half as wide.
[[nodiscard]] Tensor mxfp4_gathered_swiglu(const Tensor& x, const ExpertMatrices& matrices,
                                           const Mxfp4Routing& routing);
/// matmul_ogs of what the experts made, summed for each token: [tokens, out].
[[nodiscard]] Tensor mxfp4_scattered(const Tensor& rows, const ExpertMatrices& matrices, const Mxfp4Routing& routing);

}  // namespace memcalc
