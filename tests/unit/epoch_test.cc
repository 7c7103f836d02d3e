// report/epoch: what an epoch of batches of different lengths reserves.
#include "memcalc/report/epoch.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

SymbolicRun run_with(const std::vector<std::int64_t>& numbers) {
  SymbolicRun symbolic;
  symbolic.data_steps.all = 50;
  for (const std::int64_t number : numbers) {
    symbolic.data_steps.simulated.push_back({.number = number, .micro_batches = {{.rows = 2, .columns = number + 1}}});
  }
  return symbolic;
}

TEST(Epoch, TellsWhereThePeakIsAndWhereReservedMemoryGrows) {
  ReplayResult memory;
  memory.steps = {{.peak_allocated = 10, .reserved = 100},
                  {.peak_allocated = 30, .reserved = 140},
                  {.peak_allocated = 20, .reserved = 140},
                  {.peak_allocated = 25, .reserved = 150}};
  const EpochMemory epoch = *epoch_of(run_with({0, 1, 17, 40}), memory);
  EXPECT_EQ(epoch.steps, 50);
  EXPECT_EQ(epoch.simulated, 4);
  EXPECT_EQ(epoch.peak_step, 1);
  EXPECT_EQ(epoch.peak_columns, 2);
  EXPECT_EQ(epoch.reserved_after_first_step, 100);
  EXPECT_EQ(epoch.reserved_at_end, 150);
  EXPECT_EQ(epoch.growing_steps, 2);
  EXPECT_EQ(epoch.last_growing_step, 40);
}

TEST(Epoch, WhereBatchesAreAlikeThereIsNone) { EXPECT_FALSE(epoch_of(SymbolicRun{}, ReplayResult{})); }

TEST(Epoch, AStepRetriesWhereTheAllocatorsCountGrows) {
  const std::vector<StepMark> steps = {{.retries = 0}, {.retries = 2}, {.retries = 2}, {.retries = 3}};
  EXPECT_EQ(retrying_steps(steps), 2);
}

TEST(Epoch, OnACardThatRunsFullSomeStepsRetry) {
  const ModelSpec& model = registry().model("bert-base");
  RunOptions options{.batch_size = 32, .precision = Precision::kAmpBf16, .loop = Loop::kTrainer};
  options.task = Task::kSequenceClassification;
  options.lengths = "lognormal:60,0.6,512,4000";
  const ResolvedRun run = resolve(model, options);
  DeviceSpec card = registry().device("h200-sxm");
  const Report roomy = estimate(model, run, card);
  ASSERT_TRUE(roomy.epoch);
  EXPECT_EQ(roomy.epoch->retrying_steps, 0);
  EXPECT_GT(roomy.epoch->growing_steps, 0);
  card.memory_bytes = Bytes{10} << 30U;  // of 10.5 GiB that are reserved 7.84 GiB are handed out
  const Report tight = estimate(model, run, card);
  ASSERT_TRUE(tight.full_card && tight.full_card->runs);
  EXPECT_GT(tight.epoch->retrying_steps.value_or(0), 0);
  EXPECT_LE(*tight.epoch->retrying_steps, tight.epoch->simulated);
}

}  // namespace
}  // namespace memcalc
