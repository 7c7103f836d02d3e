// A part of a config.json that is a configuration of its own: text_config, vision_config.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {

/// Reads `key` of the configuration as one of `model_type`, and keeps what was assumed. Where it is absent or null,
/// that is `absent`, JSON.
template <typename Read>
void read_part(HfReader& config, std::string_view key, const std::string& model_type, const Read& read,
               std::string_view absent = "{}") {
  const JsonDocument none = JsonDocument::parse(absent, config.json().file());
  const JsonObject part = config.json().nullable_object(key).value_or(none.root());
  HfReader reader(part, model_type);
  read(reader);
  for (std::string& line : reader.assumptions()) config.assume(std::move(line));
}

}  // namespace memcalc::family
