// LLaMA and Mistral: transformers models/llama/modeling_llama.py, models/mistral/modeling_mistral.py.
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct SelfAttention : HeadProjections {
  using HeadProjections::HeadProjections;

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, std::vector<Tensor>* cache) const {
    Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
    Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    apply_rotary(query_states, key_states, positions.cos, positions.sin);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

struct DecoderLayer {
  SelfAttention self_attn;
  GatedMlp mlp;
  RmsNorm input_layernorm, post_attention_layernorm;

  DecoderLayer(ModuleBuilder& b, const LlamaSpec& spec, const RunSpec& run, bool sliding)
      : self_attn(b.scope("self_attn",
                          [&] {
                            const AttentionOptions options = causal_attention(run, spec.attention_dropout);
                            return SelfAttention(b, spec, options, sliding, spec.attention_bias, spec.attention_bias);
                          })),
        mlp(b.scope("mlp", [&] { return GatedMlp(b, spec, spec.mlp_bias); })),
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

using Llama = RotaryFamily<LlamaSpec, DecoderLayer>;

}  // namespace

std::unique_ptr<Model> build_llama(const LlamaSpec& spec, const RunSpec& run, ModuleBuilder& builder) {
  require_causal_lm(run, "LLaMA");
  return std::make_unique<RotaryDecoderForCausalLm<Llama>>(spec, run, builder);
}

}  // namespace memcalc
