// GLM-4.5 and 4.6: transformers models/glm4_moe/modeling_glm4_moe.py. Its multi-token-prediction module is used in
// generation only.
// MIRRORS(transformers, "models/glm4_moe/modeling_glm4_moe.py", "5.17.0")
#include <optional>

#include "memcalc/families/glm4_moe/spec.h"
#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct Glm4MoeAttention : HeadProjections {
  std::optional<RmsNorm> q_norm, k_norm;

  Glm4MoeAttention(ModuleBuilder& b, const Glm4MoeSpec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        /*output_bias=*/false) {
    if (!spec.use_qk_norm) return;
    q_norm = RmsNorm(b, "q_norm", spec.head_dim);
    k_norm = RmsNorm(b, "k_norm", spec.head_dim);
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = heads(q_proj, hidden_states);
    Tensor key_states = heads(k_proj, hidden_states);
    Tensor value_states = heads(v_proj, hidden_states);
    if (q_norm) {
      query_states = (*q_norm)(query_states);
      key_states = (*k_norm)(key_states);
    }
    for (Tensor* states : {&query_states, &key_states, &value_states}) *states = transpose(*states, 1, 2);
    apply_partial_rotary(query_states, key_states, positions);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

struct Glm4MoeTopkRouter : GroupedSigmoidRouter {
  Glm4MoeTopkRouter(ModuleBuilder& b, const Glm4MoeSpec& spec) : GroupedSigmoidRouter(b, spec, DType::kFloat32) {}
};

using Glm4MoeMoe = MixtureWithShared<Glm4MoeSpec, Glm4MoeTopkRouter>;

struct Glm4MoeLayer : DenseFirstLayer<Glm4MoeSpec, Glm4MoeAttention, Glm4MoeMoe> {
  Glm4MoeLayer(ModuleBuilder& b, const Glm4MoeSpec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : DenseFirstLayer(b, spec, run, sliding, index, /*mlp_bias=*/false) {}
};

}  // namespace

std::unique_ptr<Model> build_glm4_moe(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Glm4MoeSpec>();
  auto plan = decoder_plan<Glm4MoeLayer>(spec, run);
  plan.rotary_dim = spec.rotary_dim;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
