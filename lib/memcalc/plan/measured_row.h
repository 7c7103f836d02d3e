// A measured row: {"id", "gpu", "run", "harness", …}. `run` says what ran as a record does (docs/run.schema.json),
// `harness` what no option of memcalc says; the other keys are what was measured. tests/measured/README.md has the
// form. Covered by tests/unit/measured_row_test.cc.
#pragma once

#include <optional>
#include <string>

#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_request.h"

namespace memcalc {

/// Configs of models by the names that rows give them: {"models": {NAME: {"config": {…}}}}.
class NamedConfigs {
 public:
  NamedConfigs() = default;
  explicit NamedConfigs(const JsonDocument& document);

  [[nodiscard]] bool has(const std::string& name) const;

  /// Built as transformers builds it from the config alone, with other layers and an untied head where asked for.
  /// Throws Error(kUnsupported) for any other change.
  [[nodiscard]] ModelSpec model(const std::string& name, const ArchitectureChanges& changes) const;

 private:
  std::optional<JsonDocument> document_;
};

/// What the row asks memcalc: its run, on its card. Throws Error(kInput, kUsage).
[[nodiscard]] RunRequest request_of_row(const JsonObject& row);

/// As question_of(request, registry), of a model that was built from its config alone, with random weights: that of
/// `configs` or of the registry, its head tied as transformers ties it. A card that is not named is kAssumedDevice.
[[nodiscard]] Question question_of(const RunRequest& request, const SpecRegistry& registry,
                                   const NamedConfigs& configs);

}  // namespace memcalc
