// Other tools' files and command lines (spec/config_files) as keywords of memcalc.estimate().
#pragma once

#include <pybind11/pybind11.h>

namespace memcalc::python {

/// read_config() and read_command_line().
void add_config(pybind11::module_& m);

}  // namespace memcalc::python
