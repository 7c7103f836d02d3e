// OLMo 2: transformers models/olmo2/modeling_olmo2.py.
// MIRRORS(transformers, "models/olmo2/modeling_olmo2.py", "5.17.0")
#include "memcalc/families/olmo2/spec.h"
#include "memcalc/models/float32_rms_norm.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// OLMo 2's apply_rotary_pos_emb: cos and sin are float32, and the result is cast back.
void apply_rotary_in_float32(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  const DType q_type = query.dtype(), k_type = key.dtype();
  const Tensor cos = unsqueeze(positions.cos, 1);
  const Tensor sin = unsqueeze(positions.sin, 1);
  Tensor q_embed = rotate(query, cos, sin);
  Tensor k_embed = rotate(key, cos, sin);
  Tensor q_cast = to_dtype(q_embed, q_type);
  Tensor k_cast = to_dtype(k_embed, k_type);
  drop(q_embed, k_embed);
  query = std::move(q_cast);
  key = std::move(k_cast);
}

struct SelfAttention : HeadProjections {
  Float32RmsNorm q_norm, k_norm;  // over all heads

  SelfAttention(ModuleBuilder& b, const Olmo2Spec& spec, const AttentionOptions& options)
      : HeadProjections(b, spec, options, /*sliding=*/false, spec.attention_bias, spec.attention_bias),
        q_norm(b, "q_norm", checked_multiply(spec.num_attention_heads, spec.head_dim)),
        k_norm(b, "k_norm", checked_multiply(spec.num_key_value_heads, spec.head_dim)) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = q_norm(q_proj(hidden_states));
    Tensor key_states = k_norm(k_proj(hidden_states));
    Tensor value_states = v_proj(hidden_states);
    for (Tensor* states : {&query_states, &key_states, &value_states}) {
      *states = transpose(view(*states, {hidden_states.size(0), hidden_states.size(1), -1, head_dim}), 1, 2);
    }
    apply_rotary_in_float32(query_states, key_states, positions);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

struct Olmo2Layer {
  SelfAttention self_attn;
  GatedMlp mlp;
  Float32RmsNorm post_attention_layernorm, post_feedforward_layernorm;

  Olmo2Layer(ModuleBuilder& b, const Olmo2Spec& spec, const RunSpec& run, bool)
      : self_attn(b.scope("self_attn",
                          [&] { return SelfAttention(b, spec, causal_attention(run, spec.attention_dropout)); })),
        mlp(b.scope("mlp", [&] { return GatedMlp(b, spec); })),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        post_feedforward_layernorm(b, "post_feedforward_layernorm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor residual = input;
    AttentionResult attention = self_attn.forward(input, positions, mask, cache);
    Tensor hidden_states = std::move(attention.output);
    hidden_states = post_attention_layernorm(hidden_states);
    hidden_states = residual + hidden_states;
    residual = hidden_states;
    hidden_states = mlp.forward(hidden_states);
    hidden_states = post_feedforward_layernorm(hidden_states);
    hidden_states = residual + hidden_states;
    drop(residual, attention.weights);
    return hidden_states;
  }
};

}  // namespace

std::unique_ptr<Model> build_olmo2(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Olmo2Spec>();
  auto plan = decoder_plan<Olmo2Layer, Float32RmsNorm>(spec, run);
  plan.float32_positions = true;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
