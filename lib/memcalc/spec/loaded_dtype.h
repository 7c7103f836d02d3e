// In which precision a run computes and in which data type its weights are loaded, where nothing or one of them is
// said. Covered by tests/unit/loaded_dtype_test.cc.
#pragma once

#include <string>
#include <vector>

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Sets precision and weights_dtype. What is said holds; else weights have the type in which the checkpoint is stored
/// (ModelSpec::checkpoint_dtype), as transformers 5's from_pretrained loads them, and without a precision the run
/// computes in it. Pre: of a run that trains the loop is resolved.
void resolve_loaded_dtype(const ModelSpec& model, const RunOptions& options, RunSpec& run,
                          std::vector<std::string>& assumptions);

/// --load, where nobody says it. Pre: the run's loop is known.
[[nodiscard]] ModelLoading resolve_loading(const ModelSpec& model, const RunOptions& options, const RunSpec& run,
                                           std::vector<std::string>& assumptions);

}  // namespace memcalc
