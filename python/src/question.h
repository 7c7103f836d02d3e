// What estimate() is asked, and its answer as `memcalc estimate` gives it.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "memcalc/memcalc.h"
#include "options.h"

namespace memcalc::python {

/// Everything that an estimate needs; models and cards are shared between questions.
struct Question {
  std::shared_ptr<const ModelSpec> model;
  std::shared_ptr<const DeviceSpec> device;
  ResolvedRun run;
  TimeOptions time;
  bool device_assumed = false;
};

[[nodiscard]] Question ask(const std::shared_ptr<const ModelSpec>& model,
                           const std::shared_ptr<const DeviceSpec>& device, const pybind11::dict& keywords,
                           bool device_assumed);

/// The run alone. Here and below the GIL need not be held.
[[nodiscard]] Report estimate(const Question& question);

/// With what the command line adds: of inference, how many sequences fit.
[[nodiscard]] Report answer(const Question& question);

}  // namespace memcalc::python
