// config.json of a model whose text model alone is modelled: of images, of sound, or of code that is the hub's own.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/json_reader.h"

namespace memcalc {

/// The text model, as if it were a configuration of its own.
struct TextPart {
  JsonDocument config;
  std::string model_type;  // whose family reads it
  std::string assumption;  // what of the whole is not modelled
};

/// Nothing: the type is no such whole. Throws Error(kUnsupported) for a text model that is not modelled.
[[nodiscard]] std::optional<TextPart> text_part_of(const JsonObject& config, std::string_view model_type);

/// The types that have one.
[[nodiscard]] std::vector<std::string_view> types_with_text_part();

}  // namespace memcalc
