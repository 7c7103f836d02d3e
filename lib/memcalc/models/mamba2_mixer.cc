#include "memcalc/models/mamba2_mixer.h"

#include <array>
#include <utility>
#include <vector>

#include "memcalc/models/hooked_module.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/repeat_interleave.h"
#include "memcalc/symbolic/ops/scan.h"
#include "memcalc/symbolic/ops/triangle.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// ~torch.tril(torch.ones(size, size, dtype=torch.bool)), whose lower triangle `mask` becomes.
Tensor above_diagonal(Tape& tape, std::int64_t size, Tensor& mask) {
  Tensor lower;
  {
    const Tensor ones = no_grad::ones(tape, {size, size}, DType::kBool);
    lower = lower_triangle(ones);
  }
  mask = std::move(lower);
  return no_grad::bitwise_not(mask);
}

/// segment_sum: sums of x [..., size] from each place to each later one, [..., size, size].
Tensor segment_sum(Tensor x) {
  const std::int64_t size = x.size(-1);
  const int rank = x.rank();
  Tape& tape = x.tape();
  Tensor input_tensor, mask, tensor_segsum;
  const Locals locals(input_tensor, mask, tensor_segsum);
  {
    Shape wide = x.shape();
    wide.dims[static_cast<std::size_t>(wide.rank++)] = size;
    input_tensor = expand(unsqueeze(x, rank), wide);
    x.reset();
  }
  {
    Tensor others = above_diagonal(tape, size, mask);
    Tensor filled = masked_fill(input_tensor, others);
    others.reset();
    input_tensor = std::move(filled);
  }
  tensor_segsum = cumulative_sum(input_tensor, rank - 1, DType::kFloat32);
  Tensor result;
  {
    const Tensor others = above_diagonal(tape, size, mask);
    result = masked_fill(tensor_segsum, others);
  }
  tensor_segsum.reset();
  return result;
}

/// pad_tensor_by_size: x [B, tokens, …], a copy in any case.
Tensor padded(const Tensor& x, std::int64_t tokens) {
  Shape shape = x.shape();
  shape[1] = tokens;
  return pad_to(x, shape);
}

/// reshape_into_chunks: [B, chunks, chunk_size, …].
Tensor in_chunks(const Tensor& x, std::int64_t chunks, std::int64_t chunk_size) {
  const Tensor whole = padded(x, chunks * chunk_size);
  Shape shape{x.size(0), chunks, chunk_size};
  for (int i = 2; i < x.rank(); ++i) shape.dims[static_cast<std::size_t>(shape.rank++)] = x.size(i);
  return reshape(whole, shape);
}

/// What is multiplied, made in this order.
struct Factors {
  Tensor a, b;
};

Tensor product_of(Factors factors) {
  Tensor product = factors.a * factors.b;
  drop(factors.a, factors.b);
  return product;
}

/// (a * b).sum(dim)
Tensor contracted(Factors factors, int dim) { return sum_over(product_of(std::move(factors)), dim, false); }

