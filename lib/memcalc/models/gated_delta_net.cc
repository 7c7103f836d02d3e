#include "memcalc/models/gated_delta_net.h"

#include <array>
#include <utility>
#include <vector>

#include "memcalc/models/chunked_rule.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/copy_slices.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/repeat_interleave.h"
#include "memcalc/symbolic/ops/scan.h"
#include "memcalc/symbolic/ops/solve.h"
#include "memcalc/symbolic/ops/triangle.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

using chunked::chunk_of;
using chunked::in_chunks;
using chunked::kChunk;
using chunked::last_transposed;
using chunked::padded;
using chunked::with_chunk;

/// x * rsqrt((x * x).sum(-1, keepdim=True) + eps)
Tensor l2norm(const Tensor& x) {
  const Tensor inv_norm = reciprocal_sqrt(add_scalar(sum_over(x * x, -1, true)));
  return x * inv_norm;
}

/// x.transpose(1, 2).to(torch.float32, memory_format=torch.contiguous_format)
Tensor heads_first(const Tensor& x) { return to_dtype_row_major(transpose(x, 1, 2), DType::kFloat32); }

/// torch_chunk_gated_delta_rule: [B, tokens, value heads, D]. `final_state`: null: it is not asked for.
Tensor chunk_gated_delta_rule(const Tensor& query_states, const Tensor& key_states, const Tensor& value_states,
                              const Tensor& g, const Tensor& betas, Tensor* final_state) {
  Tape& tape = query_states.tape();
  const DType initial_dtype = query_states.dtype();
  const std::int64_t tokens = key_states.size(1), chunks = (tokens + kChunk - 1) / kChunk, whole = chunks * kChunk;
  Tensor query, key, value, beta, decay, v_beta, k_beta, strictly_upper_mask, cum_decay, pairwise_decay, ut_system,
      intra_chunk_attn, decayed_k_beta, new_values, k_cumdecay, last_recurrent_state, core_attn_out, chunk_decay, v_new,
      inter_chunk_attn;
  const Locals locals(query, key, value, beta, decay, v_beta, k_beta, strictly_upper_mask, cum_decay, pairwise_decay,
                      ut_system, intra_chunk_attn, decayed_k_beta, new_values, k_cumdecay, last_recurrent_state,
                      core_attn_out, chunk_decay, v_new, inter_chunk_attn);
  query = heads_first(query_states);
  key = heads_first(key_states);
  value = heads_first(value_states);
  beta = heads_first(betas);
  decay = heads_first(g);
  query = l2norm(query);
  key = l2norm(key);
  query = multiply_scalar(query);
  {
    Tensor padded_query = padded(query, whole), padded_key = padded(key, whole);
    Tensor padded_value = padded(value, whole);
    query = std::move(padded_query);
    key = std::move(padded_key);
    value = std::move(padded_value);
  }
  {
    Tensor padded_beta = padded(beta, whole);
    Tensor padded_decay = padded(decay, whole);
    beta = std::move(padded_beta);
    decay = std::move(padded_decay);
  }
  v_beta = value * unsqueeze(beta, 3);
  k_beta = key * unsqueeze(beta, 3);
  for (Tensor* each : {&query, &key, &k_beta, &v_beta}) *each = in_chunks(*each, chunks);
  decay = in_chunks(decay, chunks);
  strictly_upper_mask = no_grad::ones(tape, {kChunk, kChunk}, DType::kBool);
  strictly_upper_mask = upper_triangle(strictly_upper_mask);
  cum_decay = cumulative_sum(decay, 3, DType::kFloat32);
  {
    const Tensor rows = unsqueeze(cum_decay, 4), columns = unsqueeze(cum_decay, 3);
    pairwise_decay = rows - columns;
  }
  pairwise_decay = masked_fill(pairwise_decay, strictly_upper_mask);
  pairwise_decay = exponential(pairwise_decay);
  ut_system = matmul(k_beta, last_transposed(key)) * pairwise_decay;
  intra_chunk_attn = matmul(query, last_transposed(key)) * pairwise_decay;
  decayed_k_beta = k_beta * unsqueeze(exponential(cum_decay), 4);
  new_values = solve_triangular(ut_system, v_beta);
  k_cumdecay = solve_triangular(ut_system, decayed_k_beta);
  last_recurrent_state =
      no_grad::zeros(tape, {key.size(0), value.size(1), key.size(4), value.size(3)}, new_values.dtype());
  core_attn_out = no_grad::zeros_like(new_values);
  query = query * unsqueeze(exponential(cum_decay), 4);
  {
    Tensor left = slice(cum_decay, 3, kChunk - 1, 1) - cum_decay;  // cum_decay[..., -1:] - cum_decay
    key = key * unsqueeze(exponential(std::move(left)), 4);
  }
  chunk_decay = exponential(select(cum_decay, 3));
  chunk_decay = unsqueeze(unsqueeze(chunk_decay, 3), 4);
  for (std::int64_t i = 0; i < chunks; ++i) {
    {
      Tensor values = chunk_of(new_values);
      Tensor predicted = matmul(chunk_of(k_cumdecay), last_recurrent_state);
      v_new = std::move(values) - std::move(predicted);
    }
    inter_chunk_attn = matmul(chunk_of(query), last_recurrent_state);
    {
      const Tensor read = inter_chunk_attn + matmul(chunk_of(intra_chunk_attn), v_new);
      core_attn_out = with_chunk(core_attn_out, read);
    }
    Tensor decayed = last_recurrent_state * chunk_of(chunk_decay);
    Tensor update = matmul(last_transposed(chunk_of(key)), v_new);
    last_recurrent_state = std::move(decayed) + std::move(update);
  }
  if (final_state != nullptr) *final_state = last_recurrent_state;
  last_recurrent_state.reset();
  core_attn_out = reshape(core_attn_out, {core_attn_out.size(0), core_attn_out.size(1), whole, core_attn_out.size(4)});
  if (tokens != whole) core_attn_out = slice(open_slices(core_attn_out, {0, 1}), 2, 0, tokens);
  Tensor result = to_dtype_row_major(transpose(core_attn_out, 1, 2), initial_dtype);
  core_attn_out.reset();
  return result;
}

