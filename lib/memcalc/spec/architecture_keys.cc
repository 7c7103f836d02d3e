#include "memcalc/spec/architecture_keys.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/names.h"

namespace memcalc {

namespace {

constexpr std::size_t kFlags = std::tuple_size_v<SizeKeysOfFamily>;
// In the order of ArchitectureChanges.
constexpr std::array<std::string_view, kFlags> kFlagNames = {
    "layers", "hidden", "heads", "kv-heads", "head-dim", "ffn", "vocab", "max-positions", "tie", "image"};

/// Keys that hold the hidden size once more where nothing is projected.
constexpr std::array<std::string_view, 2> kFollowHidden = {"embedding_size", "word_embed_proj_dim"};

/// Null: its sizes are no options.
const Family* resizable(std::string_view model_type) {
  const Family* const family = find_family(model_type);
  return family != nullptr && !family->size_keys.front().empty() ? family : nullptr;
}

std::array<std::optional<std::int64_t>, kFlags> values_of(const ArchitectureChanges& c) {
  std::optional<std::int64_t> tie;
  if (c.tie) tie = *c.tie ? 1 : 0;
  return {c.layers, c.hidden, c.heads, c.kv_heads, c.head_dim, c.ffn, c.vocabulary, c.max_positions, tie, c.image};
}

constexpr std::size_t kTie = 8, kImage = 9;

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
  void remove_general_name(std::size_t flag, const SizeKeys& own) {
    const std::string_view general = kDecoderKeys[flag].first;
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

bool has_image_key(std::string_view model_type) {
  const Family* const family = resizable(model_type);
  return family != nullptr && !family->size_keys[kImage].empty();
}

bool has_architecture_keys(std::string_view model_type) { return resizable(model_type) != nullptr; }

ConfigChanges config_changes(const std::string& model_type, const ArchitectureChanges& changes,
                             const JsonObject* config) {
  const Family* family = resizable(model_type);
  if (family == nullptr) {
    throw Error(ErrorCode::kUsage, one_line(model_type) +
                                       ": its sizes cannot be changed by options; accepted: another " +
                                       "model, or a config.json");
  }
  std::vector<std::string> known;
  for (std::size_t i = 0; i < kFlags; ++i) {
    if (!family->size_keys[i].empty()) known.push_back("--" + std::string(kFlagNames[i]));
  }
  Changer changer(config);
  const auto values = values_of(changes);
  for (std::size_t i = 0; i < kFlags; ++i) {
    if (!values[i]) continue;
    const SizeKeys& keys = family->size_keys[i];
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
  if (resized && !changes.head_dim && !family->size_keys[4].empty()) {
    if (const auto head_dim = value_in(config, family->size_keys[4].first, false)) {
      changer.result.told.push_back(std::string(family->size_keys[4].first) + " stays " + std::to_string(*head_dim) +
                                    ", as the config says (--head-dim)");
    }
  }
  return std::move(changer.result);
}

}  // namespace memcalc
