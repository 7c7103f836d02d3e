// Tensor-parallel plans that several of transformers' configuration classes have (configuration_*.py,
// base_model_tp_plan, and lm_head of modeling_*.py's _tp_plan): the last parts of the modules' names.
// Covered by tests/unit/tp_plan_test.cc.
#pragma once

#include <string_view>

namespace memcalc::family {

/// LLaMA's: attention and a gated MLP.
inline constexpr std::string_view kDensePlan[] = {"q_proj",    "k_proj",  "v_proj",    "o_proj",
                                                  "gate_proj", "up_proj", "down_proj", "lm_head"};
/// Gate and value are one weight: Mixtral's experts, the dense GLM's MLP.
inline constexpr std::string_view kFusedGatePlan[] = {"q_proj",       "k_proj",    "v_proj", "o_proj",
                                                      "gate_up_proj", "down_proj", "lm_head"};
/// Of layers of both kinds, or of experts beside a shared one.
inline constexpr std::string_view kDenseAndExpertsPlan[] = {
    "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "gate_up_proj", "lm_head"};
/// Of MLPs alone, dense ones and experts (DeepSeek-V3's): the attention stays whole.
inline constexpr std::string_view kBothMlpsPlan[] = {"gate_proj", "up_proj", "down_proj", "gate_up_proj", "lm_head"};
/// With norms of queries and keys.
inline constexpr std::string_view kNormedDensePlan[] = {"q_proj", "k_proj",    "v_proj",  "o_proj",    "q_norm",
                                                        "k_norm", "gate_proj", "up_proj", "down_proj", "lm_head"};
inline constexpr std::string_view kNormedDenseAndExpertsPlan[] = {"q_proj",    "k_proj",       "v_proj",    "o_proj",
                                                                  "q_norm",    "k_norm",       "gate_proj", "up_proj",
                                                                  "down_proj", "gate_up_proj", "lm_head"};

}  // namespace memcalc::family
