// YAML as the tree that JSON files are parsed into. yaml_text.cc is by yaml-cpp, yaml_text_none.cc for WebAssembly,
// where Debian has no yaml-cpp. Covered by tests/unit/config_text_test.cc.
#pragma once

#include <string>
#include <string_view>

#include "memcalc/spec/json_node.h"

namespace memcalc {

/// The tree of one document. Throws Error(kInput) as parse_config_text() does.
[[nodiscard]] JsonNode parse_yaml(std::string_view text, const std::string& file);

}  // namespace memcalc
