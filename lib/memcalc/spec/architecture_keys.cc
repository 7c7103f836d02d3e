#include "memcalc/spec/architecture_keys.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/names.h"

namespace memcalc {

namespace {

constexpr std::size_t kFlags = 9;
// In the order of ArchitectureChanges.
constexpr std::array<std::string_view, kFlags> kFlagNames = {
    "layers", "hidden", "heads", "kv-heads", "head-dim", "ffn", "vocab", "max-positions", "tie"};

/// A size stands under one key, or under two where an encoder and a decoder have it each; none: the family has no such
/// size.
struct Keys {
  std::string_view first, second;

  [[nodiscard]] bool empty() const { return first.empty(); }
};

using Row = std::array<Keys, kFlags>;

constexpr Row kGeneral = {{{"num_hidden_layers", ""},
                           {"hidden_size", ""},
                           {"num_attention_heads", ""},
                           {},
                           {},
                           {"intermediate_size", ""},
                           {"vocab_size", ""},
                           {"max_position_embeddings", ""},
                           {"tie_word_embeddings", ""}}};

constexpr Row with(Row row, std::size_t flag, Keys keys) {
  row[flag] = keys;
  return row;
}

constexpr Row kGrouped = with(with(kGeneral, 3, {"num_key_value_heads", ""}), 4, {"head_dim", ""});
constexpr Row kImages = with(with(with(kGeneral, 6, {}), 7, {}), 8, {});
constexpr Row kGpt2 = {{{"n_layer", ""},
                        {"n_embd", ""},
                        {"n_head", ""},
                        {},
                        {},
                        {"n_inner", ""},
                        {"vocab_size", ""},
                        {"n_positions", ""},
                        {"tie_word_embeddings", ""}}};
constexpr Row kDistilBert = {{{"n_layers", ""},
                              {"dim", ""},
                              {"n_heads", ""},
                              {},
                              {},
                              {"hidden_dim", ""},
                              {"vocab_size", ""},
                              {"max_position_embeddings", ""},
                              {"tie_word_embeddings", ""}}};
constexpr Row kT5 = {{{"num_layers", "num_decoder_layers"},
                      {"d_model", ""},
                      {"num_heads", ""},
                      {},
                      {"d_kv", ""},
                      {"d_ff", ""},
                      {"vocab_size", ""},
                      {},
                      {"tie_word_embeddings", ""}}};
constexpr Row kBart = {{{"encoder_layers", "decoder_layers"},
                        {"d_model", ""},
                        {"encoder_attention_heads", "decoder_attention_heads"},
                        {},
                        {},
                        {"encoder_ffn_dim", "decoder_ffn_dim"},
                        {"vocab_size", ""},
                        {"max_position_embeddings", ""},
                        {"tie_word_embeddings", ""}}};

struct Family {
  std::string_view model_type;
  Row row;
};

constexpr Family kFamilies[] = {
    {"bart", kBart},
    {"bert", kGeneral},
    {"deepseek_v2", with(kGeneral, 2, {"num_attention_heads", "num_key_value_heads"})},
    {"deepseek_v3", with(kGeneral, 2, {"num_attention_heads", "num_key_value_heads"})},
    {"deit", kImages},
    {"distilbert", kDistilBert},
    {"electra", kGeneral},
    {"gemma", kGrouped},
    {"gemma2", kGrouped},
    {"gemma3_text", kGrouped},
    {"gpt2", kGpt2},
    {"gpt_neox", kGeneral},
    {"gpt_oss", kGrouped},
    {"llama", kGrouped},
    {"mistral", kGrouped},
    {"mixtral", kGrouped},
    {"mt5", kT5},
    {"olmo2", kGrouped},
    {"opt", with(kGeneral, 5, {"ffn_dim", ""})},
    {"phi", kGrouped},
    {"phi3", kGrouped},
    {"qwen2", kGrouped},
    {"qwen3", kGrouped},
    {"qwen3_moe", kGrouped},
    {"roberta", kGeneral},
    {"t5", kT5},
    {"vit", kImages},
    {"whisper", with(kBart, 7, {"max_target_positions", ""})},
};

/// Keys that hold the hidden size once more where nothing is projected.
constexpr std::array<std::string_view, 2> kFollowHidden = {"embedding_size", "word_embed_proj_dim"};

const Family* family_of(std::string_view model_type) {
  const auto* found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                   [&](const Family& family) { return family.model_type == model_type; });
  return found == std::end(kFamilies) ? nullptr : found;
}

std::array<std::optional<std::int64_t>, kFlags> values_of(const ArchitectureChanges& c) {
  std::optional<std::int64_t> tie;
  if (c.tie) tie = *c.tie ? 1 : 0;
  return {c.layers, c.hidden, c.heads, c.kv_heads, c.head_dim, c.ffn, c.vocabulary, c.max_positions, tie};
}

constexpr std::size_t kTie = kFlags - 1;

std::string shown(std::size_t flag, std::int64_t value) {
  return flag == kTie ? (value != 0 ? "true" : "false") : std::to_string(value);
}

/// A value as the config has it now; nothing where it has none, or none of that kind.
std::optional<std::int64_t> value_in(const JsonObject* config, std::string_view key, bool boolean) {
  if (config == nullptr || !config->has(key) || config->is_null(key)) return std::nullopt;
  if (!boolean) return config->optional_int(key);
  return config->required_bool(key) ? 1 : 0;
}

class Changer {
 public:
  explicit Changer(const JsonObject* config) : config_(config) {}

