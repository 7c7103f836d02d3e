// Hunyuan V1 without experts: transformers models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py.
// MIRRORS(transformers, "models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py", "5.17.0")
#include "memcalc/families/hunyuan_v1_dense/spec.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct HunyuanAttention : HeadProjections {
  RmsNorm query_layernorm, key_layernorm;

  HunyuanAttention(ModuleBuilder& b, const HunyuanSpec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias),
        query_layernorm(b, "query_layernorm", spec.head_dim),
        key_layernorm(b, "key_layernorm", spec.head_dim) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
    Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    rotate_heads(query_states, key_states, positions);
    query_states = query_layernorm(query_states);
    key_states = key_layernorm(key_states);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

}  // namespace

std::unique_ptr<Model> build_hunyuan(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<HunyuanSpec>();
  auto plan = decoder_plan<PreNormLayer<HunyuanSpec, HunyuanAttention, RmsNorm>>(spec, run);
  plan.late_buffers = [half = spec.head_dim / 2](ModuleBuilder& b) {  // its own _init_weights, behind the base class's
    Tensor inverse;
    {
      const Tensor powers = no_grad::power_of_number(no_grad::divide(no_grad::arange(b.tape, half, DType::kFloat32)));
      inverse = no_grad::multiply(no_grad::reciprocal(powers));
    }
    inverse.reset();
  };
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
