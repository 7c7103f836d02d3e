// What the host needs to issue an operator, by its rates. Covered by tests/unit/cost_test.cc.
#pragma once

#include "memcalc/spec/device_rates.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// A foreach or fused step over a list of tensors: one kernel stands for its passes.
[[nodiscard]] bool is_list(const Kernel& kernel);

/// How often the list is gone through: each pass is issued by itself, so the card starts with the first.
[[nodiscard]] double list_passes(const Kernel& kernel);
/// Kernels that it takes on the card.
[[nodiscard]] double list_launches(const Kernel& kernel);

/// Seconds that the host takes to issue this operator, with the views and autograd nodes before it.
[[nodiscard]] double host_seconds(const Kernel& kernel, const HostRates& rates, bool no_grad = false);

/// Whether experts are multiplied in groups (torch.nn.functional.grouped_mm).
[[nodiscard]] bool has_grouped_experts(const KernelList& kernels);

/// Those of a model with such experts: its operators' code and data are more than the core's caches hold.
[[nodiscard]] DeviceRates rates_among_experts(DeviceRates rates);

/// Those of a model that trains, in whose forward so many instructions of Python go with each operator
/// (cost/trained_python.h).
[[nodiscard]] DeviceRates rates_of_step(DeviceRates rates, double instructions);

/// Those of a model that is called without autograd, in whose forward so many instructions of Python go with each
/// operator (Family::instructions_per_operator; 0: not counted), with each host's call_ratio.
[[nodiscard]] DeviceRates rates_of_call(DeviceRates rates, double instructions);

}  // namespace memcalc
