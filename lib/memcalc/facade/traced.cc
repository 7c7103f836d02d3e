// The facade's functions of a module that was traced: the same flow as estimate()'s, from another symbolic run.
#include <utility>

#include "memcalc/alloc/replay_options.h"
#include "memcalc/memcalc.h"
#include "memcalc/report/assemble.h"
#include "memcalc/report/render_trace.h"
#include "memcalc/train/traced_run.h"

namespace memcalc {

Report estimate(const TracedStep& traced, const RunOptions& options, const DeviceSpec& device) {
  const ResolvedRun resolved = resolve(traced, options);
  const SymbolicRun symbolic = run_symbolically(traced, resolved.run, device);
  ReplayResult memory = replay(symbolic.trace, replay_options(resolved.run, device, symbolic.measured_from));
  const ModelSpec model{.name = traced.name, .model_type = "traced", .architecture = CustomSpec{}};
  Report report = assemble(model, resolved.run, device, symbolic, std::move(memory));
  report.assumptions.insert(report.assumptions.begin(), resolved.assumptions.begin(), resolved.assumptions.end());
  return report;
}

std::string trace(const TracedStep& traced, const RunOptions& options, const DeviceSpec& device,
                  const TraceOptions& shown) {
  const RunSpec run = resolve(traced, options).run;
  const SymbolicRun symbolic = run_symbolically(traced, run, device);
  const ReplayOptions replayed = replay_options(run, device, symbolic.measured_from, true);
  return render_trace(symbolic.trace, replay(symbolic.trace, replayed), shown);
}

}  // namespace memcalc
