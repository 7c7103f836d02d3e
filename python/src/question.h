// What estimate() is asked, and its answer as `memcalc estimate` gives it.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "memcalc/memcalc.h"
#include "options.h"

namespace memcalc::python {

[[nodiscard]] Question ask(const std::shared_ptr<const ModelSpec>& model,
                           const std::shared_ptr<const DeviceSpec>& device, const pybind11::dict& keywords,
                           bool device_assumed, const SpecRegistry& registry);

/// With what the command line adds: of inference, how many sequences fit. The GIL need not be held.
[[nodiscard]] Report answer(const Question& question);

}  // namespace memcalc::python
