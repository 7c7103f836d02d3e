#include "memcalc/train/tp_plan.h"

#include <algorithm>
#include <initializer_list>
#include <span>

namespace memcalc {

namespace {

constexpr std::string_view kDecoder[] = {"q_proj",    "k_proj",  "v_proj",    "o_proj",
                                         "gate_proj", "up_proj", "down_proj", "lm_head"};
constexpr std::string_view kWithNorms[] = {"q_proj", "k_proj",    "v_proj",  "o_proj",    "q_norm",
                                           "k_norm", "gate_proj", "up_proj", "down_proj", "lm_head"};
constexpr std::string_view kGemma[] = {"embed_tokens", "q_proj",    "k_proj",  "v_proj",
                                       "o_proj",       "gate_proj", "up_proj", "down_proj"};
constexpr std::string_view kGemma3[] = {"embed_tokens", "q_proj", "k_proj",    "v_proj",  "o_proj",
                                        "q_norm",       "k_norm", "gate_proj", "up_proj", "down_proj"};
constexpr std::string_view kPhi[] = {"q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2", "lm_head"};
constexpr std::string_view kPhi3[] = {"qkv_proj", "o_proj", "gate_up_proj", "down_proj", "lm_head"};
constexpr std::string_view kMixtral[] = {"q_proj",       "k_proj",    "v_proj", "o_proj",
                                         "gate_up_proj", "down_proj", "lm_head"};
constexpr std::string_view kQwen3Moe[] = {"q_proj",    "k_proj",  "v_proj",    "o_proj",       "q_norm", "k_norm",
                                          "gate_proj", "up_proj", "down_proj", "gate_up_proj", "lm_head"};
constexpr std::string_view kGptNeoX[] = {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h", "lm_head"};
constexpr std::string_view kGptOss[] = {"lm_head"};
constexpr std::string_view kDeepseekV2[] = {"q_proj",    "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj",    "o_proj",
                                            "gate_proj", "up_proj",  "down_proj",          "gate_up_proj", "lm_head"};
constexpr std::string_view kDeepseekV3[] = {"gate_proj", "up_proj", "down_proj", "gate_up_proj", "lm_head"};

struct Plan {
  std::string_view model_type;
  std::span<const std::string_view> modules;  // the last part of their names
};

constexpr Plan kPlans[] = {
    {"llama", kDecoder},    {"mistral", kDecoder}, {"qwen2", kDecoder},          {"olmo2", kDecoder},
    {"qwen3", kWithNorms},  {"gemma", kGemma},     {"gemma2", kGemma},           {"gemma3_text", kGemma3},
    {"phi", kPhi},          {"phi3", kPhi3},       {"mixtral", kMixtral},        {"qwen3_moe", kQwen3Moe},
    {"gpt_neox", kGptNeoX}, {"gpt_oss", kGptOss},  {"deepseek_v2", kDeepseekV2}, {"deepseek_v3", kDeepseekV3},
};

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

bool is_in_tp_plan(std::string_view model_type, std::string_view parameter) {
  const auto* const plan = std::find_if(std::begin(kPlans), std::end(kPlans),
                                        [&](const Plan& each) { return each.model_type == model_type; });
  if (plan == std::end(kPlans)) return false;
  std::string_view module = parameter;  // of fused experts the parameter itself is named
  for (const std::string_view leaf : {".weight", ".bias"}) {
    if (module.ends_with(leaf)) module.remove_suffix(leaf.size());
  }
  return std::find(plan->modules.begin(), plan->modules.end(), last_part(module)) != plan->modules.end();
}

}  // namespace memcalc
