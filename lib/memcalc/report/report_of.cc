#include "memcalc/report/report_of.h"

#include <optional>
#include <utility>

#include "memcalc/alloc/replay_options.h"
#include "memcalc/cost/cost.h"
#include "memcalc/cost/host_time.h"
#include "memcalc/cost/missing_rates.h"
#include "memcalc/cost/trained_python.h"
#include "memcalc/report/assemble.h"
#include "memcalc/report/epoch.h"
#include "memcalc/report/rank_reports.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/family.h"

namespace memcalc {
namespace {

std::optional<StepTime> time_of(const SymbolicRun& symbolic, const ModelSpec& model, const RunSpec& run,
                                const DeviceSpec& device) {
  if (device.rates == nullptr || symbolic.kernels.empty() || !untimed_call(run).empty()) return std::nullopt;
  if (!missing_rates(symbolic.kernels, device).empty()) return std::nullopt;
  const bool experts = has_grouped_experts(symbolic.kernels);
  const Family* family = family_of(model);
  if (!run.trains()) {
    const double instructions = family != nullptr ? family->instructions_per_operator : 0;
    const DeviceRates rates = rates_of_call(*device.rates, instructions);
    return cost(symbolic.kernels, device, experts ? rates_among_experts(rates) : rates, Costed::kCall);
  }
  const FirstCallCounts& first = symbolic.data_steps.first_calls;
  const double waiting = waiting_share(run.parallel);
  const double of_family = instructions_per_trained_operator(family != nullptr ? family->model_type : "",
                                                             family != nullptr ? family->instructions_per_operator : 0);
  DeviceRates rates = rates_of_step(*device.rates, instructions_with_adapters(of_family, symbolic.kernels, run));
  if (experts) rates = rates_among_experts(std::move(rates));
  if (run.parallel.nodes > 1) rates.link.gpus_per_host = run.parallel.gpus / run.parallel.nodes;
  return cost(symbolic.kernels, device, rates, Costed::kStep, first, waiting);
}

// The same requests on a card that runs full. What is in use and not reserved is the context and loaded kernels.
FullCard on_full_card(const SymbolicRun& symbolic, const Report& report) {
  ReplayOptions options = replay_options(report.run, report.device, symbolic.measured_from);
  const Bytes in_use = report.needed() - report.managed_on_device_bytes;
  options.capacity = report.device.usable_bytes() - (in_use - report.memory.peak_reserved);
  if (report.memory.exact_peak > *options.capacity) return {.runs = false, .retries = 0};  // for any allocator
  ReplayResult memory = replay(symbolic.trace, options);
  return {.runs = !memory.out_of_memory, .retries = memory.retries, .steps = std::move(memory.steps)};
}

}  // namespace

Report report_of(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, const SymbolicRun& symbolic,
                 ReplayResult memory) {
  const std::optional<StepTime> time = time_of(symbolic, model, run, device);       // how long it takes
  Report report = assemble(model, run, device, symbolic, std::move(memory), time);  // what that means
  if (!report.fits() && report.starts() && !run.expandable_segments) report.full_card = on_full_card(symbolic, report);
  if (report.epoch && report.full_card && report.full_card->runs) {
    report.epoch->retrying_steps = retrying_steps(report.full_card->steps);
  } else if (report.epoch && report.fits()) {
    report.epoch->retrying_steps = 0;
  }
  return report;
}

Report with_assumptions(Report report, std::span<const std::string> of_run) {
  report.assumptions.insert(report.assumptions.begin() + report.leading_assumptions, of_run.begin(), of_run.end());
  return report;
}

}  // namespace memcalc
