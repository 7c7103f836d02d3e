// Our own spec files (specs/models/*.json, specs/gpus/*.json; schemas in specs/schema) as plain values.
// Unlike a config.json they are read strictly: an unknown key is refused.
// Covered by tests/unit/spec_registry_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/base/dtype.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/model_spec.h"

namespace memcalc {

struct ModelFile {
  ModelSpec model;
  std::vector<std::string> aliases;     // other names of the same model, such as its id on the Hugging Face hub
  std::vector<std::string> stands_for;  // names of another implementation with the same parameters, not modelled
  std::string but_for;                  // what those have that this model has not; empty: nothing
  std::vector<std::string> text_of;     // names of models of text and images, of which this is the text model
  std::string without;                  // what else of them is not there; empty: their encoder alone
  std::string with_images;              // the registry's name of these; empty: there is none
  std::vector<std::string> part_of;     // names of pipelines whose trained network this is
  /// Names whose checkpoints are stored in another data type than the config's.
  std::vector<std::pair<DType, std::vector<std::string>>> stored_otherwise;
  std::optional<std::int64_t> counted_parameters;  // of the model with the head of its usual task; none was published
  bool recalled = false;                           // some value was not seen at a source
};

struct DeviceRates;

struct DeviceFile {
  DeviceSpec device;
  std::vector<std::string> aliases;
  bool recalled = false;
};

/// Whether a model's program (specs/programs) is read, too: a list of names does not need it.
enum class Programs : std::uint8_t { kRead, kLeave };

[[nodiscard]] ModelFile read_model_file(const JsonObject& json, Programs programs = Programs::kRead);
/// A recorded program (docs/programs.md) as a model.
[[nodiscard]] ModelSpec program_model(const JsonObject& json);
/// The same of a file, *.json or *.json.gz.
[[nodiscard]] ModelSpec read_program_model(const std::string& path);
/// The rates that a card has whose file says none.
using PredictedRates = std::function<std::shared_ptr<const DeviceRates>(const DeviceSpec&)>;
/// `predicted`: stands in for what the file's "rates" do not say; without it they are left unread.
[[nodiscard]] DeviceFile read_device_file(const JsonObject& json, const PredictedRates& predicted = {});
/// A card's rates.json in specs/measured, or the "rates" of a device file that memcalc-probe wrote. A file of an older
/// memcalc lacks numbers that are younger: `predicted` has them; where it is null each has to be there.
[[nodiscard]] DeviceRates read_device_rates(const JsonObject& json, const DeviceRates* predicted = nullptr);

/// The keys that each kind of file may have: those of specs/schema/*.schema.json, which a test compares.
[[nodiscard]] std::span<const std::string_view> model_file_keys();
[[nodiscard]] std::span<const std::string_view> device_file_keys();

/// Whether an object is one of our model files rather than a config.json: it has a "config" object.
[[nodiscard]] bool is_model_file(const JsonObject& json);

}  // namespace memcalc
