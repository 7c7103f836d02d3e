#include "memcalc/train/parallel/units.h"

#include <algorithm>
#include <string_view>

namespace memcalc {
namespace {

/// "model.layers.3" of "model.layers.3.mlp.up_proj.weight"; empty outside of a list.
std::string_view list_member(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos) return name.substr(0, end);
    begin = end + 1;
  }
  return {};
}

}  // namespace

Units units_of(Model& model) {
  Units units;
  std::string_view current;
  for (Parameter& parameter : model.parameters) {
    const std::string_view member = list_member(parameter.name);
    if (member.empty()) {
      units.rest.push_back(&parameter);
      continue;
    }
    if (member != current) units.layers.emplace_back();
    current = member;
    units.layers.back().push_back(&parameter);
  }
  return units;
}

const TensorImpl* tied_embedding(const Model& model, const RunSpec& run) {
  if (run.task != Task::kCausalLm && run.task != Task::kMaskedLm && run.task != Task::kSeq2Seq) return nullptr;
  const TensorImpl* first = nullptr;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.is_embedding && first == nullptr) first = parameter.tensor.impl();
    if (parameter.name.ends_with("lm_head.weight") || parameter.name.ends_with("embed_out.weight") ||
        parameter.name.ends_with("decoder.weight")) {
      return nullptr;
    }
  }
  return first;
}

}  // namespace memcalc
