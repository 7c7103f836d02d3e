#include "memcalc/models/pipeline_stages.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace memcalc {

bool ModelStage::holds(const std::string& parameter) const {
  constexpr std::string_view kLayers = "model.layers.";
  if (parameter.starts_with(kLayers)) {
    std::int64_t layer = 0;
    const char* const begin = parameter.data() + kLayers.size();
    std::from_chars(begin, parameter.data() + parameter.size(), layer);
    return layer >= first_layer && layer < first_layer + layers;
  }
  return parameter.starts_with("model.embed_tokens") ? embeds : predicts;
}

std::vector<std::int64_t> even_layers(std::int64_t layers, std::int64_t stages) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < stages; ++i) result.push_back(layers / stages + (i < layers % stages ? 1 : 0));
  return result;
}

std::vector<ModelStage> model_stages(const std::vector<std::int64_t>& layers) {
  std::vector<ModelStage> result;
  std::int64_t first = 0;
  for (const std::int64_t own : layers) {
    const bool is_last = result.size() + 1 == layers.size();
    result.push_back({.first_layer = first, .layers = own, .embeds = result.empty(), .predicts = is_last});
    first += own;
  }
  return result;
}

}  // namespace memcalc
