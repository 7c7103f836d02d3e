#include "memcalc/train/optimizers/host_step.h"

#include <gtest/gtest.h>

#include <string>

#include "memcalc/cost/host_time.h"
#include "memcalc/report/render_internal.h"
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

TEST(HostStep, TheReportSaysThatTheOptimizerBindsThere) {
  Throughput time;
  time.step.step_seconds = time.step.host_seconds = 2;
  time.step.optimizer_seconds = 1.5;
  time.step.kernels = 1000;
  const auto bound = [&] {
    for (const auto& [name, words] : rates_of(time, 1)) {
      if (name == "bound by") return words;
    }
    return std::string();
  };
  EXPECT_NE(bound().find("to issue"), std::string::npos) << "a loop of an optimizer on the card";
  time.steps_on_host = true;
  EXPECT_NE(bound().find("in its memory"), std::string::npos) << bound();
}

}  // namespace
}  // namespace memcalc
