// A transformers config.json in, a ModelSpec out, for the families that memcalc models.
//
// Only `model_type` is required. Any other absent key takes the default of transformers 5.17 for that model_type
// (models/*/configuration_*.py there), and every value so taken that decides a size is a line of
// ModelSpec::assumptions. Keys that memcalc does not know are ignored: config.json files carry many.
// Covered by tests/unit/spec_hf_config_test.cc.
// MIRRORS(transformers, "modeling_utils.py", "5.17.0")
#pragma once

#include <string>
#include <vector>

#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/model_spec.h"

namespace memcalc {

/// What a model is called that `path` describes: by the config's own `_name_or_path`, else by the directory that holds
/// its config.json, else by its file.
[[nodiscard]] std::string config_name(const JsonObject& config, const std::string& path);

/// `config`: parsed already, alone or the "config" of our own model files; the ModelSpec is called `name`. Throws
/// Error(kInput) on wrong values, Error(kUnsupported) on what is right but not modelled.
[[nodiscard]] ModelSpec model_from_hf_config(const JsonObject& config, std::string name);

/// What transformers 5.17 makes of a model whatever its config.json says, as one of the assumptions: T5 and mT5 tie
/// their heads, but where a checkpoint holds a head of its own. Others: nothing.
void take_as_transformers(ModelSpec& model);

/// The values of model_type that model_from_hf_config takes, in alphabetical order.
[[nodiscard]] std::vector<std::string> modelled_types();

}  // namespace memcalc
