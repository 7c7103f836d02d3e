// SpecRegistry: finds models and devices by name, or reads them from a file that the user names.
// Covered by tests/unit/spec_registry_test.cc; what a user may write is in docs/specs.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/spec/architecture_changes.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/hosts.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/profiles.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// A line of `memcalc models`.
struct ModelListing {
  std::string name;
  std::string model_type;
  bool is_program = false;  // recorded (specs/programs), else a family
  std::optional<std::int64_t> published_parameters;
  std::optional<std::int64_t> parameters;  // as published; else counted, with the head of the first task
  std::vector<Task> tasks;                 // what it can be trained for
  std::vector<Task> measured;              // those of them of which runs were compared with recorded ones
  std::vector<std::string> aliases;
  std::vector<std::string> stands_for;  // names of other implementations that resolve to this one
  std::vector<std::string> text_of;     // names of models of text and images, of which this is the text model
  std::string source;
  std::string date;
  bool recalled = false;  // some value was not seen at a source
};

/// A line of `memcalc gpus`.
struct DeviceListing {
  std::string name;
  std::string description;
  Bytes memory_bytes = 0;
  double memory_bandwidth_bytes_per_second = 0;
  double half_flops_per_second = 0;  // dense bf16, or fp16 where the chip has no bf16; 0: unknown
  bool validated = false;            // memory behaviour measured on this card
  std::vector<std::string> aliases;
  std::string source;
  std::string date;
  bool recalled = false;
};

/// Whether a card's rates are read with it.
enum class Rates { kRead, kLeave };

/// Holds the paths: every call reads the files it needs, but for what holds of every card and for the rates of a card,
/// which are read once. So a registry costs nothing to construct, and it may be shared between threads.
class SpecRegistry {
 public:
  /// A folder with models/ and gpus/.
  explicit SpecRegistry(std::string directory);
  /// Several; where two know a name, the earlier one wins.
  explicit SpecRegistry(std::vector<std::string> directories);

  /// `reference`: a registry name or alias ("bert-large", "meta-llama/Llama-3.2-1B"), the path of a config.json or
  /// of a model file of ours, of weights (safetensors, or their index) with a config.json beside them, or a directory
  /// that holds a config.json.
  [[nodiscard]] ModelSpec model(const std::string& reference) const;

  /// The same with other sizes; its name says so, and no published count goes with it. Throws Error(kUsage) for a size
  /// that the model's family does not have.
  [[nodiscard]] ModelSpec model(const std::string& reference, const ArchitectureChanges& changes) const;

  /// `reference`: a registry name or alias ("h100-sxm"), or the path of a GPU file of ours.
  /// Without its rates the card tells no time; reading them takes most of the time of reading a card.
  [[nodiscard]] DeviceSpec device(const std::string& reference, Rates rates = Rates::kRead) const;
  /// The usual host of a card, by its name in the registry; nothing where no file has it.
  [[nodiscard]] std::optional<UsualHost> usual_host(const std::string& card) const;

  /// The rates of the card that was measured first: what others are predicted with, and what a fit begins with.
  [[nodiscard]] DeviceRates measured_rates() const;

  /// The releases of the frameworks. Throws Error(kInput) where no directory has them.
  [[nodiscard]] Profiles profiles() const;

  /// All entries, sorted by name.
  [[nodiscard]] std::vector<ModelListing> models() const;
  [[nodiscard]] std::vector<DeviceListing> devices() const;

 private:
  [[nodiscard]] ModelSpec find_model(const std::string& reference) const;
  [[nodiscard]] std::optional<ModelSpec> model_of_quantized_name(const std::string& reference) const;
  [[nodiscard]] std::optional<ModelSpec> model_of_other_owner(const std::string& reference) const;
  [[nodiscard]] DeviceSpec find_device(const std::string& reference, Rates rates) const;
  struct Shared;
  [[nodiscard]] DeviceSpec with_assumptions(DeviceSpec device) const;
  /// The file that describes a model.
  [[nodiscard]] std::string model_path(const std::string& reference) const;

  std::vector<std::string> directories_;
  std::shared_ptr<Shared> shared_;
};

/// A family alone: `model_type` as in config.json, with transformers' defaults for what is not given.
[[nodiscard]] ModelSpec model_of_family(const std::string& model_type, const ArchitectureChanges& sizes);

/// A config.json of transformers, or a model file of ours, as text; the model is called `name`. Throws Error(kInput),
/// Error(kUnsupported) as SpecRegistry::model() does for the same file.
[[nodiscard]] ModelSpec model_from_json(const std::string& text, const std::string& name);

}  // namespace memcalc
