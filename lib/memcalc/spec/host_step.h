// Runs whose optimizer is not the card's.
#pragma once

#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// The optimizer's states live on the host, and it steps there: torchao's CPUOffloadOptimizer, DeepSpeed's
/// offload_optimizer, FSDP2's CPUOffloadPolicy.
[[nodiscard]] inline bool steps_on_host(const RunSpec& run) {
  return (run.trains() && run.training().offload_optimizer) || run.parallel.offload_states != OffloadTo::kNowhere ||
         run.parallel.offload_parameters != OffloadTo::kNowhere;
}

}  // namespace memcalc
