// Internal to spec/: under which keys of its config.json a family has the sizes of ArchitectureChanges.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/architecture_changes.h"
#include "memcalc/spec/json_reader.h"

namespace memcalc {

/// What `changes` does to a config.json.
struct ConfigChanges {
  std::vector<JsonChange> keys;
  std::vector<std::string> told;  // "num_hidden_layers = 8 instead of 32 (--layers)"
};

/// `config`: as it is now; null for a family alone. Throws Error(kUsage) for a size that the family does not have,
/// naming those it has.
[[nodiscard]] ConfigChanges config_changes(const std::string& model_type, const ArchitectureChanges& changes,
                                           const JsonObject* config);

/// Whether the family can be built from sizes at all; torchvision's and those of layers cannot.
[[nodiscard]] bool has_architecture_keys(std::string_view model_type);

/// Whether it has a position for each patch of its images, so that another --image is another config.
[[nodiscard]] bool has_image_key(std::string_view model_type);

}  // namespace memcalc
