// MIRRORS(torch, "distributed/fsdp/_flat_param.py", "2.11.0")
#include "memcalc/train/parallel/fsdp1_units.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/train/parallel/units.h"
#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

namespace {

constexpr std::int64_t kAlignment = 16;  // bytes: _get_aligned_numel

std::string_view module_of(const Parameter& parameter) {
  return std::string_view(parameter.name).substr(0, parameter.name.rfind('.'));
}

/// Takes out of `unit` the modules that train. Adapters lie in modules without children of their own, lora_A.default
/// and lora_B.default; so does a classifier's copy (ModulesToSaveWrapper).
void take_leaves(std::vector<Parameter*>& unit, std::size_t layer, std::vector<Fsdp1Units::Leaf>& leaves) {
  std::vector<Parameter*> others;
  for (Parameter* each : unit) {
    if (!each->tensor.requires_grad()) {
      others.push_back(each);
    } else if (const bool continues = !leaves.empty() && leaves.back().layer == layer &&
                                      module_of(*leaves.back().parameters.front()) == module_of(*each);
               continues) {
      leaves.back().parameters.push_back(each);
    } else {
      leaves.push_back({.parameters = {each}, .layer = layer});
    }
  }
  unit = std::move(others);
}

}  // namespace

bool is_flattened_packed(const Tensor& tensor) { return tensor.dtype() == DType::kUInt8; }

std::int64_t flattened_elements(const Tensor& tensor, const RunSpec& run) {
  if (!is_flattened_packed(tensor)) return tensor.elements();
  return ceil_div(ceil_div(tensor.elements(), 2), size_of(*run.fine_tuning.quant_storage));
}

DType flattened_dtype(const Tensor& tensor, const RunSpec& run) {
  return is_flattened_packed(tensor) ? *run.fine_tuning.quant_storage : tensor.dtype();
}

FlatLayout flat_layout_of(const std::vector<Parameter*>& parameters, const RunSpec& run, std::int64_t ranks) {
  const DType stored = flattened_dtype(parameters.front()->tensor, run);
  const DType param_dtype = mixed_precision_of(run).param_dtype.value_or(stored);
  const std::int64_t aligned = kAlignment / size_of(param_dtype);
  FlatLayout layout;
  for (const Parameter* parameter : parameters) {
    layout.elements = checked_multiply(ceil_div(layout.elements, aligned), aligned);
    layout.offsets.push_back(layout.elements);
    layout.elements = checked_add(layout.elements, flattened_elements(parameter->tensor, run));
  }
  layout.elements = ceil_div(layout.elements, ranks) * ranks;
  return layout;
}

std::int64_t elements_in_shard(std::int64_t offset, std::int64_t elements, std::int64_t shard, std::int64_t rank) {
  const std::int64_t begin = std::max(offset, rank * shard);
  const std::int64_t end = std::min(offset + elements, (rank + 1) * shard);
  return std::max<std::int64_t>(end - begin, 0);
}

Fsdp1Units fsdp1_units_of(Model& model, bool has_adapters) {
  Units units = units_of(model);
  Fsdp1Units wrapped{.layers = std::move(units.layers), .leaves = {}, .rest = std::move(units.rest)};
  if (!has_adapters) return wrapped;
  for (std::size_t i = 0; i < wrapped.layers.size(); ++i) take_leaves(wrapped.layers[i], i, wrapped.leaves);
  take_leaves(wrapped.rest, wrapped.layers.size(), wrapped.leaves);
  return wrapped;
}

/// _flat_param.py, _validate_tensors_to_flatten. With use_orig_params a unit may hold both what trains and what does
/// not.
void check_fsdp1_unit(const std::vector<Parameter*>& parameters, const RunSpec& run) {
  const Tensor& first = parameters.front()->tensor;
  const DType dtype = flattened_dtype(first, run);
  for (const Parameter* each : parameters) {
    if (each->tensor.requires_grad() != first.requires_grad()) throw refusal(rules::kFsdp1Frozen, {each->name});
    if (const DType other = flattened_dtype(each->tensor, run); other != dtype) {
      throw refusal(rules::kFsdp1OneType, {each->name, name_of(other), name_of(dtype)});
    }
  }
}

std::vector<Holding> fsdp1_holdings(Model& model, const RunSpec& run, std::int64_t ranks) {
  Fsdp1Units units = fsdp1_units_of(model, run.fine_tuning.lora.has_value());
  std::vector<std::vector<Parameter*>> flat = std::move(units.layers);
  for (Fsdp1Units::Leaf& leaf : units.leaves) flat.push_back(std::move(leaf.parameters));
  flat.push_back(std::move(units.rest));
  std::erase_if(flat, [](const std::vector<Parameter*>& parameters) { return parameters.empty(); });
  std::vector<FlatLayout> layouts;
  for (const std::vector<Parameter*>& parameters : flat) layouts.push_back(flat_layout_of(parameters, run, ranks));
  std::vector<Holding> holdings;
  std::vector<std::int64_t> held;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    held.clear();
    for (std::size_t unit = 0; unit < flat.size(); ++unit) {
      const FlatLayout& layout = layouts[unit];
      for (std::size_t i = 0; i < flat[unit].size(); ++i) {
        const std::int64_t elements = flattened_elements(flat[unit][i]->tensor, run);
        held.push_back(elements_in_shard(layout.offsets[i], elements, layout.elements / ranks, rank));
      }
    }
    add_rank(holdings, held);
  }
  return holdings;
}

}  // namespace memcalc
