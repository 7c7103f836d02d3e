// memcalc::Error as Python exceptions: memcalc.Error and one subclass for each code, with the offending part.
#pragma once

#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "memcalc/memcalc.h"

namespace memcalc::python {

/// A wrong keyword or value of one; `part` is the keyword. `rule`: Error.rule, "unknown-option"
/// where none is of that name or near it.
class OptionError : public std::runtime_error {
 public:
  OptionError(std::string part, const std::string& message, std::string rule = {})
      : std::runtime_error(message), part_(std::move(part)), rule_(std::move(rule)) {}
  [[nodiscard]] const std::string& part() const { return part_; }
  [[nodiscard]] const std::string& rule() const { return rule_; }

 private:
  std::string part_;
  std::string rule_;
};

void register_errors(pybind11::module_& module);

/// The Python exception for what a call of the library threw; it is not raised.
[[nodiscard]] pybind11::object exception_of(const std::exception& error);

}  // namespace memcalc::python
