#include "memcalc/spec/registry.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/card_description.h"
#include "memcalc/spec/contexts.h"
#include "memcalc/spec/custom_reader.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/hosts.h"
#include "memcalc/spec/json_node.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/measured_memory.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/networks.h"
#include "memcalc/spec/not_modelled.h"
#include "memcalc/spec/prediction_errors.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/published_rates.h"
#include "memcalc/spec/quantized_names.h"
#include "memcalc/spec/spec_file.h"
#include "memcalc/spec/user_file.h"
#include "memcalc/spec/weights.h"

namespace memcalc {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModelFolder = "models";
constexpr std::string_view kDeviceFolder = "gpus";

bool is_file(const fs::path& path) {
  std::error_code status;
  return fs::exists(path, status) && !fs::is_directory(path, status);
}

bool is_directory(const fs::path& path) {
  std::error_code status;
  return fs::is_directory(path, status);
}

// Whether `reference` can be the name of a file of the registry. Paths and hub ids cannot.
bool is_plain_name(std::string_view reference) {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !reference.empty() && reference.front() != '.' && !reference.ends_with(".json") &&
         !is_named_like_weights(reference) && reference.find_first_not_of(allowed) == std::string_view::npos;
}

// Whether the user meant a path, so that a file that is not there is the thing to report.
bool is_meant_as_path(std::string_view reference) {
  return reference.ends_with(".json") || is_named_like_weights(reference) || reference.ends_with('/') ||
         reference.starts_with("./") || reference.starts_with("../") || reference.starts_with('/');
}

// The files of one kind in all folders, sorted by name within each.
std::vector<fs::path> files_of(const std::vector<std::string>& directories, std::string_view folder) {
  std::vector<fs::path> files;
  for (const std::string& directory : directories) {
    std::vector<fs::path> here;
    std::error_code status;
    for (fs::directory_iterator entry(fs::path(directory) / folder, status), end; !status && entry != end;
         entry.increment(status)) {
      if (entry->path().native().ends_with(".json")) here.push_back(entry->path());
    }
    std::sort(here.begin(), here.end(), [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
    files.insert(files.end(), here.begin(), here.end());
  }
  return files;
}

// The names that the registry knows a file's model or card by, but for the name of the file.
std::vector<std::string> other_names(const JsonObject& json) {
  std::vector<std::string> names = json.optional_strings("aliases");
  for (const char* key : {"stands_for", "text_of", "part_of"}) {
    for (std::string& name : json.optional_strings(key)) names.push_back(std::move(name));
  }
  return names;
}

std::string_view without_owner(std::string_view name) { return name.substr(name.rfind('/') + 1); }  // npos + 1 == 0

// "Qwen/Qwen2.5-7B" is also called "qwen2.5-7b". No two files share such a name (spec_registry_test).
bool is_among(const std::vector<std::string>& names, const std::string& reference,
              std::string (*spelled)(std::string_view) = ascii_lower) {
  const std::string wanted = spelled(reference);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return spelled(name) == wanted || spelled(without_owner(name)) == wanted;
  });
}

// ".a1_in1k" of "timm/resnet50.a1_in1k": timm's name of one of a module's weights. Empty: there is none.
std::string_view timm_tag(std::string_view reference) {
  const std::size_t dot = reference.rfind('.');
  return reference.starts_with("timm/") && dot != std::string_view::npos ? reference.substr(dot) : std::string_view();
}

// The file that names.tsv of a directory of specs (scripts/spec_names) gives for `reference`, if the file says so, too:
// a list that is out of date costs time and is never believed. Without it all files of the folder are opened, some 700.
std::optional<fs::path> listed_entry(const std::string& directory, std::string_view folder,
                                     const std::string& reference) {
  const fs::path list = fs::path(directory) / "names.tsv";
  if (!is_file(list)) return std::nullopt;
  const std::string text = read_text_file(list.string());  // lines of "folder/name in small letters, tab, file"
  const std::string line = "\n" + std::string(folder) + "/" + ascii_lower(reference) + "\t";
  const std::size_t at = text.find(line);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t file = at + line.size();
  fs::path path = fs::path(directory) / folder / (text.substr(file, text.find('\n', file) - file) + ".json");
  if (!is_file(path) || !is_among(other_names(JsonDocument::read_file(path.string()).root()), reference)) return {};
  return path;
}

// The registry file that carries `reference` as its name or, failing that, as another, or as one that parts its words
// otherwise; ASCII case is ignored.
std::optional<fs::path> find_entry(const std::vector<std::string>& directories, std::string_view folder,
                                   const std::string& reference) {
  if (is_plain_name(reference)) {
    for (const std::string& directory : directories) {
      fs::path path = fs::path(directory) / folder / (ascii_lower(reference) + ".json");
      if (is_file(path)) return path;
    }
  }
  if (directories.size() == 1) {  // of several an earlier one may have the name, too
    if (std::optional<fs::path> path = listed_entry(directories.front(), folder, reference)) return path;
  }
  std::optional<fs::path> nearly;
  const std::string letters = folded_name(without_owner(reference));
  for (const fs::path& path : files_of(directories, folder)) {
    // To parse all files takes ten times as long as to look for the name's letters in them. Escapes hide letters.
    const std::string text = read_text_file(path.string());
    if (text.find('\\') == std::string::npos &&
        folded_name(text + path.stem().string()).find(letters) == std::string::npos) {
      continue;
    }
    const JsonDocument document = JsonDocument::parse(text, path.string());
    std::vector<std::string> names = other_names(document.root());
    if (is_among(names, reference)) return path;
    names.push_back(path.stem().string());
    if (!nearly && is_among(names, reference, folded_name)) nearly = path;
  }
  return nearly;
}

/// The same of "owner/NAME", for a NAME that the registry has from somebody else.
std::optional<fs::path> find_entry_of_other_owner(const std::vector<std::string>& directories,
                                                  const std::string& reference) {
  const std::string name(without_owner(reference));
  if (name.size() + 1 >= reference.size() || reference.find('/') != reference.size() - name.size() - 1) return {};
  return find_entry(directories, kModelFolder, name);
}

// For hints alone, so they are read once: twenty unknown names of one question read the files twenty times.
const std::vector<std::string>& known_names(const std::vector<std::string>& directories, std::string_view folder) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<std::string>> read;
  const std::scoped_lock lock(mutex);
  std::vector<std::string>& names = read[join(directories) + "\n" + std::string(folder)];
  if (!names.empty()) return names;
  for (const fs::path& path : files_of(directories, folder)) {
    names.push_back(path.stem().string());
    const JsonDocument document = JsonDocument::read_file(path.string());
    for (std::string& name : other_names(document.root())) names.push_back(std::move(name));
  }
  return names;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::vector<std::string> numbers_in(std::string_view name) {
  std::vector<std::string> numbers;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (!is_digit(name[i])) continue;
    if (i == 0 || !is_digit(name[i - 1])) numbers.emplace_back();
    numbers.back() += name[i];
  }
  return numbers;
}

