// OLMo 1: transformers models/olmo/modeling_olmo.py.
// MIRRORS(transformers, "models/olmo/modeling_olmo.py", "5.17.0")
#include "memcalc/families/olmo/spec.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// OlmoLayerNorm: float32 inside, without weight and bias.
struct OlmoLayerNorm {
  OlmoLayerNorm(ModuleBuilder& /*b*/, std::string_view /*name*/, std::int64_t /*width*/) {}

  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    const DType orig_dtype = x.dtype();
    Tensor normed;
    {
      const Tensor wide = to_dtype(x, DType::kFloat32);
      normed = layer_norm(wide, {}, {});
    }
    return to_dtype(normed, orig_dtype);
  }
};

struct OlmoAttention : HeadProjections {
  OlmoAttention(ModuleBuilder& b, const OlmoSpec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias) {
    rotation = rotate_in_float32;
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = q_proj(hidden_states);
    Tensor key_states = k_proj(hidden_states);
    Tensor value_states = v_proj(hidden_states);
    for (Tensor* states : {&query_states, &key_states, &value_states}) {
      *states = transpose(view(*states, {hidden_states.size(0), hidden_states.size(1), -1, head_dim}), 1, 2);
    }
    rotate_heads(query_states, key_states, positions);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

}  // namespace

std::unique_ptr<Model> build_olmo(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<OlmoSpec>();
  auto plan = decoder_plan<PreNormLayer<OlmoSpec, OlmoAttention, OlmoLayerNorm>, OlmoLayerNorm>(spec, run);
  plan.float32_positions = true;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
