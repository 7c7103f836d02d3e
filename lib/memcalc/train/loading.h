// How a model comes to be on the card before it trains: from_pretrained of transformers 5.17, model.to("cuda"). What is
// loaded packed stands in quantized_base.cc. Covered by tests/unit/model_loading_test.cc and
// tests/measured/stages_test.py.
// MIRRORS(transformers, "conversion_mapping.py", "5.17.0")
// MIRRORS(transformers, "core_model_loading.py", "5.17.0")
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// Whether the model is built without storage, to be loaded later.
[[nodiscard]] inline bool loads_later(const RunSpec& run) {
  return run.trains() && run.training().loading != ModelLoading::kConfig;
}

/// From here on what happens is of another stage, where a job's stages count.
inline void begin_stage(Tape& tape, const RunSpec& run, Phase phase) {
  if (run.counts_construction()) tape.moment.phase = phase;
}

/// from_pretrained(…, device_map="cuda"): gives a model that was built on the meta device its weights. Returns the
/// request that warms the allocator up, for all of them.
BlockId load_on_card(Tape& tape, Model& model, std::string_view model_type);

/// model.to("cuda") of a model that was read on the host.
void move_to_card(Tape& tape, const Model& model);

/// What is done to the model before its loop begins: adapters, frozen parameters; of a model that was loaded on the
/// host this happens there, and model.to("cuda") follows.
void prepare_model(Tape& tape, Model& model, const RunSpec& run);

/// Parameters whose checkpoint has one tensor an expert, while the module has one for all of them: loading puts them
/// together, saving takes them apart (transformers' conversion_mapping.py, "mixtral", "qwen2_moe").
[[nodiscard]] bool is_merged_expert_matrix(const Model& model, const Parameter& parameter);
[[nodiscard]] bool has_merged_experts(const Model& model);
/// Of these the one that holds two matrices, gate and up, beside each other.
[[nodiscard]] bool holds_gate_and_up(const Parameter& parameter);

/// Places of the model's parameters in the order in which from_pretrained loads them.
[[nodiscard]] std::vector<std::size_t> loading_order(const Model& model, std::string_view model_type);

/// dot_natural_key (core_model_loading.py), by which from_pretrained sorts: names are compared part by part, numbers as
/// numbers.
[[nodiscard]] bool loads_before(std::string_view a, std::string_view b);

}  // namespace memcalc
