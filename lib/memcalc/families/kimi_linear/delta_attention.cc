#include "memcalc/families/kimi_linear/delta_attention.h"

#include <array>
#include <utility>
#include <vector>

#include "memcalc/models/chunked_rule.h"
#include "memcalc/models/linear_states.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/logarithm.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/scan.h"
#include "memcalc/symbolic/ops/triangle.h"
#include "memcalc/symbolic/ops/variance.h"

namespace memcalc {

namespace {

using chunked::chunk_of;
using chunked::in_chunks;
using chunked::kChunk;
using chunked::last_transposed;
using chunked::padded;
using chunked::with_chunk;

/// x.transpose(1, 2).contiguous().to(torch.float32)
Tensor rows_of_heads(const Tensor& x) { return to_dtype(contiguous(transpose(x, 1, 2)), DType::kFloat32); }

/// x / sqrt((x * x).sum(-1, keepdim=True) + eps)
Tensor divided_by_norm(const Tensor& x) {
  Tensor inv_norm = x * x;
  inv_norm = sum_over(std::move(inv_norm), -1, true);
  inv_norm = square_root(add_scalar(std::move(inv_norm)));
  return divide_both(x, std::move(inv_norm));
}

/// torch.triu(torch.ones(chunk, chunk, dtype=torch.bool))
Tensor upper_mask(Tape& tape) {
  const Tensor ones = no_grad::ones(tape, {kChunk, kChunk}, DType::kBool);
  return upper_triangle(ones);
}

/// (a.unsqueeze(-2) * b.unsqueeze(-3) * decay()).sum(-1).masked_fill(mask, 0)
template <typename Decay>
Tensor decayed_products(const Tensor& a, const Tensor& b, const Decay& decay, const Tensor& mask) {
  Tensor products = unsqueeze(a, a.rank() - 1) * unsqueeze(b, b.rank() - 2);
  products = std::move(products) * decay();
  Tensor sum = sum_over(std::move(products), -1, false);
  return masked_fill(std::move(sum), mask);
}

/// attn[..., :rows, :columns] of the last two dimensions; rows 0: attn[..., i, :columns].
Tensor corner(const Tensor& attn, std::int64_t rows, std::int64_t columns) {
  return slice(rows == 0 ? select(attn, 3) : slice(attn, 3, 0, rows), -1, 0, columns);
}

/// for i in range(1, chunk_size): attn[..., i, :i] = row + (row.unsqueeze(-1) * sub).sum(-2)
void invert(Tensor& attn, Tensor& row, Tensor& sub) {
  for (std::int64_t i = 1; i < kChunk; ++i) {
    row = clone(corner(attn, 0, i));
    sub = clone(corner(attn, i, i));
    Tensor product = unsqueeze(row, -1) * sub;
    Tensor sum = sum_over(std::move(product), 4, false);  // of [B, H, chunks, row, column]: the rows' are dimension 3
    Tensor changed = row + std::move(sum);
    Tensor view;
    {
      const NoGrad no_grad(attn.tape().modes);  // part of CopySlices
      view = corner(attn, 0, i);
    }
    attn = copy_into_view(attn, view, changed);
  }
}

/// chunk_kimi_delta_attention: [B, tokens, heads, D]. `final_state`: null: it is not asked for.
Tensor chunk_rule(const Tensor& query_states, const Tensor& key_states, const Tensor& value_states,
                  const Tensor& log_decays, const Tensor& betas, Tensor* final_state) {
  Tape& tape = query_states.tape();
  const DType initial_dtype = query_states.dtype();
  const std::int64_t tokens = key_states.size(1), chunks = (tokens + kChunk - 1) / kChunk, whole = chunks * kChunk;
  Tensor query, key, value, g, beta, v_beta, k_beta, mask, strict_mask, decay_mask, attn, row, sub, k_cumdecay,
      last_recurrent_state, core_attn_out, q_i, k_i, v_i, g_i, attn_inter, attn_intra, v_prime, v_new;
  const Locals locals(query, key, value, g, beta, v_beta, k_beta, mask, strict_mask, decay_mask, attn, row, sub,
                      k_cumdecay, last_recurrent_state, core_attn_out, q_i, k_i, v_i, g_i, attn_inter, attn_intra,
                      v_prime, v_new);
  query = rows_of_heads(query_states);
  key = rows_of_heads(key_states);
  value = rows_of_heads(value_states);
  beta = rows_of_heads(betas);
  g = rows_of_heads(log_decays);
  query = divided_by_norm(query);
  key = divided_by_norm(key);
  {
    Tensor wide = padded(query, whole);
    query = multiply_scalar(std::move(wide));
  }
  for (Tensor* each : {&key, &value, &g, &beta}) *each = padded(*each, whole);
  v_beta = value * unsqueeze(beta, 3);
  k_beta = key * unsqueeze(beta, 3);
  for (Tensor* each : {&query, &key, &value, &g, &k_beta, &v_beta}) *each = in_chunks(*each, chunks);
  beta = in_chunks(beta, chunks);
  g = cumulative_sum(g, 3, DType::kFloat32);
  mask = upper_mask(tape);
  strict_mask = upper_mask(tape);
  {
    Tensor difference = unsqueeze(g, 4) - unsqueeze(g, 3);
    Tensor filled = masked_fill(std::move(difference), no_grad::unsqueeze(strict_mask, -1));
    decay_mask = exponential(std::move(filled));
  }
  attn = negate(decayed_products(
      k_beta, key, [&] { return decay_mask; }, mask));
  invert(attn, row, sub);
  {
    Tensor identity = no_grad::ones(tape, {kChunk, kChunk}, attn.dtype());  // torch.eye
    Tensor sum = attn + identity;
    identity.reset();
    attn = std::move(sum);
  }
  value = matmul(attn, v_beta);
  {
    Tensor decayed = k_beta * exponential(g);
    k_cumdecay = matmul(attn, std::move(decayed));
  }
  last_recurrent_state = no_grad::zeros(tape, {key.size(0), key.size(1), key.size(4), value.size(4)}, value.dtype());
  core_attn_out = no_grad::zeros_like(value);
  mask = upper_mask(tape);
  for (std::int64_t i = 0; i < chunks; ++i) {
    q_i = chunk_of(query);
    k_i = chunk_of(key);
    v_i = chunk_of(value);
    g_i = chunk_of(g);
    {
      Tensor decayed = q_i * exponential(g_i);
      attn_inter = matmul(std::move(decayed), last_recurrent_state);
    }
    attn_intra = decayed_products(
        q_i, k_i, [&] { return chunk_of(decay_mask); }, mask);
    v_prime = matmul(chunk_of(k_cumdecay), last_recurrent_state);
    v_new = v_i - v_prime;
    {
      const Tensor read = attn_inter + matmul(attn_intra, v_new);
      core_attn_out = with_chunk(core_attn_out, read);
    }
    {
      Tensor left = last_recurrent_state * unsqueeze(exponential(select(g_i, 2)), -1);
      Tensor rest = slice(g_i, 2, kChunk - 1, 1) - g_i;
      Tensor keys = k_i * exponential(std::move(rest));
      Tensor update = matmul(last_transposed(std::move(keys)), v_new);
      last_recurrent_state = std::move(left) + std::move(update);
    }
  }
  if (final_state != nullptr) *final_state = last_recurrent_state;
  if (final_state == nullptr) last_recurrent_state.reset();
  core_attn_out = reshape(core_attn_out, {core_attn_out.size(0), core_attn_out.size(1), whole, core_attn_out.size(4)});
  if (tokens != whole) core_attn_out = slice(core_attn_out, 2, 0, tokens);
  Tensor result = to_dtype(contiguous(transpose(core_attn_out, 1, 2)), initial_dtype);
  core_attn_out.reset();  // the name takes what is returned
  return result;
}

}  // namespace

KimiDeltaAttention::KimiDeltaAttention(ModuleBuilder& b, const KimiLinearSpec& spec)
    : head_dim_(spec.linear_head_dim),
      width_(checked_multiply(spec.linear_num_heads, spec.linear_head_dim)),
      activation_(spec.hidden_act),
      q_proj_(b, "q_proj", spec.hidden_size, width_, false),
      k_proj_(b, "k_proj", spec.hidden_size, width_, false),
      v_proj_(b, "v_proj", spec.hidden_size, width_, false),
      conv1d_(b, "conv1d", 3 * width_, spec.linear_conv_kernel_dim, false) {
  b.scope("forget_gate", [&] {
    f_a_proj_ = Linear(b, "f_a_proj", spec.hidden_size, head_dim_, false);
    f_b_proj_ = Linear(b, "f_b_proj", head_dim_, width_, false);
    dt_bias_ = b.parameter_before("dt_bias", {width_}, "f_a_proj.weight", /*decays=*/false);
    a_log_ = b.parameter_before("A_log", {1, 1, spec.linear_num_heads, 1}, "f_a_proj.weight");
    return 0;
  });
  b_proj_ = Linear(b, "b_proj", spec.hidden_size, spec.linear_num_heads, false);
  g_a_proj_ = Linear(b, "g_a_proj", spec.hidden_size, head_dim_, false);
  g_b_proj_ = Linear(b, "g_b_proj", head_dim_, width_, false);
  o_norm_ = RmsNorm(b, "o_norm", head_dim_).weight;
  o_proj_ = Linear(b, "o_proj", width_, spec.hidden_size, false);
}

/// KimiLinearForgetGate.forward: [B, tokens, heads, D], float32
Tensor KimiDeltaAttention::forget(const Tensor& hidden_states) const {
  Tensor forget_gate, g, a_log, decay_rate, g_softplus;
  const Locals locals(forget_gate, g, a_log, decay_rate, g_softplus);
  {
    const Tensor narrow = f_a_proj_(hidden_states);
    forget_gate = f_b_proj_(narrow);
  }
  {
    Tensor wide = to_dtype(forget_gate, DType::kFloat32);
    Tensor bias = view(to_dtype(dt_bias_, DType::kFloat32), {1, 1, width_});
    const Tensor sum = std::move(wide) + std::move(bias);
    g = view(sum, {sum.size(0), sum.size(1), width_ / head_dim_, head_dim_});
  }
  a_log = to_dtype(a_log_, DType::kFloat32);
  decay_rate = exponential(a_log);
  {
    Tensor large = no_grad::greater(g);
    Tensor grown = add_scalar(exponential(g));
    Tensor logarithms = logarithm(std::move(grown));
    g_softplus = where(large, g, logarithms);
    drop(large, logarithms);
  }
  Tensor rate = negate(decay_rate);
  return std::move(rate) * g_softplus;
}

/// KimiLinearRMSNormGated.forward
Tensor KimiDeltaAttention::gated_norm(const Tensor& x, const Tensor& gate) const {
  const DType input_dtype = x.dtype();
  Tensor hidden_states = to_dtype(x, DType::kFloat32);
  Tensor variance = mean_last(power(hidden_states));
  hidden_states = hidden_states * reciprocal_sqrt(add_scalar(variance));
  hidden_states = to_dtype(o_norm_, DType::kFloat32) * hidden_states;
  hidden_states = hidden_states * sigmoid(to_dtype(gate, DType::kFloat32));
  Tensor result = to_dtype(hidden_states, input_dtype);
  drop(hidden_states, variance);
  return result;
}

Tensor KimiDeltaAttention::forward(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const {
  if (cache != nullptr && cache->is_filled()) throw refusal(rules::kLinearStatesRead);
  LinearStates own;
  LinearStates* const states = cache != nullptr ? &own : nullptr;
  Tensor hidden_states, mixed_qkv, query, key, value, g, beta, core_attn_out, last_recurrent_state, gate, output;
  const Locals locals(hidden_states, mixed_qkv, query, key, value, g, beta, core_attn_out, last_recurrent_state, gate,
                      output);
  hidden_states = without_padding(x, attention_mask);
  const Shape heads{x.size(0), x.size(1), width_ / head_dim_, head_dim_};
  {
    Tensor q = q_proj_(hidden_states), k = k_proj_(hidden_states), v = v_proj_(hidden_states);
    mixed_qkv = cat3(q, k, v, -1);
    drop(v, k, q);  // a Python list dies from its end
  }
  mixed_qkv = transpose(mixed_qkv, 1, 2);
  mixed_qkv = conv1d_(mixed_qkv, activation_, states);
  if (states == nullptr) mixed_qkv = slice_whole(mixed_qkv, 2);  // [:, :, -seq_len:]; else the convolution has cut it
  {
    const std::array<std::int64_t, 3> sizes = {width_, width_, width_};
    std::vector<Tensor> parts = split_with_sizes(transpose(mixed_qkv, 1, 2), 2, sizes);
    query = view(parts[0], heads);
    key = view(parts[1], heads);
    value = view(parts[2], heads);
  }
  g = forget(hidden_states);
  {
    const Tensor projected = b_proj_(hidden_states);
    beta = sigmoid(projected);
  }
  core_attn_out = chunk_rule(query, key, value, g, beta, states != nullptr ? &last_recurrent_state : nullptr);
  if (states != nullptr) states->update_recurrent_state(last_recurrent_state);
  {
    const Tensor narrow = g_a_proj_(hidden_states);
    gate = view(g_b_proj_(narrow), heads);
  }
  {
    const Tensor normed = gated_norm(core_attn_out, gate);
    output = reshape(normed, {x.size(0), x.size(1), width_});
  }
  Tensor result = o_proj_(output);
  output.reset();  // the name takes what is returned
  if (cache != nullptr) own.keep(*cache);
  return result;
}

}  // namespace memcalc
