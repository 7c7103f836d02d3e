// The whole flow on one screen. Read this first.
#include "memcalc/memcalc.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "memcalc/alloc/replay.h"
#include "memcalc/cost/calibrate.h"
#include "memcalc/cost/cost.h"
#include "memcalc/report/assemble.h"
#include "memcalc/report/plot.h"
#include "memcalc/report/rank_reports.h"
#include "memcalc/report/render_replay_file.h"
#include "memcalc/report/render_trace.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/validate.h"
#include "memcalc/train/ranks.h"
#include "memcalc/train/step.h"
#include "memcalc/train/traced_run.h"

namespace memcalc {
namespace {

ReplayOptions replay_options(const RunSpec& run, const DeviceSpec& device, const SymbolicRun& symbolic,
                             bool record_timeline = false) {
  return {.placement = device.placement ? &*device.placement : nullptr,
          .expandable_segments = run.expandable_segments,
          .record_timeline = record_timeline,
          .peaks_of_steps_alone = run.parallel.is_parallel(),
          .peaks_from = symbolic.measured_from};
}

// The same requests on a card that runs full. What is in use and not reserved is the context and loaded kernels.
FullCard on_full_card(const SymbolicRun& symbolic, const Report& report) {
  ReplayOptions options = replay_options(report.run, report.device, symbolic);
  const Bytes in_use = report.device_used_bytes.value_or(report.memory.peak_reserved) - report.managed_on_device_bytes;
  options.capacity = report.device.memory_bytes - (in_use - report.memory.peak_reserved);
  const ReplayResult memory = replay(symbolic.trace, options);
  return {.runs = !memory.out_of_memory, .retries = memory.retries};
}

std::optional<StepTime> time_of(const SymbolicRun& symbolic, const RunSpec& run, const DeviceSpec& device) {
  if (run.inference) return std::nullopt;  // a step is costed, not a call
  if (device.rates == nullptr || symbolic.kernels.empty()) return std::nullopt;
  return cost(symbolic.kernels, device, *device.rates);
}

Report estimate_rank(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, std::int64_t rank) {
  const SymbolicRun symbolic = run_symbolically(model, run, device, rank);  // what is asked of the allocator
  ReplayResult memory =
      replay(symbolic.trace, replay_options(run, device, symbolic));                // what the allocator makes of it
  const std::optional<StepTime> time = time_of(symbolic, run, device);              // how long it takes
  Report report = assemble(model, run, device, symbolic, std::move(memory), time);  // what that means
  if (!report.fits && !run.expandable_segments) report.full_card = on_full_card(symbolic, report);
  return report;
}

}  // namespace

Report estimate(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device) {
  validate(model, run);
  if (!run.parallel.is_parallel()) return estimate_rank(model, run, device, 0);
  RankReports ranks;
  for (const RankGroup& group : distinct_ranks(model, run, device)) {
    ranks.add(group, estimate_rank(model, run, device, group.first));
  }
  return std::move(ranks).of_largest();
}

Report estimate(const ModelSpec& model, const ResolvedRun& run, const DeviceSpec& device) {
  Report report = estimate(model, run.run, device);
  report.assumptions.insert(report.assumptions.begin(), run.assumptions.begin(), run.assumptions.end());
  return report;
}

Report estimate(const TracedStep& traced, const RunOptions& options, const DeviceSpec& device) {
  const ResolvedRun resolved = resolve(traced, options);
  const SymbolicRun symbolic = run_symbolically(traced, resolved.run, device);
  ReplayResult memory = replay(symbolic.trace, replay_options(resolved.run, device, symbolic));
  const ModelSpec model{.name = traced.name, .model_type = "traced", .architecture = CustomSpec{}};
  Report report = assemble(model, resolved.run, device, symbolic, std::move(memory));
  report.assumptions.insert(report.assumptions.begin(), resolved.assumptions.begin(), resolved.assumptions.end());
  return report;
}

std::vector<ParameterRow> parameter_table(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device) {
  validate(model, run);
  std::vector<ParameterRow> rows;
  for (ParameterInfo& each : run_symbolically(model, run, device).parameters) {
    const auto first = each.shape.dims.begin();
    rows.push_back({std::move(each.name), {first, first + each.shape.rank}, each.dtype, each.trainable});
  }
  return rows;
}

std::string trace(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, const TraceOptions& options) {
  validate(model, run);
  const SymbolicRun symbolic = run_symbolically(model, run, device);
  return render_trace(symbolic.trace, replay(symbolic.trace, replay_options(run, device, symbolic, true)), options);
}

std::string plot_step(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device) {
  validate(model, run);
  const SymbolicRun symbolic = run_symbolically(model, run, device);
  return plot_timeline(symbolic.trace, replay(symbolic.trace, replay_options(run, device, symbolic, true)),
                       "One step of " + model.name + " on " + device.name);
}

Calibration calibrate_device(const DeviceSpec& device, const DeviceRates& start, const std::string& rows,
                             const std::string& name) {
  return calibrate(device, start, read_operator_timings(rows, name));
}

std::string replay_file(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device) {
  validate(model, run);
  const SymbolicRun symbolic = run_symbolically(model, run, device);
  return render_replay_file(symbolic, replay(symbolic.trace, replay_options(run, device, symbolic)), device);
}

std::string trace(const TracedStep& traced, const RunOptions& options, const DeviceSpec& device,
                  const TraceOptions& shown) {
  const RunSpec run = resolve(traced, options).run;
  const SymbolicRun symbolic = run_symbolically(traced, run, device);
  return render_trace(symbolic.trace, replay(symbolic.trace, replay_options(run, device, symbolic, true)), shown);
}

namespace {

// Cards that differ in size only ask for the same memory: one estimate serves both. Placement is compared by presence
// of any, since a measured one belongs to one card.
bool behaves_alike(const DeviceSpec& a, const DeviceSpec& b) {
  const auto behaviour = [](const DeviceSpec& d) {
    return std::tie(d.compute_capability_major, d.compute_capability_minor, d.multiprocessors,
                    d.max_threads_per_multiprocessor, d.context_bytes, d.kernel_bytes, d.kernel_bytes_with_cudnn,
                    d.nccl_bytes, d.cublas_workspace_bytes, d.cublaslt_workspace_bytes);
  };
  return behaviour(a) == behaviour(b) && !a.placement && !b.placement;
}

Bytes needed_on(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, Bytes unknown_context) {
  const Report report = estimate(model, run, device);
  if (report.device_used_bytes) return *report.device_used_bytes;
  return checked_add(report.memory.peak_reserved, device.context_bytes.value_or(unknown_context));
}

}  // namespace

std::vector<FitRow> fits_on(const ModelSpec& model, const RunSpec& run, std::span<const DeviceSpec> devices,
                            Bytes unknown_context) {
  std::vector<FitRow> rows;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    std::size_t twin = 0;
    while (twin < i && !behaves_alike(devices[twin], devices[i])) ++twin;
    const Bytes needed = twin < i ? rows[twin].needed_bytes : needed_on(model, run, devices[i], unknown_context);
    rows.push_back({devices[i].name, devices[i].memory_bytes, needed, needed <= devices[i].memory_bytes});
  }
  return rows;
}

}  // namespace memcalc
