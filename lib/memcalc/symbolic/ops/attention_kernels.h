// The fused attention kernels outside of autograd: what one call asks for. attention.cc records them as operators,
// ring_attention.cc calls them part by part.
// MIRRORS(torch, "native/cudnn/MHA.cpp", "2.11.0")
// MIRRORS(torch, "native/transformers/cuda/flash_attn/flash_api.cpp", "2.11.0")
// MIRRORS(torch, "utils/flop_counter.py", "2.11.0")
#pragma once

#include <array>
#include <cstdint>

#include "memcalc/symbolic/kernel_list.h"
#include "memcalc/symbolic/ops/attention.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

struct AttentionShape {
  std::int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
};

/// What is done to the scores.
struct AttentionTerms {
  bool causal = false, dropout = false, bias = false;
  bool learns_bias = false;  // it has a gradient
};

[[nodiscard]] AttentionShape shape_of(const Tensor& query, const Tensor& key, const Tensor& value);

/// Two products of B*H*S*S*D each forward, five backward (flop_counter.py, sdpa_flop_count): the causal half is not
/// taken off.
void attention_contractions(Tape& tape, const Operator& op, KernelKind kind, const AttentionShape& s, DType dtype,
                            bool backward, const AttentionTerms& terms);

struct AttentionGradients {
  Tensor query, key, value;
};

/// native/cudnn/MHA.cpp: seed, offset, output, logsumexp [B, H, S, 1].
[[nodiscard]] std::array<Tensor, 4> cudnn_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                  bool computes_logsumexp, const AttentionTerms& terms);
[[nodiscard]] AttentionGradients cudnn_gradients(const Tensor& query, const Tensor& key, const Tensor& value,
                                                 const AttentionTerms& terms);

/// native/transformers/cuda/flash_attn/flash_api.cpp: output, logsumexp [B, H, S], rng_state, unused.
[[nodiscard]] std::array<Tensor, 4> flash_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                  double dropout, bool causal);
[[nodiscard]] AttentionGradients flash_gradients(const Tensor& query, const Tensor& key, const Tensor& value,
                                                 const AttentionTerms& terms);

}  // namespace memcalc
