// Which of the models that --model knows by name somebody looks for: `memcalc models --search qwen --task causal`.
// Covered by tests/unit/model_search_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/spec/registry.h"

namespace memcalc {

struct ModelSearch {
  std::string text;          // words, each in a name, another name or the model_type; in any case
  std::optional<Task> task;  // that it can be trained for
  std::optional<std::int64_t> fewest_parameters, most_parameters;  // leave out models of which no count is known
};

/// Those that meet all of it, in their order.
[[nodiscard]] std::vector<ModelListing> found(std::vector<ModelListing> models, const ModelSearch& search);

}  // namespace memcalc