// "llama-3-405b" of "llama-3.1-405b": without what stands behind the dot of a release.
std::string without_minor(std::string_view name) {
  std::string text = ascii_lower(name);
  const std::size_t dot = text.find('.');
  const std::size_t end = dot == std::string::npos ? dot : text.find_first_not_of("0123456789", dot + 1);
  if (end != std::string::npos && text[end] == '-') text.erase(dot, end - dot);
  return text;
}

// Two names that differ in several numbers, or begin with another letter, are two models and no mistake in typing:
// gemma-3-4b is not gemma-2-2b, e5-large not t5-large.
bool may_be_meant(std::string_view name, std::string_view candidate) {
  const std::string typed = ascii_lower(name), known = ascii_lower(candidate);
  if (typed.empty() || known.empty() || typed.front() != known.front()) return false;
  if (known.starts_with(typed)) return true;
  const std::vector<std::string> mine = numbers_in(typed), others = numbers_in(known);
  if (mine.size() != others.size()) return without_minor(known) == typed;
  std::size_t differing = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) differing += mine[i] == others[i] ? 0 : 1;
  return differing <= 1;
}

// "Qwen/Qwen2.5-7B-Instruct" is "qwen2.5-7b": without the owner, and without the words for what was made of the same
// layers.
std::string bare_name(std::string_view name) {
  constexpr std::array<std::string_view, 13> kVariants = {"instruct", "it",   "chat", "base", "hf",  "gguf",   "awq",
                                                          "gptq",     "4bit", "8bit", "bnb",  "fp8", "unsloth"};
  const std::string last = ascii_lower(without_owner(name));
  std::string bare;
  for (std::size_t at = 0; at < last.size();) {
    const std::size_t end = std::min(last.find_first_of("-_", at), last.size());
    const std::string word = last.substr(at, end - at);
    if (std::find(kVariants.begin(), kVariants.end(), word) == kVariants.end())
      bare += (bare.empty() ? "" : "-") + word;
    at = end + 1;
  }
  return bare;
}

