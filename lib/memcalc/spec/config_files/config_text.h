// The text of another tool's configuration file as the tree that JSON files are parsed into. This is all that
// memcalc sees of YAML and TOML. Covered by tests/unit/config_text_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "memcalc/spec/json_node.h"

namespace memcalc {

enum class ConfigSyntax : std::uint8_t { kYaml, kToml, kJson };

/// By the file's ending: .toml, .json, else YAML, of which JSON is a part.
[[nodiscard]] ConfigSyntax config_syntax_of(std::string_view path);

/// The tree of a text whose top level is a mapping. Throws Error(kInput) with one line that names the file, and where
/// known the line in it: a text that is none of that kind, an empty one, a list at the top, a key that stands twice,
/// aliases that grow without end.
[[nodiscard]] JsonNode parse_config_text(std::string_view text, ConfigSyntax syntax, const std::string& file);

/// What stands in YAML without quotes, as PyYAML reads it: true, 4, 1e-5, null or a text.
[[nodiscard]] JsonNode plain_scalar(std::string_view text);

}  // namespace memcalc
