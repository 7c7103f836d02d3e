// Qwen2, Qwen2.5 and Qwen3: transformers models/qwen2/modeling_qwen2.py, models/qwen3/modeling_qwen3.py.
#include <algorithm>

#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct Qwen2Attention : HeadProjections {
  Qwen2Attention(ModuleBuilder& b, const Qwen2Spec& spec, const AttentionOptions& options, bool sliding)
      : HeadProjections(b, spec, options, sliding, /*qkv_bias=*/true, /*output_bias=*/false) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, std::vector<Tensor>* cache) const {
    Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
    Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    apply_rotary(query_states, key_states, positions.cos, positions.sin);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

struct Qwen3Attention : HeadProjections {
  RmsNorm q_norm, k_norm;

  Qwen3Attention(ModuleBuilder& b, const Qwen3Spec& spec, const AttentionOptions& options, bool sliding)
      : HeadProjections(b, spec, options, sliding, spec.attention_bias, spec.attention_bias),
        q_norm(b, "q_norm", spec.head_dim),
        k_norm(b, "k_norm", spec.head_dim) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, std::vector<Tensor>* cache) const {
    Tensor query_states = transpose(q_norm(heads(q_proj, hidden_states)), 1, 2);
    Tensor key_states = transpose(k_norm(heads(k_proj, hidden_states)), 1, 2);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    apply_rotary(query_states, key_states, positions.cos, positions.sin);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

template <typename Spec, typename SelfAttention>
struct DecoderLayer {
  SelfAttention self_attn;
  GatedMlp mlp;
  RmsNorm input_layernorm, post_attention_layernorm;

  DecoderLayer(ModuleBuilder& b, const Spec& spec, const RunSpec& run, bool sliding)
      : self_attn(
            b.scope("self_attn",
                    [&] { return SelfAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding); })),
        mlp(b.scope("mlp", [&] { return GatedMlp(b, spec); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               std::vector<Tensor>* cache) const {
    Tensor residual = input;
    Tensor hidden_states = input_layernorm(input);
    AttentionResult attention = self_attn.forward(hidden_states, positions, mask, cache);
    hidden_states = std::move(attention.output);
    hidden_states = residual + hidden_states;
    residual = hidden_states;
    hidden_states = post_attention_layernorm(hidden_states);
    hidden_states = mlp.forward(hidden_states);
    hidden_states = residual + hidden_states;
    drop(residual, attention.weights);
    return hidden_states;
  }
};

template <typename Spec, typename SelfAttention>
struct Qwen : RotaryFamily<Spec, DecoderLayer<Spec, SelfAttention>> {
  [[nodiscard]] static MaskPlan mask_plan(const Spec& spec) {
    MaskPlan plan;
    plan.mapping = true;
    plan.sliding_layers = spec.sliding_layers;
    plan.sliding = std::find(plan.sliding_layers.begin(), plan.sliding_layers.end(), true) != plan.sliding_layers.end();
    return plan;
  }
};

}  // namespace

std::unique_ptr<Model> build_qwen2(const Qwen2Spec& spec, const RunSpec& run, ModuleBuilder& builder) {
  require_causal_lm(run, "Qwen2");
  return std::make_unique<RotaryDecoderForCausalLm<Qwen<Qwen2Spec, Qwen2Attention>>>(spec, run, builder);
}

std::unique_ptr<Model> build_qwen3(const Qwen3Spec& spec, const RunSpec& run, ModuleBuilder& builder) {
  require_causal_lm(run, "Qwen3");
  return std::make_unique<RotaryDecoderForCausalLm<Qwen<Qwen3Spec, Qwen3Attention>>>(spec, run, builder);
}

}  // namespace memcalc
