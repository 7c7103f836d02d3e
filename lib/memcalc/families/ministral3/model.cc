// Ministral 3: transformers models/ministral3/modeling_ministral3.py.
// MIRRORS(transformers, "models/ministral3/modeling_ministral3.py", "5.17.0")
#include "memcalc/families/ministral3/spec.h"
#include "memcalc/models/position_scale.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct Ministral3Attention : HeadProjections {
  Ministral3Attention(ModuleBuilder& b, const Ministral3Spec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, /*qkv_bias=*/false,
                        /*output_bias=*/false) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
    Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    rotate_heads(query_states, key_states, positions);
    query_states = query_states * no_grad::to(position_scale(positions.position_ids), query_states.dtype());
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

}  // namespace

DecoderPlan ministral3_plan(const Architecture& architecture, const RunSpec& run) {
  const auto& spec = architecture.as<Ministral3Spec>();
  auto plan = decoder_plan<PreNormLayer<Ministral3Spec, Ministral3Attention, RmsNorm>>(spec, run);
  plan.position_ids_first = true;
  return plan;
}

std::unique_ptr<Model> build_ministral3(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<RotaryDecoder>(architecture.as<Ministral3Spec>(), run, builder,
                                         ministral3_plan(architecture, run));
}

}  // namespace memcalc
