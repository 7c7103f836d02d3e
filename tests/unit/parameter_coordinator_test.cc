// train/parallel/parameter_coordinator: which parameters ZeRO-3 gathers when, and when it lets them go.
#include "memcalc/train/parallel/parameter_coordinator.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace memcalc {
namespace {

/// Writes down what is asked: "+0 1" a gather, "=0 1" its arrival, "-0" a release.
class Log : public ParameterCoordinator::Memory {
 public:
  void gather(std::span<const int> parameters) override { write("+", parameters); }
  void arrive(std::span<const int> parameters) override { write("=", parameters); }
  void release(int parameter) override { write("-", std::span(&parameter, 1)); }
  [[nodiscard]] std::string take() { return std::exchange(text_, {}); }

 private:
  void write(const char* sign, std::span<const int> parameters) {
    if (!text_.empty()) text_ += ", ";
    text_ += sign;
    for (std::size_t i = 0; i < parameters.size(); ++i) text_ += (i > 0 ? " " : "") + std::to_string(parameters[i]);
  }
  std::string text_;
};

/// Three modules of one parameter each, of 100 elements, run forward and then backward.
struct Chain {
  explicit Chain(ParameterCoordinator::Limits limits, std::vector<bool> persists = {false, false, false})
      : coordinator({100, 100, 100}, std::move(persists), limits, log) {
    for (int i = 0; i < 3; ++i) modules.push_back(coordinator.add_module({i}));
  }
  std::string forward(int i) {
    coordinator.fetch(modules[static_cast<std::size_t>(i)], false);
    coordinator.release(modules[static_cast<std::size_t>(i)], false);
    return log.take();
  }
  std::string backward(int i) {
    coordinator.fetch(modules[static_cast<std::size_t>(i)], true);
    coordinator.release(modules[static_cast<std::size_t>(i)], true);
    return log.take();
  }
  void record() {
    coordinator.begin_pass();
    for (const int i : {0, 1, 2}) (void)forward(i);
    for (const int i : {2, 1, 0}) (void)backward(i);
    coordinator.release_leftovers();
    coordinator.release_all();
    EXPECT_EQ(log.take(), "");
    coordinator.begin_pass();
  }
  Log log;
  ParameterCoordinator coordinator;
  std::vector<int> modules;
};

struct Use {
  bool backward;
  int module;
  const char* written;
};

struct PassCase {
  const char* name;
  ParameterCoordinator::Limits limits;
  bool recorded;  // a whole pass came before
  std::vector<Use> uses;
};

const PassCase kPasses[] = {
    {"TheFirstPassGathersWhatEachModuleNeedsAndLetsItGo",
     {.prefetch_bucket = 100, .max_live = 1000, .max_reuse_distance = 1000},
     false,
     {{false, 0, "+0, =0, -0"},
      {false, 1, "+1, =1, -1"},
      {false, 2, "+2, =2, -2"},
      {true, 2, "+2, =2, -2"},
      {true, 0, "+0, =0, -0"}}},
    // Module 0 fetches its own, then one bucket: the next parameter. Module 1 finds it on its way. 2 is there, so its
    // use in backward is passed over; then it is let go all the same and has to be gathered again.
    {"ARecordedPassGathersTheBucketAhead",
     {.prefetch_bucket = 100, .max_live = 1000, .max_reuse_distance = 0},
     true,
     {{false, 0, "+0, =0, +1, -0"},
      {false, 1, "=1, +2, -1"},
      {false, 2, "=2, +1, -2"},
      {true, 2, "+2, =2, +0, -2"},
      {true, 1, "=1, -1"},
      {true, 0, "=0, -0"}}},
    {"WithoutABucketNothingIsGatheredAhead",
     {.prefetch_bucket = 0, .max_live = 1000, .max_reuse_distance = 0},
     true,
     {{false, 0, "+0, =0, -0"}, {false, 1, "+1, =1, -1"}}},
    // Between the uses of 2 lie no elements, of 1 100 (module 2 twice: 200), of 0 400.
    {"WhatIsUsedAgainSoonIsKept",
     {.prefetch_bucket = 0, .max_live = 1000, .max_reuse_distance = 201},
     true,
     {{false, 0, "+0, =0, -0"},
      {false, 1, "+1, =1"},
      {false, 2, "+2, =2"},
      {true, 2, "-2"},
      {true, 1, "-1"},
      {true, 0, "+0, =0, -0"}}},
    // 100 are there, 50 may be added: one parameter more, which may exceed it.
    {"NoMoreThanMaxLiveParametersAreGatheredAhead",
     {.prefetch_bucket = 1000, .max_live = 150, .max_reuse_distance = 0},
     true,
     {{false, 0, "+0, =0, +1, -0"}, {false, 1, "=1, +2, -1"}}},
    // 1 is not the recorded first module: nothing is gathered ahead any more.
    {"AnotherOrderEndsTheRecordedOne",
     {.prefetch_bucket = 100, .max_live = 1000, .max_reuse_distance = 0},
     true,
     {{false, 1, "+1, =1, -1"}, {false, 0, "+0, =0, -0"}}},
};

class ParameterCoordinatorPass : public ::testing::TestWithParam<PassCase> {};

TEST_P(ParameterCoordinatorPass, GathersAndReleases) {
  const PassCase& c = GetParam();
  Chain chain(c.limits);
  c.recorded ? chain.record() : chain.coordinator.begin_pass();
  for (const Use& use : c.uses) {
    EXPECT_EQ(use.backward ? chain.backward(use.module) : chain.forward(use.module), use.written)
        << (use.backward ? "backward of " : "forward of ") << use.module;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ParameterCoordinatorPass, ::testing::ValuesIn(kPasses),
                         [](const auto& info) { return info.param.name; });

TEST(ParameterCoordinatorTest, SmallParametersStayOnceThePassIsRecorded) {
  Chain chain({.prefetch_bucket = 0, .max_live = 1000, .max_reuse_distance = 0}, {true, false, false});
  chain.record();
  chain.coordinator.set_available(0);
  EXPECT_EQ(chain.forward(0), "");
  EXPECT_EQ(chain.forward(1), "+1, =1, -1");
  chain.coordinator.release_all();
  EXPECT_EQ(chain.log.take(), "-0");
}

TEST(ParameterCoordinatorTest, AParameterOfTwoModulesIsKeptWhileOneOfThemRuns) {
  Log log;
  ParameterCoordinator coordinator({100}, {false}, {}, log);
  const int embedding = coordinator.add_module({0});
  const int head = coordinator.add_module({0});
  coordinator.begin_pass();
  coordinator.fetch(embedding, true);  // its backward never ends
  coordinator.fetch(head, true);
  coordinator.release(head, true);
  EXPECT_EQ(log.take(), "+0, =0");
  coordinator.release_leftovers();
  EXPECT_EQ(log.take(), "-0");
}

// Module 1 asked for the recomputation of module 0, whose parameter is frozen and has no backward of its own.
TEST(ParameterCoordinatorTest, WhatARecomputationFetchedStaysUntilTheModuleThatAskedForItIsDone) {
  for (const bool frozen : {true, false}) {
    Log log;
    ParameterCoordinator coordinator({100, 100}, {false, false}, {}, log);
    if (frozen) coordinator.set_frozen(0);
    const int recomputed = coordinator.add_module({0});
    const int asking = coordinator.add_module({1});
    coordinator.begin_pass();
    coordinator.fetch(asking, true);
    coordinator.fetch(recomputed, false, true);
    coordinator.release(recomputed, false);
    EXPECT_EQ(log.take(), frozen ? "+1, =1, +0, =0" : "+1, =1, +0, =0, -0");
    coordinator.release(asking, true);
    EXPECT_EQ(log.take(), frozen ? "-1, -0" : "-1");
  }
}

TEST(ParameterCoordinatorTest, LeftoversTakeWhatWasRecomputedForThemAlong) {
  Log log;
  ParameterCoordinator coordinator({100, 100}, {false, false}, {}, log);
  coordinator.set_frozen(0);
  const int recomputed = coordinator.add_module({0});
  const int asking = coordinator.add_module({1});
  coordinator.begin_pass();
  coordinator.fetch(asking, true);  // its backward never ends
  coordinator.fetch(recomputed, false, true);
  coordinator.release(recomputed, false);
  EXPECT_EQ(log.take(), "+1, =1, +0, =0");
  coordinator.release_leftovers();
  EXPECT_EQ(log.take(), "-1, -0");
}

TEST(ParameterCoordinator, WhatAModuleReadsOfAnotherIsItsOwnFromThenOn) {
  Chain chain({.prefetch_bucket = 0, .max_live = 1000, .max_reuse_distance = 0});
  const int outer = chain.coordinator.add_module({});
  chain.coordinator.begin_pass();
  chain.coordinator.fetch(outer, false);
  EXPECT_FALSE(chain.coordinator.is_available(2));
  chain.coordinator.add_external(outer, 2);
  EXPECT_TRUE(chain.coordinator.is_available(2));
  chain.coordinator.release(outer, false);
  EXPECT_EQ(chain.log.take(), "-2");
  chain.coordinator.fetch(outer, true);
  EXPECT_EQ(chain.log.take(), "+2, =2") << "in backward it is gathered with the module";
  chain.coordinator.release_leftovers();
  EXPECT_EQ(chain.log.take(), "-2");
}

}  // namespace
}  // namespace memcalc
