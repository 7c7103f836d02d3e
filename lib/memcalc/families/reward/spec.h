// Reward models whose classes stand beside their weights on the hub: Qwen2.5-Math-RM and PRM, InternLM2-Reward.
#pragma once

#include "memcalc/families/llama/spec.h"
#include "memcalc/families/qwen/spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Qwen2ForRewardModel and Qwen2ForProcessRewardModel, as vLLM (model_executor/models/qwen2_rm.py) has them after
/// modeling_qwen2_rm.py: the decoder of Qwen2, then score = nn.Linear, nn.ReLU, nn.Linear.
struct Qwen2RewardSpec : Qwen2Spec {};

/// InternLM2ForRewardModel, as vLLM (model_executor/models/internlm2.py) has it: the decoder of InternLM2, which has
/// the same parameters as LLaMA's, then v_head, a linear layer without bias.
struct InternLm2RewardSpec : LlamaSpec {};

BuildFamily build_qwen2_reward;
BuildFamily build_internlm2_reward;

namespace family {
extern const Family kInternLm2Reward, kQwen2Reward;
}  // namespace family

}  // namespace memcalc