// "phi38b" of "microsoft/phi-3.8b": what is left of a name where people part its words differently.
std::string letters_of(std::string_view name) {
  std::string letters = ascii_lower(without_owner(name));
  std::erase_if(letters, [](char c) { return c == '-' || c == '_' || c == '.'; });
  return letters;
}

// The known models that `reference` may be meant to be, to be proposed; none where it begins the names of more than a
// few, which a search lists.
std::vector<std::string> meant_models(const std::string& reference, const std::vector<std::string>& known) {
  const std::string wanted = bare_name(reference);
  std::map<std::string, std::string> by_bare_name;  // of several, the file's own name, which comes first
  std::vector<std::string> bare, meant;
  std::string same, longest;  // of the models with the same bare name: the first, and the longest that was typed whole
  const std::string typed = ascii_lower(without_owner(reference));
  for (const std::string& name : known) {
    const std::string each = bare_name(name);
    if (each == wanted) {
      const std::string_view last = without_owner(name);
      if (same.empty()) same = name;
      if (typed.starts_with(ascii_lower(last)) && last.size() > without_owner(longest).size()) longest = name;
      continue;
    }
    if (may_be_meant(reference, name)) meant.push_back(name);
    if (may_be_meant(wanted, each) && by_bare_name.emplace(each, name).second) bare.push_back(each);
  }
  if (!same.empty()) return {longest.empty() ? same : longest};
  std::vector<std::string> begun;  // "llama3": a name that is not whole is no other one with a mistake in it
  for (const std::string& name : known) {
    const bool is_own = name.find('/') == std::string::npos;
    if (is_own && letters_of(name).starts_with(letters_of(reference))) begun.push_back(name);
  }
  std::vector<std::string> near_begun;  // of "bert-bas", which lacks a letter
  std::copy_if(begun.begin(), begun.end(), std::back_inserter(near_begun),
               [&](const std::string& name) { return edit_distance(reference, name) <= 1; });
  constexpr std::size_t kFew = 3;
  if (!near_begun.empty() || begun.size() > kFew) return near_begun;
  if (!begun.empty()) return begun;
  // "llama-3-405b" is llama-3.1-405b, and no 70B.
  const auto is_release = [&](const std::string& name) { return without_minor(name) == typed; };
  if (std::any_of(meant.begin(), meant.end(), is_release)) std::erase_if(meant, std::not_fn(is_release));
  const std::vector<std::string> near = nearest_names(reference, meant);
  if (!near.empty()) return near;
  std::vector<std::string> result;
  for (const std::string& each : nearest_names(wanted, bare)) result.push_back(by_bare_name.at(each));
  return result;
}

// "qwen3" of "Qwen/qwen3-14c": the longest beginning of a name, by whole words, with which known ones begin, too.
// Empty: there is none.
std::string beginning_of_known(const std::string& reference, const std::vector<std::string>& known) {
  const auto begins = [](const std::string& name, const std::string& word) {
    return letters_of(name).starts_with(letters_of(word));
  };
  std::string word = ascii_lower(without_owner(reference));
  for (; !word.empty(); word.resize(std::min(word.find_last_of("-_"), word.size()))) {
    if (std::any_of(known.begin(), known.end(), [&](const auto& name) { return begins(name, word); })) return word;
    if (word.find_first_of("-_") == std::string::npos) break;
  }
  return "";
}

