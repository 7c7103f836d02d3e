#include "memcalc/spec/registry.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/card_description.h"
#include "memcalc/spec/contexts.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/hosts.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/meant_models.h"
#include "memcalc/spec/measured_memory.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/model_of_path.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/networks.h"
#include "memcalc/spec/not_modelled.h"
#include "memcalc/spec/prediction_errors.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/published_rates.h"
#include "memcalc/spec/quantized_names.h"
#include "memcalc/spec/spec_entries.h"
#include "memcalc/spec/spec_file.h"
#include "memcalc/spec/user_file.h"
#include "memcalc/spec/weights.h"

namespace memcalc {
namespace {

namespace fs = std::filesystem;

// Whether the user meant a path, so that a file that is not there is the thing to report.
bool is_meant_as_path(std::string_view reference) {
  return reference.ends_with(".json") || is_named_like_weights(reference) || reference.ends_with('/') ||
         reference.starts_with("./") || reference.starts_with("../") || reference.starts_with('/');
}

// ".a1_in1k" of "timm/resnet50.a1_in1k": timm's name of one of a module's weights. Empty: there is none.
std::string_view timm_tag(std::string_view reference) {
  const std::size_t dot = reference.rfind('.');
  return reference.starts_with("timm/") && dot != std::string_view::npos ? reference.substr(dot) : std::string_view();
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
                            : " --search " + one_line(word) + "' lists the known ones of that name") +
              (model ? ", and --model takes a config.json" : "")};
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

}  // namespace memcalc
