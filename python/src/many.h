// Many estimates on several threads, without the interpreter.
#pragma once

#include <pybind11/pybind11.h>

namespace memcalc::python {

/// (rows, errors): the numbers of one report a row, packed as `row_fields()` says, as bytes; and of what was refused
/// [(index, exception), …], whose rows are zero but for `ok`. A question may itself be an exception, which is passed
/// on.
[[nodiscard]] pybind11::tuple estimate_many(const pybind11::list& questions, int threads);

/// [(name, NumPy type), …] of a row.
[[nodiscard]] pybind11::list row_fields();

}  // namespace memcalc::python
