#include "question.h"

#include "errors.h"
#include "memcalc/planning.h"

namespace py = pybind11;

namespace memcalc::python {
namespace {

// As cli/estimate.cc: what is said of the data and of the whole training.
void add_time(const TimeOptions& options, Report& report) {
  if (options.sample_seconds || options.sample_bytes) {
    if (!report.time) throw OptionError("sample_seconds", "sample_seconds: no step time is known of this GPU");
    const InputPipeline input{.sample_seconds = options.sample_seconds.value_or(0),
                              .sample_bytes = options.sample_bytes.value_or(0),
                              .storage_bytes_per_second = options.storage_rate.value_or(0)};
    if (input.sample_bytes > 0 && input.storage_bytes_per_second <= 0) {
      throw OptionError("sample_bytes", "sample_bytes: expected storage_rate beside it, found none");
    }
    feed(report, input);
  }
  if (!options.tokens) return;
  if (report.run.inference) throw OptionError("tokens", "tokens: belongs to training; infer has none");
  report.training = training_run_of(report, *options.tokens);
}

}  // namespace

Question ask(const std::shared_ptr<const ModelSpec>& model, const std::shared_ptr<const DeviceSpec>& device,
             const py::dict& keywords, bool device_assumed) {
  const Options options = read_options(keywords);
  Question question{model, device, resolve(*model, options.run), options.time, device_assumed};
  if (device_assumed) {
    question.run.assumptions.push_back("the card behaves as " + device->name + ": none was named (gpu)");
  }
  return question;
}

Report estimate(const Question& question) {
  Report report = memcalc::estimate(*question.model, question.run, *question.device);
  report.device_assumed = question.device_assumed;
  add_time(question.time, report);
  return report;
}

Report answer(const Question& question) {
  Report report = estimate(question);
  if (question.run.run.inference && !question.device_assumed) {
    report.concurrent_sequences =
        find_largest(*question.model, question.run, *question.device, {.neighbours = 0}).unhurried;
  }
  return report;
}

}  // namespace memcalc::python
