#include "memcalc/symbolic/ops/attention_kernels.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/first_calls.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

AttentionShape shape_of(const Tensor& query, const Tensor& key, const Tensor& value) {
  return {query.size(0), query.size(1), key.size(1), query.size(2), key.size(2), query.size(3), value.size(3)};
}

void attention_contractions(Tape& tape, const Operator& op, KernelKind kind, const AttentionShape& s, DType dtype,
                            bool backward, const AttentionTerms& terms) {
  constexpr KernelKind kSame = KernelKind::kPartOfPrevious;
  const std::int64_t batch = s.batch * s.heads;
  tape.kernels.attention(op, dtype, kind,  // q k^T
                         {.heads = batch,
                          .queries = s.queries,
                          .keys = s.keys,
                          .width = s.dim,
                          .causal = terms.causal,
                          .dropout = terms.dropout,
                          .bias = terms.bias,
                          .backward = backward,
                          .learns_bias = backward && terms.learns_bias});
  if (Kernel* const kernel = tape.kernels.last()) {  // cost/cudnn_attention.cc: fewer where heads share keys
    kernel->elements = static_cast<double>(s.batch * s.kv_heads * s.keys * s.dim);
  }
  if (!backward) return tape.kernels.product(op, dtype, batch, s.queries, s.value_dim, s.keys, kSame);
  tape.kernels.product(op, dtype, batch, s.queries, s.keys, s.value_dim, kSame);  // grad v^T
  tape.kernels.product(op, dtype, batch, s.keys, s.value_dim, s.queries, kSame);  // dv
  tape.kernels.product(op, dtype, batch, s.queries, s.dim, s.keys, kSame);        // dq
  tape.kernels.product(op, dtype, batch, s.keys, s.dim, s.queries, kSame);        // dk
}

// --- cuDNN

namespace {

/// Measured on 1,199 cases, cuDNN 9.19 (tests/measured/harness/op_requests.py): a float32 accumulator of dQ, the
/// softmax sums, and with fewer key heads dK and dV of every query head. Causality, mask, dropout do not change it.
Bytes cudnn_backward_workspace(const AttentionShape& s) {
  Bytes bytes = 4 * s.batch * s.heads * s.queries * (s.dim + 1) + 256;
  if (s.kv_heads != s.heads) bytes += 2 * s.batch * s.heads * s.keys * (s.dim + s.value_dim);
  return bytes;
}

}  // namespace

/// seed, offset, output, logsumexp.
std::array<Tensor, 4> cudnn_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                    bool computes_logsumexp, const AttentionTerms& terms) {
  Tape& tape = query.tape();
  std::array<Tensor, 4> outputs;
  for (const std::size_t number : {0, 1}) outputs[number] = tape.empty({}, DType::kInt64, aten::kCudnnAttentionForward);
  Shape shape = query.shape();
  shape[3] = value.size(3);
  outputs[2] =
      tape.empty_strided(shape, like_strides(shape, query.strides()), query.dtype(), aten::kCudnnAttentionForward);
  if (computes_logsumexp)
    outputs[3] = tape.empty({shape[0], shape[1], shape[2], 1}, DType::kFloat32, aten::kCudnnAttentionForward);
  if (shape[2] > 1) tape.memory.scratch(256, aten::kCudnnAttentionForward, Category::kWorkspaces);
  const Operator& op =
      computes_logsumexp ? static_cast<const Operator&>(aten::kCudnnAttentionForward) : kCudnnAttentionWithoutSums;
  attention_contractions(tape, op, KernelKind::kCudnnAttention, shape_of(query, key, value), query.dtype(), false,
                         terms);
  return outputs;
}

AttentionGradients cudnn_gradients(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const AttentionTerms& terms) {
  Tape& tape = query.tape();
  const AttentionShape s = shape_of(query, key, value);
  const auto gradient_like = [&](const Tensor& x) {
    return tape.empty_strided(x.shape(), like_strides(x.shape(), x.strides()), x.dtype(),
                              aten::kCudnnAttentionBackward);
  };
  Tensor dq = gradient_like(query), dk = gradient_like(key), dv = gradient_like(value);
  tape.memory.scratch(cudnn_backward_workspace(s), aten::kCudnnAttentionBackward, Category::kWorkspaces);
  attention_contractions(tape, aten::kCudnnAttentionBackward, KernelKind::kCudnnAttention, s, query.dtype(), true,
                         terms);
  return {std::move(dq), std::move(dk), std::move(dv)};
}

// --- flash

namespace {

/// num_splits_heuristic: with fewer blocks of queries than the card can run at once, the keys are split as well; the
/// smallest number of splits that keeps it within 85 % of the best use.
std::int64_t flash_key_splits(const AttentionShape& s, const DeviceSpec& device) {
  const std::int64_t block_keys = s.dim <= 64 ? 256 : s.dim <= 128 ? 128 : 64;
  const std::int64_t key_blocks = ceil_div(s.keys, block_keys);
  const std::int64_t blocks = s.batch * s.heads * ceil_div(s.queries, 64);
  const std::int64_t slots = 2 * device.multiprocessors;
  if (10 * blocks >= 8 * slots) return 1;
  const std::int64_t most = std::min({std::int64_t{128}, slots, key_blocks});
  const auto efficiency = [&](std::int64_t splits) {
    const bool same_as_fewer = splits > 1 && ceil_div(key_blocks, splits) == ceil_div(key_blocks, splits - 1);
    if (same_as_fewer) return 0.0;
    const double waves = static_cast<double>(blocks * splits) / static_cast<double>(slots);
    return waves / std::ceil(waves);
  };
  double best = 0;
  for (std::int64_t splits = 1; splits <= most; ++splits) best = std::max(best, efficiency(splits));
  for (std::int64_t splits = 1; splits <= most; ++splits) {
    if (efficiency(splits) >= 0.85 * best) return splits;
  }
  return 1;
}

}  // namespace

