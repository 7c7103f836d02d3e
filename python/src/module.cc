// memcalc._core: what the Python package needs of memcalc.h, and no more. Its stub is memcalc/_core.pyi; the package's
// own modules give it the shape that users see.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config.h"
#include "errors.h"
#include "many.h"
#include "options.h"
#include "question.h"

namespace py = pybind11;

namespace memcalc::python {
namespace {

using Model = std::shared_ptr<const ModelSpec>;
using Device = std::shared_ptr<const DeviceSpec>;

constexpr std::array<std::string_view, 4> kFormatNames = {"text", "json", "csv", "md"};

Format format_from(const std::string& text) {
  if (const auto format = enum_from<Format>(kFormatNames, text)) return *format;
  throw OptionError("format", "format: expected one of text, json, csv, md, found '" + one_line(text) + "'");
}

Model load_model(const SpecRegistry& registry, const std::string& reference, const py::dict& keywords) {
  RunRequest request = read_options(keywords);
  request.model = reference;
  const py::gil_scoped_release unlocked;
  return std::make_shared<const ModelSpec>(model_of(request, registry));
}

Model family_model(const std::string& model_type, const py::dict& keywords) {
  RunRequest request = read_options(keywords);
  request.family = model_type;
  return std::make_shared<const ModelSpec>(model_of(request, SpecRegistry(std::vector<std::string>{})));
}

Report answer_unlocked(const Question& question) {
  const py::gil_scoped_release unlocked;
  return answer(question);
}

std::string rendered(const Report& report, const std::string& format, bool explain, bool details) {
  const Format chosen = format_from(format);
  const py::gil_scoped_release unlocked;
  return render(report, chosen, {.details = details, .explain = explain});
}

/// As the page gets it; empty where there is no step to draw.
std::string curve(const Report& report) {
  if (!report.run.trains() || report.epoch) return "";
  const py::gil_scoped_release unlocked;
  return render_json(step_curve(report));
}

std::string event_stream(const Question& question, bool all_steps) {
  const py::gil_scoped_release unlocked;
  return trace(question.model, question.run.run, question.device,
               {.format = TraceFormat::kTsv, .all_steps = all_steps});
}

py::list parameters_of(const Question& question) {
  std::vector<ParameterRow> rows;
  {
    const py::gil_scoped_release unlocked;
    rows = parameter_table(question.model, question.run.run, question.device);
  }
  py::list table;
  for (const ParameterRow& row : rows) {
    table.append(
        py::make_tuple(row.name, py::tuple(py::cast(row.shape)), std::string(name_of(row.dtype)), row.trainable));
  }
  return table;
}

void add_specs(py::module_& m) {
  py::class_<ModelSpec, std::shared_ptr<ModelSpec>>(m, "ModelSpec")
      .def_readonly("name", &ModelSpec::name)
      .def_readonly("model_type", &ModelSpec::model_type)
      .def_property_readonly("is_program", [](const ModelSpec& model) { return model.architecture.is<ProgramSpec>(); })
      .def_readonly("source", &ModelSpec::source)
      .def_readonly("assumptions", &ModelSpec::assumptions)
      .def_readonly("published_parameters", &ModelSpec::published_parameters);
  py::class_<DeviceSpec, std::shared_ptr<DeviceSpec>>(m, "DeviceSpec")
      .def_readonly("name", &DeviceSpec::name)
      .def_readonly("memory_bytes", &DeviceSpec::memory_bytes);
  py::class_<SpecRegistry>(m, "SpecRegistry")
      .def(py::init<std::vector<std::string>>(), py::arg("directories"))
      .def("model", &load_model, py::arg("reference"), py::arg("sizes"))
      .def(
          "device",
          [](const SpecRegistry& r, const std::string& name) {
            return std::make_shared<const DeviceSpec>(r.device(name));
          },
          py::arg("reference"))
      .def("models", [](const SpecRegistry& r) { return render(r.models(), Format::kJson); })
      .def("devices", [](const SpecRegistry& r) { return render(r.devices(), Format::kJson); });
  m.def(
      "model_from_json",
      [](const std::string& text, const std::string& name) {
        return std::make_shared<const ModelSpec>(model_from_json(text, name));
      },
      py::arg("text"), py::arg("name"));
  m.def("model_of_family", &family_model, py::arg("model_type"), py::arg("sizes"));
}

template <typename Member>
auto of_memory(Member member) {
  return [member](const Report& report) { return report.memory.*member; };
}

void add_estimate(py::module_& m) {
  py::class_<Question>(m, "Question")
      .def(py::init(&ask), py::arg("model"), py::arg("device"), py::arg("keywords"), py::arg("device_assumed"),
           py::arg("registry"))
      .def("estimate", &answer_unlocked)
      .def("trace", &event_stream, py::arg("all_steps"))
      .def("parameters", &parameters_of);
  py::class_<Report>(m, "Report")
      .def("render", &rendered, py::arg("format"), py::arg("explain"), py::arg("details"))
      .def("curve", &curve)
      .def_property_readonly("peak_allocated_bytes", of_memory(&ReplayResult::peak_allocated))
      .def_property_readonly("peak_reserved_bytes", of_memory(&ReplayResult::peak_reserved))
      .def_property_readonly("exact_lower_bound_bytes", of_memory(&ReplayResult::exact_peak))
      .def_readonly("device_used_bytes", &Report::device_used_bytes)
      .def_property_readonly("fits", &Report::fits)
      .def_property_readonly("verdict", [](const Report& r) { return std::string(name_of(r.verdict)); })
      .def_readonly("parameters_total", &Report::parameters_total)
      .def_readonly("parameters_trainable", &Report::parameters_trainable)
      .def_readonly("profile", &Report::profile)
      .def_readonly("assumptions", &Report::assumptions)
      .def_readonly("not_modelled", &Report::not_modelled);
  m.def("estimate_many", &estimate_many, py::arg("questions"), py::arg("threads"));
  m.def("row_fields", &row_fields);
  m.def("option_table", &option_table);
  m.def("size_keywords", &size_keywords);
}

}  // namespace
}  // namespace memcalc::python

PYBIND11_MODULE(_core, m) {
  m.doc() = "The compiled part of memcalc; use the package `memcalc`.";
  m.attr("__version__") = MEMCALC_VERSION;
  memcalc::python::register_errors(m);
  memcalc::python::add_specs(m);
  memcalc::python::add_estimate(m);
  memcalc::python::add_config(m);
}
