// dots.llm1: transformers models/dots1/modeling_dots1.py.
// MIRRORS(transformers, "models/dots1/modeling_dots1.py", "5.17.0")
#include "memcalc/families/dots1/spec.h"
#include "memcalc/models/routers.h"

namespace memcalc {

namespace {

using Dots1Moe = MixtureWithShared<Dots1Spec, GroupedSigmoidRouter>;

struct Dots1Layer : DenseFirstLayer<Dots1Spec, NormedRotaryAttention, Dots1Moe> {
  Dots1Layer(ModuleBuilder& b, const Dots1Spec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : DenseFirstLayer(b, spec, run, sliding, index, /*mlp_bias=*/false) {}
};

}  // namespace

std::unique_ptr<Model> build_dots1(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Dots1Spec>();
  auto plan = decoder_plan<Dots1Layer>(spec, run);
  plan.masks = MaskPlan::mapped(spec.sliding_layers);
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
