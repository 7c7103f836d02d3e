// EXAONE 4: transformers models/exaone4/modeling_exaone4.py.
// MIRRORS(transformers, "models/exaone4/modeling_exaone4.py", "5.17.0")
#include "memcalc/families/exaone4/spec.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct Exaone4Attention : HeadProjections {
  RmsNorm q_norm, k_norm;

  Exaone4Attention(ModuleBuilder& b, const Exaone4Spec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, /*qkv_bias=*/false,
                        /*output_bias=*/false),
        q_norm(b, "q_norm", spec.head_dim),
        k_norm(b, "k_norm", spec.head_dim) {
    rotates = !spec.sliding_window || sliding;
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
    Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    query_states = q_norm(query_states);
    key_states = k_norm(key_states);
    rotate_heads(query_states, key_states, positions);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

}  // namespace

std::unique_ptr<Model> build_exaone4(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Exaone4Spec>();
  auto plan = decoder_plan<PostNormLayer<Exaone4Spec, Exaone4Attention, RmsNorm>>(spec, run);
  plan.masks = MaskPlan::mapped(spec.sliding_layers);
  plan.position_ids_first = true;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
