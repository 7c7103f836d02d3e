// OLMo 2 and 3: transformers models/olmo2/modeling_olmo2.py, models/olmo3/modeling_olmo3.py.
// MIRRORS(transformers, "models/olmo2/modeling_olmo2.py", "5.17.0")
// MIRRORS(transformers, "models/olmo3/modeling_olmo3.py", "5.17.0")
#include "memcalc/families/olmo2/spec.h"
#include "memcalc/models/float32_rms_norm.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct Olmo2Attention : HeadProjections {
  Float32RmsNorm q_norm, k_norm;  // over all heads

  Olmo2Attention(ModuleBuilder& b, const Olmo2Spec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias),
        q_norm(b, "q_norm", checked_multiply(spec.num_attention_heads, spec.head_dim)),
        k_norm(b, "k_norm", checked_multiply(spec.num_key_value_heads, spec.head_dim)) {
    rotation = rotate_in_float32;
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = q_norm(q_proj(hidden_states));
    Tensor key_states = k_norm(k_proj(hidden_states));
    Tensor value_states = v_proj(hidden_states);
    for (Tensor* states : {&query_states, &key_states, &value_states}) {
      *states = transpose(view(*states, {hidden_states.size(0), hidden_states.size(1), -1, head_dim}), 1, 2);
    }
    rotate_heads(query_states, key_states, positions);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

using Olmo2Layer = PostNormLayer<Olmo2Spec, Olmo2Attention, Float32RmsNorm>;

}  // namespace

std::unique_ptr<Model> build_olmo2(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Olmo2Spec>();
  auto plan = decoder_plan<Olmo2Layer, Float32RmsNorm>(spec, run);
  plan.float32_positions = true;
  if (!spec.sliding_layers.empty()) {  // OLMo 3 makes both masks, whatever its layers are
    plan.masks = {.full = true, .sliding = true, .mapping = true, .sliding_layers = spec.sliding_layers};
    plan.rotary_by_layer_type = true;
    plan.position_ids_first = true;
  }
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