Error unknown_error(const std::vector<std::string>& directories, std::string_view folder, std::string_view kind,
                    std::string_view command, const std::string& reference) {
  const std::vector<std::string>& names = known_names(directories, folder);
  const std::string start = "unknown " + std::string(kind) + " '" + one_line(reference) + "'";
  if (names.empty()) return {ErrorCode::kInput, start + ": no specs in " + join(directories)};
  if (folder == kDeviceFolder) {
    if (const auto instead = not_modelled(directories, AskedAs::kCard, reference)) {
      return {ErrorCode::kUnsupported, one_line(reference) + ": " + *instead};
    }
  }
  const bool model = folder == kModelFolder;
  const std::string hint = model ? did_you_mean(meant_models(reference, names)) : did_you_mean(reference, names);
  if (!hint.empty()) return {ErrorCode::kUsage, start + hint};
  const std::string word = model ? beginning_of_known(reference, names) : "";
  return {ErrorCode::kUsage,
          start + "; 'memcalc " + std::string(command) +
              (word.empty() ? "' lists the known ones"
                            : " --search " + one_line(word) + "' lists the known ones of that name")};
}

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

ModelSpec model_from_file(const std::string& path) {
  if (path.ends_with(".json.gz")) return read_program_model(path);
  return is_named_like_weights(path) ? model_from_weights(path) : model_from_config(path);
}

/// A model of the registry; `reference`: which of its names was asked for.
ModelSpec model_of_entry(const fs::path& path, const std::string& reference) {
  ModelFile file = read_model_file(JsonDocument::read_file(path.string()).root());
  for (const auto& [dtype, names] : file.stored_otherwise) {
    if (!is_among(names, reference)) continue;
    file.model.checkpoint_dtype = dtype;
    file.model.checkpoint_quantization = Quantization::kNone;
  }
  if (is_among(file.stands_for, reference)) {
    file.model.assumptions.push_back(one_line(reference) +
                                     " is an implementation of its own, not modelled: " + file.model.name + " of " +
                                     file.model.model_type + ", which has the same parameters" +
                                     (file.but_for.empty() ? "" : " but for " + file.but_for) + ", stands for it");
  }
  if (is_among(file.text_of, reference)) {
    file.model.assumptions.push_back(
        one_line(reference) + " takes images or sounds too: this is its text model " + file.model.name +
        " alone, without their encoder" + (file.without.empty() ? "" : " and " + file.without) + " (" +
        (file.with_images.empty() ? "not modelled" : "with it: " + file.with_images) + ")");
  }
  if (is_among(file.part_of, reference)) {
    file.model.assumptions.push_back(one_line(reference) + " is a pipeline: this is its network that is trained, " +
                                     file.model.name + ", without text encoders and autoencoder (not modelled)");
  }
  return std::move(file.model);
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

// Keeps the first of equal names: an earlier folder hides a later one.
template <typename Listing>
void sort_by_name(std::vector<Listing>& listings) {
  std::stable_sort(listings.begin(), listings.end(),
                   [](const Listing& a, const Listing& b) { return a.name < b.name; });
  const auto same = [](const Listing& a, const Listing& b) { return a.name == b.name; };
  listings.erase(std::unique(listings.begin(), listings.end(), same), listings.end());
}

}  // namespace

ModelSpec SpecRegistry::model(const std::string& reference) const {
  ModelSpec model = find_model(reference);
  model.reference = reference;
  return model;
}

ModelSpec SpecRegistry::find_model(const std::string& reference) const {
  // A plain word is a name first: a folder "gpt2" in the working directory must not change what `gpt2` means.
  if (!is_plain_name(reference)) {
    if (is_directory(reference)) return model_from_directory(reference);
    if (is_file(reference)) return model_from_file(reference);
    if (is_meant_as_path(reference)) {
      throw Error(ErrorCode::kInput, shown_path(reference) + ": no such file or directory");
    }
  }
  if (const std::optional<fs::path> path = find_entry(directories_, kModelFolder, reference)) {
    return model_of_entry(*path, reference);
  }
  if (const std::string_view tag = timm_tag(reference); !tag.empty()) {
    const std::string module = reference.substr(0, reference.size() - tag.size());
    if (find_entry(directories_, kModelFolder, module)) {
      ModelSpec model = find_model(module);
      model.assumptions.push_back(one_line(tag.substr(1)) + " are weights of timm's " + one_line(module.substr(5)) +
                                  ", taken with 1000 classes and its own image size");
      return model;
    }
  }
  if (is_directory(reference)) return model_from_directory(reference);
  if (is_file(reference)) return model_from_file(reference);
  // A name that says more of a model that is there is that model, whatever is not built of its family.
  refuse_not_built(directories_, KnownBy::kId, reference);
  if (std::optional<ModelSpec> packed = model_of_quantized_name(reference)) return *std::move(packed);
  if (std::optional<ModelSpec> copy = model_of_other_owner(reference)) return *std::move(copy);
  refuse_not_built(directories_, KnownBy::kName, reference);
  throw unknown_error(directories_, kModelFolder, "model", "models", reference);
}

