#include "traced.h"

#include <pybind11/stl.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "errors.h"
#include "memcalc/memcalc.h"
#include "options.h"

namespace py = pybind11;

namespace memcalc::python {
namespace {

constexpr std::array<DType, 9> kDTypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                          DType::kFloat64, DType::kInt64,   DType::kInt32,
                                          DType::kUInt8,   DType::kBool,    DType::kComplex64};

DType dtype_from(std::string_view name) {
  for (const DType dtype : kDTypes) {
    if (name_of(dtype) == name) return dtype;
  }
  throw Error(ErrorCode::kUnsupported, std::string(name) + ": a dtype that is not modelled");
}

Category category_from(std::string_view name) {
  for (std::size_t i = 0; i < kCategoryCount; ++i) {
    if (name_of(static_cast<Category>(i)) == name) return static_cast<Category>(i);
  }
  return Category::kTemporaries;  // of an event that allocates nothing
}

/// Fields of _traced.Event, in its order.
std::vector<TracedEvent> events_from(const py::list& given, TracedStep& step,
                                     std::map<std::string, std::int32_t>& operators) {
  std::vector<TracedEvent> events;
  events.reserve(given.size());
  for (const py::handle each : given) {
    const auto fields = py::reinterpret_borrow<py::tuple>(each);
    TracedEvent event;
    event.kind = static_cast<TracedEventKind>(fields[0].cast<int>());
    event.block = fields[1].cast<std::int32_t>();
    event.bytes = fields[2].cast<Bytes>();
    const auto name = fields[3].cast<std::string>();
    const auto [place, is_new] = operators.try_emplace(name, static_cast<std::int32_t>(step.operators.size()));
    if (is_new) step.operators.push_back(name);
    event.operator_index = place->second;
    const auto category = fields[4].cast<std::string>();
    event.category = category_from(category);
    event.is_contraction = category == name_of(OperatorClass::kContraction);
    event.parameter = fields[5].cast<std::int32_t>();
    event.flops = fields[6].cast<double>();
    if (event.kind == TracedEventKind::kCompute) event.bytes = fields[7].cast<Bytes>();
    event.dtype = event.kind == TracedEventKind::kCompute ? dtype_from(fields[8].cast<std::string>()) : DType::kUInt8;
    event.cublas = static_cast<TracedCublas>(fields[9].cast<int>());
    if (event.kind != TracedEventKind::kWorkspace) {
      step.block_count = std::max(step.block_count, static_cast<std::size_t>(event.block + 1));
    }
    events.push_back(event);
  }
  return events;
}

/// Fields of _traced.Convolution, in its order.
TracedConvolution convolution_from(const py::tuple& fields) {
  TracedConvolution call;
  call.pass = static_cast<TracedConvolutionPass>(fields[0].cast<int>());
  call.input = fields[1].cast<std::array<std::int64_t, 4>>();
  call.weight = fields[2].cast<std::array<std::int64_t, 4>>();
  call.output = fields[3].cast<std::array<std::int64_t, 4>>();
  call.stride = fields[4].cast<std::int64_t>();
  call.padding = fields[5].cast<std::int64_t>();
  call.groups = fields[6].cast<std::int64_t>();
  call.dtype = dtype_from(fields[7].cast<std::string>());
  call.channels_last = fields[8].cast<bool>();
  return call;
}

/// `trace`: a _traced.Trace.
std::shared_ptr<const TracedStep> step_from(const std::string& name, const std::string& precision,
                                            const py::object& trace) {
  auto step = std::make_shared<TracedStep>();
  step->name = name;
  const std::optional<Precision> under = enum_from<Precision>(kPrecisionNames, precision);
  if (!under) throw OptionError("precision", "precision: unknown '" + one_line(precision) + "'");
  step->precision = *under;
  std::map<std::string, std::int32_t> operators;
  step->forward = events_from(trace.attr("forward"), *step, operators);
  step->backward = events_from(trace.attr("backward"), *step, operators);
  for (const py::handle each : trace.attr("convolutions")) {
    step->convolutions.push_back(convolution_from(py::reinterpret_borrow<py::tuple>(each)));
  }
  step->loss = trace.attr("loss").cast<std::int32_t>();
  step->loss_dtype = dtype_from(trace.attr("loss_dtype").cast<std::string>());
  using Row = std::tuple<std::string, std::vector<std::int64_t>, std::string, bool>;
  for (auto& [parameter, shape, dtype, trainable] : trace.attr("parameters").cast<std::vector<Row>>()) {
    step->parameters.push_back({parameter, shape, dtype_from(dtype), trainable});
  }
  step->buffers = trace.attr("buffers").cast<std::vector<Bytes>>();
  step->inputs = trace.attr("inputs").cast<std::vector<Bytes>>();
  step->batch_size = trace.attr("batch_size").cast<std::int64_t>();
  return step;
}

struct TracedQuestion {
  std::shared_ptr<const TracedStep> step;
  std::shared_ptr<const DeviceSpec> device;
  RunOptions options;
  bool device_assumed = false;
};

Report answer(const TracedQuestion& question) {
  const py::gil_scoped_release unlocked;
  Report report = estimate(*question.step, question.options, *question.device);
  report.device_assumed = question.device_assumed;
  if (question.device_assumed) {
    report.assumptions.push_back("the card behaves as " + question.device->name + ": none was named (gpu)");
  }
  return report;
}

}  // namespace

void add_traced(py::module_& m) {
  py::class_<TracedStep, std::shared_ptr<TracedStep>>(m, "TracedStep")
      .def(py::init([](const std::string& name, const std::string& precision, const py::object& trace) {
             return std::const_pointer_cast<TracedStep>(step_from(name, precision, trace));
           }),
           py::arg("name"), py::arg("precision"), py::arg("trace"))
      .def_readonly("name", &TracedStep::name);
  py::class_<TracedQuestion>(m, "TracedQuestion")
      .def(py::init([](std::shared_ptr<const TracedStep> step, std::shared_ptr<const DeviceSpec> device,
                       const py::dict& keywords, bool assumed) {
             return TracedQuestion{std::move(step), std::move(device), read_options(keywords).run, assumed};
           }),
           py::arg("step"), py::arg("device"), py::arg("keywords"), py::arg("device_assumed"))
      .def("estimate", &answer)
      .def(
          "trace",
          [](const TracedQuestion& q, bool all_steps) {
            const py::gil_scoped_release unlocked;
            return trace(*q.step, q.options, *q.device, {.format = TraceFormat::kTsv, .all_steps = all_steps});
          },
          py::arg("all_steps"));
}

}  // namespace memcalc::python