/// Heads of the last dimension: x [B, tokens, heads * D] or with heads apart.
Tensor by_head(const Tensor& x, std::int64_t head_dim) { return reshape(x, {x.size(0), x.size(1), -1, head_dim}); }

}  // namespace

/// The locals of its forward.
struct GatedDeltaNet::Variables {
  Tensor hidden_states, qkvz, ba, query, key, value, z, b, a, mixed_qkv, beta, g, core_attn_out, last_recurrent_state;
};

GatedDeltaNet::GatedDeltaNet(ModuleBuilder& b, const GatedDeltaNetSpec& spec, std::int64_t hidden_size,
                             const std::string& activation)
    : spec_(spec),
      activation_(activation),
      conv1d_(b, "conv1d", 2 * spec.key_dim() + spec.value_dim(), spec.conv_kernel, false) {
  const std::int64_t heads = spec.num_value_heads;
  if (!spec.projects_separately) {
    in_proj_qkvz_ = Linear(b, "in_proj_qkvz", hidden_size, 2 * (spec.key_dim() + spec.value_dim()), false);
    in_proj_ba_ = Linear(b, "in_proj_ba", hidden_size, 2 * heads, false);
  }
  dt_bias_ = head_parameter(b, "dt_bias", heads);
  a_log_ = head_parameter(b, "A_log", heads);
  norm_ = GatedRmsNorm(b, "norm", spec.value_head_dim);
  out_proj_ = Linear(b, "out_proj", spec.value_dim(), hidden_size, false);
  if (!spec.projects_separately) return;
  in_proj_qkv_ = Linear(b, "in_proj_qkv", hidden_size, 2 * spec.key_dim() + spec.value_dim(), false);
  in_proj_z_ = Linear(b, "in_proj_z", hidden_size, spec.value_dim(), false);
  in_proj_b_ = Linear(b, "in_proj_b", hidden_size, heads, false);
  in_proj_a_ = Linear(b, "in_proj_a", hidden_size, heads, false);
}

