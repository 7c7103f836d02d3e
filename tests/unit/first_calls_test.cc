// symbolic/first_calls: which calls are the first of a size, and what a training whose batches differ in width takes
// for them.
#include "memcalc/symbolic/first_calls.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "memcalc/cost/cost.h"
#include "memcalc/memcalc.h"
#include "memcalc/train/data/data_steps.h"
#include "support/plain_rates.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

Kernel attention(std::int64_t keys, Phase phase, bool backward = false) {
  Kernel kernel = test::kernel(1e6);
  kernel.kind = KernelKind::kCudnnAttention;
  kernel.dtype = DType::kBFloat16;
  kernel.phase = phase;
  kernel.work = work::Attention{.heads = 96, .queries = keys, .keys = keys, .width = 64, .backward = backward};
  return kernel;
}

Kernel product(std::int64_t rows, DType dtype = DType::kBFloat16) {
  Kernel kernel = test::kernel(1e6);
  kernel.kind = KernelKind::kMatrixProduct;
  kernel.dtype = dtype;
  kernel.work = work::Product{.batch = 1, .m = rows, .n = 768, .k = 768};
  return kernel;
}

TEST(FirstCalls, LayersThatAreAlikeShareAPlanWhichEachThreadHasForItself) {
  FirstCalls seen;
  EXPECT_EQ(seen.call(attention(100, Phase::kForward)), FirstCall::kAttention);
  EXPECT_FALSE(seen.call(attention(100, Phase::kForward))) << "the next layer's";
  EXPECT_EQ(seen.call(attention(100, Phase::kBackward, true)), FirstCall::kAttentionBackward);
  EXPECT_EQ(seen.call(attention(100, Phase::kBackward)), FirstCall::kAttention)
      << "computed again by autograd's thread";
  EXPECT_EQ(seen.call(attention(101, Phase::kForward)), FirstCall::kAttention);
  Kernel without_sums = attention(100, Phase::kForward);
  without_sums.op = &kCudnnAttentionWithoutSums;
  EXPECT_EQ(seen.call(without_sums), FirstCall::kAttention) << "without gradients";
  Kernel flash = attention(102, Phase::kForward);
  flash.kind = KernelKind::kFlashAttention;
  EXPECT_FALSE(seen.call(flash));
}

TEST(FirstCalls, ProductsIn16BitsAreChosenOnceForAllThreads) {
  FirstCalls seen;
  EXPECT_EQ(seen.call(product(100)), FirstCall::kProduct);
  Kernel of_backward = product(100);
  of_backward.phase = Phase::kBackward;
  EXPECT_FALSE(seen.call(of_backward));
  EXPECT_EQ(seen.call(product(101)), FirstCall::kProduct);
  EXPECT_FALSE(seen.call(product(100, DType::kFloat32)));
}

TEST(FirstCalls, AnAverageStepTakesItsShareOfThem) {
  KernelList step;
  for (int layer = 0; layer < 3; ++layer) step.push_back(attention(100, Phase::kForward));
  step.push_back(product(100));
  DeviceSpec card = test::device();
  card.compute_capability_major = 9;
  DeviceRates rates = test::rates();
  rates.first_calls = {.attention_us = 50000, .attention_backward_us = 60000, .product_us = 10000, .source = "here"};
  const StepTime seen = cost(step, card, rates);
  EXPECT_FALSE(seen.first_calls);
  const StepTime mean = cost(step, card, rates, Costed::kStep, {0.5, 0, 0.5});
  ASSERT_TRUE(mean.first_calls);
  EXPECT_DOUBLE_EQ(mean.first_calls->seen_step_seconds, seen.step_seconds);
  EXPECT_NEAR(mean.first_calls->new_step_seconds, seen.step_seconds + 0.06, 1e-4);
  EXPECT_NEAR(mean.step_seconds, seen.step_seconds + 0.03, 1e-4);
  EXPECT_EQ(mean.bound(), Bound::kFirstCalls);
  double sum = 0;
  for (const double seconds : mean.by_class) sum += seconds;
  EXPECT_NEAR(sum, mean.step_seconds, 1e-9);
  card.compute_capability_major = 8;  // whose products were not timed
  EXPECT_NEAR(cost(step, card, rates, Costed::kStep, {0, 0, 0.5}).step_seconds, seen.step_seconds, 1e-12);
}

/// A Trainer of BERT with batches of one text each. `lengths`: of the data set.
StepTime time_of(const std::string& lengths, std::int64_t steps, bool checkpointed = false) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "memcalc_first_calls.txt";
  std::ofstream(path) << lengths;
  RunOptions options{.batch_size = 1, .precision = Precision::kAmpBf16, .loop = Loop::kTrainer};
  options.task = Task::kSequenceClassification;
  options.lengths = path.string();
  options.steps = steps;
  if (checkpointed) options.checkpointing = Checkpointing::kFull;
  const ModelSpec& model = registry().model("bert-base");
  return estimate(model, resolve(model, options).run, registry().device("h200-sxm")).time->step;
}

TEST(FirstCalls, EachWidthOfADataSetIsPreparedOnce) {
  const StepTime four = time_of("64\n80\n96\n112\n", 4);
  ASSERT_TRUE(four.first_calls);
  EXPECT_DOUBLE_EQ(four.first_calls->plans, 2) << "forward and backward, for all layers together";
  EXPECT_GT(four.first_calls->products, 5);
  EXPECT_GT(four.step_seconds, four.first_calls->seen_step_seconds + 0.1);
  const StepTime alike = time_of("64\n64\n64\n64\n", 4);
  EXPECT_FALSE(alike.first_calls) << "the first step alone has them";
  EXPECT_DOUBLE_EQ(time_of("64\n80\n96\n112\n", 8).first_calls->plans, 6.0 / 7) << "two epochs";
  EXPECT_DOUBLE_EQ(time_of("64\n80\n96\n112\n", 4, true).first_calls->plans, 3) << "and what is computed again";
}

TEST(FirstCalls, OfAModelWithFewLayersAsManyAreTold) {
  std::string lengths;  // more steps than are all executed
  for (int i = 0; i < 60; ++i) lengths += std::to_string(40 + 3 * (i % 30)) + "\n";
  EXPECT_DOUBLE_EQ(time_of(lengths, 60).first_calls->plans, 58.0 / 59);
}

TEST(FirstCalls, EachNewNumberOfKeysIsPlannedWhereATrainerGenerates) {
  DataSteps steps{.all = 4};
  for (const std::int64_t prompt : {100, 104, 100, 200}) {
    steps.simulated.push_back({.micro_batches = {{.rows = 4, .columns = prompt + 10}}});
  }
  RunOptions options{.batch_size = 4, .loop = Loop::kTrlOnlineDpo};
  options.completion_length = 10;
  options.sequence_length = 210;
  const ModelSpec& model = registry().model("gpt2");
  options.checkpointing = Checkpointing::kNone;
  const CountedFirstCalls counts = generated_first_calls(resolve(model, options).run, steps);
  // 101 to 109, of 105 to 113 four more, 201 to 209; three prompts; forward and backward of three widths.
  EXPECT_EQ(counts.all, (FirstCallCounts{9 + 4 + 9 + 3 + 3, 3, 0}));
  EXPECT_EQ(counts.first_step, (FirstCallCounts{9 + 1 + 1, 1, 0}));
}

}  // namespace
}  // namespace memcalc
