// plan/plan.h, plan/plan_space.h
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <string>

#include "memcalc/plan/closed_form.h"
#include "memcalc/plan/plan_space.h"
#include "memcalc/planning.h"
#include "support/error_text.h"
#include "support/paths.h"

namespace memcalc {
namespace {

using ::testing::HasSubstr;

const SpecRegistry& registry() {
  static const SpecRegistry specs(test::specs_dir().string());
  return specs;
}

PlanQuestion question(const char* model, std::int64_t gpus, std::int64_t global_batch) {
  PlanQuestion asked{.model = registry().model(model), .device = registry().device("h100-sxm")};
  asked.run = resolve(asked.model, {.sequence_length = 512, .precision = Precision::kAmpBf16, .loop = Loop::kBare}).run;
  asked.gpus = gpus;
  asked.global_batch = global_batch;
  return asked;
}

TEST(Plan, EveryCandidateIsAccountedFor) {
  const Plan plan = make_plan(question("gpt2", 4, 16), {.threads = 2});
  std::size_t rejected = 0;
  for (const Rejection& each : plan.rejections) rejected += each.count;
  EXPECT_EQ(rejected + plan.front.size(), plan.candidates);
  EXPECT_LE(plan.front.size(), plan.fitting);
  EXPECT_LE(plan.fitting, plan.simulated);
  EXPECT_LE(plan.simulated, 64U);
}

TEST(Plan, TheFrontFitsAndEachEntryIsWhatEstimateSays) {
  const PlanQuestion asked = question("gpt2", 4, 16);
  const Plan plan = make_plan(asked, {.threads = 2});
  ASSERT_FALSE(plan.front.empty());
  for (std::size_t i = 0; i < plan.front.size(); ++i) {
    const PlanEntry& each = plan.front[i];
    const Report report = estimate(asked.model, each.run, asked.device);
    EXPECT_TRUE(each.outcome.fits());
    if (!each.outcome.built_whole) {
      EXPECT_EQ(each.outcome.reserved, report.memory.peak_reserved);
    }
    const Parallel& p = each.run.parallel;
    const std::int64_t micro_batches = std::max(each.run.accumulation_steps(), p.micro_batches);
    EXPECT_EQ(each.run.batch_size * micro_batches * 4 / (p.tensor * p.context * p.pipeline), 16);
    if (i == 0) continue;
    EXPECT_LT(each.outcome.needed, plan.front[i - 1].outcome.needed);
    EXPECT_GE(each.seconds(), plan.front[i - 1].seconds());
  }
}

TEST(Plan, IsTheSameOnAnyNumberOfThreads) {
  const PlanQuestion asked = question("gpt2", 2, 8);
  const auto json = [&](unsigned threads) {
    return render(answer_of(asked, make_plan(asked, {.threads = threads})), Format::kJson);
  };
  EXPECT_EQ(json(1), json(2));
}

// What is pruned by the closed form would not fit: of some candidates, the simulated need is at least the bound.
TEST(Plan, TheClosedFormIsBelowTheSimulation) {
  const PlanQuestion asked = question("gpt2-medium", 4, 8);
  const ClosedForms forms = closed_forms_of(asked);
  std::array<std::size_t, kWayCount> compared{};
  const std::vector<Choice> choices = choices_of(asked);
  for (std::size_t i = 0; i < choices.size(); i += 7) {
    if (contradiction_in(asked, choices[i]) != nullptr) continue;
    const RunSpec run = run_of(asked, choices[i]);
    const Outcome outcome = outcome_of(Candidate{asked.model, run, asked.device});
    if (!outcome.answered()) continue;
    ASSERT_NE(forms.of(choices[i]), nullptr);
    EXPECT_LE(least_bytes(*forms.of(choices[i]), asked, choices[i]), static_cast<double>(outcome.needed))
        << options_of(RunRecord{asked.model, run});
    ++compared[static_cast<std::size_t>(choices[i].way)];
  }
  for (const std::size_t each : compared) EXPECT_GE(each, 5U);
}

TEST(Plan, ForA70BModelOn64GpusCountsAHundredThousandCandidates) {
  PlanQuestion asked = question("llama-3-70b", 64, 512);
  EXPECT_GE(choices_of(asked).size(), 100'000U);
}

// torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, table 1: Llama-3.1-8B on 8 H100 of 96 GB (about 95 GiB of
// them usable), 16 sequences of 8192 tokens a step, FSDP2, two sequences a GPU, selective checkpointing: 82.4 GiB
// reserved. The plan's first is no more than 10 % slower than that configuration, both as predicted.
TEST(Plan, IsAsFastAsTorchtitansConfiguration) {
  PlanQuestion asked = question("llama-3.1-8b", 8, 16);
  asked.run.sequence_length = 8192;
  asked.device.memory_bytes = 95 * kGiB;
  asked.frameworks = {Framework::kTorch};
  Choice published;
  published.micro_batch = 2;
  published.data_parallel = DataParallel::kFsdp2;
  published.checkpointing = Checkpointing::kSelective;
  published.way = Way::kFsdpMixed;
  const Outcome theirs = outcome_of(Candidate{asked.model, run_of(asked, published), asked.device});
  ASSERT_TRUE(theirs.speed.has_value());
  EXPECT_NEAR(static_cast<double>(theirs.reserved) / static_cast<double>(kGiB), 82.4, 0.5);
  const Plan plan = make_plan(asked);
  ASSERT_FALSE(plan.front.empty());
  EXPECT_LE(plan.front.front().seconds(), 1.1 * theirs.speed->step_seconds);
}

TEST(Plan, StopsWhenAsked) {
  const std::atomic<bool> stop{true};
  const Plan plan = make_plan(question("gpt2", 2, 8), {.stop = &stop});
  EXPECT_FALSE(plan.complete);
  EXPECT_TRUE(plan.front.empty());
}

TEST(Plan, RefusesNumbersOutOfRange) {
  PlanQuestion asked = question("gpt2", 2, 8);
  asked.nodes = 3;
  EXPECT_THROW((void)make_plan(asked), Error);
  asked = question("gpt2", 0, 8);
  EXPECT_THROW((void)make_plan(asked), Error);
  asked = question("gpt2", 2, 0);
  EXPECT_THROW((void)make_plan(asked), Error);
  asked = question("gpt2", 2, 8);
  asked.run.purpose = Inference{};
  EXPECT_THROW((void)make_plan(asked), Error);
}

TEST(Plan, MoreGpusThanCanBeCountedInTimeAreRefused) {
  PlanQuestion asked = question("gpt2", 65537, 8);
  EXPECT_THAT(error_text([&] { (void)make_plan(asked); }),
              HasSubstr("gpus: expected a whole number from 1 to 65536, found 65537 (a plan for more takes too long"));
}

// What TrainingArguments cannot say is not ranked for it: copied, it would run another plan.
TEST(Plan, WhatIsEmittedIsWhatWasRanked) {
  PlanQuestion asked = question("gpt2", 2, 16);
  asked.run.training().loop = Loop::kTrainer;
  asked.frameworks = {Framework::kTorch};
  asked.emit = Emit::kTrainer;
  const Plan plan = make_plan(asked);
  ASSERT_FALSE(plan.front.empty());
  bool checkpoints = false;
  for (const PlanEntry& each : plan.front) {
    EXPECT_NE(each.run.checkpointing(), Checkpointing::kSelective);
    EXPECT_EQ(each.run.training().checkpoint_every, 1);
    EXPECT_FALSE(each.run.training().offload_activations);
    EXPECT_FALSE(each.run.parallel.gathered_dtype().has_value());  // bf16=True is autocast with accelerate's own policy
    checkpoints = checkpoints || each.run.checkpointing() == Checkpointing::kFull;
  }
  EXPECT_TRUE(checkpoints);
  const Choice every_other = {.checkpoint_every = 2, .checkpointing = Checkpointing::kFull};
  EXPECT_STREQ(unsaid_in_settings(asked, every_other), "TrainingArguments checkpoints every layer or none");
  asked.emit = Emit::kTorchrun;
  EXPECT_EQ(unsaid_in_settings(asked, every_other), nullptr);
  asked.emit = Emit::kTrainer;
  asked.run.training().optimizer = Optimizer::kAdamWAmsgrad;
  EXPECT_THROW((void)make_plan(asked), Error);
}

struct Contradiction {
  Choice choice;
  const char* words;  // null: none
};

// 8 GPUs, a global batch of 16 sequences.
TEST(Plan, ContradictionsAreFoundBeforeTheLibraryIsAsked) {
  const PlanQuestion asked = question("gpt2", 8, 16);
  const Contradiction cases[] = {
      {{.data_parallel = DataParallel::kDdp}, nullptr},
      {{.micro_batch = 2, .data_parallel = DataParallel::kFsdp2}, nullptr},
      {{.micro_batch = 4, .data_parallel = DataParallel::kDdp}, "global batch"},  // 4 x 8 = 32
      {{.tensor = 8}, nullptr},
      {{.pipeline = 8, .micro_batch = 4}, "fewer micro-batches"},  // 16 / 4 = 4
  };
  for (const Contradiction& each : cases) {
    const char* found = contradiction_in(asked, each.choice);
    if (each.words == nullptr) {
      EXPECT_EQ(found, nullptr);
    } else {
      ASSERT_NE(found, nullptr) << each.words;
      EXPECT_THAT(found, HasSubstr(each.words));
    }
  }
}

// Layouts that do not divide the GPUs, and shards that nobody shares, are no candidates.
TEST(Plan, CandidatesAreWhatCanBe) {
  const PlanQuestion asked = question("mixtral-8x7b", 8, 16);
  bool experts = false;
  for (const Choice& each : choices_of(asked)) {
    EXPECT_EQ(8 % (each.tensor * each.context * each.pipeline), 0);
    EXPECT_EQ(replicas_of(asked, each) == 1, each.data_parallel == DataParallel::kNone);
    experts = experts || each.expert == 8;
  }
  EXPECT_TRUE(experts);
}

}  // namespace
}  // namespace memcalc