Tensor GatedDeltaNet::forward(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const {
  ModuleHooks* hooks = a_log_.tape().modes.module_hooks;
  const auto inner = [&](const Tensor& input) { return mix(input, attention_mask, cache); };
  if (hooks == nullptr) return inner(x);
  if (!hooks->hooks_used_parameters()) return between_hooks(*hooks, this, {&dt_bias_, &a_log_}, x, inner);
  return between_hooks(*hooks, this, {&dt_bias_, &a_log_, &conv1d_.weight}, x, inner);
}

Tensor GatedDeltaNet::mix(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const {
  Variables v;
  LinearStates own;
  LinearStates* const states = cache != nullptr ? &own : nullptr;
  if (spec_.projects_separately) {
    const Locals locals(v.hidden_states, v.mixed_qkv, v.z, v.b, v.a, v.query, v.key, v.value, v.beta, v.g,
                        v.core_attn_out, v.last_recurrent_state);
    v.hidden_states = without_padding(x, attention_mask);
    project_separately(v);
    Tensor output = run(v, states);
    if (cache != nullptr) own.keep(*cache);
    return output;
  }
  const Locals locals(v.hidden_states, v.qkvz, v.ba, v.query, v.key, v.value, v.z, v.b, v.a, v.mixed_qkv, v.beta, v.g,
                      v.core_attn_out, v.last_recurrent_state);
  v.hidden_states = without_padding(x, attention_mask);
  project_together(v);
  Tensor output = run(v, states);
  if (cache != nullptr) own.keep(*cache);
  return output;
}

void GatedDeltaNet::project_separately(Variables& v) const {
  v.mixed_qkv = in_proj_qkv_(v.hidden_states);
  v.mixed_qkv = transpose(v.mixed_qkv, 1, 2);
  v.z = in_proj_z_(v.hidden_states);
  v.z = by_head(v.z, spec_.value_head_dim);
  v.b = in_proj_b_(v.hidden_states);
  v.a = in_proj_a_(v.hidden_states);
}

void GatedDeltaNet::project_together(Variables& v) const {
  v.qkvz = in_proj_qkvz_(v.hidden_states);
  v.ba = in_proj_ba_(v.hidden_states);
  {  // fix_query_key_value_ordering
    const std::int64_t ratio = spec_.num_value_heads / spec_.num_key_heads, values = ratio * spec_.value_head_dim;
    const std::int64_t rows = v.qkvz.size(0), tokens = v.qkvz.size(1);
    const Tensor mixed_qkvz = view(v.qkvz, {rows, tokens, spec_.num_key_heads, 2 * spec_.key_head_dim + 2 * values});
    const Tensor mixed_ba = view(v.ba, {rows, tokens, spec_.num_key_heads, 2 * ratio});
    const std::array<std::int64_t, 4> qkvz = {spec_.key_head_dim, spec_.key_head_dim, values, values};
    const std::array<std::int64_t, 2> ba = {ratio, ratio};
    std::vector<Tensor> parts = split_with_sizes(mixed_qkvz, 3, qkvz);
    std::vector<Tensor> gates = split_with_sizes(mixed_ba, 3, ba);
    v.query = std::move(parts[0]);
    v.key = std::move(parts[1]);
    v.value = std::move(parts[2]);
    v.z = std::move(parts[3]);
    v.b = std::move(gates[0]);
    v.a = std::move(gates[1]);
    v.value = by_head(v.value, spec_.value_head_dim);
    v.z = by_head(v.z, spec_.value_head_dim);
    v.b = reshape(v.b, {rows, tokens, spec_.num_value_heads});
    v.a = reshape(v.a, {rows, tokens, spec_.num_value_heads});
  }
  const auto flat = [](const Tensor& x) { return reshape(x, {x.size(0), x.size(1), -1}); };
  Tensor query = flat(v.query), key = flat(v.key), value = flat(v.value);
  v.query = std::move(query);
  v.key = std::move(key);
  v.value = std::move(value);
  v.mixed_qkv = cat3(v.query, v.key, v.value, -1);
  v.mixed_qkv = transpose(v.mixed_qkv, 1, 2);
}

Tensor GatedDeltaNet::run(Variables& v, LinearStates* states) const {
  v.mixed_qkv = conv1d_(v.mixed_qkv, activation_, states);
  v.mixed_qkv = transpose(v.mixed_qkv, 1, 2);
  {
    const std::array<std::int64_t, 3> sizes = {spec_.key_dim(), spec_.key_dim(), spec_.value_dim()};
    std::vector<Tensor> parts = split_with_sizes(v.mixed_qkv, 2, sizes);
    v.query = std::move(parts[0]);
    v.key = std::move(parts[1]);
    v.value = std::move(parts[2]);
  }
  v.query = by_head(v.query, spec_.key_head_dim);
  v.key = by_head(v.key, spec_.key_head_dim);
  v.value = by_head(v.value, spec_.value_head_dim);
  v.beta = sigmoid(v.b);
  {
    Tensor rate = negate(exponential(to_dtype(a_log_, DType::kFloat32)));
    Tensor step = softplus(to_dtype(v.a, DType::kFloat32) + dt_bias_);
    v.g = std::move(rate) * std::move(step);
  }
  const std::int64_t ratio = spec_.num_value_heads / spec_.num_key_heads;
  if (ratio > 1) {
    v.query = repeat_interleave(v.query, ratio, 2);
    v.key = repeat_interleave(v.key, ratio, 2);
  }
  v.core_attn_out = chunk_gated_delta_rule(v.query, v.key, v.value, v.g, v.beta,
                                           states != nullptr ? &v.last_recurrent_state : nullptr);
  if (states != nullptr) states->update_recurrent_state(v.last_recurrent_state);
  const std::int64_t rows = v.z.size(0), tokens = v.z.size(1);
  v.core_attn_out = reshape(v.core_attn_out, {-1, spec_.value_head_dim});
  v.z = reshape(v.z, {-1, spec_.value_head_dim});
  v.core_attn_out = norm_(v.core_attn_out, v.z);
  v.core_attn_out = reshape(v.core_attn_out, {rows, tokens, spec_.value_dim()});
  return out_proj_(v.core_attn_out);
}

}  // namespace memcalc