/// "unsloth/Qwen3-8B-bnb-4bit": the model before the ending, whose weights are stored so.
std::optional<ModelSpec> SpecRegistry::model_of_quantized_name(const std::string& reference) const {
  const std::optional<QuantizedName> packed = quantized_name(reference);
  if (!packed) return std::nullopt;
  const std::string base(packed->base);
  const std::optional<fs::path> entry = find_entry(directories_, kModelFolder, base);
  std::optional<ModelSpec> named = entry ? model_of_entry(*entry, base) : model_of_other_owner(base);
  if (!named) return std::nullopt;
  if (!packed->quantization) {
    throw Error(ErrorCode::kUnsupported,
                one_line(reference) + ": weights in " + std::string(packed->format) + " are not modelled" +
                    (packed->beside.empty() ? "" : " (" + std::string(packed->beside) + ")") + "; accepted: --model " +
                    one_line(base) + ", in 16 bits or with --quantize");
  }
  named->checkpoint_quantization = *packed->quantization;
  if (packed->quantization == Quantization::kNone) named->checkpoint_dtype = DType::kBFloat16;
  std::string told = one_line(reference) + " is, by its name, " + named->name + " in " + std::string(packed->format);
  if (!packed->beside.empty()) told += ": " + std::string(packed->beside);
  named->assumptions.push_back(std::move(told));
  return named;
}

/// "unsloth/gemma-2-9b": the model of that name under the owner that the registry knows.
std::optional<ModelSpec> SpecRegistry::model_of_other_owner(const std::string& reference) const {
  const std::optional<fs::path> path = find_entry_of_other_owner(directories_, reference);
  if (!path) return std::nullopt;
  const std::string name(without_owner(reference));
  ModelSpec model = model_of_entry(*path, name);
  model.assumptions.push_back(one_line(reference) + " is, by its name, a copy of " + model.name);
  return model;
}

std::string SpecRegistry::model_path(const std::string& reference) const {
  if (is_plain_name(reference)) {
    if (const auto path = find_entry(directories_, kModelFolder, reference)) return path->string();
  }
  if (is_directory(reference)) return (fs::path(reference) / "config.json").string();
  if (is_file(reference)) return reference;
  if (const auto path = find_entry(directories_, kModelFolder, reference)) return path->string();
  if (const auto path = find_entry_of_other_owner(directories_, reference)) return path->string();
  if (const auto packed = quantized_name(reference)) return model_path(std::string(packed->base));
  static_cast<void>(model(reference));  // says what is wrong with it
  throw Error(ErrorCode::kInternal, "a model without a file: " + one_line(reference));
}

namespace {

// The card whose rates stand for those of every card without a folder of its own in specs/measured.
constexpr const char* kMeasuredCard = "h100-sxm";

// Of a card's folder there.
constexpr const char* kMemoryFile = "memory.json";
constexpr const char* kRatesFile = "rates.json";

/// The path of a file that stands in one of the directories itself; nothing where none has it.
std::optional<std::string> file_of(const std::vector<std::string>& directories, std::string_view name) {
  for (const std::string& directory : directories) {
    const fs::path path = fs::path(directory) / name;
    if (is_file(path)) return path.string();
  }
  return std::nullopt;
}

/// A file of what was measured on a card; nothing where it was not.
std::optional<std::string> measured_file(const std::vector<std::string>& directories, const std::string& card,
                                         const char* name) {
  if (!is_plain_name(card)) return std::nullopt;
  return file_of(directories, "measured/" + ascii_lower(card) + "/" + name);
}

/// A card of the registry with what was measured of its memory, unless its own file says any of it.
DeviceSpec with_memory(const std::vector<std::string>& directories, DeviceSpec device) {
  if (device.context_bytes || device.kernel_bytes || device.nccl || device.placement) return device;
  if (const auto path = measured_file(directories, device.name, kMemoryFile)) {
    read_measured_memory(JsonDocument::read_file(*path).root(), device);
  }
  return device;
}

// The rates measured on the card itself, else those of the card that was measured first, which its datasheet scales.
DeviceSpec with_rates(const std::vector<std::string>& directories, DeviceSpec device) {
  if (device.rates != nullptr) return device;
  std::optional<std::string> path = measured_file(directories, device.name, kRatesFile);
  const bool measured = path.has_value();
  if (!measured) path = measured_file(directories, kMeasuredCard, kRatesFile);
  if (!path) return device;
  DeviceRates rates = read_device_rates(JsonDocument::read_file(*path).root());
  rates.predicted = !measured;
  if (!measured) {
    carry_over(rates, device.memory_bandwidth_bytes_per_second, static_cast<double>(device.multiprocessors));
    if (const auto published = file_of(directories, "measured/published_rates.json"))
      add_published_rates(*published, device, rates);
  }
  if (const auto hosts = file_of(directories, "measured/hosts.json")) add_measured_hosts(rates, *hosts);
  if (const auto networks = file_of(directories, "networks.json")) add_network(*networks, device.name, rates.link);
  device.rates = std::make_shared<const DeviceRates>(std::move(rates));
  return device;
}

/// The card of a file.
DeviceSpec with_measured(const std::vector<std::string>& directories, const std::string& path, Rates rates) {
  const auto predicted = [&](const DeviceSpec& device) { return with_rates(directories, device).rates; };
  DeviceSpec device =
      with_memory(directories, read_device_file(JsonDocument::read_file(path).root(), predicted).device);
  return rates == Rates::kRead ? with_rates(directories, std::move(device)) : device;
}

}  // namespace

