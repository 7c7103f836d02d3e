#include "memcalc/train/optimizers/offload.h"

#include <algorithm>
#include <iterator>

namespace memcalc {

std::vector<ParameterGroup> without_offloaded(const std::vector<ParameterGroup>& groups) {
  std::vector<ParameterGroup> kept(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::copy_if(groups[i].begin(), groups[i].end(), std::back_inserter(kept[i]),
                 [](const Parameter* each) { return !is_offloaded(each->tensor.elements()); });
  }
  return kept;
}

void drop_offloaded_gradients(const std::vector<ParameterGroup>& groups) {
  for (const ParameterGroup& group : groups) {
    for (const Parameter* each : group) {
      if (is_offloaded(each->tensor.elements())) each->tensor.impl()->drops_gradient = true;
    }
  }
}

HostOptimizer host_optimizer_of(const std::vector<Parameter>& parameters) {
  HostOptimizer host;
  for (const Parameter& each : parameters) {
    if (!each.tensor.requires_grad() || !is_offloaded(each.tensor.elements())) continue;
    const Bytes bytes = each.tensor.bytes();
    ++host.tensors;
    host.pinned_parameters = checked_add(host.pinned_parameters, power_of_two_from(bytes));
    host.pinned_gradients = checked_add(host.pinned_gradients, power_of_two_from(bytes));
    // zeros_like makes the moments in pageable memory; the step counter is a float.
    host.states = checked_add(host.states, checked_add(checked_multiply(2, bytes), 4));
  }
  return host;
}

}  // namespace memcalc
