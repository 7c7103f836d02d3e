// Phi-3 and Phi-4: transformers models/phi3/modeling_phi3.py.
// MIRRORS(transformers, "models/phi3/modeling_phi3.py", "5.17.0")
#include "memcalc/families/phi3/spec.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct SelfAttention {
  Linear o_proj, qkv_proj;
  std::int64_t head_dim, query_width, key_width;
  AttentionOptions options;
  bool sliding;

  SelfAttention(ModuleBuilder& b, const Phi3Spec& spec, const AttentionOptions& options, bool sliding)
      : o_proj(b, "o_proj", checked_multiply(spec.num_attention_heads, spec.head_dim), spec.hidden_size, false),
        qkv_proj(b, "qkv_proj", spec.hidden_size,
                 checked_multiply(checked_add(spec.num_attention_heads, 2 * spec.num_key_value_heads), spec.head_dim),
                 false),
        head_dim(spec.head_dim),
        query_width(checked_multiply(spec.num_attention_heads, spec.head_dim)),
        key_width(checked_multiply(spec.num_key_value_heads, spec.head_dim)),
        options(options),
        sliding(sliding) {}

  /// apply_rotary_pos_emb on one: cat([(q_rot * cos) + (rotate_half(q_rot) * sin), q_pass])
  [[nodiscard]] static Tensor rotated(const Tensor& rotary, const Tensor& rest, const Tensor& cos, const Tensor& sin) {
    return cat(rotate(rotary, cos, sin), rest, -1);
  }

  static void apply_rotary_positions(Tensor& query, Tensor& key, const RotaryPositions& positions) {
    const Tensor cos = unsqueeze(positions.cos, 1);
    const Tensor sin = unsqueeze(positions.sin, 1);
    const std::int64_t rotary_dim = cos.size(-1);
    const std::int64_t rest = query.size(-1) - rotary_dim;
    Tensor q_rot = slice(query, -1, 0, rotary_dim), q_pass = slice(query, -1, rotary_dim, rest);
    Tensor k_rot = slice(key, -1, 0, rotary_dim), k_pass = slice(key, -1, rotary_dim, rest);
    Tensor q_embed = rotated(q_rot, q_pass, cos, sin);
    Tensor k_embed = rotated(k_rot, k_pass, cos, sin);
    query = std::move(q_embed);
    key = std::move(k_embed);
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    const Shape hidden_shape{hidden_states.size(0), hidden_states.size(1), -1, head_dim};
    Tensor qkv = qkv_proj(hidden_states);
    Tensor query_states = slice(qkv, -1, 0, query_width);
    Tensor key_states = slice(qkv, -1, query_width, key_width);
    Tensor value_states = slice(qkv, -1, query_width + key_width, key_width);
    for (Tensor* states : {&query_states, &key_states, &value_states}) {
      *states = transpose(view(*states, hidden_shape), 1, 2);
    }
    apply_rotary_positions(query_states, key_states, positions);
    if (cache != nullptr) cache->update(key_states, value_states, sliding);
    AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
    result.output = reshape(result.output, {hidden_states.size(0), hidden_states.size(1), -1});
    result.output = o_proj(result.output);
    drop(qkv, query_states, key_states, value_states);
    return result;
  }
};

struct Phi3Layer {
  SelfAttention self_attn;
  FusedGatedMlp mlp;
  RmsNorm input_layernorm, post_attention_layernorm;
  double resid_pdrop;

  Phi3Layer(ModuleBuilder& b, const Phi3Spec& spec, const RunSpec& run, bool sliding)
      : self_attn(
            b.scope("self_attn",
                    [&] { return SelfAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding); })),
        mlp(b.scope("mlp", [&] { return FusedGatedMlp(b, spec); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        resid_pdrop(dropout_probability(run, spec.resid_pdrop)) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor residual = input;
    Tensor hidden_states = input_layernorm(input);
    AttentionResult attention = self_attn.forward(hidden_states, positions, mask, cache);
    hidden_states = std::move(attention.output);
    hidden_states = residual + dropout(hidden_states, resid_pdrop);
    residual = hidden_states;
    hidden_states = post_attention_layernorm(hidden_states);
    hidden_states = mlp.forward(hidden_states);
    hidden_states = residual + dropout(hidden_states, resid_pdrop);
    drop(residual, attention.weights);
    return hidden_states;
  }
};

}  // namespace

std::unique_ptr<Model> build_phi3(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Phi3Spec>();
  auto plan = decoder_plan<Phi3Layer>(spec, run);
  plan.rotary_dim = spec.rotary_dim;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
