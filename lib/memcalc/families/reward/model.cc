// Reward models: the decoder of models/qwen2 or models/llama below a head that scores.
#include "memcalc/families/reward/spec.h"

#include <memory>

#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

std::unique_ptr<Model> build_qwen2_reward(const Architecture& architecture, const RunSpec& run,
                                          ModuleBuilder& builder) {
  const Architecture text{static_cast<const Qwen2Spec&>(architecture.as<Qwen2RewardSpec>())};
  auto plan = qwen2_plan(text, run);
  plan.scores_by_two_layers = true;
  return std::make_unique<RotaryDecoder>(text.as<Qwen2Spec>(), run, builder, plan);
}

std::unique_ptr<Model> build_internlm2_reward(const Architecture& architecture, const RunSpec& run,
                                              ModuleBuilder& builder) {
  const Architecture text{static_cast<const LlamaSpec&>(architecture.as<InternLm2RewardSpec>())};
  return std::make_unique<RotaryDecoder>(text.as<LlamaSpec>(), run, builder, llama_plan(text, run));
}

}  // namespace memcalc
