#include "memcalc/models/causal_convolution.h"

#include <algorithm>
#include <string>

#include "memcalc/symbolic/ops/conv1d.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

constexpr int kColumns = 2;  // of [B, channels, tokens]

/// causal_conv1d_fn
Tensor causal_conv1d(const Tensor& hidden_states, const Tensor& weight, const Tensor& bias,
                     std::string_view activation) {
  const std::int64_t tokens = hidden_states.size(kColumns);
  Tensor out;
  {
    Tensor converted = to_dtype(hidden_states, weight.dtype());
    const Tensor channels = unsqueeze(weight, 1);
    out = conv1d(std::move(converted), channels, bias, 1, weight.size(-1) - 1);
  }
  out = slice(open_slices(std::move(out), {0, 1}), kColumns, 0, tokens);
  if (!activation.empty()) out = activation_function(activation, out);
  return to_dtype(out, hidden_states.dtype());
}

}  // namespace

CausalConvolution::CausalConvolution(ModuleBuilder& b, std::string_view name, std::int64_t channels,
                                     std::int64_t kernel, bool with_bias)
    : weight(b.parameter(std::string(name) + ".weight", {channels, 1, kernel})) {
  if (with_bias) bias = b.parameter(std::string(name) + ".bias", {channels}, false);
}

Tensor CausalConvolution::operator()(const Tensor& x, std::string_view activation, LinearStates* states) const {
  const std::int64_t tokens = x.size(kColumns);
  Tensor result = x;
  if (states != nullptr) result = states->update_conv_state(result, weight.size(-1));
  result = causal_conv1d(result, squeeze(weight, 1), bias, activation);
  if (states == nullptr) return result;
  result = open_slices(std::move(result), {0, 1});  // [:, :, -seq_len:]
  const std::int64_t before = result.size(kColumns) - tokens;
  return before == 0 ? slice_whole(std::move(result), kColumns) : slice(std::move(result), kColumns, before, tokens);
}

Tensor head_parameter(ModuleBuilder& b, std::string_view name, std::int64_t heads) {
  Tensor tensor = b.parameter_before(name, {heads}, "conv1d.weight");
  if (name.find("bias") == std::string_view::npos) return tensor;
  const auto own = std::find_if(b.parameters.rbegin(), b.parameters.rend(),
                                [&](const Parameter& each) { return each.tensor.impl() == tensor.impl(); });
  own->decays = false;
  return tensor;
}

Tensor without_padding(const Tensor& x, const Tensor& attention_mask) {
  if (!attention_mask.defined()) return x;
  return to_dtype(x * unsqueeze(open_slices(attention_mask, {0, 1}), 2), x.dtype());
}

}  // namespace memcalc
