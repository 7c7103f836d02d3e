#include "memcalc/spec/text_config.h"

#include <algorithm>
#include <string>
#include <vector>

#include "memcalc/families/gemma/spec.h"
#include "memcalc/families/llama/spec.h"
#include "memcalc/families/ministral3/spec.h"
#include "memcalc/families/qwen/spec.h"
#include "memcalc/families/qwen3_moe/spec.h"
#include "memcalc/spec/config_part.h"
#include "memcalc/spec/json_node.h"
#include "memcalc/spec/names.h"

namespace memcalc::family {
namespace {

struct TextFamily {
  const Family& family;
  ImageTextSpec (*around)(const Architecture& text);
};

const TextFamily kTextFamilies[] = {
    {kLlama, around_text<LlamaSpec>},       {kMistral, around_text<LlamaSpec>},
    {kQwen2, around_text<Qwen2Spec>},       {kQwen3, around_text<Qwen3Spec>},
    {kGemma, around_text<GemmaSpec>},       {kGemma2, around_text<Gemma2Spec>},
    {kGemma3Text, around_text<Gemma3Spec>}, {kMinistral3, around_text<Ministral3Spec>},
    {kQwen3Moe, around_text<Qwen3MoeSpec>},
};

}  // namespace

ImageTextSpec read_text_config(HfReader& config, std::span<const std::string_view> types, std::string_view fallback,
                               const TextConfig& how) {
  const JsonDocument none = JsonDocument::parse("{}", config.json().file());
  const JsonObject part = config.json().nullable_object(how.key).value_or(none.root());
  std::string type = part.nullable_string("model_type").value_or(std::string(fallback));
  if (type == how.own_type) type = fallback;
  const auto found = std::find_if(std::begin(kTextFamilies), std::end(kTextFamilies),
                                  [&](const TextFamily& each) { return each.family.model_type == type; });
  if (found == std::end(kTextFamilies) || std::find(types.begin(), types.end(), type) == types.end()) {
    throw part.error("model_type",
                     one_line(type) + " is not modelled here; accepted: " +
                         join(std::vector<std::string>(types.begin(), types.end())),
                     ErrorCode::kUnsupported);
  }
  HfReader text(part, type);
  ImageTextSpec spec = found->around(found->family.read(text));
  for (std::string& line : text.assumptions()) config.assume(std::move(line));
  const bool outer = config.flag("tie_word_embeddings", how.tied);
  spec.tie_word_embeddings = outer || (how.tie == TieKey::kEither && spec.tie_word_embeddings);
  return spec;
}

NumberOrList number_or_list(const JsonObject& config, std::string_view key, std::int64_t fallback, IntRange range) {
  const std::vector<JsonNode>& members = config.node().children;
  const auto found =
      std::find_if(members.begin(), members.end(), [&](const JsonNode& member) { return member.key == key; });
  if (found == members.end() || found->kind != JsonNode::Kind::kArray) {
    return {.numbers = {config.nullable_int(key, range).value_or(fallback)}};
  }
  return {.numbers = config.required_ints(key, range), .is_list = true};
}

}  // namespace memcalc::family
