// Modules: parameters with names, in the order in which the framework's constructors make them.
// MIRRORS(transformers, "activations.py", "5.17.0")
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/embedding.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// A parameter as the optimizer sees it.
struct Parameter {
  std::string name;
  Tensor tensor;
  bool decays = true;         // transformers' Trainer: no weight decay for biases and norms
  bool is_embedding = false;  // the weight of an nn.Embedding
};

struct FineTunedLinear;
struct PackedExperts;

/// Makes parameters and buffers, and remembers them in registration order.
class ModuleBuilder {
 public:
  ModuleBuilder(Tape& tape, DType dtype, const FineTuning& fine_tuning = {})
      : tape(tape), dtype(dtype), fine_tuning(fine_tuning) {}

  [[nodiscard]] Tensor parameter(std::string_view name, const Shape& shape, bool decays = true);
  /// A parameter with requires_grad = False.
  [[nodiscard]] Tensor frozen_parameter(std::string_view name, const Shape& shape);
  /// A parameter that is made after those of the module's children but registered before them: before `sibling`.
  [[nodiscard]] Tensor parameter_before(std::string_view name, const Shape& shape, std::string_view sibling,
                                        bool decays = true);
  /// A parameter that a tied one takes the place of; it lives until then.
  [[nodiscard]] Tensor until_tied(const Shape& shape);
  /// Part of the module's state, not trained; counts as weights.
  [[nodiscard]] Tensor buffer(const Shape& shape, DType buffer_dtype);
  /// Runs `build` with `name.` before the names of everything it makes.
  /// A buffer whose values were computed by operators.
  [[nodiscard]] Tensor computed_buffer(Tensor values) {
    buffers.push_back(values);
    return values;
  }
  template <typename Build>
  auto scope(std::string_view name, Build build) {
    const std::size_t length = prefix_.size();
    prefix_.append(name).push_back('.');
    auto result = build();
    prefix_.resize(length);
    return result;
  }

  /// A linear layer that fine-tuning may change, whose parameters were just made; null where none will be changed.
  [[nodiscard]] std::shared_ptr<FineTunedLinear> remember_linear(std::string_view name, std::int64_t in,
                                                                 std::int64_t out, std::size_t parameter_count);

  /// The experts of a layer or its router, whose parameters were just made, in the module whose name is the prefix;
  /// null where fine-tuning changes neither.
  [[nodiscard]] std::shared_ptr<PackedExperts> remember_experts(std::size_t parameter_count);

  Tape& tape;
  DType dtype;
  FineTuning fine_tuning;
  bool keeps_linear_layers = false;  // linear_layers has them even if fine-tuning leaves them alone
  std::vector<std::shared_ptr<FineTunedLinear>> linear_layers;  // as remembered: in the order of named_modules()
  std::vector<std::shared_ptr<PackedExperts>> experts;          // likewise
  std::vector<Parameter> parameters;
  std::int64_t inactive_parameters = 0;  // of experts that a token does not take
  /// The forward hook of enable_input_require_grads sits on the model's first embedding.
  bool first_embedding_requires_grad = false;
  std::vector<Tensor> buffers;
  std::vector<Tensor> state;  // parameters and buffers as they were made: the order in which module.to() meets them

 private:
  [[nodiscard]] Tensor add(std::string_view name, Tensor tensor, bool decays);

  std::string prefix_;
};

/// nn.Linear: weight [out, in], bias [out].
struct Linear {
  Tensor weight, bias;
  std::shared_ptr<FineTunedLinear> fine_tuned;
  Linear() = default;
  Linear(ModuleBuilder& builder, std::string_view name, std::int64_t in, std::int64_t out, bool with_bias = true);
  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    if (weight.tape().modes.module_hooks != nullptr) return hooked_forward(x);
    return fine_tuned ? fine_tuned_forward(x) : linear(x, weight, bias);
  }

 private:
  [[nodiscard]] Tensor hooked_forward(const Tensor& x) const;
  [[nodiscard]] Tensor fine_tuned_forward(const Tensor& x) const;
};

/// A head whose weight tie_weights replaces by `tied`, while its bias becomes a padded copy (_adjust_bias). Not tied:
/// an ordinary linear layer.
[[nodiscard]] Linear tied_output(ModuleBuilder& builder, std::string_view name, const Tensor& tied, bool is_tied);

/// transformers' Conv1D: weight [in, out], used untransposed.
struct Conv1D {
  Tensor weight, bias;
  std::shared_ptr<FineTunedLinear> fine_tuned;
  Conv1D() = default;
  Conv1D(ModuleBuilder& builder, std::string_view name, std::int64_t in, std::int64_t out);
  [[nodiscard]] Tensor operator()(const Tensor& x) const;

 private:
  [[nodiscard]] Tensor product(const Tensor& x) const;
};

struct Embedding {
  Tensor weight;
  bool output_requires_grad = false;  // enable_input_require_grads: the model's first embedding
  Embedding() = default;
  Embedding(ModuleBuilder& builder, std::string_view name, std::int64_t rows, std::int64_t width);
  [[nodiscard]] Tensor operator()(const Tensor& indices) const;

 private:
  [[nodiscard]] Tensor look_up(const Tensor& indices) const;
};

struct LayerNorm {
  Tensor weight, bias;
  LayerNorm() = default;
  LayerNorm(ModuleBuilder& builder, std::string_view name, std::int64_t width, bool with_bias = true);
  [[nodiscard]] Tensor operator()(Arg x) const {
    if (weight.tape().modes.module_hooks != nullptr) return hooked_forward(*x);
    return layer_norm(std::move(x), weight, bias);
  }

 private:
  [[nodiscard]] Tensor hooked_forward(const Tensor& x) const;
};

/// transformers' RMS norm as LLaMA writes it: float32 inside, element by element.
struct RmsNorm {
  Tensor weight;
  bool liger = false;    // LigerRMSNorm in its place
  bool unsloth = false;  // Fast_RMS_Layernorm
  RmsNorm() = default;
  RmsNorm(ModuleBuilder& builder, std::string_view name, std::int64_t width);
  [[nodiscard]] Tensor operator()(const Tensor& x) const;

 private:
  [[nodiscard]] Tensor normalize(const Tensor& x) const;
};

/// ACT2FN of transformers/activations.py. Throws Error(kUnsupported) for a name that is not modelled.
[[nodiscard]] Tensor activation_function(std::string_view name, const Tensor& x);
void check_activation_function(std::string_view name);

}  // namespace memcalc
