// DeepSeek-V3 and R1, GLM-4.7-Flash, Youtu-LLM: transformers models/deepseek_v3, models/glm4_moe_lite, models/youtu.
// Their modules that predict further tokens are used in generation only.
// MIRRORS(transformers, "models/deepseek_v3/modeling_deepseek_v3.py", "5.17.0")
// MIRRORS(transformers, "models/glm4_moe_lite/modeling_glm4_moe_lite.py", "5.17.0")
// MIRRORS(transformers, "models/youtu/modeling_youtu.py", "5.17.0")
#include "memcalc/families/deepseek/latent.h"
#include "memcalc/families/deepseek/spec.h"

namespace memcalc {

namespace {

struct DeepseekV3Attention : LatentAttention {
  DeepseekV3Attention(ModuleBuilder& b, const DeepseekV3Spec& spec, const RunSpec& run, bool)
      : LatentAttention(b, spec, run, rotation_of_heads(spec.rope_interleave)) {}
};

struct DeepseekV3TopkRouter : GroupedSigmoidRouter {
  DeepseekV3TopkRouter(ModuleBuilder& b, const DeepseekV3Spec& spec)
      : GroupedSigmoidRouter(b, spec, spec.float32_correction ? DType::kFloat32 : b.dtype) {}
};

using DeepseekV3Moe = MixtureWithShared<DeepseekV3Spec, DeepseekV3TopkRouter>;

struct DeepseekV3Layer : DenseFirstLayer<DeepseekV3Spec, DeepseekV3Attention, DeepseekV3Moe> {
  DeepseekV3Layer(ModuleBuilder& b, const DeepseekV3Spec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : DenseFirstLayer(b, spec, run, sliding, index, /*mlp_bias=*/false) {}
};

}  // namespace

std::unique_ptr<Model> build_deepseek_v3(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<DeepseekV3Spec>();
  return std::make_unique<RotaryDecoder>(spec, run, builder, decoder_plan<DeepseekV3Layer>(spec, run));
}

/// Glm4MoeLiteForCausalLM, whose layers are DeepSeek-V3's.
std::unique_ptr<Model> build_glm4_moe_lite(const Architecture& architecture, const RunSpec& run,
                                           ModuleBuilder& builder) {
  const auto& spec = architecture.as<DeepseekV3Spec>();
  auto plan = decoder_plan<DeepseekV3Layer>(spec, run);
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

/// YoutuForCausalLM: no layer is a mixture.
std::unique_ptr<Model> build_youtu(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return build_glm4_moe_lite(architecture, run, builder);
}

}  // namespace memcalc
