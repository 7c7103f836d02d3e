#include "memcalc/base/error.h"
#include "memcalc/spec/config_files/yaml_text.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {

JsonNode parse_yaml(std::string_view /*text*/, const std::string& file) {
  throw Error(ErrorCode::kInput,
              shown_path(file) + ": YAML is not read here; accepted: JSON, TOML, or memcalc --config on a machine",
              file);
}

}  // namespace memcalc
