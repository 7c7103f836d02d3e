#include "memcalc/spec/model_of_path.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/custom_reader.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/json_node.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/spec_file.h"
#include "memcalc/spec/user_file.h"
#include "memcalc/spec/weights.h"

namespace memcalc {
namespace {

namespace fs = std::filesystem;

// `name`: of a model whose file says none.
ModelSpec model_from_document(const JsonDocument& document, const std::string& name) {
  if (is_model_file(document.root())) return read_model_file(document.root()).model;
  if (custom::is_layers_file(document.root())) return custom::read_layers_file(document.root());
  if (is_program_file(document.root())) return program_model(document.root());
  ModelSpec model = model_from_hf_config(document.root(), name);
  model.source = document.root().file();
  return model;
}

ModelSpec model_without_weights(const JsonDocument& document, const std::string& name) {
  ModelSpec model = model_from_document(document, name);
  if (!is_model_file(document.root())) take_as_transformers(model);
  return model;
}

bool holds_head(const Weights& weights) {
  return std::any_of(weights.tensors.begin(), weights.tensors.end(),
                     [](const WeightTensor& tensor) { return tensor.name == "lm_head.weight"; });
}

/// Python's json writes Infinity and NaN as words, which JSON lacks: Bamba's time_step_limit is [0.0, Infinity]. Here
/// they become what transformers 5 writes in their place, {"__float__": "Infinity"} (configuration_utils.py).
std::string with_tagged_floats(std::string text) {
  constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
  if (text.find("Infinity") == std::string::npos && text.find("NaN") == std::string::npos) return text;
  std::string tagged;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    const auto* const word = std::find_if(std::begin(kWords), std::end(kWords),
                                          [&](std::string_view each) { return !in_string && rest.starts_with(each); });
    if (word != std::end(kWords)) {
      tagged.append(R"({"__float__": ")").append(*word).append("\"}");
      at += word->size();
      continue;
    }
    if (rest.front() == '"') in_string = !in_string;
    const std::size_t taken = in_string && rest.front() == '\\' ? std::min<std::size_t>(rest.size(), 2) : 1;
    tagged.append(rest.substr(0, taken));
    at += taken;
  }
  return tagged;
}

JsonDocument read_config(const std::string& path) {
  return JsonDocument::parse(with_tagged_floats(read_text_file(path)), path);
}

/// from_pretrained() takes generation_config.json where it lies beside config.json, of which generate() then asks
/// nothing more (transformers 5.17, GenerationMixin.adjust_generation_fn); what that file leaves out is generate()'s
/// default.
void take_generation_config(ModelSpec& model, const fs::path& config) {
  const fs::path path = config.parent_path() / "generation_config.json";
  if (config.filename() != "config.json" || !is_file(path)) return;
  model.generation_cache = read_config(path.string()).root().nullable_bool("use_cache").value_or(true);
}

ModelSpec model_from_config(const std::string& path) {
  const JsonDocument document = read_config(path);
  ModelSpec model = model_without_weights(document, config_name(document.root(), path));
  take_generation_config(model, path);
  return model;
}

Error unknown_architecture(const std::string& path, const Weights& weights) {
  std::vector<std::string> types;
  for (const WeightTypeTotal& each : totals_by_type(weights)) types.emplace_back(each.type.name);
  return {ErrorCode::kInput, shown_path(path) + ": found weights (" + std::to_string(weights.parameters) +
                                 " parameters, " + join(types) +
                                 ") and no config.json beside them, so the architecture is unknown; " +
                                 "accepted: weights with the config.json of their model"};
}

// `reference`: as read_weights() takes it.
ModelSpec model_from_weights(const std::string& reference) {
  auto weights = std::make_shared<Weights>(read_weights(reference));
  const fs::path config = fs::path(weights->path).parent_path() / "config.json";
  if (!is_file(config)) throw unknown_architecture(reference, *weights);
  const JsonDocument document = read_config(config.string());
  const std::string name = config_name(document.root(), config.string());
  ModelSpec model = holds_head(*weights) ? model_from_document(document, name) : model_without_weights(document, name);
  take_generation_config(model, config);
  if (!model.checkpoint_dtype) {
    model.checkpoint_dtype = loading_dtype(*weights);
    if (model.checkpoint_dtype) {
      model.assumptions.push_back("dtype = " + std::string(name_of(*model.checkpoint_dtype)) +
                                  " (absent from config.json; that of the first tensor of the weights, as in "
                                  "transformers)");
    }
  }
  model.weights = std::move(weights);
  return model;
}

}  // namespace

ModelSpec model_from_file(const std::string& path) {
  if (path.ends_with(".json.gz")) return read_program_model(path);
  return is_named_like_weights(path) ? model_from_weights(path) : model_from_config(path);
}

ModelSpec model_from_directory(const std::string& directory) {
  if (find_weights(directory)) return model_from_weights(directory);
  const fs::path path = fs::path(directory) / "config.json";
  if (!is_file(path)) {
    if (holds_weights(directory)) return model_from_weights(directory);
    throw Error(ErrorCode::kInput, shown_path(directory) + ": a directory without config.json");
  }
  return model_from_config(path.string());
}

ModelSpec model_from_json(const std::string& text, const std::string& name) {
  const JsonDocument document = JsonDocument::parse(with_tagged_floats(text), name);
  return is_program_file(document.root()) ? program_model(document.root()) : model_without_weights(document, name);
}

}  // namespace memcalc
