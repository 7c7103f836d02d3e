#include "memcalc/spec/spec_file.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>

#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/flat_json.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/measured_memory.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {
namespace {

constexpr std::array<std::string_view, 20> kModelKeys = {"$schema",
                                                         "name",
                                                         "aliases",
                                                         "stands_for",
                                                         "but_for",
                                                         "text_of",
                                                         "without",
                                                         "with_images",
                                                         "part_of",
                                                         "stored_otherwise",
                                                         "config",
                                                         "compared_runs",
                                                         "published_parameters",
                                                         "published_parameters_of",
                                                         "published_parameters_source",
                                                         "counted_parameters",
                                                         "source",
                                                         "recalled",
                                                         "date",
                                                         "notes"};

constexpr std::array<std::string_view, 34> kDeviceKeys = {"$schema",
                                                          "name",
                                                          "aliases",
                                                          "description",
                                                          "memory_bytes",
                                                          "memory_source",
                                                          "compute_capability_major",
                                                          "compute_capability_minor",
                                                          "gcn_architecture",
                                                          "multiprocessors",
                                                          "max_threads_per_multiprocessor",
                                                          "context_bytes",
                                                          "kernel_bytes",
                                                          "kernel_bytes_with_cudnn",
                                                          "nccl",
                                                          "cublas_workspace_bytes",
                                                          "cublaslt_workspace_bytes",
                                                          "placement",
                                                          "memory_bandwidth_bytes_per_second",
                                                          "bf16_flops_per_second",
                                                          "fp16_flops_per_second",
                                                          "tf32_flops_per_second",
                                                          "fp32_flops_per_second",
                                                          "link_bytes_per_second",
                                                          "link_cards",
                                                          "pcie_bytes_per_second",
                                                          "usd_per_hour",
                                                          "price_source",
                                                          "power_watts",
                                                          "rates",
                                                          "source",
                                                          "recalled",
                                                          "date",
                                                          "notes"};

constexpr DoubleRange kRateRange = {0, 1e20};

/// 0 where the datasheet has none. Less than 1 a second is no rate, and its time would have no end.
double rate_of(const JsonObject& json, std::string_view key) {
  const double rate = json.optional_double(key, kRateRange).value_or(0);
  return rate > 0 && rate < 1 ? json.required_double(key, {1, kRateRange.max}) : rate;
}

}  // namespace

std::span<const std::string_view> model_file_keys() { return kModelKeys; }
std::span<const std::string_view> device_file_keys() { return kDeviceKeys; }

bool is_model_file(const JsonObject& json) { return json.has("config") && !json.has("model_type"); }

namespace {

ModelSpec model_that_is(Program read) {
  auto program = std::make_shared<const Program>(std::move(read));
  ModelSpec model;
  model.name = program->name;
  model.model_type = kProgramType;
  model.source = program->source;
  for (const std::string& policy : program->assumptions) {
    model.assumptions.push_back("values in the program follow the policy " + policy + " (docs/programs.md)");
  }
  model.architecture = ProgramSpec{std::move(program)};
  return model;
}

}  // namespace

ModelSpec program_model(const JsonObject& json) { return model_that_is(read_program(json)); }

ModelSpec read_program_model(const std::string& path) {
  return model_that_is(read_program(read_program_text(path), path));
}

