// What python/memcalc/_traced.py records, as the library takes it.
#pragma once

#include <pybind11/pybind11.h>

namespace memcalc::python {

/// Adds TracedStep and TracedQuestion to the module.
void add_traced(pybind11::module_& module);

}  // namespace memcalc::python
