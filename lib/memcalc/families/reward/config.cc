// config.json of reward models. On the hub theirs say qwen2 and internlm2, and name classes of remote code; here such a
// model has a name of its own, since what it does with the decoder's states is another class's.
#include "memcalc/families/reward/spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

template <typename Spec, typename Base>
Architecture reward_of(HfReader& config, const Family& base) {
  const Architecture read = base.read(config);
  Spec spec;
  static_cast<Base&>(spec) = read.as<Base>();
  config.assume(
      "its class is remote code: the layers are known, and the loss is taken as transformers takes it for sequence "
      "classification, of the last token's score");
  return spec;
}

Architecture qwen2_reward(HfReader& config) { return reward_of<Qwen2RewardSpec, Qwen2Spec>(config, kQwen2); }

Architecture internlm2_reward(HfReader& config) { return reward_of<InternLm2RewardSpec, LlamaSpec>(config, kLlama); }

constexpr Task kRewardMeasured[] = {Task::kSequenceClassification};

}  // namespace

const Family kInternLm2Reward = {
    .model_type = "internlm2_reward",
    .kind = FamilyKind::kDecoder,
    .read = internlm2_reward,
    .build = build_internlm2_reward,
    .size_keys = kDecoderKeys,
    .tasks = kRewardMeasured,
    .measured = kRewardMeasured,
    .dropout_is_module = false,
};

const Family kQwen2Reward = {
    .model_type = "qwen2_reward",
    .kind = FamilyKind::kDecoder,
    .read = qwen2_reward,
    .build = build_qwen2_reward,
    .size_keys = kDecoderKeys,
    .tasks = kRewardMeasured,
    .measured = kRewardMeasured,
    .dropout_is_module = false,
};

}  // namespace memcalc::family
