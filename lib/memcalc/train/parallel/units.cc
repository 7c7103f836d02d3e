#include "memcalc/train/parallel/units.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

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

/// Of `unit`, whose names begin with the same `prefix` bytes: appends to `ordered`.
void append_children_first(std::span<Parameter* const> unit, std::size_t prefix, std::vector<Parameter*>& ordered) {
  std::vector<Parameter*> own;
  bool is_adapted = false;
  for (std::size_t begin = 0; begin < unit.size();) {
    const std::string_view name = unit[begin]->name;
    const std::size_t dot = name.find('.', prefix);
    std::size_t end = begin + 1;
    if (dot == std::string_view::npos) {
      own.push_back(unit[begin]);
    } else {
      const std::string_view child = name.substr(0, dot + 1);
      // peft's layer holds the one that it adapts as its first child, base_layer, which the names leave out.
      if (child.substr(prefix).starts_with("lora_") && !std::exchange(is_adapted, true)) {
        ordered.insert(ordered.end(), own.begin(), own.end());
        own.clear();
      }
      while (end < unit.size() && unit[end]->name.starts_with(child)) ++end;
      append_children_first(unit.subspan(begin, end - begin), dot + 1, ordered);
    }
    begin = end;
  }
  ordered.insert(ordered.end(), own.begin(), own.end());
}

/// Whether the lists' members are the layers of a program, one by one.
bool are_units(const Units& units, const std::vector<std::string>& paths) {
  if (units.layers.size() != paths.size()) return false;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string& first = units.layers[i].front()->name;
    if (first.find(paths[i] + ".") == std::string::npos) return false;
  }
  return true;
}

}  // namespace

void order_children_first(std::vector<Parameter*>& unit) {
  std::vector<Parameter*> ordered;
  ordered.reserve(unit.size());
  append_children_first(unit, 0, ordered);
  unit = std::move(ordered);
}

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
  if (model.layer_paths && !are_units(units, *model.layer_paths)) units.layers.clear();
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
