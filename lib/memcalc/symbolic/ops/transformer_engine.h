// TransformerEngine's modules, as Megatron-core uses them: a norm fused with the linear layer behind it, linear layers
// split over tensor-parallel ranks, attention, rotary positions, experts' grouped products. Gradients of weights go
// into main_grad, a buffer that exists for the whole run, so backward hands none on where they are fused.
// TransformerEngine 2.11 (transformer_engine/pytorch); tensors are [sequence, batch, …].
#pragma once

#include "memcalc/symbolic/ops/megatron_memory.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

struct TeLinear {
  MegatronMemory* memory = nullptr;
  ParallelMode mode = ParallelMode::kDuplicated;
  std::int64_t in = 0;  // of this rank's weight [out, in]
  std::int64_t out = 0;
  bool bias = false;        // of which backward makes the gradient
  bool norm_rms = true;     // layer_norm_linear: which norm
  bool split_ranks = true;  // false: an expert's layer, whose tensor-parallel communication is the dispatcher's
};

/// module/rmsnorm.py, layernorm.py: TENorm.
[[nodiscard]] Tensor te_norm(MegatronMemory& memory, const Tensor& x, bool rms);
/// module/layernorm_linear.py: column-parallel; under sequence parallelism the norm's output is gathered in forward and
/// again in backward. `layer` must outlive the graph.
[[nodiscard]] Tensor te_layer_norm_linear(const TeLinear& layer, const Tensor& x);
/// module/linear.py: row-parallel output is reduced, or reduced and scattered along the sequence.
[[nodiscard]] Tensor te_linear(const TeLinear& layer, const Tensor& x);
/// attention/rope.py, FusedRoPEFunc on [s, b, heads, dim]: nothing of the size of x is kept.
[[nodiscard]] Tensor te_fused_rope(const Tensor& x);
/// triton/cross_entropy.py: writes the gradient over the logits.
[[nodiscard]] Tensor te_cross_entropy(const Tensor& logits, std::int64_t tensor_parallel);

/// module/grouped_linear.py: a product for each of `experts` groups of rows; `layer` is one expert's. The rows are let
/// go as soon as the weights' gradients are known.
[[nodiscard]] Tensor te_grouped_linear(const TeLinear& layer, const Tensor& x, std::int64_t experts);

/// What moe/router.py keeps of a router's scores, and its probabilities.
struct RouterShape {
  std::int64_t experts = 0;
  std::int64_t per_token = 0;
  bool drops = false;             // tokens beyond an expert's capacity
  DType dtype = DType::kFloat32;  // of the logits that are scored and of the probabilities: moe_router_dtype
};
/// router.py, TopKRouter: x [.., h] to probabilities [tokens, experts].
[[nodiscard]] Tensor megatron_router(MegatronMemory& memory, const Tensor& x, const RouterShape& shape);
/// permutation.py, moe_permute_with_probs: x [tokens, h] to rows [n, h] and their probabilities [n].
struct PermutedTokens {
  Tensor rows, probabilities, map;
};
[[nodiscard]] PermutedTokens te_permute(const Tensor& x, const Tensor& probabilities, std::int64_t rows);
/// permutation.py, moe_unpermute: rows [n, h] back to `tokens`.
[[nodiscard]] Tensor te_unpermute(const Tensor& rows, const Tensor& map, std::int64_t tokens);

/// How attention communicates over context-parallel ranks.
enum class TeContextParallel : std::uint8_t { kNone, kRing, kAllGather, kAllToAll };

struct TeAttention {
  std::int64_t context_parallel = 1;
  TeContextParallel type = TeContextParallel::kNone;
  double dropout = 0;
  bool causal = true;
};

/// attention/dot_product_attention/backends.py, FusedAttnFunc (cuDNN) and context_parallel.py:
/// [s, b, heads, dim] to [s, b, heads * value_dim].
[[nodiscard]] Tensor te_fused_attention(const TeAttention& options, const Tensor& query, const Tensor& key,
                                        const Tensor& value);
/// What makes probabilities of scores: one kernel, or operators of torch (fused_softmax.py, forward_torch_softmax).
struct MaskedSoftmax {
  Tensor hidden;  // what a padding mask leaves out, [b, 1, sq, sk]: its probabilities become zero, in a copy
  bool fused = true;
  // Not fused:
  Tensor mask;              // [b, 1, sq, sk]
  bool scales = false;      // apply_query_key_layer_scaling
  bool in_float32 = false;  // attention_softmax_in_fp32
};
/// backends.py, UnfusedDotProductAttention: scores [b, heads, s, s] in full; Megatron's own DotProductAttention asks
/// for the same.
[[nodiscard]] Tensor te_unfused_attention(const Tensor& query, const Tensor& key, const Tensor& value, double dropout,
                                          const MaskedSoftmax& softmax = {});
/// utils.py, get_full_mask: of padding [b, 1, 1, s] of queries and of keys what no query may see, [b, 1, sq, sk].
[[nodiscard]] Tensor te_full_mask(const Tensor& query_padding, const Tensor& key_padding);

}  // namespace memcalc
