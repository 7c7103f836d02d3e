// Many estimates on several threads, without the interpreter.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "memcalc/memcalc.h"

namespace memcalc::python {

/// Everything that an estimate needs; models and cards are shared between questions.
struct Question {
  std::shared_ptr<const ModelSpec> model;
  std::shared_ptr<const DeviceSpec> device;
  ResolvedRun run;
  bool device_assumed = false;
};

/// (rows, errors): the numbers of one report a row, packed as `row_fields()` says, as bytes; and of what was refused
/// [(index, exception), …], whose rows are zero but for `ok`. A question may itself be an exception, which is passed
/// on.
[[nodiscard]] pybind11::tuple estimate_many(const pybind11::list& questions, int threads);

/// [(name, NumPy type), …] of a row.
[[nodiscard]] pybind11::list row_fields();

}  // namespace memcalc::python
