// Nemotron: transformers models/nemotron/modeling_nemotron.py.
// MIRRORS(transformers, "models/nemotron/modeling_nemotron.py", "5.17.0")
#include "memcalc/families/nemotron/spec.h"

#include <string>
#include <utility>

#include "memcalc/models/hooked_module.h"
#include "memcalc/models/plain_mlp.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// NemotronLayerNorm1P: its weight is one less; under autocast it computes in 16 bits.
struct NemotronLayerNorm {
  Tensor weight, bias;

  NemotronLayerNorm() = default;
  NemotronLayerNorm(ModuleBuilder& b, std::string_view name, std::int64_t width)
      : NemotronLayerNorm(LayerNorm(b, name, width)) {}

  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    return hooked_module(*this, {&weight, &bias}, x, [this](const Tensor& hooked_x) { return normalize(hooked_x); });
  }

 private:
  explicit NemotronLayerNorm(const LayerNorm& norm) : weight(norm.weight), bias(norm.bias) {}

  [[nodiscard]] Tensor normalize(const Tensor& x) const {
    Autocast& autocast = x.tape().modes.autocast;
    Tensor input = x, scale = add_scalar(weight), shift = bias;
    if (autocast.dtype) {  // _cast_if_autocast_enabled
      Tensor of_input = to_dtype(input, *autocast.dtype);
      Tensor of_scale = to_dtype(scale, *autocast.dtype);
      shift = to_dtype(shift, *autocast.dtype);
      input = std::move(of_input);
      scale = std::move(of_scale);
    }
    const WithoutAutocast without_autocast(autocast);
    Tensor result = layer_norm(input, scale, shift);
    drop(shift, scale, input);  // a tuple lets go of its last member first
    return result;
  }
};

struct NemotronAttention : HeadProjections {
  NemotronAttention(ModuleBuilder& b, const NemotronSpec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
    Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    rotate_part(query_states, key_states, positions);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }

 private:
  /// apply_rotary_pos_emb, which joins the query's parts when the key's are rotated.
  static void rotate_part(Tensor& query, Tensor& key, const RotaryPositions& positions) {
    const Tensor cos = unsqueeze(positions.cos, 1), sin = unsqueeze(positions.sin, 1);
    const std::int64_t turned = cos.size(-1), rest = query.size(-1) - turned;
    Tensor q = slice(query, -1, 0, turned), q_pass = slice(query, -1, turned, rest);
    Tensor k = slice(key, -1, 0, turned), k_pass = slice(key, -1, turned, rest);
    Tensor q_embed = rotate(q, cos, sin);
    Tensor k_embed = rotate(k, cos, sin);
    Tensor whole_query = cat(q_embed, q_pass, -1);
    Tensor whole_key = cat(k_embed, k_pass, -1);
    drop(q, k, q_pass, k_pass, q_embed, k_embed);
    query = std::move(whole_query);
    key = std::move(whole_key);
  }
};

using NemotronLayer = PreNormLayer<NemotronSpec, NemotronAttention, NemotronLayerNorm, PlainMlp>;

}  // namespace

std::unique_ptr<Model> build_nemotron(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<NemotronSpec>();
  auto plan = decoder_plan<NemotronLayer, NemotronLayerNorm>(spec, run);
  plan.rotary_dim = spec.rotary_dim;
  plan.position_ids_first = true;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
