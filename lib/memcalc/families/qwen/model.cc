// Qwen2, Qwen2.5 and Qwen3: transformers models/qwen2/modeling_qwen2.py, models/qwen3/modeling_qwen3.py.
// MIRRORS(transformers, "models/qwen2/modeling_qwen2.py", "5.17.0")
// MIRRORS(transformers, "models/qwen3/modeling_qwen3.py", "5.17.0")
#include "memcalc/families/qwen/spec.h"
#include "memcalc/models/megatron_config.h"
#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

namespace {

struct Qwen2Attention : RotaryAttention {
  Qwen2Attention(ModuleBuilder& b, const Qwen2Spec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, /*qkv_bias=*/true,
                        /*output_bias=*/false) {}
};

template <typename Spec, typename SelfAttention>
using QwenLayer = PreNormLayer<Spec, SelfAttention, RmsNorm>;

}  // namespace

DecoderPlan qwen2_plan(const Architecture& architecture, const RunSpec& run) {
  const auto& spec = architecture.as<Qwen2Spec>();
  auto plan = decoder_plan<QwenLayer<Qwen2Spec, Qwen2Attention>>(spec, run);
  plan.masks = MaskPlan::mapped(spec.sliding_layers);
  return plan;
}

std::unique_ptr<Model> build_qwen2(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<RotaryDecoder>(architecture.as<Qwen2Spec>(), run, builder, qwen2_plan(architecture, run));
}

DecoderPlan qwen3_plan(const Architecture& architecture, const RunSpec& run) {
  const auto& spec = architecture.as<Qwen3Spec>();
  auto plan = decoder_plan<QwenLayer<Qwen3Spec, NormedRotaryAttention>>(spec, run);
  plan.masks = MaskPlan::mapped(spec.sliding_layers);
  return plan;
}

std::unique_ptr<Model> build_qwen3(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<RotaryDecoder>(architecture.as<Qwen3Spec>(), run, builder, qwen3_plan(architecture, run));
}

void qwen2_to_megatron(const Architecture& architecture, MegatronConfig& config) {
  const auto& spec = architecture.as<Qwen2Spec>();
  take_decoder(config, spec);
}

void qwen3_to_megatron(const Architecture& architecture, MegatronConfig& config) {
  const auto& spec = architecture.as<Qwen3Spec>();
  take_decoder(config, spec);
  config.qk_layernorm = true;
}

}  // namespace memcalc
