// Megatron-core's own operators around TransformerEngine's: what crosses tensor-parallel ranks, the embedding and the
// head split by vocabulary, fused activations. megatron/core (core_r0.14.0): tensor_parallel/, fusions/.
// MIRRORS(megatron, "core/fusions/fused_bias_gelu.py", "0.14.0")
// MIRRORS(megatron, "core/fusions/fused_bias_swiglu.py", "0.14.0")
// MIRRORS(megatron, "core/tensor_parallel/layers.py", "0.14.0")
// MIRRORS(megatron, "core/tensor_parallel/mappings.py", "0.14.0")
#pragma once

#include <utility>

#include "memcalc/symbolic/kernel_list.h"
#include "memcalc/symbolic/ops/megatron_memory.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// tensor_parallel/layers.py, VocabParallelEmbedding: ids [b, s] to [s, b, h], along the sequence where it is parallel.
[[nodiscard]] Tensor vocab_parallel_embedding(MegatronMemory& memory, const Tensor& weight, const Tensor& ids);
/// layers.py, ColumnParallelLinear (LinearWithGradAccumulationAndAsyncCommunication): the head. x [s, b, h]. `bias` is
/// added to the product out of place.
[[nodiscard]] Tensor column_parallel_linear(MegatronMemory& memory, const Tensor& x, std::int64_t out,
                                            bool bias = false);
/// transformer/utils.py, get_linear_layer: nn.Linear with a bias, whole on every rank. Its gradients die in their
/// accumulation into main_grad.
[[nodiscard]] Tensor unsplit_linear(MegatronMemory& memory, const Tensor& x, std::int64_t out);
/// core/utils.py, drain_embedding_wgrad_compute: the head's weight gradients that were put off.
void drain_head_gradients(MegatronMemory& memory);
/// cross_entropy.py, _VocabParallelCrossEntropy: float32 logits of the rank's part of the vocabulary become
/// exponentials, probabilities and their gradient in one storage. labels [b, s].
[[nodiscard]] Tensor vocab_parallel_cross_entropy(MegatronMemory& memory, const Tensor& logits, const Tensor& labels);
/// fused_cross_entropy.py: the same in compiled parts.
[[nodiscard]] Tensor fused_vocab_parallel_cross_entropy(MegatronMemory& memory, const Tensor& logits,
                                                        const Tensor& labels);

/// activations.py, squared_relu, compiled: keeps its input.
[[nodiscard]] Tensor squared_relu(const Tensor& x);
/// fusions/fused_bias_swiglu.py: [.., 2f] to [.., f], keeps its input; the compiled backward writes one result.
[[nodiscard]] Tensor fused_swiglu(const Tensor& x);
/// The same times a probability of each row, which gets a gradient.
[[nodiscard]] Tensor fused_weighted_swiglu(const Tensor& x, const Tensor& probabilities);
/// fused_bias_gelu.py: keeps its input.
[[nodiscard]] Tensor fused_bias_gelu(const Tensor& x);
/// fused_bias_dropout.py: residual + dropout(x + bias), compiled: a mask of one byte where there is dropout.
[[nodiscard]] Tensor fused_bias_dropout_add(const Tensor& x, const Tensor& residual, double dropout);

/// transformer_engine's SplitAlongDim on [s, b, groups, (r + 2) d]: query [s, b, groups * r, d] (a copy where heads
/// are grouped), key and value [s, b, groups, d] as views; backward is one cat.
struct SplitHeads {
  Tensor query, key, value;
};
[[nodiscard]] SplitHeads split_query_key_value(const Tensor& mixed, std::int64_t groups, std::int64_t head_dim);

/// fused_mla_yarn_rope_apply.py, ApplyMLARotaryEmbKV: kv [s, b, heads, nope + v] and the rotary part of the keys
/// [s, b, rope] to key [s, b, heads, qk] and value [s, b, heads, v].
[[nodiscard]] std::pair<Tensor, Tensor> mla_key_value(const Tensor& kv, const Tensor& rotary, std::int64_t qk,
                                                      std::int64_t v);

/// moe/moe_utils.py: what moves x to another shape and its gradient back: all-to-all, gathering, permutation
/// (`collective` kNone).
[[nodiscard]] Tensor exchange(const Tensor& x, const Shape& shape, const Operator& op,
                              Collective collective = Collective::kNone, std::int64_t ranks = 1);

}  // namespace memcalc
