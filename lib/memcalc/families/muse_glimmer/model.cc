// Muse Glimmer's text model with the head of MuseGlimmerForConditionalGeneration: transformers
// models/muse_glimmer/modeling_muse_glimmer.py.
// MIRRORS(transformers, "models/muse_glimmer/modeling_muse_glimmer.py", "5.17.0")
#include <memory>
#include <utility>

#include "memcalc/families/muse_glimmer/spec.h"
#include "memcalc/models/centered_rms_norm.h"
#include "memcalc/models/hooked_module.h"
#include "memcalc/models/power_rms_norm.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// MuseGlimmerTextNormedEmbedding
struct MuseEmbedding : Embedding {
  bool normed_requires_grad;  // enable_input_require_grads hooks this module, not what it inherits

  MuseEmbedding(ModuleBuilder& b, std::string_view name, std::int64_t rows, std::int64_t width)
      : Embedding(b, name, rows, width), normed_requires_grad(std::exchange(output_requires_grad, false)) {}

  [[nodiscard]] Tensor operator()(const Tensor& input_ids) const {
    return hooked_module(*this, {&weight}, input_ids, [this](const Tensor& hooked_ids) { return normed(hooked_ids); });
  }

 private:
  [[nodiscard]] Tensor normed(const Tensor& input_ids) const {
    Tape& tape = weight.tape();
    const Scoped<ModuleHooks*> inherited(tape.modes.module_hooks, nullptr);  // super().forward: no module of its own
    const Tensor rows = Embedding::operator()(input_ids);
    Tensor result = PowerRmsNorm::without_scale(rows);
    if (normed_requires_grad && tape.modes.grad_enabled && !result.requires_grad()) {
      tape.autograd.require_gradient(result);
    }
    return result;
  }
};

/// MuseGlimmerTextAttention
struct MuseAttention : HeadProjections {
  Linear gate_proj;

  MuseAttention(ModuleBuilder& b, const MuseGlimmerSpec& spec, const RunSpec& run, bool sliding, bool rotating)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias),
        gate_proj(b, "gate_proj", spec.hidden_size, checked_multiply(spec.num_attention_heads, spec.head_dim), false) {
    rotates = rotating;
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
    Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    {
      const Tensor normed = PowerRmsNorm::without_scale(query_states);
      query_states = multiply_scalar(normed);
    }
    key_states = PowerRmsNorm::without_scale(key_states);
    rotate_heads(query_states, key_states, positions);
    if (cache != nullptr) cache->update(key_states, value_states, sliding);
    AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
    result.output = flatten_heads(result.output, hidden_states);
    result.output = result.output * sigmoid(gate_proj(hidden_states));
    result.output = o_proj(result.output);
    drop(query_states, key_states, value_states);
    return result;
  }
};

struct MuseLayer {
  MuseAttention self_attn;
  GatedMlp mlp;
  CenteredRmsNorm input_layernorm, post_attention_layernorm, pre_feedforward_layernorm, post_feedforward_layernorm;

  MuseLayer(ModuleBuilder& b, const MuseGlimmerSpec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : self_attn(b.scope("self_attn",
                          [&] {
                            const bool rotating = spec.rotating_layers[static_cast<std::size_t>(index.value)];
                            return MuseAttention(b, spec, run, sliding, rotating);
                          })),
        mlp(b.scope("mlp", [&] { return GatedMlp(b, spec); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        pre_feedforward_layernorm(b, "pre_feedforward_layernorm", spec.hidden_size),
        post_feedforward_layernorm(b, "post_feedforward_layernorm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    return forward_between_norms(input_layernorm, self_attn, post_attention_layernorm, pre_feedforward_layernorm, mlp,
                                 post_feedforward_layernorm, input, positions, mask, cache);
  }
};

}  // namespace

std::unique_ptr<Model> build_muse_glimmer_text(const Architecture& architecture, const RunSpec& run,
                                               ModuleBuilder& builder) {
  const auto& spec = architecture.as<MuseGlimmerSpec>();
  auto plan = decoder_plan<MuseLayer, PowerRmsNorm>(spec, run);
  plan.embedding = embedding_of<MuseEmbedding>(spec);
  plan.masks = {.full = true, .sliding = true, .mapping = true, .sliding_layers = spec.sliding_layers};
  plan.logits = LogitsChange::kMultipliedSoftcapped;
  plan.backbone = "model.language_model";
  plan.has_classifier = false;
  auto model = std::make_unique<RotaryDecoder>(spec, run, builder, plan);
  model->accepts_loss_kwargs = false;
  return model;
}

}  // namespace memcalc
