#include "memcalc/train/optimizers/host_step.h"

#include <gtest/gtest.h>

#include "memcalc/cost/host_time.h"
#include "memcalc/symbolic/host_memory.h"

namespace memcalc {
namespace {

Kernel work_of(HostMemoryWork work, double amount) {
  Kernel kernel;
  kernel.op = &kHostMemoryOperators[static_cast<std::size_t>(work)];
  kernel.kind = KernelKind::kPartOfPrevious;
  kernel.phase = Phase::kOptimizer;
  kernel.elements = amount;
  return kernel;
}

// A pass at 1e11 bytes a second; one thread takes 5.9 times as long (host_turns_h200.jsonl.gz).
TEST(HostStep, HostMemoryDecidesAPass) {
  HostRates rates{};
  rates.memory_bytes_per_second = 1e11;
  rates.looped_bytes_per_second = 5e10;
  EXPECT_NEAR(host_seconds(work_of(HostMemoryWork::kPass, 28e9), rates), 0.28, 1e-9);
  EXPECT_NEAR(host_seconds(work_of(HostMemoryWork::kPassOfOneThread, 28e9), rates), 5.9 * 0.28, 1e-9);
  EXPECT_NEAR(host_seconds(work_of(HostMemoryWork::kLoop, 72e9), rates), 1.44, 1e-9);
  EXPECT_FALSE(is_host_memory_work(Kernel{}));
}

// torch/distributed/run.py sets OMP_NUM_THREADS=1 for several processes; DeepSpeed's launcher does not.
TEST(HostStep, TorchrunLeavesAProcessOneThread) {
  RunSpec run;
  EXPECT_FALSE(has_one_host_thread(run));
  run.parallel.gpus = 2;
  EXPECT_TRUE(has_one_host_thread(run));
}

}  // namespace
}  // namespace memcalc
