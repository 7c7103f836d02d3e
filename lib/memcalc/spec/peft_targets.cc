#include "memcalc/spec/peft_targets.h"

#include <algorithm>
#include <iterator>
#include <regex>

#include "memcalc/spec/names.h"
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

struct NamePattern::Compiled {
  std::regex regex;
};

NamePattern::NamePattern(const std::string& pattern) {
  constexpr std::size_t kLongest = 1000;
  if (pattern.size() > kLongest) throw refusal(rules::kLoraPattern, {one_line(pattern, 40)});
  auto flags = std::regex::ECMAScript | std::regex::optimize;
#ifdef __GLIBCXX__
  flags |= std::regex_constants::__polynomial;  // no pattern takes exponential time; references back are refused
#endif
  try {
    compiled_ = std::make_shared<const Compiled>(Compiled{std::regex(pattern, flags)});
  } catch (const std::regex_error&) {
    throw refusal(rules::kLoraPattern, {one_line(pattern)});
  }
}

bool NamePattern::matches(std::string_view name) const {
  return std::regex_match(name.begin(), name.end(), compiled_->regex);
}

std::optional<NamePattern> pattern_of(const std::vector<std::string>& targets) {
  if (targets.size() != 1 || !targets.front().starts_with(kPatternPrefix)) return std::nullopt;
  return NamePattern(targets.front().substr(kPatternPrefix.size()));
}

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
