#include "values.h"

#include <cmath>

namespace py = pybind11;

namespace memcalc::python {

void refuse(const std::string& keyword, const std::string& expected, py::handle found) {
  throw OptionError(keyword,
                    keyword + ": expected " + expected + ", found " + one_line(py::repr(found).cast<std::string>()));
}

std::int64_t whole_from(const std::string& keyword, py::handle value, std::int64_t least) {
  const std::string expected = "a whole number of " + std::to_string(least) + " or more";
  if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr())) refuse(keyword, expected, value);
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!number) {  // an array of NumPy has __index__, which only one number answers
    PyErr_Clear();
    refuse(keyword, expected, value);
  }
  int overflow = 0;
  const long long whole = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow > 0) refuse(keyword, expected + " and below 2^63", value);
  if (overflow < 0 || whole < least) refuse(keyword, expected, value);
  return whole;
}

double number_from(const std::string& keyword, py::handle value) {
  const char* expected = "a number of 0 or more";
  const auto is_real = [&] { return py::isinstance(value, py::module_::import("numbers").attr("Real")); };
  if (PyBool_Check(value.ptr()) || !(PyFloat_Check(value.ptr()) || PyIndex_Check(value.ptr()) || is_real())) {
    refuse(keyword, expected, value);
  }
  const double number = PyFloat_AsDouble(value.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse(keyword, expected, value);
  }
  if (!std::isfinite(number) || number < 0) refuse(keyword, expected, value);
  return number;
}

bool truth_from(const std::string& keyword, py::handle value) {
  const std::string_view type = Py_TYPE(value.ptr())->tp_name;
  const bool is_of_numpy = type == "numpy.bool" || type == "numpy.bool_";
  if (!PyBool_Check(value.ptr()) && !is_of_numpy) refuse(keyword, "True or False", value);
  return PyObject_IsTrue(value.ptr()) == 1;
}

std::string text_from(const std::string& keyword, const std::string& expected, py::handle value) {
  if (!py::isinstance<py::str>(value)) refuse(keyword, expected, value);
  return value.cast<std::string>();
}

std::vector<std::string> texts_from(const std::string& keyword, py::handle value) {
  if (py::isinstance<py::str>(value) || !py::isinstance<py::sequence>(value)) {
    refuse(keyword, "a list of names", value);
  }
  std::vector<std::string> texts;
  for (const py::handle each : value) texts.push_back(text_from(keyword, "a list of names", each));
  return texts;
}

}  // namespace memcalc::python