/// mamba2_chunk_scan: [B, tokens, heads, head_dim]. hidden [B, tokens, heads, head_dim], time_steps [B, tokens, heads],
/// rates (A) [heads], b and c [B, tokens, groups, state]. `final_state`: null: it is not asked for.
Tensor chunk_scan(const Tensor& hidden, const Tensor& time_steps, const Tensor& rates, const Tensor& b, const Tensor& c,
                  const Tensor& skip, const Tensor& dt_bias, std::int64_t chunk_size, Tensor* final_state) {
  const std::int64_t rows = hidden.size(0), tokens = hidden.size(1), heads = hidden.size(2), width = hidden.size(3);
  const std::int64_t repeats = heads / b.size(2);
  const std::int64_t chunks = (tokens + chunk_size - 1) / chunk_size, whole = chunks * chunk_size;
  Tensor hidden_states, dt, A, B, C, D_residual, A_cumsum, L, G, M, Y_diag, decay_states, B_decay, states,
      previous_states, decay_chunk, new_states, state_decay_out, C_times_states, Y_off, output;
  const Locals locals(output, hidden_states, dt, A, B, C, D_residual, A_cumsum, L, G, M, Y_diag, decay_states, B_decay,
                      states, previous_states, decay_chunk, new_states, state_decay_out, C_times_states, Y_off);
  {
    const Tensor bias = to_dtype(dt_bias, time_steps.dtype());
    dt = time_steps + bias;
  }
  dt = softplus(dt);
  dt = clamp(dt);
  hidden_states = to_dtype(hidden, DType::kFloat32);
  {
    const Tensor converted = to_dtype(b, DType::kFloat32);
    B = repeat_interleave(converted, repeats, 2);
  }
  {
    const Tensor converted = to_dtype(c, DType::kFloat32);
    C = repeat_interleave(converted, repeats, 2);
  }
  {
    Tensor scales = unsqueeze(skip, 1), states_of_tokens = padded(hidden_states, whole);
    D_residual = scales * states_of_tokens;
    drop(scales, states_of_tokens);
  }
  {
    Tensor steps = to_dtype(unsqueeze(dt, 3), DType::kFloat32);
    Tensor discrete = hidden_states * steps;
    steps.reset();
    hidden_states = std::move(discrete);
  }
  {
    const Tensor converted = to_dtype(rates, DType::kFloat32), steps = to_dtype(dt, DType::kFloat32);
    A = converted * steps;
  }
  {
    Tensor of_hidden = in_chunks(hidden_states, chunks, chunk_size), of_a = in_chunks(A, chunks, chunk_size);
    Tensor of_b = in_chunks(B, chunks, chunk_size), of_c = in_chunks(C, chunks, chunk_size);
    hidden_states = std::move(of_hidden);
    A = std::move(of_a);
    B = std::move(of_b);
    C = std::move(of_c);
  }
  A = permute(A, {0, 3, 1, 2});
  A_cumsum = cumulative_sum(A, 3, DType::kFloat32);
  L = exponential(segment_sum(A));
  G = contracted({unsqueeze(C, 3), unsqueeze(B, 2)}, -1);
  M = contracted({unsqueeze(G, 5), unsqueeze(permute(L, {0, 2, 3, 4, 1}), 5)}, -1);
  Y_diag = contracted({unsqueeze(M, 5), unsqueeze(hidden_states, 2)}, 3);
  decay_states = exponential(slice(A_cumsum, 3, chunk_size - 1, 1) - A_cumsum);
  B_decay = B * unsqueeze(permute(decay_states, {0, 2, 3, 1}), 4);
  states = contracted({unsqueeze(B_decay, 4), unsqueeze(hidden_states, 5)}, 2);
  previous_states = no_grad::zeros_like(chunks == 1 ? states : slice(states, 1, 0, 1));
  states = cat(previous_states, states, 1);
  {
    Tensor ends;
    {
      const Tensor last = select(A_cumsum, 3);
      Shape longer = last.shape();
      ++longer[2];
      ends = pad_to(last, longer);
    }
    Tensor sums = segment_sum(std::move(ends));
    decay_chunk = transpose(exponential(std::move(sums)), 1, 3);
  }
  new_states = contracted({unsqueeze(unsqueeze(decay_chunk, 4), 5), unsqueeze(states, 2)}, 1);
  states = slice(new_states, 1, 0, chunks);
  if (final_state != nullptr) *final_state = select(new_states, 1);
  state_decay_out = exponential(A_cumsum);
  C_times_states = product_of({unsqueeze(C, 4), unsqueeze(states, 2)});
  {
    Tensor read = sum_over(C_times_states, -1, false);
    const Tensor decays = unsqueeze(permute(state_decay_out, {0, 2, 3, 1}), 4);
    Y_off = std::move(read) * decays;
  }
  output = Y_diag + Y_off;
  output = reshape(output, {rows, whole, heads, width});
  Tensor result = output + D_residual;
  return whole > tokens ? slice(result, 1, 0, tokens) : result;
}

}  // namespace

Tensor GateFirstRmsNorm::operator()(const Tensor& x, const Tensor& gate) const {
  return hooked_module(*this, {&weight}, x, [&](const Tensor& hooked_x) { return normalize(hooked_x, gate); });
}

Tensor GateFirstRmsNorm::normalize(const Tensor& x, const Tensor& gate) const {
  const DType input_dtype = x.dtype();
  Tensor hidden_states, of_group, variance;
  const Locals locals(hidden_states, of_group, variance);
  hidden_states = to_dtype(x, DType::kFloat32);
  {
    Tensor activated = silu(to_dtype(gate, DType::kFloat32));
    Tensor gated = hidden_states * activated;
    activated.reset();
    hidden_states = std::move(gated);
  }
  if (groups == 1) {
    variance = mean_last(power(hidden_states));
    hidden_states = hidden_states * reciprocal_sqrt(add_scalar(variance));
  } else {
    const Shape shape = x.shape();
    of_group = view(hidden_states, {shape[0], shape[1], groups, shape[2] / groups});
    variance = mean_last(power(of_group));
    of_group = of_group * reciprocal_sqrt(add_scalar(variance));
    hidden_states = view(of_group, shape);
  }
  return weight * to_dtype(hidden_states, input_dtype);
}

