#include "memcalc/alloc/replay_options.h"

#include "memcalc/symbolic/cuda_graph_streams.h"

namespace memcalc {

ReplayOptions replay_options(const RunSpec& run, const DeviceSpec& device, std::size_t measured_from,
                             bool record_timeline) {
  return {.placement = device.placement ? &*device.placement : nullptr,
          .expandable_segments = run.expandable_segments,
          .record_timeline = record_timeline,
          .mark_steps = run.trains() && run.training().lengths.has_value(),
          .peaks_of_steps_alone = !run.counts_construction(),
          .reserves_from_construction = run.uses_trainer() && !run.parallel.is_parallel(),
          .private_stream = run.records_graphs() ? std::optional(kGraphPoolStream) : std::nullopt,
          .peaks_from = measured_from};
}

}  // namespace memcalc