  void set(std::size_t flag, std::string_view key, std::int64_t value) {
    const std::optional<std::int64_t> before = value_in(config_, key, flag == kTie);
    if (config_ != nullptr) {
      result.told.push_back(std::string(key) + " = " + shown(flag, value) +
                            (before ? " instead of " + shown(flag, *before) : "") + " (--" +
                            (flag == kTie && value == 0 ? "no-" : "") + std::string(kFlagNames[flag]) + ")");
    }
    result.keys.push_back({.key = std::string(key), .value = value, .boolean = flag == kTie});
    if (flag != 1 || !before) return;
    for (const std::string_view follower : kFollowHidden) {
      if (value_in(config_, follower, false) == before) {
        result.keys.push_back({.key = std::string(follower), .value = value});
      }
    }
  }
  /// transformers also takes the general names; two that differ would contradict each other.
  void remove_general_name(std::size_t flag, const Keys& own) {
    const std::string_view general = kGrouped[flag].first;
    if (general == own.first || config_ == nullptr || !config_->has(general)) return;
    result.keys.push_back({.key = std::string(general)});
  }
  void remove_layer_types() {
    if (config_ == nullptr || !config_->has("layer_types")) return;
    result.keys.push_back({.key = "layer_types"});
    result.told.emplace_back("layer_types: the family's own pattern; the config's is for another number of layers");
  }

  ConfigChanges result;

 private:
  const JsonObject* config_;
};

}  // namespace

bool ArchitectureChanges::empty() const { return text().empty(); }

std::string ArchitectureChanges::text() const {
  std::vector<std::string> words;
  const auto values = values_of(*this);
  for (std::size_t i = 0; i < kFlags; ++i) {
    if (values[i]) words.push_back(std::string(kFlagNames[i]) + "=" + shown(i, *values[i]));
  }
  return join(words);
}

bool has_architecture_keys(std::string_view model_type) { return family_of(model_type) != nullptr; }

ConfigChanges config_changes(const std::string& model_type, const ArchitectureChanges& changes,
                             const JsonObject* config) {
  const Family* family = family_of(model_type);
  if (family == nullptr) {
    throw Error(ErrorCode::kUsage, one_line(model_type) +
                                       ": its sizes cannot be changed by options; accepted: another " +
                                       "model, or a config.json");
  }
  std::vector<std::string> known;
  for (std::size_t i = 0; i < kFlags; ++i) {
    if (!family->row[i].empty()) known.push_back("--" + std::string(kFlagNames[i]));
  }
  Changer changer(config);
  const auto values = values_of(changes);
  for (std::size_t i = 0; i < kFlags; ++i) {
    if (!values[i]) continue;
    const Keys& keys = family->row[i];
    if (keys.empty()) {
      throw Error(ErrorCode::kUsage,
                  "--" + std::string(kFlagNames[i]) + ": " + model_type + " has no such size; it has " + join(known));
    }
    changer.set(i, keys.first, *values[i]);
    if (!keys.second.empty()) changer.set(i, keys.second, *values[i]);
    changer.remove_general_name(i, keys);
  }
  if (changes.layers) changer.remove_layer_types();
  const bool resized = changes.hidden || changes.heads;
  if (resized && !changes.head_dim && !family->row[4].empty()) {
    if (const auto head_dim = value_in(config, family->row[4].first, false)) {
      changer.result.told.push_back(std::string(family->row[4].first) + " stays " + std::to_string(*head_dim) +
                                    ", as the config says (--head-dim)");
    }
  }
  return std::move(changer.result);
}

}  // namespace memcalc
