#include "memcalc/spec/peft_targets.h"

#include <algorithm>
#include <iterator>

#include "memcalc/spec/program.h"

namespace memcalc {

namespace {

constexpr RenamedTarget kOfMixtral[] = {
    {"gate", "gate.weight"}, {"w1", "gate_up_proj"}, {"w3", "gate_up_proj"}, {"w2", "down_proj"}};
constexpr RenamedTarget kOfQwen2Moe[] = {
    {"gate", "gate.weight"}, {"gate_proj", "gate_up_proj"}, {"up_proj", "gate_up_proj"}, {"down_proj", "down_proj"}};
constexpr ConvertedTargets kMixtral{kOfMixtral}, kQwen2Moe{kOfQwen2Moe};

/// _MODEL_TO_CONVERSION_PATTERN of transformers, to which peft adds Mixtral; qwen2_moe itself is in neither.
constexpr std::string_view kLikeMixtral[] = {"minimax", "minimax_m2", "mixtral"};
constexpr std::string_view kLikeQwen2Moe[] = {"afmoe",        "cohere2_moe",    "deepseek_v2",
                                              "deepseek_v3",  "deepseek_v32",   "dots1",
                                              "ernie4_5_moe", "exaone_moe",     "flex_olmo",
                                              "glm4_moe",     "glm4_moe_lite",  "glm4v_moe",
                                              "glm_moe_dsa",  "hunyuan_v1_moe", "longcat_flash",
                                              "mellum",       "olmoe",          "qwen3_moe",
                                              "qwen3_next",   "qwen3_omni_moe", "qwen3_omni_moe_thinker",
                                              "solar_open"};

/// "mixtral" of a program's "transformers.models.mixtral.modeling_mixtral.MixtralForCausalLM, …".
std::string_view type_in_source(std::string_view source) {
  constexpr std::string_view kModels = "transformers.models.";
  if (!source.starts_with(kModels)) return {};
  source.remove_prefix(kModels.size());
  return source.substr(0, source.find('.'));
}

template <std::size_t count>
bool has(const std::string_view (&types)[count], std::string_view type) {
  return std::find(std::begin(types), std::end(types), type) != std::end(types);
}

}  // namespace

bool ends_in_target(std::string_view name, std::string_view target) {
  if (name == target) return true;
  return name.size() > target.size() && name.ends_with(target) && name[name.size() - target.size() - 1] == '.';
}

std::string_view ConvertedTargets::parameter_of(std::string_view target) const {
  for (const RenamedTarget& each : renamed) {
    if (ends_in_target(target, each.module)) return each.parameter;
  }
  return {};
}

bool ConvertedTargets::is_fused(std::string_view parameter) const {
  return std::count_if(renamed.begin(), renamed.end(),
                       [&](const RenamedTarget& each) { return each.parameter == parameter; }) == 2;
}

const ConvertedTargets* converted_targets(const ModelSpec& model) {
  const auto* program = model.architecture.get_if<ProgramSpec>();
  const std::string_view type = program != nullptr ? type_in_source(program->program->source) : model.model_type;
  if (has(kLikeMixtral, type)) return &kMixtral;
  return has(kLikeQwen2Moe, type) ? &kQwen2Moe : nullptr;
}

}  // namespace memcalc