/// What holds of every card, each part read when the first card asks for it.
struct SpecRegistry::Shared {
  // Not std::call_once: in a program with libgcc linked statically an error that leaves it ends the program, since libc
  // unwinds pthread_once by the shared libgcc.
  std::mutex mutex;
  std::optional<std::optional<Contexts>> contexts;
  std::optional<std::optional<NcclMemory>> nccl;  // of the measured card
  std::optional<std::shared_ptr<const PredictionErrors>> errors;
  std::map<std::string, std::optional<UsualHost>> hosts;
  std::map<fs::path, std::pair<ProductShares, std::shared_ptr<const DeviceRates>>> rates;
};

SpecRegistry::SpecRegistry(std::string directory)
    : directories_{std::move(directory)}, shared_(std::make_shared<Shared>()) {}
SpecRegistry::SpecRegistry(std::vector<std::string> directories)
    : directories_(std::move(directories)), shared_(std::make_shared<Shared>()) {}

/// What this project has not measured on the card: from other cards, and marked so.
DeviceSpec SpecRegistry::with_assumptions(DeviceSpec device) const {
  const std::scoped_lock lock(shared_->mutex);
  if (!device.context_bytes) {
    if (!shared_->contexts) {
      const auto path = file_of(directories_, "measured/contexts.json");
      shared_->contexts = path ? std::optional(read_contexts(*path)) : std::nullopt;
    }
    if (*shared_->contexts) device.assumed_context = assumed_context(**shared_->contexts, device);
  }
  if (!device.nccl) {
    if (!shared_->nccl) {
      DeviceSpec measured;
      measured.name = kMeasuredCard;
      shared_->nccl = with_memory(directories_, std::move(measured)).nccl;
    }
    device.nccl = *shared_->nccl;
    device.nccl_assumed = true;
  }
  if (!shared_->errors) {
    const auto path = file_of(directories_, "prediction_errors.json");
    shared_->errors = path ? std::make_shared<const PredictionErrors>(read_prediction_errors(*path)) : nullptr;
  }
  device.errors = *shared_->errors;
  return device;
}

Profiles SpecRegistry::profiles() const {
  const auto path = file_of(directories_, "profiles/named.json");
  if (!path) throw Error(ErrorCode::kInput, "specs/profiles: not found beside the specs of models and cards");
  return Profiles(path->substr(0, path->rfind('/')));
}

DeviceSpec SpecRegistry::device(const std::string& reference, Rates rates) const {
  DeviceSpec device = with_assumptions(find_device(reference, rates));
  device.reference = reference;
  return device;
}

std::optional<UsualHost> SpecRegistry::usual_host(const std::string& card) const {
  const std::scoped_lock lock(shared_->mutex);
  if (const auto known = shared_->hosts.find(card); known != shared_->hosts.end()) return known->second;
  std::optional<UsualHost> host;
  for (std::size_t i = 0; i < directories_.size() && !host; ++i) host = usual_host_of(directories_[i], card);
  return shared_->hosts.emplace(card, std::move(host)).first->second;
}

