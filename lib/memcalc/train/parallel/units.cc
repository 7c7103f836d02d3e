#include "memcalc/train/parallel/units.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "memcalc/spec/names.h"

namespace memcalc {
namespace {

/// "model.layers.3" of "model.layers.3.mlp.up_proj.weight"; empty outside of a list.
std::string_view list_member(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (is_digits(part)) return name.substr(0, end);
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

/// Layers that a program names. Where one runs several times (ALBERT), or holds nothing but other layers, no wrapper
/// would take it by itself: the model is one unit.
Units units_at(Model& model, const std::vector<std::string>& paths) {
  Units units;
  std::unordered_map<std::string_view, std::size_t> places;
  for (const std::string& path : paths) places.emplace(path, places.size());
  units.layers.resize(places.size() == paths.size() ? paths.size() : 0);
  for (Parameter& parameter : model.parameters) {
    const std::string_view name = parameter.name;
    std::vector<Parameter*>* unit = &units.rest;
    for (std::size_t dot = name.find('.'); dot != std::string_view::npos && !units.layers.empty();
         dot = name.find('.', dot + 1)) {
      if (const auto found = places.find(name.substr(0, dot)); found != places.end())
        unit = &units.layers[found->second];
    }
    unit->push_back(&parameter);
  }
  const auto is_empty = [](const std::vector<Parameter*>& layer) { return layer.empty(); };
  if (std::none_of(units.layers.begin(), units.layers.end(), is_empty)) return units;
  units.layers.clear();
  units.rest.clear();
  for (Parameter& parameter : model.parameters) units.rest.push_back(&parameter);
  return units;
}

}  // namespace

void order_children_first(std::vector<Parameter*>& unit) {
  std::vector<Parameter*> ordered;
  ordered.reserve(unit.size());
  append_children_first(unit, 0, ordered);
  unit = std::move(ordered);
}

Units units_of(Model& model) {
  if (model.layer_paths) return units_at(model, *model.layer_paths);
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
