// Command R: transformers models/cohere/modeling_cohere.py, models/cohere2/modeling_cohere2.py.
// MIRRORS(transformers, "models/cohere/modeling_cohere.py", "5.17.0")
// MIRRORS(transformers, "models/cohere2/modeling_cohere2.py", "5.17.0")
#include "memcalc/families/cohere/spec.h"
#include "memcalc/models/hooked_module.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// CohereLayerNorm: without a bias, element by element in float32.
struct CohereLayerNorm {
  Tensor weight;
  CohereLayerNorm() = default;
  CohereLayerNorm(ModuleBuilder& b, std::string_view name, std::int64_t width)
      : weight(RmsNorm(b, name, width).weight) {}
  /// Of heads, each with numbers of its own.
  CohereLayerNorm(ModuleBuilder& b, std::string_view name, std::int64_t heads, std::int64_t head_dim)
      : weight(b.scope(name, [&] {
          return b.parameter("weight", {heads, head_dim}, /*decays=*/false);
        })) {}

  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    return hooked_module(*this, {&weight}, x, [this](const Tensor& hooked_x) { return normalize(hooked_x); });
  }

 private:
  [[nodiscard]] Tensor normalize(const Tensor& x) const {
    const DType input_dtype = x.dtype();
    Tensor hidden_states = to_dtype(x, DType::kFloat32);
    Tensor mean = mean_last(hidden_states);
    Tensor variance;
    {
      Tensor centred = hidden_states - mean;
      const Tensor squared = power(std::move(centred));
      variance = mean_last(squared);
    }
    {
      Tensor centred = hidden_states - mean;
      Tensor scale = reciprocal_sqrt(add_scalar(variance));
      hidden_states = std::move(centred) * std::move(scale);
    }
    hidden_states = to_dtype(weight, DType::kFloat32) * hidden_states;
    Tensor result = to_dtype(hidden_states, input_dtype);
    drop(hidden_states, mean, variance);
    return result;
  }
};

void rotate_wide_neighbours(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  const DType dtype = query.dtype();
  Tensor q = to_dtype(query, DType::kFloat32);
  Tensor k = to_dtype(key, DType::kFloat32);
  const Tensor cos = unsqueeze(positions.cos, 1);
  const Tensor sin = unsqueeze(positions.sin, 1);
  Tensor q_embed = rotated_neighbours(q, cos, sin);
  Tensor k_embed = rotated_neighbours(k, cos, sin);
  Tensor q_cast = to_dtype(q_embed, dtype);
  Tensor k_cast = to_dtype(k_embed, dtype);
  drop(q, k, q_embed, k_embed);
  query = std::move(q_cast);
  key = std::move(k_cast);
}

struct CohereAttention : HeadProjections {
  CohereLayerNorm q_norm, k_norm;  // Command R+'s

  CohereAttention(ModuleBuilder& b, const CohereSpec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias) {
    rotates = spec.sliding_layers.empty() || sliding;
    rotation = rotate_wide_neighbours;
    if (!spec.use_qk_norm) return;
    q_norm = CohereLayerNorm(b, "q_norm", spec.num_attention_heads, spec.head_dim);
    k_norm = CohereLayerNorm(b, "k_norm", spec.num_key_value_heads, spec.head_dim);
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = heads(q_proj, hidden_states);
    Tensor key_states = heads(k_proj, hidden_states);
    Tensor value_states = heads(v_proj, hidden_states);
    if (q_norm.weight.defined()) {
      query_states = q_norm(query_states);
      key_states = k_norm(key_states);
    }
    for (Tensor* states : {&query_states, &key_states, &value_states}) *states = transpose(*states, 1, 2);
    rotate_heads(query_states, key_states, positions);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

struct CohereLayer {
  CohereAttention self_attn;
  GatedMlp mlp;
  CohereLayerNorm input_layernorm;

  CohereLayer(ModuleBuilder& b, const CohereSpec& spec, const RunSpec& run, bool sliding)
      : self_attn(b.scope("self_attn", [&] { return CohereAttention(b, spec, run, sliding); })),
        mlp(b.scope("mlp", [&] { return GatedMlp(b, spec); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor hidden_states, hidden_states_mlp;
    AttentionResult attention;
    const Locals locals(hidden_states, attention.output, attention.weights, hidden_states_mlp);
    hidden_states = input_layernorm(input);
    attention = self_attn.forward(hidden_states, positions, mask, cache);
    hidden_states_mlp = mlp.forward(hidden_states);
    return input + attention.output + hidden_states_mlp;
  }
};

}  // namespace

std::unique_ptr<Model> build_cohere(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<CohereSpec>();
  auto plan = decoder_plan<CohereLayer, CohereLayerNorm>(spec, run);
  if (!spec.sliding_layers.empty()) {  // both masks, whatever the layers are
    plan.masks = {.full = true, .sliding = true, .mapping = true, .sliding_layers = spec.sliding_layers};
  }
  plan.logits = LogitsChange::kMultiplied;
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
