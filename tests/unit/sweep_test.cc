// plan/sweep.h, plan/outcome.h, spec/prices.h
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "memcalc/planning.h"
#include "support/paths.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

using test::registry;

SweepQuestion question(const char* value, const char* model, std::int64_t batch, const char* gpu = "h100-sxm") {
  const ModelSpec spec = registry().model(model);
  return {.values = {value},
          .candidate = Candidate{spec, resolve(spec, {.batch_size = batch}).run, registry().device(gpu)},
          .refusal = {}};
}

TEST(Sweep, APointIsItsEstimate) {
  const SweepQuestion asked = question("4", "gpt2", 4);
  const Sweep swept = sweep({"bs"}, {asked, question("8", "gpt2", 8)}, {.threads = 2});
  ASSERT_EQ(swept.points.size(), 2U);
  const Report report = estimate(asked.candidate->model, asked.candidate->run, asked.candidate->device);
  const Outcome& outcome = swept.points[0].outcome;
  EXPECT_EQ(outcome.allocated, report.memory.peak_allocated);
  EXPECT_EQ(outcome.needed, *report.device_used_bytes);
  EXPECT_EQ(outcome.headroom, report.device.memory_bytes - *report.device_used_bytes);
  Bytes sum = outcome.slack;
  for (const Bytes bytes : outcome.categories) sum += bytes;
  EXPECT_EQ(sum, outcome.allocated);
  EXPECT_LT(outcome.allocated, swept.points[1].outcome.allocated);
}

TEST(Sweep, WhatTheLibraryRefusesIsAPointWithAReason) {
  SweepQuestion beyond = question("2000", "gpt2", 1);
  beyond.candidate->run.sequence_length = 2000;  // of 1024
  const SweepQuestion none{.values = {"x"}, .candidate = {}, .refusal = {"no such thing", false}};
  const Answer answer = answer_of(sweep({"seq"}, {beyond, none, question("4", "gpt2", 4)}));
  EXPECT_EQ(answer.rows.size(), 3U);
  EXPECT_THAT(answer.notes, Contains(HasSubstr("beyond the 1024 positions")));
  EXPECT_THAT(answer.notes, Contains(HasSubstr("no estimate of 1 point: no such thing")));
  EXPECT_THAT(answer.headline, HasSubstr("1 of 3 points fits"));
}

TEST(Sweep, ABugOfOursIsARowThatSaysSoAndTheOthersStay) {
  const Refusal ours = refusal_of(Error(ErrorCode::kInternal, "a block is freed twice"));
  EXPECT_TRUE(ours.own_fault);
  EXPECT_EQ(ours.reason, "BUG OF MEMCALC, please report it: a block is freed twice");
  EXPECT_TRUE(refusal_of(std::out_of_range("at")).own_fault);
  for (const ErrorCode code : {ErrorCode::kUsage, ErrorCode::kInput, ErrorCode::kUnsupported, ErrorCode::kOverflow}) {
    EXPECT_FALSE(refusal_of(Error(code, "no")).own_fault);
    EXPECT_EQ(refusal_of(Error(code, "no")).reason, "no");
  }
  const Sweep swept = sweep({"bs"}, {{.values = {"2"}, .candidate = {}, .refusal = ours}, question("4", "gpt2", 4)});
  EXPECT_EQ(swept.own_faults(), 1U);
  ASSERT_EQ(answer_of(swept).rows.size(), 2U);
  EXPECT_EQ(std::get<std::string>(answer_of(swept).rows[0].back()), ours.reason);
  EXPECT_TRUE(swept.points[1].outcome.answered());
}

TEST(MaxModel, NamesTheCardAlsoWhereTheFirstModelIsRefused) {
  const SweepQuestion refused = {.values = {"a"}, .candidate = {}, .refusal = {"no", false}};
  const Answer answer = largest_model_of(sweep({"model"}, {refused, question("gpt2", "gpt2", 1)}));
  EXPECT_EQ(answer.headline, "Largest model on h100-sxm: gpt2.");
}

// 10,000 tokens/s: 1e9 tokens in 100,000 s = 27.78 h; 8 GPUs at $3: $666.67.
TEST(Compare, DollarsForABillionTokens) {
  Outcome outcome;
  EXPECT_FALSE(dollars_per_billion_tokens(outcome, 8, 3.0));
  outcome.speed = Speed{.step_seconds = 1, .tokens_per_second = 10'000};
  EXPECT_NEAR(*dollars_per_billion_tokens(outcome, 8, 3.0), 666.67, 0.01);
  EXPECT_FALSE(dollars_per_billion_tokens(outcome, 8, std::nullopt));
}

TEST(Compare, EveryPriceIsOfACardOfTheRegistry) {
  const Prices prices = read_prices(test::specs_dir().string());
  EXPECT_FALSE(prices.dollars_per_gpu_hour.empty());
  for (const auto& [gpu, dollars] : prices.dollars_per_gpu_hour) {
    EXPECT_EQ(registry().device(gpu).name, gpu);
    EXPECT_GT(dollars, 0);
  }
  EXPECT_FALSE(prices.of("no-such-card"));
  EXPECT_EQ(Prices{.given = 2.5}.of("no-such-card"), 2.5);
}

TEST(MaxModel, IsTheLargestThatFits) {
  Sweep swept = sweep({"model"}, {question("gpt2", "gpt2", 1, "t4"), question("gpt2-medium", "gpt2-medium", 1, "t4"),
                                  question("gpt2-xl", "gpt2-xl", 1, "t4")});
  swept.points[0].parameters = 1;
  swept.points[1].parameters = 2;
  swept.points[2].parameters = 3;
  EXPECT_EQ(largest_model_of(swept).headline, "Largest model on t4: gpt2-medium.");
}

TEST(Plots, AreWellFormedAndNameWhatTheyShow) {
  const std::string bars = plot_of(sweep({"bs"}, {question("4", "gpt2", 4), question("8", "gpt2", 8)}));
  EXPECT_THAT(bars, ::testing::StartsWith("<svg "));
  EXPECT_THAT(bars, ::testing::EndsWith("</svg>\n"));
  EXPECT_THAT(bars, HasSubstr("8, optimizer states: "));
  const SweepQuestion asked = question("4", "gpt2", 4);
  const std::string step = plot_step(asked.candidate->model, asked.candidate->run, asked.candidate->device);
  EXPECT_THAT(step, HasSubstr("forward"));
  EXPECT_THAT(step, HasSubstr(">peak "));
  EXPECT_LT(step.size(), 400'000U);
}

}  // namespace
}  // namespace memcalc
