// The whole flow on one screen. Read this first.
#include "memcalc/memcalc.h"

#include <utility>

#include "memcalc/alloc/replay.h"
#include "memcalc/report/assemble.h"
#include "memcalc/report/render_trace.h"
#include "memcalc/spec/validate.h"
#include "memcalc/train/step.h"

namespace memcalc {
namespace {

ReplayOptions replay_options(const DeviceSpec& device, bool record_timeline) {
  return {.placement = device.placement ? &*device.placement : nullptr, .record_timeline = record_timeline};
}

}  // namespace

Report estimate(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device) {
  validate(model, run);
  const SymbolicRun symbolic = run_symbolically(model, run, device);            // what is asked of the allocator
  ReplayResult memory = replay(symbolic.trace, replay_options(device, false));  // what the allocator makes of it
  return assemble(model, run, device, symbolic, std::move(memory));             // what that means
}

Report estimate(const ModelSpec& model, const ResolvedRun& run, const DeviceSpec& device) {
  Report report = estimate(model, run.run, device);
  report.assumptions.insert(report.assumptions.begin(), run.assumptions.begin(), run.assumptions.end());
  return report;
}

std::vector<FitRow> fits_on(const ModelSpec& model, const RunSpec& run, std::span<const DeviceSpec> devices,
                            Bytes unknown_context) {
  std::vector<FitRow> rows;
  for (const DeviceSpec& device : devices) {
    const Report report = estimate(model, run, device);
    const Bytes needed = report.device_used_bytes.value_or(
        checked_add(report.memory.peak_reserved, device.context_bytes.value_or(unknown_context)));
    rows.push_back({device.name, device.memory_bytes, needed, needed <= device.memory_bytes});
  }
  return rows;
}

std::string trace(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, const TraceOptions& options) {
  validate(model, run);
  const SymbolicRun symbolic = run_symbolically(model, run, device);
  return render_trace(symbolic.trace, replay(symbolic.trace, replay_options(device, true)), options);
}

}  // namespace memcalc
