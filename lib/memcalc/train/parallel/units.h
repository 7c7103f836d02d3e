// The units in which wrappers take a model apart: its layers, and what is left.
// MIRRORS(torch, "distributed/fsdp/_fully_shard/_fsdp_init.py", "2.11.0")
#pragma once

#include <vector>

#include "memcalc/models/model.h"

namespace memcalc {

struct Units {
  std::vector<std::vector<Parameter*>> layers;  // in the order in which they run
  std::vector<Parameter*> rest;
};

/// A layer is a member of a list of modules, which the first number in a parameter's name tells: "model.layers.3";
/// where the model says which they are (Model::layer_paths), those. The parameters of each unit are in the order of
/// module.parameters(). Without layers `rest` is the whole model: what wrappers do without a policy.
[[nodiscard]] Units units_of(Model& model);

/// The assumption of a wrapper that takes the model as one unit.
inline constexpr const char* kOneUnit =
    "the model is wrapped as one unit, as without a policy that names its layers: all of it is gathered at once";

/// Puts a unit's parameters in the order in which fully_shard manages them: those of a module's children in front of
/// its own (_get_managed_modules of torch/distributed/fsdp/_fully_shard/_fsdp_init.py).
void order_children_first(std::vector<Parameter*>& unit);

/// The embedding that also is the weight of the model's head; null where the head has its own, or is none over tokens.
[[nodiscard]] const TensorImpl* tied_embedding(const Model& model, const RunSpec& run);

}  // namespace memcalc
