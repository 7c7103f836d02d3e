// DeepSeek-OCR 2's text model: transformers models/deepseek_ocr2/modeling_deepseek_ocr2.py.
// MIRRORS(transformers, "models/deepseek_ocr2/modeling_deepseek_ocr2.py", "5.17.0")
#include "memcalc/families/deepseek_ocr2/spec.h"
#include "memcalc/models/routers.h"

namespace memcalc {

namespace {

struct DeepseekOcr2Attention : RotaryAttention {
  DeepseekOcr2Attention(ModuleBuilder& b, const DeepseekOcr2Spec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias) {}
};

using DeepseekOcr2Moe = MixtureWithShared<DeepseekOcr2Spec, GroupedSoftmaxRouter>;

struct DeepseekOcr2Layer : DenseFirstLayer<DeepseekOcr2Spec, DeepseekOcr2Attention, DeepseekOcr2Moe> {
  DeepseekOcr2Layer(ModuleBuilder& b, const DeepseekOcr2Spec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : DenseFirstLayer(b, spec, run, sliding, index, spec.mlp_bias) {}
};

}  // namespace

std::unique_ptr<Model> build_deepseek_ocr2(const Architecture& architecture, const RunSpec& run,
                                           ModuleBuilder& builder) {
  const auto& spec = architecture.as<DeepseekOcr2Spec>();
  auto plan = decoder_plan<DeepseekOcr2Layer>(spec, run);
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
