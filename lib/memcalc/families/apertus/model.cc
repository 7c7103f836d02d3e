// Apertus: transformers models/apertus/modeling_apertus.py.
// MIRRORS(transformers, "models/apertus/modeling_apertus.py", "5.17.0")
// MIRRORS(transformers, "activations.py", "5.17.0")
#include <optional>

#include "memcalc/families/apertus/spec.h"
#include "memcalc/models/hooked_module.h"
#include "memcalc/models/normed_attention.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/logarithm.h"
#include "memcalc/symbolic/ops/pointwise.h"

namespace memcalc {

namespace {

/// XIELUActivation without the xielu package: two parameters of one number, two buffers.
struct Xielu {
  Tensor alpha_p, alpha_n, beta, eps;

  explicit Xielu(ModuleBuilder& b)
      : alpha_p(number(b, "alpha_p")),
        alpha_n(number(b, "alpha_n")),
        beta(b.buffer({}, b.dtype)),
        eps(b.buffer({}, b.dtype)) {}

  /// nn.Parameter(torch.log(torch.expm1(torch.tensor(init, dtype=dtype))).unsqueeze(0))
  [[nodiscard]] static Tensor number(ModuleBuilder& b, std::string_view name) {
    Tensor inner = no_grad::exponential(no_grad::from_list(b.tape, {}, b.dtype));
    return b.parameter(name, {1});
  }

  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    ModuleHooks* hooks = alpha_p.tape().modes.module_hooks;
    const auto forward = [this](const Tensor& hooked_x) { return python(hooked_x); };
    return hooks == nullptr ? forward(x) : between_hooks(*hooks, this, {&alpha_p, &alpha_n}, x, forward);
  }

 private:
  /// _xielu_python
  [[nodiscard]] Tensor python(const Tensor& x) const {
    Tensor positive = softplus(alpha_p);
    Tensor negative = beta + softplus(alpha_n);
    Tensor result;
    {
      Tensor is_positive = pointwise(aten::kLogical, {&x}, 1, DType::kBool);
      Tensor square = (positive * x) * x;
      Tensor above = std::move(square) + beta * x;
      Tensor exponential = expm1(extremum(aten::kMinimum, x, eps));
      Tensor bent = (std::move(exponential) - x) * negative;
      Tensor below = std::move(bent) + beta * x;
      result = where(is_positive, above, below);
      drop(is_positive, above, below);
    }
    drop(positive, negative);
    return result;
  }
};

struct ApertusMlp {
  Linear up_proj, down_proj;
  std::optional<Xielu> xielu;
  std::string act_fn;

  ApertusMlp(ModuleBuilder& b, const ApertusSpec& spec)
      : up_proj(b, "up_proj", spec.hidden_size, spec.intermediate_size, false),
        down_proj(b, "down_proj", spec.intermediate_size, spec.hidden_size, false),
        act_fn(spec.hidden_act) {
    if (act_fn.empty()) xielu = b.scope("act_fn", [&] { return Xielu(b); });
  }

  [[nodiscard]] Tensor forward(const Tensor& x) const {
    Tensor activated;
    {
      const Tensor up = up_proj(x);
      activated = xielu ? (*xielu)(up) : activation_function(act_fn, up);
    }
    return down_proj(activated);
  }
};

struct ApertusLayer {
  TransposedNormedAttention self_attn;
  ApertusMlp mlp;
  RmsNorm attention_layernorm, feedforward_layernorm;

  ApertusLayer(ModuleBuilder& b, const ApertusSpec& spec, const RunSpec& run, bool sliding)
      : self_attn(b.scope("self_attn", [&] { return TransposedNormedAttention(b, spec, run, sliding); })),
        mlp(b.scope("mlp", [&] { return ApertusMlp(b, spec); })),
        attention_layernorm(b, "attention_layernorm", spec.hidden_size),
        feedforward_layernorm(b, "feedforward_layernorm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor residual = input;
    Tensor hidden_states = attention_layernorm(input);
    AttentionResult attention = self_attn.forward(hidden_states, positions, mask, cache);
    hidden_states = std::move(attention.output);
    hidden_states = residual + hidden_states;
    residual = hidden_states;
    hidden_states = feedforward_layernorm(hidden_states);
    hidden_states = mlp.forward(hidden_states);
    hidden_states = residual + hidden_states;
    drop(residual, attention.weights);
    return hidden_states;
  }
};

}  // namespace

std::unique_ptr<Model> build_apertus(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<ApertusSpec>();
  auto plan = decoder_plan<ApertusLayer>(spec, run);
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