namespace {

constexpr std::array<std::string_view, 9> kProgramConfigKeys = {"model_type",    "program",      "torch_dtype",
                                                                "task",          "lora_targets", "vae",
                                                                "text_encoders", "resident",     "latent_pixels"};

constexpr std::int64_t kMostRuns = 1'000'000;     // of one program, in tests/measured
constexpr std::int64_t kMostLatentPixels = 1024;  // of one edge

/// Of a network that was recorded on latents: images are asked in pixels, `pixels` for each latent.
void ask_in_pixels(Program& program, std::int64_t pixels) {
  for (ProgramSymbol& symbol : program.symbols) {
    if (symbol.name != "image") continue;
    for (std::int64_t* size : {&symbol.recorded, &symbol.multiple, &symbol.minimum, &symbol.maximum}) *size *= pixels;
    symbol.unit = pixels;
  }
}

/// {"vae": "part-vae.json.gz", "text_encoders": ["part-clip.json.gz", …], "resident": true}; "FILE in float32":
/// whatever the network's type is.
std::vector<PipelinePart> parts_of_pipeline(const JsonObject& config, const std::filesystem::path& folder) {
  constexpr std::string_view kFloat32 = " in float32";
  const bool is_resident = config.optional_bool("resident").value_or(false);
  std::vector<PipelinePart> parts;
  const auto add = [&](std::string file) {
    const bool in_float32 = file.ends_with(kFloat32);
    if (in_float32) file.resize(file.size() - kFloat32.size());
    const std::string path = (folder / file).string();
    auto program = std::make_shared<Program>(read_program(read_program_text(path), path));
    program->converted = false;  // from_pretrained reads it on the host, to(device, dtype) moves it
    parts.push_back({.in_float32 = in_float32, .is_resident = is_resident, .program = std::move(program)});
  };
  if (const auto vae = config.optional_string("vae")) add(*vae);
  for (std::string& file : config.optional_strings("text_encoders")) add(std::move(file));
  return parts;
}

/// A config that names a program of specs/programs, which stands beside the folder of the file.
ModelSpec model_of_program(const JsonObject& config, const std::string& name, Programs programs) {
  config.refuse_unknown_keys(kProgramConfigKeys);
  const std::filesystem::path file = config.required_string("program");
  if (file.has_parent_path()) throw Error(ErrorCode::kInput, shown_path(config.file()) + ": program: a name, no path");
  ModelSpec model;
  if (programs == Programs::kRead) {
    const std::filesystem::path folder = std::filesystem::path(config.file()).parent_path().parent_path() / "programs";
    model = read_program_model((folder / file).string());
    const std::int64_t pixels = config.optional_int("latent_pixels", {1, kMostLatentPixels}).value_or(1);
    if (pixels > 1 || config.has("lora_targets") || config.has("vae") || config.has("text_encoders")) {
      auto with_parts = std::make_shared<Program>(*model.architecture.as<ProgramSpec>().program);
      with_parts->lora_targets = config.optional_strings("lora_targets");
      with_parts->parts = parts_of_pipeline(config, folder);
      ask_in_pixels(*with_parts, pixels);
      model.architecture = ProgramSpec{std::move(with_parts)};
    }
  } else {
    auto named = std::make_shared<Program>();
    named->task = config.optional_string("task").value_or("");
    model.architecture = ProgramSpec{std::move(named)};
  }
  model.name = name;
  model.model_type = config.required_string("model_type");
  const std::string stored = config.optional_string("torch_dtype").value_or("float32");
  for (const DType each : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (name_of(each) == stored) model.checkpoint_dtype = each;
  }
  if (!model.checkpoint_dtype) {
    throw Error(ErrorCode::kInput, shown_path(config.file()) + ": torch_dtype: " + one_line(stored) +
                                       "; accepted: float32, bfloat16, float16");
  }
  return model;
}

}  // namespace

