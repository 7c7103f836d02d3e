// Qwen3-Next and Qwen3.5's text models: transformers models/qwen3_next/modeling_qwen3_next.py,
// models/qwen3_5/modeling_qwen3_5.py, models/qwen3_5_moe/modeling_qwen3_5_moe.py.
// MIRRORS(transformers, "models/qwen3_next/modeling_qwen3_next.py", "5.17.0")
// MIRRORS(transformers, "models/qwen3_5/modeling_qwen3_5.py", "5.17.0")
// MIRRORS(transformers, "models/qwen3_5_moe/modeling_qwen3_5_moe.py", "5.17.0")
#include <optional>
#include <utility>
#include <variant>

#include "memcalc/families/qwen3_next/spec.h"
#include "memcalc/models/centered_rms_norm.h"
#include "memcalc/models/gated_delta_net.h"
#include "memcalc/models/gated_shared_expert.h"
#include "memcalc/models/hybrid_layer.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// Qwen3NextAttention: its query's projection gives a gate, too.
struct Qwen3NextAttention {
  Linear q_proj, k_proj, v_proj, o_proj;
  CenteredRmsNorm q_norm, k_norm;
  std::int64_t head_dim;
  AttentionOptions options;

  Qwen3NextAttention(ModuleBuilder& b, const Qwen35Spec& spec, const RunSpec& run)
      : q_proj(b, "q_proj", spec.hidden_size, 2 * spec.num_attention_heads * spec.head_dim, spec.attention_bias),
        k_proj(b, "k_proj", spec.hidden_size, spec.num_key_value_heads * spec.head_dim, spec.attention_bias),
        v_proj(b, "v_proj", spec.hidden_size, spec.num_key_value_heads * spec.head_dim, spec.attention_bias),
        o_proj(b, "o_proj", spec.num_attention_heads * spec.head_dim, spec.hidden_size, spec.attention_bias),
        q_norm(b, "q_norm", spec.head_dim),
        k_norm(b, "k_norm", spec.head_dim),
        head_dim(spec.head_dim),
        options(causal_attention(run, spec.attention_dropout)) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    const std::int64_t rows = hidden_states.size(0), tokens = hidden_states.size(1);
    const Shape hidden_shape{rows, tokens, -1, head_dim};
    Tensor query_states, gate, key_states, value_states;
    const Locals locals(query_states, gate, key_states, value_states);
    {
      std::vector<Tensor> parts = split(view(q_proj(hidden_states), {rows, tokens, -1, 2 * head_dim}), -1, 2);
      query_states = std::move(parts[0]);
      gate = std::move(parts[1]);
    }
    gate = reshape(gate, {rows, tokens, -1});
    query_states = transpose(q_norm(view(query_states, hidden_shape)), 1, 2);
    key_states = transpose(k_norm(view(k_proj(hidden_states), hidden_shape)), 1, 2);
    value_states = transpose(view(v_proj(hidden_states), hidden_shape), 1, 2);
    apply_partial_rotary(query_states, key_states, positions);
    if (cache != nullptr) cache->update(key_states, value_states);
    AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
    result.output = flatten_heads(result.output, hidden_states);
    result.output = result.output * sigmoid(gate);
    result.output = o_proj(result.output);
    return result;
  }
};

using Qwen3NextMixer = std::variant<GatedDeltaNet, Qwen3NextAttention>;
using Qwen3NextMlp = DenseOrMixture<MixtureWithGatedShared>;

/// Qwen3NextDecoderLayer, Qwen3_5DecoderLayer, Qwen3_5MoeDecoderLayer
struct Qwen3NextLayer {
  Qwen3NextMixer mixer;
  Qwen3NextMlp mlp;
  CenteredRmsNorm input_layernorm, post_attention_layernorm;

