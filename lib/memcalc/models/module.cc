#include "memcalc/models/module.h"

#include <algorithm>

#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/models/hooked_base.h"
#include "memcalc/models/hooked_module.h"
#include "memcalc/models/packed_experts.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/dtensor.h"
#include "memcalc/symbolic/ops/liger.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/unsloth.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {
constexpr Operator kBuffer{"buffer"}, kTied{"tied parameter"};

}  // namespace

Tensor ModuleBuilder::parameter(std::string_view name, const Shape& shape, bool decays) {
  return add(name, tape.parameter(shape, dtype), decays);
}

Tensor ModuleBuilder::frozen_parameter(std::string_view name, const Shape& shape) {
  return add(name, tape.parameter(shape, dtype, false), false);
}

Tensor ModuleBuilder::parameter_before(std::string_view name, const Shape& shape, std::string_view sibling,
                                       bool decays) {
  const Tensor tensor = parameter(name, shape, decays);
  const std::string later = prefix_ + std::string(sibling);
  const auto place = std::find_if(parameters.begin(), parameters.end(),
                                  [&](const Parameter& parameter) { return parameter.name == later; });
  std::rotate(place, parameters.end() - 1, parameters.end());
  const auto first = static_cast<std::size_t>(place - parameters.begin());
  const auto move_up = [first](auto& layer) {  // it has its parameters' places
    if (layer->first_parameter < first) return;
    ++layer->first_parameter;
    ++layer->last_parameter;
  };
  for (const auto& layer : linear_layers) move_up(layer);
  for (const auto& layer : experts) move_up(layer);
  return tensor;
}

Tensor ModuleBuilder::add(std::string_view name, Tensor tensor, bool decays) {
  std::string full;
  full.reserve(prefix_.size() + name.size());
  full.append(prefix_).append(name);
  state.push_back(tensor);
  parameters.push_back({std::move(full), tensor, decays, false});
  return tensor;
}

Tensor ModuleBuilder::until_tied(const Shape& shape) { return tape.empty(shape, dtype, kTied, Category::kWeights); }

Tensor ModuleBuilder::buffer(const Shape& shape, DType buffer_dtype) {
  Tensor tensor = tape.empty(shape, buffer_dtype, kBuffer, Category::kWeights);
  state.push_back(tensor);
  buffers.push_back(tensor);
  return tensor;
}

std::shared_ptr<FineTunedLinear> ModuleBuilder::remember_linear(std::string_view name, std::int64_t in,
                                                                std::int64_t out, std::size_t parameter_count) {
  if (!fine_tuning.replaces_linear_layers() && !keeps_linear_layers) return nullptr;
  auto layer = std::make_shared<FineTunedLinear>();
  layer->name.append(prefix_).append(name);
  layer->in_features = in;
  layer->out_features = out;
  layer->last_parameter = parameters.size() - 1;
  layer->first_parameter = parameters.size() - parameter_count;
  linear_layers.push_back(layer);
  return layer;
}

std::shared_ptr<PackedExperts> ModuleBuilder::remember_experts(std::size_t parameter_count) {
  if (!fine_tuning.replaces_linear_layers()) return nullptr;
  auto layer = std::make_shared<PackedExperts>();
  layer->name = prefix_.substr(0, prefix_.size() - 1);
  layer->last_parameter = parameters.size() - 1;
  layer->first_parameter = parameters.size() - parameter_count;
  experts.push_back(layer);
  return layer;
}

namespace {

std::string dotted(std::string_view name, std::string_view leaf) {
  std::string full;
  full.reserve(name.size() + leaf.size() + 1);
  return full.append(name).append(".").append(leaf);
}

}  // namespace

Linear::Linear(ModuleBuilder& builder, std::string_view name, std::int64_t in, std::int64_t out, bool with_bias)
    : weight(builder.parameter(dotted(name, "weight"), {out, in})) {
  if (with_bias) bias = builder.parameter(dotted(name, "bias"), {out}, false);
  fine_tuned = builder.remember_linear(name, in, out, with_bias ? 2 : 1);
}

Tensor Linear::hooked_forward(const Tensor& x) const {
  ModuleHooks& hooks = *weight.tape().modes.module_hooks;
  const auto plain = [&](const Tensor& input) { return hooks.linear(input, weight, bias); };
  if (fine_tuned && hooks.hooks_adapters()) return hooked_base(*this, x, plain);
  return hooked_module(*this, {&weight, &bias}, x, [&](const Tensor& hooked_x) {
    return fine_tuned ? fine_tuned_forward(hooked_x) : plain(hooked_x);
  });
}

Tensor Linear::fine_tuned_forward(const Tensor& x) const {
  return fine_tuned->forward(x, bias, [this](const Tensor& input) { return linear(input, weight, bias); });
}

Linear tied_output(ModuleBuilder& builder, std::string_view name, const Tensor& tied, bool is_tied) {
  if (!is_tied) return {builder, name, tied.size(1), tied.size(0)};
  Tensor own_weight = builder.until_tied(tied.shape());
  Tensor own_bias = builder.until_tied({tied.size(0)});
  own_weight.reset();
  Linear head;
  head.weight = tied;
  head.bias = builder.parameter(dotted(name, "bias"), {tied.size(0)}, false);
  own_bias.reset();
  return head;
}

Conv1D::Conv1D(ModuleBuilder& builder, std::string_view name, std::int64_t in, std::int64_t out)
    : weight(builder.parameter(dotted(name, "weight"), {in, out})),
      bias(builder.parameter(dotted(name, "bias"), {out}, false)),
      fine_tuned(builder.remember_linear(name, in, out, 2)) {
  if (fine_tuned) fine_tuned->quantized.transposes = true;  // replace_with_bnb_linear makes a Linear4bit of it
}

