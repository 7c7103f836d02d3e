// What a step's Python takes the host for: a family's own, a checkpointed region's.
#include "memcalc/cost/trained_python.h"

#include <gtest/gtest.h>

#include "memcalc/cost/host_time.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/kernel_list.h"
#include "memcalc/symbolic/within_call.h"

namespace memcalc {
namespace {

Kernel forward_kernel() {
  Kernel kernel;
  kernel.phase = Phase::kForward;
  return kernel;
}

// In training it goes with them, too, of a family whose layers were counted.
TEST(TrainedPython, PythonOfAStepGoesWithItsFamilysInstructions) {
  DeviceRates measured;
  measured.host.python_us = 100;
  measured.hosts = {{.name = "slower", .rates = measured.host}};
  measured.hosts.front().rates.python_us = 200;
  const double few = rates_of_step(measured, 40).host.python_us, many = rates_of_step(measured, 244).host.python_us;
  EXPECT_NEAR(few / many, (0.391 + 0.0042 * 40) / (0.391 + 0.0042 * 244), 1e-9);
  EXPECT_NEAR(rates_of_step(measured, 244).hosts.front().rates.python_us, 2 * many, 1e-9);
  EXPECT_EQ(instructions_per_trained_operator("llama", 0), 63);
  EXPECT_GT(instructions_per_trained_operator("bert", 0), instructions_per_trained_operator("gpt2", 0));
  EXPECT_EQ(instructions_per_trained_operator("youtu", 0), 51) << "the last of them";
  EXPECT_EQ(instructions_per_trained_operator("a", 80), 80) << "what a call runs";
  EXPECT_EQ(instructions_per_trained_operator("llama9", 0), 63) << "the median";
  EXPECT_EQ(instructions_per_trained_operator("", 0), 63) << "a program";
}

// Of a region without hooks: next to nothing in its first forward pass, less than half in the second.
TEST(TrainedPython, AReentrantRegionTakesTheHostLess) {
  HostRates host;
  host.checkpoint_forward_us = host.checkpoint_backward_us = 100;
  const auto taken = [&](HostWork what, bool again, const Operator* node) {
    Kernel region = forward_kernel();
    region.kind = KernelKind::kPartOfPrevious;
    region.work = work::OfHost{.what = what, .times = 1};
    region.recomputed = again;
    region.node = node;
    return host_seconds(region, host) * 1e6;
  };
  EXPECT_NEAR(taken(HostWork::kCheckpointForward, false, nullptr), 100, 1e-6);
  EXPECT_NEAR(taken(HostWork::kCheckpointForward, false, &kReentrantRegion), 12, 1e-6);
  EXPECT_NEAR(taken(HostWork::kCheckpointBackward, true, &kReentrantRegion), 40, 1e-6);
}

}  // namespace
}  // namespace memcalc
