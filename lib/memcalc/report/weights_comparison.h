// Compares weights on disk with the parameters of the model that config.json describes, as transformers would when it
// loads them. Covered by tests/unit/weights_comparison_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/spec/weights.h"

namespace memcalc {

/// Tensors that share a fate. `names` holds the first kNamedTensors of them.
struct TensorGroup {
  std::int64_t tensors = 0;
  std::int64_t parameters = 0;
  std::vector<std::string> names;
};

inline constexpr std::size_t kNamedTensors = 8;

/// parameters of the weights - copies - buffers - unexpected + missing + reshaped_difference = those of the model.
struct WeightsComparison {
  std::string path;
  std::int64_t files = 0;
  std::int64_t tensors = 0;
  std::int64_t parameters = 0;  // of the weights, whatever they are
  Bytes bytes = 0;
  std::vector<WeightTypeTotal> types;

  TensorGroup missing;                   // of the model, not in the weights: they start anew
  TensorGroup unexpected;                // in the weights, not of the model: they are not loaded
  TensorGroup copies;                    // in the weights, tied to another of them
  TensorGroup buffers;                   // in the weights, no parameters
  TensorGroup reshaped;                  // in both, of another shape; counted as in the weights
  std::int64_t reshaped_difference = 0;  // parameters that the model has more there

  /// Nothing of the model is missing, and nothing is there that it cannot take.
  [[nodiscard]] bool agrees() const { return missing.tensors == 0 && unexpected.tensors == 0 && reshaped.tensors == 0; }
};

/// What a reader needs to know of a parameter.
struct ParameterShape {
  std::string_view name;
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0;
};

[[nodiscard]] WeightsComparison compare_weights(const Weights& weights, std::string_view model_type,
                                                const std::vector<ParameterShape>& parameters);

}  // namespace memcalc