Tensor Conv1D::operator()(const Tensor& x) const {
  ModuleHooks* hooks = weight.tape().modes.module_hooks;
  if (fine_tuned && hooks != nullptr && hooks->hooks_adapters()) {
    return hooked_base(*this, x, [this](const Tensor& input) { return product(input); });
  }
  return hooked_module(*this, {&weight, &bias}, x, [this](const Tensor& hooked_x) {
    if (!fine_tuned) return product(hooked_x);
    return fine_tuned->forward(hooked_x, bias, [this](const Tensor& input) { return product(input); });
  });
}

Tensor Conv1D::product(const Tensor& x) const {
  Shape shape = x.shape();
  shape[-1] = weight.size(1);
  return view(addmm(bias, view(x, {-1, x.size(-1)}), weight), shape);
}

Embedding::Embedding(ModuleBuilder& builder, std::string_view name, std::int64_t rows, std::int64_t width)
    : weight(builder.parameter(dotted(name, "weight"), {rows, width})),
      output_requires_grad(std::exchange(builder.first_embedding_requires_grad, false)) {
  builder.parameters.back().is_embedding = true;
}

Tensor Embedding::operator()(const Tensor& indices) const {
  return hooked_module(*this, {&weight}, indices,
                       [this](const Tensor& hooked_indices) { return look_up(hooked_indices); });
}

Tensor Embedding::look_up(const Tensor& indices) const {
  const std::optional<SequenceSplit>& split = weight.tape().modes.sequence_split;
  Tensor rows = split ? vocabulary_parallel_embedding(weight, indices, split->ranks) : embedding(weight, indices);
  if (const auto dtype = weight.tape().modes.embedding_dtype) rows = to_dtype(rows, *dtype);
  if (output_requires_grad && weight.tape().modes.grad_enabled && !rows.requires_grad()) {
    weight.tape().autograd.require_gradient(rows);
  }
  return rows;
}

LayerNorm::LayerNorm(ModuleBuilder& builder, std::string_view name, std::int64_t width, bool with_bias)
    : weight(builder.parameter(dotted(name, "weight"), {width}, false)) {
  if (with_bias) bias = builder.parameter(dotted(name, "bias"), {width}, false);
}

Tensor LayerNorm::hooked_forward(const Tensor& x) const {
  return hooked_module(*this, {&weight, &bias}, x,
                       [this](const Tensor& hooked_x) { return layer_norm(hooked_x, weight, bias); });
}

RmsNorm::RmsNorm(ModuleBuilder& builder, std::string_view name, std::int64_t width)
    : weight(builder.parameter(dotted(name, "weight"), {width}, false)),
      liger(builder.fine_tuning.liger),
      unsloth(builder.fine_tuning.unsloth) {}

Tensor RmsNorm::operator()(const Tensor& x) const {
  return hooked_module(*this, {&weight}, x, [this](const Tensor& hooked_x) { return normalize(hooked_x); });
}

Tensor RmsNorm::normalize(const Tensor& x) const {
  if (liger) return liger_rms_norm(x, weight);
  if (unsloth) return unsloth_rms_norm(x, weight);
  if (weight.tape().modes.sequence_split && !weight.tape().modes.on_dtensors) {  // SequenceParallel
    const Scoped on_dtensors(weight.tape().modes.on_dtensors, true);  // recomputation may leave it in the middle
    return normalize(distributed(x));
  }
  const DType input_dtype = x.dtype();
  Tensor variance;  // where a recomputation stops here, it dies last
  Tensor hidden_states = to_dtype(x, DType::kFloat32);
  variance = mean_last(power(hidden_states));
  hidden_states = hidden_states * reciprocal_sqrt(add_scalar(variance));
  Tensor result = weight * to_dtype(hidden_states, input_dtype);
  drop(hidden_states, variance);
  return result;
}

namespace {

/// NewGELUActivation: 0.5 * x * (1 + tanh(c * (x + 0.044715 * x ** 3))), one operator at a time.
Tensor gelu_new(const Tensor& x) {
  Tensor half = multiply_scalar(x);
  Tensor cubic = x + multiply_scalar(power(x));
  return std::move(half) * add_scalar(tanh(multiply_scalar(std::move(cubic))));
}

/// FastGELUActivation: 0.5 * x * (1 + tanh(x * c * (1 + 0.044715 * x * x)))
Tensor gelu_fast(const Tensor& x) {
  Tensor half = multiply_scalar(x);
  Tensor scaled = multiply_scalar(x);
  Tensor square = multiply_scalar(x) * x;
  Tensor cubic = std::move(scaled) * add_scalar(std::move(square));
  return std::move(half) * add_scalar(tanh(std::move(cubic)));
}

bool is_fused_gelu(std::string_view name) {
  return name == "gelu" || name == "gelu_pytorch_tanh" || name == "gelu_python_tanh";
}

}  // namespace

void check_activation_function(std::string_view name) {
  if (is_fused_gelu(name) || name == "gelu_new" || name == "gelu_fast" || name == "relu" || name == "silu" ||
      name == "swish" || name == "quick_gelu" || name == "relu2") {
    return;
  }
  throw refusal(rules::kKnownActivation, {name});
}

Tensor activation_function(std::string_view name, const Tensor& x) {
  if (is_fused_gelu(name)) return gelu(x);
  if (name == "gelu_new") return gelu_new(x);
  if (name == "gelu_fast") return gelu_fast(x);
  if (name == "relu") return relu(x);
  if (name == "relu2") return power(relu(x));  // ReLUSquaredActivation
  if (name == "quick_gelu") return x * sigmoid(multiply_scalar(x));
  return silu(x);
}

}  // namespace memcalc
