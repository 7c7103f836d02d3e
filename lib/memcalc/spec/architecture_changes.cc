#include "memcalc/spec/architecture_changes.h"

#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/architecture_keys.h"
#include "memcalc/spec/custom_reader.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/spec_file.h"

namespace memcalc {

namespace {

[[noreturn]] void refuse_changes(const std::string& model, const std::string& reason) {
  throw Error(ErrorCode::kUsage, one_line(model) + ": " + reason);
}

/// There is no config.json to speak of.
void tell_as_not_given(std::vector<std::string>& assumptions) {
  constexpr std::string_view file = "absent from config.json";
  for (std::string& line : assumptions) {
    const std::size_t at = line.find(file);
    if (at != std::string::npos) line.replace(at, file.size(), "not given");
  }
}

}  // namespace

ModelSpec SpecRegistry::model(const std::string& reference, const ArchitectureChanges& changes) const {
  if (changes.empty()) return model(reference);
  const std::string path = model_path(reference);
  const JsonDocument document = JsonDocument::read_file(path);
  if (custom::is_layers_file(document.root())) {
    refuse_changes(reference, "described layer by layer; accepted: no sizes as options (" + changes.text() + ")");
  }
  const bool ours = is_model_file(document.root());
  const JsonObject config = ours ? document.root().required_object("config") : document.root();
  if (is_lit_config(config)) {
    throw Error(ErrorCode::kUsage, config.file() + ": sizes of a lit_config.json are changed in the file itself");
  }
  const std::string model_type = config.required_string("model_type");
  if (model_type == "torchvision") {
    refuse_changes(reference, "one of torchvision's models, whose layers are fixed; accepted: no sizes as options (" +
                                  changes.text() + ")");
  }
  ConfigChanges changed = config_changes(model_type, changes, &config);
  const JsonDocument other = document.changed(changed.keys, ours ? "config" : "", path + " with " + changes.text());
  ModelSpec model =
      ours ? read_model_file(other.root()).model : model_from_hf_config(other.root(), config_name(other.root(), path));
  if (!ours && !changes.tie) take_as_transformers(model);
  if (model.source.empty()) model.source = path;
  model.name += " (" + changes.text() + ")";
  model.published_parameters.reset();
  model.assumptions.insert(model.assumptions.begin(), changed.told.begin(), changed.told.end());
  return model;
}

ModelSpec model_of_family(const std::string& model_type, const ArchitectureChanges& sizes) {
  std::vector<std::string> known;
  for (const std::string& type : modelled_types()) {
    if (has_architecture_keys(type)) known.push_back(type);
  }
  if (model_type == "torchvision") {
    refuse_changes("--arch torchvision",
                   "torchvision's models have fixed layers; accepted: one by its name, as in "
                   "--model resnet50");
  }
  if (model_type == "clip") {
    refuse_changes("--arch clip",
                   "its two towers have sizes of their own; accepted: a model by its name, as in --model "
                   "clip-vit-base-patch32, or a config.json");
  }
  if (!has_architecture_keys(model_type)) {
    refuse_changes("--arch", "unknown family '" + one_line(model_type) +
                                 "'; accepted: the families of 'memcalc models'" + did_you_mean(model_type, known));
  }
  const ConfigChanges changed = config_changes(model_type, sizes, nullptr);
  const std::string name = model_type + (sizes.empty() ? "" : " (" + sizes.text() + ")");
  const Family& family = *find_family(model_type);
  const std::string preset(family.preset);
  const std::string start = R"({"model_type": ")" + model_type + "\"" + (preset.empty() ? "" : ", " + preset) + "}";
  const JsonDocument config = JsonDocument::parse(start, "--arch " + name).changed(changed.keys, "", "--arch " + name);
  ModelSpec model = model_from_hf_config(config.root(), name);
  tell_as_not_given(model.assumptions);
  if (!family.told.empty()) model.assumptions.emplace_back(family.told);
  model.source = "options of the command line";
  return model;
}

}  // namespace memcalc