  template <typename Spec>
  Qwen3NextLayer(ModuleBuilder& b, const Spec& spec, const RunSpec& run, bool /*sliding*/, LayerIndex index)
      : mixer(mixer_of(b, spec, run, spec.linear_layers[static_cast<std::size_t>(index.value)])),
        mlp(b.scope("mlp", [&] { return mlp_of(b, spec, spec.dense_layers[static_cast<std::size_t>(index.value)]); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    const auto mix = [&](const Tensor& x) { return mixed(x, positions, mask, cache); };
    return forward_of_hybrid(input, input_layernorm, mix, post_attention_layernorm, mlp);
  }

 private:
  template <typename Spec>
  [[nodiscard]] static Qwen3NextMlp mlp_of(ModuleBuilder& b, const Spec& spec, bool is_dense) {
    if constexpr (requires { spec.experts; }) {
      if (!is_dense) return {MixtureWithGatedShared(b, spec)};
    }
    return {GatedMlp(b, spec)};
  }

  [[nodiscard]] static Qwen3NextMixer mixer_of(ModuleBuilder& b, const Qwen35Spec& spec, const RunSpec& run,
                                               bool is_linear) {
    if (!is_linear) return b.scope("self_attn", [&] { return Qwen3NextMixer{Qwen3NextAttention(b, spec, run)}; });
    return b.scope("linear_attn",
                   [&] { return Qwen3NextMixer{GatedDeltaNet(b, spec.delta, spec.hidden_size, spec.hidden_act)}; });
  }

  [[nodiscard]] AttentionResult mixed(const Tensor& hidden_states, const RotaryPositions& positions, const Tensor& mask,
                                      KeyValueCache* cache) const {
    if (const auto* delta = std::get_if<GatedDeltaNet>(&mixer)) return {delta->forward(hidden_states, mask, cache), {}};
    return std::get<Qwen3NextAttention>(mixer).forward(hidden_states, positions, mask, cache);
  }
};

/// Qwen3_5TextModel: position_ids.view(1, 1, -1).expand(4, rows, -1), of the text and of time, height and width.
PositionIds four_positions(const Tensor& position_ids, std::int64_t rows) {
  const std::int64_t tokens = position_ids.size(1);
  const Tensor all = expand(view(position_ids, {1, position_ids.size(0), tokens}), {4, rows, tokens});
  return {select(all, 0), slice(all, 0, 1, 3)};
}

/// recomposition_frequencies: what of height and width stands between is copied into time's.
Tensor recomposed(const Tensor& frequencies) {
  const Tensor freqs_thw = select(frequencies, 0);
  return cat(freqs_thw, freqs_thw, -1);
}

/// Qwen3_5TextRotaryEmbedding.forward: three grids of positions [3, rows, tokens].
RotaryPositions rotated_by_grids(const RotaryEmbedding& rotary, const Tensor& x, const Tensor& position_ids,
                                 std::optional<DType> dtype) {
  Tape& tape = x.tape();
  const NoGrad no_grad(tape.modes);
  const std::int64_t half = rotary.inverse_frequencies.size(0), rows = position_ids.size(1);
  Tensor frequencies_expanded = expand(view(rotary.inverse_frequencies, {1, 1, half, 1}), {3, rows, half, 1});
  Tensor positions_expanded = to_dtype(unsqueeze(position_ids, 2), DType::kFloat32);
  Tensor freqs, cos, sin;
  {
    const WithoutAutocast without_autocast(tape.modes.autocast);
    freqs = transpose(matmul(frequencies_expanded, positions_expanded), 2, 3);
    cos = multiply_scalar(cosine(freqs));
    sin = multiply_scalar(sine(freqs));
  }
  sin = recomposed(sin);
  cos = recomposed(cos);
  RotaryPositions result;
  result.cos = to_dtype(cos, dtype.value_or(x.dtype()));
  result.sin = to_dtype(sin, dtype.value_or(x.dtype()));
  drop(frequencies_expanded, positions_expanded, freqs, cos, sin);
  return result;
}

template <typename Spec>
std::unique_ptr<Model> built(const Spec& spec, const RunSpec& run, ModuleBuilder& builder) {
  auto plan = decoder_plan<Qwen3NextLayer, CenteredRmsNorm>(spec, run);
  plan.masks = MaskPlan::hybrid(spec.linear_layers);
  plan.rotary_dim = spec.rotary_dim;
  plan.mask_behind_positions = true;
  if (spec.mrope_section) {
    plan.has_classifier = !requires { spec.experts; };  // there is none of qwen3_5_moe
    plan.position_ids = four_positions;
    plan.rotate = rotated_by_grids;
  }
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace

std::unique_ptr<Model> build_qwen3_next(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  if (const auto* spec = architecture.get_if<Qwen3NextSpec>()) return built(*spec, run, builder);
  return built(architecture.as<Qwen35Spec>(), run, builder);
}

}  // namespace memcalc