DeviceSpec SpecRegistry::find_device(const std::string& reference, Rates rates) const {
  if (is_card_description(reference)) {
    std::vector<DeviceSpec> known;
    for (const fs::path& path : files_of(directories_, kDeviceFolder)) {
      known.push_back(read_device_file(JsonDocument::read_file(path.string()).root()).device);
    }
    DeviceSpec described = card_from_description(reference, known);
    return rates == Rates::kRead ? with_rates(directories_, std::move(described)) : described;
  }
  if (!is_plain_name(reference)) {
    if (is_file(reference)) {
      return with_measured(directories_, reference, rates);
    }
    if (is_meant_as_path(reference)) {
      throw Error(ErrorCode::kInput, shown_path(reference) + ": no such file");
    }
  }
  if (const std::optional<fs::path> path = find_entry(directories_, kDeviceFolder, reference)) {
    DeviceSpec device = with_measured(directories_, path->string(), Rates::kLeave);
    if (rates == Rates::kLeave || device.rates != nullptr) return device;
    const std::scoped_lock lock(shared_->mutex);
    auto& [shares, read] = shared_->rates[*path];
    if (read == nullptr) {
      device = with_rates(directories_, std::move(device));
      shares = device.product_shares;
      read = device.rates;
    }
    device.product_shares = shares;
    device.rates = read;
    return device;
  }
  throw unknown_error(directories_, kDeviceFolder, "GPU", "gpus", reference);
}

DeviceRates SpecRegistry::measured_rates() const { return *device(kMeasuredCard).rates; }

std::vector<ModelListing> SpecRegistry::models() const {
  std::vector<ModelListing> listings;
  for (const fs::path& path : files_of(directories_, kModelFolder)) {
    const JsonDocument document = JsonDocument::read_file(path.string());
    ModelFile file = read_model_file(document.root(), Programs::kLeave);
    const std::span<const Task> tasks = tasks_of(file.model);
    const Family* const family = family_of(file.model);
    const std::span<const Task> measured = family != nullptr ? family->measured : std::span<const Task>();
    const auto counted = file.counted_parameters;
    listings.push_back({.name = std::move(file.model.name),
                        .model_type = std::move(file.model.model_type),
                        .is_program = file.model.architecture.is<ProgramSpec>(),
                        .published_parameters = file.model.published_parameters,
                        .parameters = file.model.published_parameters ? file.model.published_parameters : counted,
                        .tasks = {tasks.begin(), tasks.end()},
                        .measured = {measured.begin(), measured.end()},
                        .aliases = std::move(file.aliases),
                        .stands_for = std::move(file.stands_for),
                        .text_of = std::move(file.text_of),
                        .source = std::move(file.model.source),
                        .date = std::move(file.model.date),
                        .recalled = file.recalled});
  }
  sort_by_name(listings);
  return listings;
}

std::vector<DeviceListing> SpecRegistry::devices() const {
  std::vector<DeviceListing> listings;
  for (const fs::path& path : files_of(directories_, kDeviceFolder)) {
    const JsonDocument document = JsonDocument::read_file(path.string());
    DeviceFile file = read_device_file(document.root());
    DeviceSpec& device = file.device;
    const double half = device.bf16_flops_per_second > 0 ? device.bf16_flops_per_second : device.fp16_flops_per_second;
    const bool validated = measured_file(directories_, device.name, kMemoryFile).has_value();
    listings.push_back({.name = std::move(device.name),
                        .description = std::move(device.description),
                        .memory_bytes = device.memory_bytes,
                        .memory_bandwidth_bytes_per_second = device.memory_bandwidth_bytes_per_second,
                        .half_flops_per_second = half,
                        .validated = validated,
                        .aliases = std::move(file.aliases),
                        .source = std::move(device.source),
                        .date = std::move(device.date),
                        .recalled = file.recalled});
  }
  sort_by_name(listings);
  return listings;
}

ModelSpec model_from_json(const std::string& text, const std::string& name) {
  const JsonDocument document = JsonDocument::parse(with_tagged_floats(text), name);
  return is_program_file(document.root()) ? program_model(document.root()) : model_without_weights(document, name);
}

}  // namespace memcalc
