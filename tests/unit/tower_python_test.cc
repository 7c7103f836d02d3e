// models/tower_python: what a tower of images runs of Python in calls without autograd.
#include "memcalc/models/tower_python.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "memcalc/spec/registry.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/tape.h"
#include "support/paths.h"

namespace memcalc {
namespace {

class TowerPythonOfCalls : public ::testing::Test {
 protected:
  TowerPythonOfCalls() : tape_(SpecRegistry(test::specs_dir().string()).device("h100-sxm")) {
    tape_.kernels.recording = true;
  }

  /// Calls of a model that so many layers of CLIP's tower count as.
  std::int64_t calls_of(int layers) {
    TowerPython python(tape_);
    for (int i = 0; i < layers; ++i) python.layer(1430);
    std::int64_t calls = 0;
    for (const Kernel& kernel : tape_.kernels.list()) {
      const auto* work = kernel.as<work::OfHost>();
      if (work != nullptr && work->what == HostWork::kModelCall) calls += work->times;
    }
    return calls;
  }

  Tape tape_;
};

TEST_F(TowerPythonOfCalls, CountsInstructionsOfAllLayersInWholeCalls) {
  const NoGrad no_grad(tape_.modes);
  EXPECT_EQ(calls_of(24), 4);  // 9,000 + 24 x 1,430 of 10,800
}

TEST_F(TowerPythonOfCalls, IsOfNoTraining) { EXPECT_EQ(calls_of(24), 0); }

}  // namespace
}  // namespace memcalc
