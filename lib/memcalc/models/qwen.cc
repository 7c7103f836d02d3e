// Qwen2, Qwen2.5 and Qwen3: transformers models/qwen2/modeling_qwen2.py, models/qwen3/modeling_qwen3.py.
// MIRRORS(transformers, "models/qwen2/modeling_qwen2.py", "5.17.0")
// MIRRORS(transformers, "models/qwen3/modeling_qwen3.py", "5.17.0")
#include <algorithm>

#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

namespace {

struct Qwen2Attention : RotaryAttention {
  Qwen2Attention(ModuleBuilder& b, const Qwen2Spec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, /*qkv_bias=*/true,
                        /*output_bias=*/false) {}
};

template <typename Spec, typename SelfAttention>
struct Qwen : RotaryFamily<Spec, PreNormLayer<Spec, SelfAttention, RmsNorm>> {
  [[nodiscard]] static MaskPlan mask_plan(const Spec& spec) {
    MaskPlan plan;
    plan.mapping = true;
    plan.sliding_layers = spec.sliding_layers;
    plan.sliding = std::find(plan.sliding_layers.begin(), plan.sliding_layers.end(), true) != plan.sliding_layers.end();
    return plan;
  }
};

}  // namespace

std::unique_ptr<Model> build_qwen2(const Qwen2Spec& spec, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<RotaryDecoderForCausalLm<Qwen<Qwen2Spec, Qwen2Attention>>>(spec, run, builder);
}

std::unique_ptr<Model> build_qwen3(const Qwen3Spec& spec, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<RotaryDecoderForCausalLm<Qwen<Qwen3Spec, NormedRotaryAttention>>>(spec, run, builder);
}

}  // namespace memcalc
