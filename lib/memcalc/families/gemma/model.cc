// Gemma 1, 2 and 3 (text): transformers models/gemma/modeling_gemma.py, models/gemma2/modeling_gemma2.py,
// models/gemma3/modeling_gemma3.py.
// MIRRORS(transformers, "models/gemma/modeling_gemma.py", "5.17.0")
// MIRRORS(transformers, "models/gemma2/modeling_gemma2.py", "5.17.0")
// MIRRORS(transformers, "models/gemma3/modeling_gemma3.py", "5.17.0")
#include <utility>

#include "memcalc/families/gemma/scaled_embedding.h"
#include "memcalc/families/gemma/spec.h"
#include "memcalc/models/centered_rms_norm.h"
#include "memcalc/models/hooked_module.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

AttentionOptions attention_options(const GemmaSpec& spec, const RunSpec& run) {
  return causal_attention(run, spec.attention_dropout);
}

AttentionOptions attention_options(const Gemma2Spec& spec, const RunSpec& run) {
  AttentionOptions options = causal_attention(run, spec.attention_dropout);
  options.softcap = spec.attention_softcap;
  return options;
}

AttentionOptions attention_options(const Gemma3Spec& spec, const RunSpec& run) {
  return causal_attention(run, spec.attention_dropout);
}

/// GemmaAttention and Gemma2Attention.
struct GemmaAttention : RotaryAttention {
  template <typename Spec>
  GemmaAttention(ModuleBuilder& b, const Spec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, attention_options(spec, run), sliding, spec.attention_bias, spec.attention_bias) {}
};

struct Gemma3Attention : HeadProjections {
  CenteredRmsNorm q_norm, k_norm;

  Gemma3Attention(ModuleBuilder& b, const Gemma3Spec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, attention_options(spec, run), sliding, spec.attention_bias, spec.attention_bias),
        q_norm(b, "q_norm", spec.head_dim),
        k_norm(b, "k_norm", spec.head_dim) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
    Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    query_states = q_norm(query_states);
    key_states = k_norm(key_states);
    apply_rotary(query_states, key_states, positions.cos, positions.sin);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

/// Gemma2DecoderLayer and Gemma3DecoderLayer: a norm before and after each half.
template <typename Spec, typename SelfAttention>
struct FourNormLayer {
  SelfAttention self_attn;
  GatedMlp mlp;
  CenteredRmsNorm input_layernorm, post_attention_layernorm, pre_feedforward_layernorm, post_feedforward_layernorm;

  FourNormLayer(ModuleBuilder& b, const Spec& spec, const RunSpec& run, bool sliding)
      : self_attn(b.scope("self_attn", [&] { return SelfAttention(b, spec, run, sliding); })),
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

/// Gemma 2 and 3 make both masks, whatever their layers are.
template <typename Spec>
void alternate(const Spec& spec, DecoderPlan& plan) {
  plan.masks = {.full = true, .sliding = true, .mapping = true, .sliding_layers = spec.sliding_layers};
  if (spec.final_softcap) plan.logits = LogitsChange::kSoftcapped;
  plan.trained_without_cache_once = true;
}

using GemmaLayer = PreNormLayer<GemmaSpec, GemmaAttention, CenteredRmsNorm>;
using Gemma2Layer = FourNormLayer<Gemma2Spec, GemmaAttention>;
using Gemma3Layer = FourNormLayer<Gemma3Spec, Gemma3Attention>;

}  // namespace

DecoderPlan gemma_plan(const Architecture& architecture, const RunSpec& run) {
  const auto& spec = architecture.as<GemmaSpec>();
  auto plan = decoder_plan<GemmaLayer, CenteredRmsNorm>(spec, run);
  plan.embedding = embedding_of<ScaledWordEmbedding<true>>(spec);
  return plan;
}

DecoderPlan gemma2_plan(const Architecture& architecture, const RunSpec& run) {
  const auto& spec = architecture.as<Gemma2Spec>();
  auto plan = decoder_plan<Gemma2Layer, CenteredRmsNorm>(spec, run);
  plan.embedding = embedding_of<ScaledWordEmbedding<true>>(spec);
  alternate(spec, plan);
  return plan;
}

DecoderPlan gemma3_plan(const Architecture& architecture, const RunSpec& run) {
  const auto& spec = architecture.as<Gemma3Spec>();
  auto plan = decoder_plan<Gemma3Layer, CenteredRmsNorm>(spec, run);
  plan.embedding = embedding_of<ScaledWordEmbedding<false>>(spec);
  alternate(spec, plan);
  plan.rotary_by_layer_type = true;
  plan.rotated_per_layer_once = true;
  return plan;
}

std::unique_ptr<Model> build_gemma(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<RotaryDecoder>(architecture.as<GemmaSpec>(), run, builder, gemma_plan(architecture, run));
}

std::unique_ptr<Model> build_gemma2(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<RotaryDecoder>(architecture.as<Gemma2Spec>(), run, builder, gemma2_plan(architecture, run));
}

std::unique_ptr<Model> build_gemma3(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<RotaryDecoder>(architecture.as<Gemma3Spec>(), run, builder, gemma3_plan(architecture, run));
}

}  // namespace memcalc