Mamba2Mixer::Mamba2Mixer(ModuleBuilder& b, const Mamba2MixerSpec& spec, std::int64_t hidden_size,
                         const std::string& activation)
    : spec_(spec),
      activation_(activation),
      conv1d_(b, "conv1d", spec.conv_dim(), spec.conv_kernel, spec.conv_bias),
      in_proj_(b, "in_proj", hidden_size, spec.intermediate_size() + spec.conv_dim() + spec.num_heads,
               spec.projection_bias),
      dt_bias_(head_parameter(b, "dt_bias", spec.num_heads)),
      a_log_(head_parameter(b, "A_log", spec.num_heads)) {
  if (spec.has_norm) norm_ = {b, "norm", spec.intermediate_size(), spec.norm_by_group ? spec.n_groups : 1};
  d_ = head_parameter(b, "D", spec.num_heads);
  out_proj_ = Linear(b, "out_proj", spec.intermediate_size(), hidden_size, spec.output_bias);
}

Tensor Mamba2Mixer::forward(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const {
  ModuleHooks* hooks = a_log_.tape().modes.module_hooks;
  const auto inner = [&](const Tensor& input) { return mix(input, attention_mask, cache); };
  if (hooks == nullptr) return inner(x);
  if (!hooks->hooks_used_parameters()) return between_hooks(*hooks, this, {&dt_bias_, &a_log_, &d_}, x, inner);
  return between_hooks(*hooks, this, {&dt_bias_, &a_log_, &d_, &conv1d_.weight, &conv1d_.bias}, x, inner);
}

Tensor Mamba2Mixer::mix(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const {
  const std::int64_t rows = x.size(0), tokens = x.size(1), state = spec_.n_groups * spec_.state_size;
  const DType dtype = x.dtype();
  LinearStates states;
  Tensor hidden_states, projected_states, A, gate, hidden_states_B_C, dt, B, C, scan_output, scan_result, final_state;
  const Locals locals(hidden_states, projected_states, A, gate, hidden_states_B_C, dt, B, C, scan_output, scan_result,
                      final_state);
  hidden_states = without_padding(x, attention_mask);
  if (mup_vector != nullptr) hidden_states = multiply_scalar(hidden_states);
  projected_states = in_proj_(hidden_states);
  if (mup_vector != nullptr) projected_states = projected_states * *mup_vector;
  A = negate(exponential(to_dtype(a_log_, DType::kFloat32)));
  {
    const std::array<std::int64_t, 3> sizes = {spec_.intermediate_size(), spec_.conv_dim(), spec_.num_heads};
    std::vector<Tensor> parts = split_with_sizes(projected_states, 2, sizes);
    gate = std::move(parts[0]);
    hidden_states_B_C = std::move(parts[1]);
    dt = std::move(parts[2]);
  }
  hidden_states_B_C = transpose(hidden_states_B_C, 1, 2);
  hidden_states_B_C = conv1d_(hidden_states_B_C, activation_, cache != nullptr ? &states : nullptr);
  hidden_states_B_C = without_padding(transpose(hidden_states_B_C, 1, 2), attention_mask);
  {
    const std::array<std::int64_t, 3> sizes = {spec_.intermediate_size(), state, state};
    std::vector<Tensor> parts = split_with_sizes(hidden_states_B_C, 2, sizes);
    hidden_states = std::move(parts[0]);
    B = std::move(parts[1]);
    C = std::move(parts[2]);
  }
  {
    const Tensor heads = view(hidden_states, {rows, tokens, spec_.num_heads, spec_.head_dim});
    const Tensor groups_of_b = view(B, {rows, tokens, spec_.n_groups, spec_.state_size});
    const Tensor groups_of_c = view(C, {rows, tokens, spec_.n_groups, spec_.state_size});
    scan_result = chunk_scan(heads, dt, A, groups_of_b, groups_of_c, d_, dt_bias_, spec_.chunk_size,
                             cache != nullptr ? &final_state : nullptr);
  }
  if (cache != nullptr) {
    states.update_recurrent_state(final_state);
    states.keep(*cache);
  }
  scan_output = reshape(scan_result, {rows, tokens, -1});
  if (spec_.has_norm) {
    scan_output = norm_(scan_output, gate);
  } else {
    const Tensor activated = silu(gate);
    scan_output = scan_output * activated;
  }
  return out_proj_(to_dtype(scan_output, dtype));
}

}  // namespace memcalc
