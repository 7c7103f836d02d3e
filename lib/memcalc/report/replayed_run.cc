#include "memcalc/report/replayed_run.h"

#include <utility>

#include "memcalc/alloc/replay_options.h"
#include "memcalc/alloc/warm_up.h"

namespace memcalc {

ReplayedRun replayed_run(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, std::int64_t rank,
                         bool record_timeline) {
  SymbolicRun symbolic = run_symbolically(model, run, device, rank);
  const ReplayOptions options = replay_options(run, device, symbolic.measured_from, record_timeline);
  if (symbolic.warm_up != kNoBlock) settle_warm_up(symbolic.trace, symbolic.warm_up, options);
  ReplayResult memory = replay(symbolic.trace, options);
  return {std::move(symbolic), std::move(memory)};
}

}  // namespace memcalc
