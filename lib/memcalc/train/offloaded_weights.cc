#include "memcalc/train/offloaded_weights.h"

#include <algorithm>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/linear.h"

namespace memcalc {

namespace {

/// set_module_tensor_to_device(module, name, "meta")
void drop_storage(const Tensor& parameter) {
  const Tensor nothing = parameter.tape().empty({0}, parameter.dtype(), aten::kToCopy);
  std::swap(parameter.impl()->block, nothing.impl()->block);
}

}  // namespace

OffloadedWeights::OffloadedWeights(Tape& tape, const Model& model) : tape_(tape), model_(model) {
  for (const Tensor& buffer : model.buffers) {
    Tensor storage = tape.empty(buffer.shape(), buffer.dtype(), aten::kEmptyLike, Category::kWeights);
    tape.take_storage(buffer, storage);
  }
  tape.modes.module_hooks = this;
}

OffloadedWeights::~OffloadedWeights() { tape_.modes.module_hooks = nullptr; }

// pre_forward. set_module_tensor_to_device empties the allocator's cache after each tensor (clear_cache).
Tensor OffloadedWeights::before_module(const void* module, std::span<const Tensor* const> parameters,
                                       const Tensor& input) {
  for (const Tensor* each : parameters) {
    if (!each->defined()) continue;
    Tensor storage = tape_.empty(each->shape(), each->dtype(), aten::kToCopy, Category::kWeights);
    tape_.take_storage(*each, storage);
    tape_.memory.empty_cache();
    loaded_.emplace_back(module, *each);
    seen_.insert(each->impl());
  }
  return input;
}

void OffloadedWeights::after_module(const void* module, const Tensor& /*output*/) {
  const auto first =
      std::find_if(loaded_.begin(), loaded_.end(), [&](const auto& each) { return each.first == module; });
  for (auto at = first; at != loaded_.end(); ++at) {
    const Tensor& each = at->second;
    if (each.impl()->cached_cast >= 0) {
      kept_by_autocast_.push_back(tape_.alias(each, each.shape(), each.strides(), false));
      each.impl()->cached_cast = -1;  // to autocast the next one on the card is another parameter
    }
    drop_storage(each);
  }
  loaded_.erase(first, loaded_.end());
}

Tensor OffloadedWeights::linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return memcalc::linear(x, weight, bias);
}

void OffloadedWeights::check_every_parameter_is_hooked() const {
  for (const Parameter& each : model_.parameters) {
    if (seen_.contains(each.tensor.impl())) continue;
    throw refusal(rules::kOffloadedParameterHooks, {each.name});
  }
}

std::vector<HeldRow> OffloadedWeights::held() const {
  Bytes buffers = 0;
  for (const Tensor& each : model_.buffers) buffers = checked_add(buffers, each.bytes());
  return {{"buffers", buffers, "they stay on the card; of the weights those of the module that runs are there"}};
}

std::vector<HeldRow> OffloadedWeights::held_on_host() const {
  Bytes weights = 0;
  for (const Parameter& each : model_.parameters) weights = checked_add(weights, each.tensor.bytes());
  return {{"offloaded weights", weights, "accelerate's copy of the state dict, in plain memory"}};
}

}  // namespace memcalc
