#include "memcalc/spec/text_part.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "memcalc/spec/json_node.h"
#include "memcalc/spec/names.h"

namespace memcalc {
namespace {

struct Name {
  std::string_view of, to;
};

/// A model around a text model. The path ends at the text model's object; none: its keys are those of the whole.
struct Whole {
  std::string_view model_type;
  std::array<std::string_view, 2> path;
  std::string_view fallback;  // the text's type where it says none
  std::string_view rest;      // what is left out
  bool tied = false;          // tie_word_embeddings of the whole where it says nothing
};

constexpr std::string_view kSees = "what sees images", kHears = "what hears, sees and speaks";

// models/*/configuration_*.py of transformers 5.17; internvl_chat, kimi_vl, minicpm and bailing: the hub's own code.
constexpr Whole kWholes[] = {
    {"bailing_moe", {}, "bailing_moe", ""},
    {"bailing_moe_v2", {}, "bailing_moe", ""},
    {"deepseek_ocr2", {"text_config"}, "deepseek_ocr2_text", kSees},
    {"glm4v", {"text_config"}, "glm4v_text", kSees},
    {"glm4v_moe", {"text_config"}, "glm4v_moe_text", kSees},
    {"glm46v", {"text_config"}, "glm4v_moe_text", kSees},
    {"internvl_chat", {"llm_config"}, "qwen2", kSees},
    {"kimi_k25", {"text_config"}, "deepseek_v3", kSees, true},
    {"kimi_vl", {"text_config"}, "deepseek_v3", kSees},
    {"lfm2_vl", {"text_config"}, "lfm2", kSees, true},
    {"llava_next", {"text_config"}, "llama", kSees},
    {"llava_onevision", {"text_config"}, "qwen2", kSees},
    {"minimax_m3_vl", {"text_config"}, "minimax_m3_vl_text", kSees},
    {"minicpmo", {}, "minicpmv", kHears},
    {"minicpmv", {}, "minicpmv", kSees},
    {"qwen2_5_omni", {"thinker_config", "text_config"}, "qwen2_5_omni_text", kHears},
    {"qwen2_audio", {"text_config"}, "qwen2", "what hears"},
    {"qwen3_omni_moe", {"thinker_config", "text_config"}, "qwen3_omni_moe_text", kHears},
    {"voxtral", {"text_config"}, "llama", "what hears"},
};

// Text models whose class is another family's but for three kinds of positions, which text alone has in one.
constexpr Name kAs[] = {
    {"bailing_moe", "glm4_moe"},
    {"glm4v_text", "glm4"},
    {"glm4v_moe_text", "glm4_moe"},
    {"qwen2_5_omni_text", "qwen2"},
    {"qwen3_omni_moe_text", "qwen3_moe"},
    {"deepseek_v2", "deepseek_v2"},
    {"deepseek_v3", "deepseek_v3"},
    {"kimi_k2", "deepseek_v3"},
    {"qwen2", "qwen2"},
    {"qwen3", "qwen3"},
    {"qwen3_moe", "qwen3_moe"},
    {"llama", "llama"},
    {"mistral", "mistral"},
    {"lfm2", "lfm2"},
    {"phi3", "phi3"},
    {"deepseek_ocr2_text", "deepseek_ocr2_text"},
    {"minimax_m3_vl_text", "minimax_m3_vl_text"},
};

// What the whole says for the text model, too.
constexpr std::string_view kOfWhole[] = {"dtype", "quantization_config", "torch_dtype"};

JsonNode* child_of(JsonNode& node, std::string_view key) {
  const auto found =
      std::find_if(node.children.begin(), node.children.end(), [&](const JsonNode& child) { return child.key == key; });
  return found == node.children.end() ? nullptr : &*found;
}

void set_missing(JsonNode& node, std::string_view key, JsonNode value) {
  if (child_of(node, key) != nullptr) return;
  value.key = std::string(key);
  node.children.push_back(std::move(value));
}

JsonNode truth(bool value) { return {.kind = JsonNode::Kind::kBool, .boolean = value}; }

/// Whether the head shares the embedding's weight: the whole says it, and the text model may.
void take_tie(const JsonObject& config, bool fallback, JsonNode& node) {
  constexpr std::string_view kKey = "tie_word_embeddings";
  const bool outer = config.optional_bool(kKey).value_or(fallback);
  JsonNode* const inner = child_of(node, kKey);
  const bool tied = outer || (inner != nullptr && inner->boolean);
  if (inner != nullptr) {
    inner->kind = JsonNode::Kind::kBool;
    inner->boolean = tied;
  } else if (outer || config.has(kKey)) {
    set_missing(node, kKey, truth(tied));
  }
}

/// BailingMoeV2's keys under the names of Glm4MoeConfig. The first Ling models have another router and no norms.
void take_bailing(const JsonObject& config, JsonNode& node) {
  if (!config.optional_bool("use_qk_norm").value_or(false)) {
    throw config.error("use_qk_norm", "a Bailing model without norms of query and key is not modelled; accepted: true",
                       ErrorCode::kUnsupported);
  }
  for (const Name& name : {Name{"num_experts", "n_routed_experts"}, Name{"num_shared_experts", "n_shared_experts"},
                           Name{"use_qkv_bias", "attention_bias"}}) {
    if (JsonNode* const child = child_of(node, name.of)) child->key = std::string(name.to);
  }
}

/// Which text model a MiniCPM-V or MiniCPM-o has, which its version says (configuration_minicpm.py on the hub).
std::string minicpm_text(const JsonObject& config) {
  double version = 0;
  if (config.is_string("version")) {
    const std::string text = config.required_string("version");
    version = text == "2.6" ? 2.6 : text == "4.0" ? 4.0 : text == "4.5" ? 4.5 : 0;
  } else {
    version = config.nullable_double("version").value_or(0);
  }
  if (version == 2.6) return "qwen2";
  if (version == 4.0) return "llama";
  if (version == 4.5) return "qwen3";
  throw config.error("version", "the text model of this version is not modelled; accepted: 2.6, 4.0, 4.5",
                     ErrorCode::kUnsupported);
}

std::string family_of_text(const JsonObject& config, const std::string& type) {
  if (type == "minicpmv") return minicpm_text(config);
  const auto* const found = std::find_if(std::begin(kAs), std::end(kAs), [&](const Name& as) { return as.of == type; });
  if (found != std::end(kAs)) return std::string(found->to);
  throw config.error("model_type", one_line(type) + ", its text model, is not modelled", ErrorCode::kUnsupported);
}

}  // namespace

std::optional<TextPart> text_part_of(const JsonObject& config, std::string_view model_type) {
  const auto* const whole = std::find_if(std::begin(kWholes), std::end(kWholes),
                                         [&](const Whole& each) { return each.model_type == model_type; });
  if (whole == std::end(kWholes)) return std::nullopt;
  JsonNode node = config.node();
  std::string name = config.file();
  std::string type(whole->fallback);
  for (const std::string_view key : whole->path) {
    if (key.empty()) continue;
    JsonNode* const inner = child_of(node, key);
    const bool is_there = inner != nullptr && inner->kind == JsonNode::Kind::kObject;
    JsonNode part = is_there ? std::move(*inner) : JsonNode{.kind = JsonNode::Kind::kObject};
    part.key.clear();
    node = std::move(part);
    name += ": /" + std::string(key);
  }
  if (!whole->path.front().empty() && type != "minimax_m3_vl_text") {  // which drops the text's own model_type
    const JsonNode* const own = child_of(node, "model_type");
    if (own != nullptr && own->kind == JsonNode::Kind::kString && !own->text.empty()) type = own->text;
  }
  if (!whole->path.front().empty()) {
    for (const JsonNode& outer : config.node().children) {
      if (std::find(std::begin(kOfWhole), std::end(kOfWhole), outer.key) != std::end(kOfWhole)) {
        set_missing(node, outer.key, outer);
      }
    }
    take_tie(config, whole->tied, node);
  }
  const std::string family = family_of_text(config, type);
  if (type == "bailing_moe") take_bailing(config, node);
  if (type == "glm4v_text" || type == "glm4v_moe_text") set_missing(node, "attention_bias", truth(true));
  std::string said = whole->rest.empty() ? std::string(model_type) + " is counted by the modules of " + family +
                                               ", which its own repeat"
                                         : std::string(model_type) + " is its text model alone (" + family +
                                               "): " + std::string(whole->rest) + " is not modelled from config.json";
  return TextPart{JsonDocument::of(std::move(node), std::move(name)), family, std::move(said)};
}

std::vector<std::string_view> types_with_text_part() {
  std::vector<std::string_view> types;
  for (const Whole& each : kWholes) types.push_back(each.model_type);
  return types;
}

}  // namespace memcalc
