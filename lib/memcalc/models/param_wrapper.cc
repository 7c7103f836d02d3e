// MIRRORS(torch, "nn/utils/parametrize.py", "2.11.0")
#include "memcalc/models/param_wrapper.h"

#include <array>
#include <utility>

#include "memcalc/symbolic/ops/baddbmm.h"
#include "memcalc/symbolic/ops/einsum.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// lora_A's weight as [experts, rank, in].
Tensor by_expert(const ParamWrapper& wrapper) {
  return reshape(wrapper.lora_a, {wrapper.experts(), -1, wrapper.in_features()});
}

/// lora_B's weight as [out, rank, experts].
Tensor expert_last(const ParamWrapper& wrapper) {
  return reshape(wrapper.lora_b, {wrapper.out_features(), -1, wrapper.experts()});
}

}  // namespace

Tensor delta_weight(const ParamWrapper& wrapper) {
  Tensor delta;
  if (wrapper.experts() == 1) {  // Linear.get_delta_weight
    delta = multiply_scalar(matmul(wrapper.lora_b, wrapper.lora_a));
  } else {
    const std::array<Tensor, 2> factors{expert_last(wrapper), by_expert(wrapper)};
    const char* const equation = wrapper.is_transposed ? "o r e, e r i -> e i o" : "o r e, e r i -> e o i";
    delta = multiply_scalar(einsum(equation, factors));
  }
  delta = to_dtype(delta, wrapper.parameter.dtype());
  return delta;
}

ActiveWrappers::Proxy ActiveWrappers::proxy_of(const ParamWrapper& wrapper) {
  const bool by_factors = wrapper.parameter.tape().behaviors.expert_adapters == ExpertAdapters::kFactors;
  if (wrapper.experts() == 1 || !by_factors) return {.wrapper = &wrapper, .delta_weight = delta_weight(wrapper)};
  // get_delta_factors
  const Tensor weight_a = by_expert(wrapper);
  const Tensor weight_b = permute(expert_last(wrapper), {2, 0, 1});
  const DType dtype = wrapper.parameter.dtype();
  if (!wrapper.is_transposed) {
    Tensor lhs = to_dtype(weight_b, dtype), rhs = to_dtype(weight_a, dtype);
    return {.wrapper = &wrapper, .lhs = std::move(lhs), .rhs = std::move(rhs)};
  }
  const Tensor columns = transpose(weight_a, 1, 2), rows = transpose(weight_b, 1, 2);
  Tensor lhs = to_dtype(columns, dtype), rhs = to_dtype(rows, dtype);
  return {.wrapper = &wrapper, .lhs = std::move(lhs), .rhs = std::move(rhs)};
}

Tensor ActiveWrappers::Proxy::added() const {
  const Tensor& parameter = wrapper->parameter;
  if (delta_weight.defined()) return parameter + delta_weight;
  const WithoutAutocast in_type_of_parameter(parameter.tape().modes.autocast);
  return baddbmm(parameter, lhs, rhs);
}

ActiveWrappers::ActiveWrappers(const WrappedModule* module) : module_(module) {
  if (module == nullptr || module->wrappers.empty()) return;
  if (module->wrappers.front().parameter.tape().modes.adapters_disabled) return;
  for (auto wrapper = module->wrappers.rbegin(); wrapper != module->wrappers.rend(); ++wrapper) {
    proxies_.push_back(proxy_of(*wrapper));
    // parametrize.py, ParametrizationList.__init__: what it gives is compared with the parameter, and dies.
    proxies_.back().added().reset();
  }
}

ActiveWrappers::~ActiveWrappers() {
  if (proxies_.empty()) {  // bitsandbytes' hook behind the module's forward empties the cache
    for (auto& [parameter, read] : cache_) read.reset();
  }
  while (!proxies_.empty()) {
    // The outermost wrapper's cached() empties the cache of all, as long as its own proxy lives.
    if (proxies_.size() == 1) {
      for (auto& [parameter, read] : cache_) read.reset();
    }
    drop(proxies_.back().lhs, proxies_.back().rhs, proxies_.back().delta_weight);
    proxies_.pop_back();
  }
}

Tensor ActiveWrappers::read(const Tensor& parameter) {
  for (const auto& [of, read] : cache_) {
    if (of == parameter.impl()) return read;
  }
  for (const Proxy& proxy : proxies_) {
    if (proxy.wrapper->parameter.impl() != parameter.impl()) continue;
    if (parameter.tape().behaviors.expert_adapters == ExpertAdapters::kAsMade) return proxy.added();
    cache_.emplace_back(parameter.impl(), proxy.added());
    return cache_.back().second;
  }
  if (module_ == nullptr) return parameter;
  for (const PackedParameter& packed : module_->packed) {
    if (packed.parameter.impl() != parameter.impl()) continue;
    cache_.emplace_back(parameter.impl(), unpacked(parameter.tape(), packed.weight, packed.shape));
    return cache_.back().second;
  }
  return parameter;
}

}  // namespace memcalc