namespace {

// hip/flash_attn/aot/mha_all_aot.hip, mha_fwd_aot(): what CUDA's has but for the splits; seed and offset are two
// numbers.
std::array<Tensor, 4> aotriton_forward(const Tensor& query, const AttentionShape& s, bool causal, bool dropout) {
  Tape& tape = query.tape();
  std::array<Tensor, 4> outputs;
  outputs[0] = tape.empty_strided(query.shape(), like_strides(query.shape(), query.strides()), query.dtype(),
                                  aten::kFlashAttentionForward);
  for (const std::size_t number : {2, 3}) outputs[number] = tape.empty({}, DType::kInt64, aten::kFlashAttentionForward);
  outputs[1] = tape.empty({s.batch, s.heads, s.queries}, DType::kFloat32, aten::kFlashAttentionForward);
  attention_contractions(tape, aten::kFlashAttentionForward, KernelKind::kFlashAttention, s, query.dtype(), false,
                         {.causal = causal, .dropout = dropout});
  return outputs;
}

}  // namespace

/// output, logsumexp, rng_state, unused.
std::array<Tensor, 4> flash_forward(const Tensor& query, const Tensor& key, const Tensor& value, double dropout,
                                    bool causal) {
  Tape& tape = query.tape();
  const AttentionShape s = shape_of(query, key, value);
  if (!tape.device.gcn_architecture.empty()) return aotriton_forward(query, s, causal, dropout > 0);
  std::array<Tensor, 4> outputs;
  outputs[0] = tape.empty_strided(query.shape(), like_strides(query.shape(), query.strides()), query.dtype(),
                                  aten::kFlashAttentionForward);
  outputs[1] = tape.empty({s.batch, s.heads, s.queries}, DType::kFloat32, aten::kFlashAttentionForward);
  Tensor partial_logsumexp, partial_out;  // set_params_splitkv
  const std::int64_t splits = dropout == 0 ? flash_key_splits(s, tape.device) : 1;
  if (splits > 1) {
    partial_logsumexp =
        tape.empty({splits, s.batch, s.heads, s.queries}, DType::kFloat32, aten::kFlashAttentionForward);
    partial_out = tape.empty({splits, s.batch, s.heads, s.queries, round_up(s.dim, 32)}, DType::kFloat32,
                             aten::kFlashAttentionForward);
  }
  outputs[2] = tape.empty({2}, DType::kInt64, aten::kFlashAttentionForward);
  outputs[3] = tape.empty({}, DType::kInt64, aten::kFlashAttentionForward);
  if (dropout > 0) tape.memory.scratch(16, aten::kFlashAttentionForward);  // the generator's seed and offset
  drop(partial_logsumexp, partial_out);
  attention_contractions(tape, aten::kFlashAttentionForward, KernelKind::kFlashAttention, s, query.dtype(), false,
                         {.causal = causal, .dropout = dropout > 0});
  return outputs;
}

AttentionGradients flash_gradients(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const AttentionTerms& terms) {
  Tape& tape = query.tape();
  const AttentionShape s = shape_of(query, key, value);
  const auto gradient_like = [&](const Tensor& x) {
    return tape.empty_strided(x.shape(), like_strides(x.shape(), x.strides()), x.dtype(),
                              aten::kFlashAttentionBackward);
  };
  Tensor dq = gradient_like(query), dk = gradient_like(key), dv = gradient_like(value);
  if (!tape.device.gcn_architecture.empty()) {  // mha_bwd_aot(): the softmax sums twice, no accumulator
    const Tensor softmax_d = tape.empty({s.batch, s.heads, s.queries}, DType::kFloat32, aten::kFlashAttentionBackward);
    const Tensor delta = tape.empty({s.batch, s.heads, s.queries}, DType::kFloat32, aten::kFlashAttentionBackward);
    attention_contractions(tape, aten::kFlashAttentionBackward, KernelKind::kFlashAttention, s, query.dtype(), true,
                           terms);
    return {std::move(dq), std::move(dk), std::move(dv)};
  }
  const std::int64_t rounded = round_up(s.queries, 128);
  const Tensor softmax_d = tape.empty({s.batch, s.heads, rounded}, DType::kFloat32, aten::kFlashAttentionBackward);
  const Tensor dq_accumulator =
      tape.empty({s.batch, rounded, s.heads, round_up(s.dim, 32)}, DType::kFloat32, aten::kFlashAttentionBackward);
  Tensor dk_expanded, dv_expanded;
  if (s.kv_heads != s.heads) {
    dk_expanded = tape.empty({s.batch, s.keys, s.heads, s.dim}, key.dtype(), aten::kFlashAttentionBackward);
    dv_expanded = tape.empty({s.batch, s.keys, s.heads, s.dim}, key.dtype(), aten::kFlashAttentionBackward);
  }
  attention_contractions(tape, aten::kFlashAttentionBackward, KernelKind::kFlashAttention, s, query.dtype(), true,
                         terms);
  return {std::move(dq), std::move(dk), std::move(dv)};
}

}  // namespace memcalc
