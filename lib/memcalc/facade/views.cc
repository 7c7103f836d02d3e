// What the facade shows of a run beside its report: parameters, the event stream, a picture, a file for the probe.
#include <cstdint>
#include <utility>

#include "memcalc/cost/calibrate.h"
#include "memcalc/memcalc.h"
#include "memcalc/report/plot.h"
#include "memcalc/report/render_replay_file.h"
#include "memcalc/report/render_trace.h"
#include "memcalc/report/replayed_run.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/validate.h"
#include "memcalc/train/step.h"

namespace memcalc {
namespace {

ReplayedRun replayed(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, bool record_timeline,
                     std::int64_t rank = 0) {
  validate(model, run);
  return replayed_run(model, run, device, rank, record_timeline);
}

}  // namespace

std::vector<ParameterRow> parameter_table(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device) {
  validate(model, run);
  std::vector<ParameterRow> rows;
  for (ParameterInfo& each : parameters_of_run(model, run, device)) {
    const auto first = each.shape.dims.begin();
    rows.push_back({std::move(each.name), {first, first + each.shape.rank}, each.dtype, each.trainable});
  }
  return rows;
}

std::string trace(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, const TraceOptions& options) {
  const ReplayedRun all = replayed(model, run, device, true);
  return render_trace(all.symbolic.trace, all.memory, options);
}

std::string plot_step(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device) {
  const ReplayedRun all = replayed(model, run, device, true);
  return plot_timeline(all.symbolic.trace, all.memory, "One step of " + model.name + " on " + device.name);
}

StepCurve step_curve(const Report& report, std::size_t most_points) {
  const std::int64_t rank = report.ranks.empty() ? 0 : report.ranks[report.largest_rank].first;
  const ReplayedRun all = replayed(report.model, report.run, report.device, true, rank);
  StepCurve curve = step_curve(all.symbolic.trace, all.memory, most_points);
  curve.rank = rank;
  return curve;
}

std::string replay_file(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device) {
  const ReplayedRun all = replayed(model, run, device, false);
  return render_replay_file(all.symbolic, all.memory, device);
}

Calibration calibrate_device(const DeviceSpec& device, const DeviceRates& start, const std::string& rows,
                             const std::string& name) {
  return calibrate(device, start, read_operator_timings(rows, name));
}

}  // namespace memcalc
