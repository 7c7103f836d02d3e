#include "support/measured_row.h"

#include <filesystem>
#include <map>
#include <sstream>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/plan/measured_row.h"
#include "support/paths.h"
#include "support/recorded_file.h"
#include "support/registry.h"

namespace memcalc::measured {
namespace {

using test::registry;

const NamedConfigs& configs() {
  static const NamedConfigs configs(JsonDocument::read_file((test::measured_dir() / "models.json").string()));
  return configs;
}

/// Models in plain torch (harness/custom.py, layers.py): a file of layers says the same.
std::string file_of_layers(const std::string& model) {
  constexpr std::string_view kCustom = "custom-";
  if (!model.starts_with(kCustom)) return "";
  const std::string name = model.substr(kCustom.size()) + ".json";
  for (const auto& directory : {test::specs_dir() / "examples", test::measured_dir() / "layers"}) {
    if (std::filesystem::exists(directory / name)) return (directory / name).string();
  }
  return "";
}

/// PyTorch tries cuDNN's attention first on cards of the capability 9.0; these runs switched it off.
const DeviceSpec& without_cudnn_attention(const std::string& gpu) {
  static std::map<std::string, DeviceSpec> devices;
  const auto [device, is_new] = devices.try_emplace(gpu, measured_device(gpu));
  if (is_new) device->second.compute_capability_minor = 1;
  return device->second;
}

}  // namespace

MeasuredRow measured_row(const JsonObject& row) {
  MeasuredRow result{.id = row.required_string("id")};
  RunRequest request = request_of_row(row);
  result.model = request.model;
  const std::string gpu = request.gpu.empty() ? kUsualGpu : request.gpu;
  const bool has_other_attention = row.has("harness") && row.required_object("harness").has("without_cudnn_attention");
  result.device = has_other_attention ? &without_cudnn_attention(gpu) : &measured_device(gpu);
  if (const std::string file = file_of_layers(request.model); !file.empty()) request.model = file;
  Question question = question_of(request, registry(), configs());
  result.spec = std::move(question.model);
  result.run = std::move(question.run.run);
  return result;
}

bool is_modelled(const JsonObject& row) { return !row.has("error") && !row.has("not_modelled"); }

void for_each_row(const std::string& file,
                  const std::function<void(const JsonObject& row, const std::string& text)>& each) {
  std::istringstream lines = open_recorded(test::measured_dir() / file);
  if (!lines) throw Error(ErrorCode::kInput, file + ": cannot be read");
  for (std::string line; std::getline(lines, line);) each(JsonDocument::parse(line, file).root(), line);
}

const DeviceSpec& measured_device(const std::string& gpu) {
  static std::map<std::string, DeviceSpec> devices;
  auto device = devices.find(gpu);
  if (device == devices.end()) device = devices.emplace(gpu, registry().device(gpu)).first;
  return device->second;
}

}  // namespace memcalc::measured
