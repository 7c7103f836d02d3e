#include "memcalc/train/optimizers/host_step.h"

#include "memcalc/symbolic/host_memory.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/train/optimizers/offload.h"
#include "memcalc/train/optimizers/rule.h"

namespace memcalc {

namespace {

/// Whether one pass does all of the rule: torch's fused kernels (aten/native/cpu/FusedAdamKernel.cpp), and what
/// DeepSpeed has in the place of an optimizer that it is told to offload (csrc/adam/cpu_adam_impl.cpp).
bool is_one_pass(const RunSpec& run, Optimizer optimizer) {
  return optimizer == Optimizer::kAdamWFused ||
         (run.parallel.framework() == Framework::kDeepSpeed &&
          (optimizer == Optimizer::kAdamWForeach || optimizer == Optimizer::kAdamWForLoop ||
           optimizer == Optimizer::kAdam));
}

}  // namespace

bool has_one_host_thread(const RunSpec& run) {
  return run.parallel.gpus > 1 && run.parallel.framework() != Framework::kDeepSpeed;
}

void record_host_passes(Tape& tape, const RunSpec& run, double bytes) {
  record_host_memory_work(tape, has_one_host_thread(run) ? HostMemoryWork::kPassOfOneThread : HostMemoryWork::kPass,
                          bytes);
}

void record_host_clipping(Tape& tape, const RunSpec& run, std::int64_t elements, std::int64_t size) {
  // Tensor.norm() of 67 million floats takes 16 threads 24 ms, as long as ten passes over as many bytes
  // (tests/measured/host_blocks_h200.jsonl.gz); mul_ reads and writes them.
  constexpr double kNorm = 10, kScaling = 2;
  record_host_passes(tape, run, (kNorm + kScaling) * static_cast<double>(elements * size));
}

void record_host_step(Tape& tape, const RunSpec& run, std::int64_t elements, std::int64_t size) {
  const Optimizer optimizer = optimizer_on_card(run.training());
  const bool one_pass = is_one_pass(run, optimizer);
  const OptimizerRule& rule = rule_of(one_pass ? Optimizer::kAdamWFused : optimizer);
  const double bytes = rule.bytes_moved(static_cast<double>(size)) * static_cast<double>(elements);
  if (one_pass) return record_host_passes(tape, run, bytes);
  record_host_memory_work(tape, has_one_host_thread(run) ? HostMemoryWork::kLoopOfOneThread : HostMemoryWork::kLoop,
                          bytes);
}

void record_host_step_of_dtensors(Tape& tape, const RunSpec& run, std::int64_t tensors, std::int64_t elements,
                                  std::int64_t size) {
  constexpr double kOperators = 11;  // torch/optim/adam.py, _single_tensor_adam
  record_host_work(tape, HostWork::kOptimizerTensor, tensors);
  if (!is_one_pass(run, run.training().optimizer)) {
    record_host_memory_work(tape, HostMemoryWork::kShardedOperator, kOperators * static_cast<double>(tensors));
  }
  record_host_step(tape, run, elements, size);
}

}  // namespace memcalc