ModelFile read_model_file(const JsonObject& json, Programs programs) {
  json.refuse_unknown_keys(kModelKeys);
  ModelFile file;
  const JsonObject config = json.required_object("config");
  file.model = config.has("program") ? model_of_program(config, json.required_string("name"), programs)
                                     : model_from_hf_config(config, json.required_string("name"));
  if (config.has("program") && !json.optional_int("compared_runs", {1, kMostRuns})) {
    file.model.assumptions.push_back(file.model.name + ": no run of it was compared (not validated)");
  }
  file.aliases = json.optional_strings("aliases");
  file.stands_for = json.optional_strings("stands_for");
  file.but_for = json.optional_string("but_for").value_or("");
  file.text_of = json.optional_strings("text_of");
  file.without = json.optional_string("without").value_or("");
  file.with_images = json.optional_string("with_images").value_or("");
  file.part_of = json.optional_strings("part_of");
  if (const std::optional<JsonObject> others = json.nullable_object("stored_otherwise")) {
    constexpr std::array<std::string_view, 3> kStored = {"float32", "bfloat16", "float16"};
    others->refuse_unknown_keys(kStored);
    constexpr std::array<DType, 3> kTypes = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
    for (std::size_t i = 0; i < kStored.size(); ++i) {
      if (std::vector<std::string> names = others->optional_strings(kStored[i]); !names.empty()) {
        file.stored_otherwise.emplace_back(kTypes[i], std::move(names));
      }
    }
  }
  file.recalled = !json.optional_strings("recalled").empty();
  constexpr IntRange kCount = {1, std::numeric_limits<std::int64_t>::max()};
  file.model.published_parameters = json.nullable_int("published_parameters", kCount);
  file.counted_parameters = json.nullable_int("counted_parameters", kCount);
  file.model.source = json.required_string("source");
  file.model.date = json.required_string("date");
  return file;
}

DeviceFile read_device_file(const JsonObject& json, const PredictedRates& predicted) {
  json.refuse_unknown_keys(kDeviceKeys);
  DeviceFile file;
  file.aliases = json.optional_strings("aliases");
  file.recalled = !json.optional_strings("recalled").empty();
  DeviceSpec& device = file.device;
  device.name = json.required_string("name");
  device.description = json.required_string("description");
  device.memory_bytes = json.required_int("memory_bytes", kPositiveBytes);
  constexpr IntRange version = {0, 99};
  device.compute_capability_major =
      static_cast<int>(json.optional_int("compute_capability_major", version).value_or(0));
  device.compute_capability_minor =
      static_cast<int>(json.optional_int("compute_capability_minor", version).value_or(0));
  device.gcn_architecture = json.optional_string("gcn_architecture").value_or("");
  device.multiprocessors = static_cast<int>(json.optional_int("multiprocessors", {1, 100'000}).value_or(0));
  device.max_threads_per_multiprocessor =
      static_cast<int>(json.optional_int("max_threads_per_multiprocessor", {1, 100'000})
                           .value_or(device.max_threads_per_multiprocessor));
  read_memory_figures(json, device);
  device.cublas_workspace_bytes = json.optional_int("cublas_workspace_bytes", kByteRange);
  device.cublaslt_workspace_bytes = json.optional_int("cublaslt_workspace_bytes", kByteRange);
  device.memory_bandwidth_bytes_per_second = json.required_double("memory_bandwidth_bytes_per_second", {1, 1e20});
  device.bf16_flops_per_second = rate_of(json, "bf16_flops_per_second");
  device.fp16_flops_per_second = rate_of(json, "fp16_flops_per_second");
  device.tf32_flops_per_second = rate_of(json, "tf32_flops_per_second");
  device.fp32_flops_per_second = rate_of(json, "fp32_flops_per_second");
  device.link_bytes_per_second = rate_of(json, "link_bytes_per_second");
  device.link_cards = json.optional_int("link_cards", {2, 1024}).value_or(0);
  device.pcie_bytes_per_second = rate_of(json, "pcie_bytes_per_second");
  device.usd_per_hour = json.optional_double("usd_per_hour", {0, 1e6}).value_or(0);
  device.price_source = json.optional_string("price_source").value_or("");
  device.power_watts = json.optional_double("power_watts", {0, 1e5}).value_or(0);
  const std::optional<JsonObject> rates = json.nullable_object("rates");
  if (rates && predicted) {
    const std::shared_ptr<const DeviceRates> others = predicted(device);
    device.rates = std::make_shared<const DeviceRates>(read_device_rates(*rates, others.get()));
  }
  device.source = json.required_string("source");
  device.date = json.required_string("date");
  return file;
}

}  // namespace memcalc
