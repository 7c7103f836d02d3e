// text_config of a model of images and text: which families' text models memcalc knows within one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/image_text_spec.h"

namespace memcalc::family {

/// Whose tie_word_embeddings says that the head shares the embedding's weight.
enum class TieKey : std::uint8_t {
  kEither,  // the whole model's, false where absent, or the text model's
  kOuter,   // the whole model's alone
};

struct TextConfig {
  TieKey tie = TieKey::kOuter;
  bool tied = false;  // where the key is absent
  std::string_view key = "text_config";
  std::string_view own_type;  // a model_type of its own for what `fallback` is
};

/// `types`: the model_types that are accepted; `fallback`: the one that is taken where it says none.
[[nodiscard]] ImageTextSpec read_text_config(HfReader& config, std::span<const std::string_view> types,
                                             std::string_view fallback, const TextConfig& how);

/// A number, or a list of them.
struct NumberOrList {
  std::vector<std::int64_t> numbers;
  bool is_list = false;
};
/// Throws Error(kInput) for a number outside of the range.
[[nodiscard]] NumberOrList number_or_list(const JsonObject& config, std::string_view key, std::int64_t fallback,
                                          IntRange range);

}  // namespace memcalc::family
