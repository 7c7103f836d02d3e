// What an optimizer in host memory takes: torchao's CPUOffloadOptimizer, DeepSpeed's CPU Adam, torch's own optimizers
// of parameters that FSDP2 keeps there. All are bound by the host's memory. Covered by tests/unit/host_step_test.cc.
// MIRRORS(torch, "distributed/run.py", "2.11.0")
// MIRRORS(accelerate, "utils/launch.py", "1.15.0")
// MIRRORS(deepspeed, "runtime/zero/stage_1_and_2.py", "0.18.5")
#pragma once

#include <cstdint>

#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// Whether each process computes on the host with one thread: torchrun, and accelerate's launcher with it, set
/// OMP_NUM_THREADS to 1 where there are several processes and nobody has set it. One process takes all cores, and so
/// does each that DeepSpeed's own launcher starts.
[[nodiscard]] bool has_one_host_thread(const RunSpec& run);

/// A step of parameters of `size` bytes, whose gradients are in host memory, `elements` in all.
void record_host_step(Tape& tape, const RunSpec& run, std::int64_t elements, std::int64_t size);

/// The same of `tensors` that are DTensors: torch's loop of operators goes through DTensor's dispatch for each.
void record_host_step_of_dtensors(Tape& tape, const RunSpec& run, std::int64_t tensors, std::int64_t elements,
                                  std::int64_t size);

/// clip_grad_norm_ of gradients in host memory.
void record_host_clipping(Tape& tape, const RunSpec& run, std::int64_t elements, std::int64_t size);

/// Passes that read and write so many bytes of host memory.
void record_host_passes(Tape& tape, const RunSpec& run, double bytes);

}  // namespace memcalc
