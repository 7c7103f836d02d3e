#include "errors.h"

#include <array>
#include <cstddef>

#include "options.h"

namespace py = pybind11;

namespace memcalc::python {
namespace {

// By ErrorCode. Borrowed from the module, which lives as long as the interpreter.
std::array<PyObject*, 5> exception_types{};

py::object make(ErrorCode code, const std::string& message, const std::string& part, const std::string& rule = "") {
  const py::handle type(exception_types[static_cast<std::size_t>(code)]);
  py::object exception = type(message);
  exception.attr("part") = part.empty() ? py::object(py::none()) : py::object(py::str(part));
  exception.attr("rule") = rule.empty() ? py::object(py::none()) : py::object(py::str(rule));
  return exception;
}

/// In Python's words: an option that the message begins with is called by its keyword.
py::object exception_of_library(const Error& error) {
  std::string message = error.what();
  if (error.part().empty()) return make(error.code(), message, part_of_message(message), error.rule());
  const std::string keyword = keyword_of(error.part());
  const std::string flag = error.part().substr(0, error.part().find(' '));
  if (message.starts_with(flag)) message = keyword + message.substr(flag.size());
  return make(error.code(), message, keyword, error.rule());
}

}  // namespace

py::object exception_of(const std::exception& error) {
  if (const auto* option = dynamic_cast<const OptionError*>(&error)) {
    return make(ErrorCode::kUsage, option->what(), option->part(), option->rule());
  }
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return exception_of_library(*ours);
  return make(ErrorCode::kInternal, std::string("unexpected: ") + error.what(), "");
}

void register_errors(py::module_& module) {
  const auto add = [&](const char* name, py::tuple bases, const char* doc) {
    py::dict members;
    members["__doc__"] = doc;
    members["__module__"] = "memcalc";
    py::object type = py::module_::import("builtins").attr("type")(name, bases, members);
    module.attr(name) = type;
    return type;
  };
  const py::object base =
      add("Error", py::make_tuple(py::handle(PyExc_Exception)),
          "Anything that memcalc refuses. `part`: the keyword, key, file or name that is wrong, or "
          "None where it is the whole. `rule`: the id of the rule that is broken (docs/what-goes-with-what.md), or "
          "None.");
  base.attr("part") = py::none();
  base.attr("rule") = py::none();
  const auto add_code = [&](ErrorCode code, const char* name, PyObject* also, const char* doc) {
    exception_types[static_cast<std::size_t>(code)] = add(name, py::make_tuple(base, py::handle(also)), doc).ptr();
  };
  add_code(ErrorCode::kUsage, "UsageError", PyExc_ValueError,
           "Keywords that contradict each other, or a value that is not accepted.");
  add_code(ErrorCode::kInput, "InputError", PyExc_ValueError,
           "A file or configuration that cannot be read or holds a wrong value.");
  add_code(ErrorCode::kUnsupported, "UnsupportedError", PyExc_NotImplementedError,
           "Well-formed, but not modelled by this version.");
  add_code(ErrorCode::kOverflow, "OverflowError", PyExc_OverflowError, "A size beyond 2^63 - 1 bytes.");
  add_code(ErrorCode::kInternal, "InternalError", PyExc_RuntimeError, "A bug of memcalc.");

  py::register_exception_translator([](std::exception_ptr pointer) {
    const auto raise = [](const std::exception& error) {
      const py::object exception = exception_of(error);
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    };
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const OptionError& error) {
      raise(error);
    } catch (const Error& error) {
      raise(error);
    }
  });
}

}  // namespace memcalc::python
