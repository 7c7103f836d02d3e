// A model out of what a user has on disk: a config.json, a file of ours, weights, a folder that holds any of them.
// Covered by tests/unit/spec_registry_test.cc.
#pragma once

#include <string>

#include "memcalc/spec/model_spec.h"

namespace memcalc {

/// Of a file that is there. Throws Error(kInput), Error(kUnsupported) for one that does not describe a model that is
/// known.
[[nodiscard]] ModelSpec model_from_file(const std::string& path);

/// Of a folder that is there: its weights with their config.json, or the config.json alone. Throws as
/// model_from_file().
[[nodiscard]] ModelSpec model_from_directory(const std::string& directory);

}  // namespace memcalc
