// plan/largest.h: the search agrees with asking for every value, and says what it saw.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <variant>
#include <vector>

#include "memcalc/families/torchvision/spec.h"
#include "memcalc/planning.h"
#include "memcalc/spec/image_text_spec.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using test::registry;

DeviceSpec card_of(Bytes memory) {
  DeviceSpec card = registry().device("h100-sxm");
  card.memory_bytes = memory;
  return card;
}

struct Case {
  const char* name;
  const char* model;
  RunOptions options;
  Measure measure;
  std::int64_t multiple_of;
  Bytes memory;
};

void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

class EveryValue : public ::testing::TestWithParam<Case> {};

// From the smallest value on, one after the other.
TEST_P(EveryValue, IsWhatTheSearchFinds) {
  const Case& each = GetParam();
  const ModelSpec model = registry().model(each.model);
  const DeviceSpec card = card_of(each.memory);
  ResolvedRun run = resolve(model, each.options);
  const Largest found =
      find_largest(model, run, card, {.measure = each.measure, .multiple_of = each.multiple_of}, {.threads = 2});
  std::int64_t unhurried = 0;
  std::int64_t value = 0;
  for (std::int64_t asked = each.multiple_of;; asked += each.multiple_of) {
    (each.measure == Measure::kBatch ? run.run.batch_size : run.run.sequence_length) = asked;
    const Report report = estimate(model, run, card);
    if (report.fits()) unhurried = asked;
    if (!report.fits() && !(report.full_card && report.full_card->runs)) break;
    value = asked;
  }
  EXPECT_EQ(found.value, value);
  EXPECT_EQ(found.unhurried, unhurried);
  EXPECT_TRUE(found.complete);
  EXPECT_LT(found.probes.size(), 40U);
}

constexpr Bytes kSmallCard = 6 * kGiB;

INSTANTIATE_TEST_SUITE_P(
    Runs, EveryValue,
    ::testing::Values(
        Case{"batch", "gpt2", {.sequence_length = 128, .precision = Precision::kFp32}, Measure::kBatch, 1, kSmallCard},
        Case{"batches of eight",
             "bert-base",
             {.sequence_length = 64, .precision = Precision::kAmpFp16},
             Measure::kBatch,
             8,
             kSmallCard},
        Case{"sequence",
             "qwen2.5-0.5b",
             {.batch_size = 1, .precision = Precision::kBf16},
             Measure::kSequence,
             64,
             kSmallCard}),
    [](const auto& info) {
      std::string name = info.param.name;
      for (char& c : name) {
        if (c == ' ') c = '_';
      }
      return name;
    });

TEST(Largest, BeginsWithTheSmallestThatTheRulesTake) {
  const ModelSpec model = registry().model("gpt2");
  const ResolvedRun kto = resolve(model, {.sequence_length = 128, .loop = Loop::kTrlKto});
  const Largest batch = find_largest(model, kto, card_of(kSmallCard), {});
  EXPECT_GE(batch.value, 2);
  EXPECT_EQ(batch.probes.front().value, 2);
  const ResolvedRun dpo =
      resolve(model, {.batch_size = 1, .sequence_length = 1024, .loop = Loop::kTrlDpo, .completion_length = 100});
  const LargestOptions sequences{.measure = Measure::kSequence, .multiple_of = 64};
  EXPECT_EQ(find_largest(model, dpo, card_of(80 * kGiB), sequences).probes.front().value, 128);
}

// ResNet's last stage halves 32 pixels down to one, of which torch takes no statistics (F.batch_norm).
TEST(Largest, BeginsWithTwoImagesWhereOneIsDownToOneValue) {
  ModelSpec model = registry().model("resnet18");
  model.architecture.change<TorchvisionSpec>().image_size = 32;
  const ResolvedRun run = resolve(model, {.batch_size = 1});
  EXPECT_EQ(find_largest(model, run, card_of(kSmallCard), {}).probes.front().value, 2);
  const LargestOptions sixes{.multiple_of = 6};
  EXPECT_EQ(find_largest(model, run, card_of(kSmallCard), sixes).probes.front().value, 6);
  EXPECT_THROW((void)find_largest(model, run, card_of(kSmallCard), {.limit = 1}), Error);
}

// A workspace makes the peak of two small calls, whatever their images: their line is level.
TEST(Largest, ALevelLineDoesNotLeadToAMillionImages) {
  ModelSpec model = registry().model("qwen3-vl-2b");
  model.architecture.change<ImageTextSpec>().images = 2;  // with each text, 256 tokens each
  const ResolvedRun run = resolve(model, {.batch_size = 1,
                                          .sequence_length = 1200,
                                          .precision = Precision::kBf16,
                                          .inference = Inference{.new_tokens = 2}});
  const Largest found = find_largest(model, run, card_of(8 * kGiB), {.neighbours = 0});
  EXPECT_GT(found.value, 2);
  for (const Probe& each : found.probes) EXPECT_LE(each.value, 128);
}

TEST(Largest, WhatTheHostCannotHoldDoesNotFit) {
  const ModelSpec model = registry().model("gpt2");
  const ResolvedRun run = resolve(model, {.sequence_length = 128, .offload_activations = true});
  const DeviceSpec card = registry().device("h100-sxm");
  const HostSize host{8 * kGiB, std::string(kHostMemoryOption)};
  const Largest free = find_largest(model, run, card, {.neighbours = 0});
  const Largest bound = find_largest(model, run, card, {.neighbours = 0, .host = host});
  ASSERT_GT(bound.unhurried, 0);
  EXPECT_LT(bound.unhurried, free.unhurried);
  const auto on_host = [&](std::int64_t batch) {
    RunSpec of_batch = run.run;
    of_batch.batch_size = batch;
    return estimate(model, of_batch, card).host_memory.total;
  };
  EXPECT_LE(on_host(bound.unhurried), host.bytes);
  EXPECT_GT(on_host(bound.unhurried + 1), host.bytes);
}

TEST(Largest, HalfOfAnySequenceIsTheAnswerWhereNobodySaidHowMuch) {
  const ModelSpec model = registry().model("gpt2");
  const LargestOptions sequences{.measure = Measure::kSequence, .multiple_of = 64};
  for (const Loop loop : {Loop::kTrlDpo, Loop::kTrlKto, Loop::kTrlGrpo}) {
    const ResolvedRun run = resolve(model, {.loop = loop});
    const Largest found = find_largest(model, run, card_of(80 * kGiB), sequences);
    EXPECT_EQ(found.probes.front().value, 64);
    EXPECT_EQ(found.run.training().completion_length, found.run.sequence_length / 2);
  }
}

TEST(Largest, EndsAtTheModelsLastPosition) {
  const ModelSpec model = registry().model("bert-base");
  const ResolvedRun run = resolve(model, {.batch_size = 1});
  const Largest found =
      find_largest(model, run, card_of(80 * kGiB), {.measure = Measure::kSequence, .multiple_of = 64});
  EXPECT_EQ(found.value, 512);
  EXPECT_TRUE(found.at_limit);
  EXPECT_THAT(answer_of(found).headline, HasSubstr("the model's last position"));
}

TEST(Largest, TheAnswerNeedsNoRetryAndTheLargerOneThatDoesIsNamedAfterIt) {
  const ModelSpec model = registry().model("llama-3.2-1b");
  const ResolvedRun run =
      resolve(model, {.batch_size = 1, .precision = Precision::kAmpBf16, .weights_dtype = DType::kFloat32});
  const LargestOptions options{.measure = Measure::kSequence, .multiple_of = 64};
  const Largest found = find_largest(model, run, registry().device("rtx-4090"), options);
  ASSERT_GT(found.value, found.unhurried);  // this card shows both
  EXPECT_EQ(found.probe_of(found.unhurried)->retries, 0);
  const Answer answer = answer_of(found);
  EXPECT_THAT(answer.headline, HasSubstr(": " + std::to_string(found.unhurried) + " tokens; up to " +
                                         std::to_string(found.value) + " with "));
  const auto fact = [&](const std::string& key) {
    for (const Fact& each : answer.facts) {
      if (each.key == key) return std::get<std::int64_t>(each.value);
    }
    return std::int64_t{-1};
  };
  EXPECT_EQ(fact("largest"), found.unhurried);
  EXPECT_EQ(fact("largest_with_retries"), found.value);
}

TEST(Largest, ALargerOneThatIsTooCloseToCallIsNamedSo) {
  const ModelSpec model = registry().model("llama-3.2-1b");
  const ResolvedRun run = resolve(model, {.batch_size = 1, .precision = Precision::kAmpBf16});
  const LargestOptions options{.measure = Measure::kSequence, .multiple_of = 64};
  const Largest found = find_largest(model, run, registry().device("rtx-4090"), options);
  ASSERT_EQ(found.probe_of(found.value)->retries, 0);
  EXPECT_EQ(found.probe_of(found.value)->verdict, Verdict::kTooClose);
  EXPECT_THAT(answer_of(found).headline,
              HasSubstr("; up to " + std::to_string(found.value) + " may run, too close to call."));
}

TEST(Largest, SaysWhereASequenceIsBeyondWhatTheModelWasTrainedWith) {
  const ModelSpec model = registry().model("tinyllama-1.1b");  // 2048 positions
  const ResolvedRun run = resolve(model, {.batch_size = 1, .precision = Precision::kAmpBf16});
  const LargestOptions options{.measure = Measure::kSequence, .multiple_of = 64, .limit = 4096};
  const Largest beyond = find_largest(model, run, card_of(200 * kGiB), options);
  EXPECT_EQ(beyond.unhurried, 4096);
  EXPECT_THAT(answer_of(beyond).headline, HasSubstr("4096 tokens, where the search ends, beyond the 2048"));
  EXPECT_THAT(answer_of(beyond).notes, Contains(HasSubstr("trained with sequences of at most 2048 tokens")));
  const Largest within = find_largest(model, run, card_of(11 * kGiB), options);
  ASSERT_LE(within.unhurried, 2048);
  EXPECT_THAT(answer_of(within).headline, Not(HasSubstr("trained")));
}

TEST(Largest, IsNothingWhereTheSmallestDoesNotFit) {
  const ModelSpec model = registry().model("gpt2");
  const Largest found = find_largest(model, resolve(model, {}), card_of(kGiB), {});
  EXPECT_EQ(found.value, 0);
  EXPECT_FALSE(answer_of(found).positive);
}

TEST(Largest, TheMarginStaysFree) {
  const ModelSpec model = registry().model("gpt2");
  const ResolvedRun run = resolve(model, {});
  const Largest without = find_largest(model, run, card_of(24 * kGiB), {});
  const Largest with =
      find_largest(model, run, with_card_options(card_of(24 * kGiB), {.margin_gib = 4}, registry()), {});
  const Largest smaller = find_largest(model, run, card_of(20 * kGiB), {});
  EXPECT_LT(with.value, without.value);
  EXPECT_EQ(with.value, smaller.value);
}

TEST(Largest, IsTheSameOnAnyNumberOfThreads) {
  const ModelSpec model = registry().model("llama-3.2-1b");
  const ResolvedRun run = resolve(model, {.batch_size = 1, .precision = Precision::kAmpBf16});
  const LargestOptions options{.measure = Measure::kSequence, .multiple_of = 64};
  const std::string one =
      render(answer_of(find_largest(model, run, card_of(24 * kGiB), options, {.threads = 1})), Format::kJson);
  const std::string two =
      render(answer_of(find_largest(model, run, card_of(24 * kGiB), options, {.threads = 2})), Format::kJson);
  EXPECT_EQ(one, two);
}

// LLaMA-3.2-1B on 24 GiB: 1856 tokens reserve more than 1920 do.
TEST(Largest, SaysWhereThePeakIsNotMonotone) {
  const ModelSpec model = registry().model("llama-3.2-1b");
  const ResolvedRun run =
      resolve(model, {.batch_size = 1, .precision = Precision::kAmpBf16, .weights_dtype = DType::kFloat32});
  const LargestOptions options{.measure = Measure::kSequence, .multiple_of = 64};
  const Largest found = find_largest(model, run, registry().device("rtx-4090"), options);
  ASSERT_TRUE(found.drop.has_value());
  for (const std::int64_t larger : found.larger_that_run) EXPECT_GT(larger, found.value);
  EXPECT_THAT(answer_of(found).notes, Contains(HasSubstr("does not grow everywhere")));
}

// A card with room for more tokens than memcalc goes through one by one: 24 layers of 4,200, not of 8,400.
TEST(Largest, EndsAtWhatIsExecutedAtMost) {
  const ModelSpec model = registry().model("mamba-130m");
  const ResolvedRun run = resolve(model, {.batch_size = 1, .inference = Inference{}});
  const LargestOptions options{.measure = Measure::kSequence, .multiple_of = 4200};
  const Largest found = find_largest(model, run, card_of(1024 * kGiB), options);
  EXPECT_EQ(found.value, 4200);
  EXPECT_EQ(found.probes.size(), 1U);
  EXPECT_FALSE(found.at_limit);
  EXPECT_THAT(answer_of(found).headline, HasSubstr("where the search ends"));
  EXPECT_THAT(answer_of(found).notes, Contains(HasSubstr("longer ones are not asked: without mamba-ssm")));
  const Largest small =
      find_largest(model, run, card_of(2 * kGiB), {.measure = Measure::kSequence, .multiple_of = 512, .neighbours = 0});
  EXPECT_GT(small.value, 0);
  EXPECT_THAT(answer_of(small).notes, Not(Contains(HasSubstr("are not asked"))));  // memory ended the search
}

TEST(Largest, StopsWhenAsked) {
  const ModelSpec model = registry().model("gpt2");
  const std::atomic<bool> stop{true};
  const Largest found = find_largest(model, resolve(model, {}), card_of(24 * kGiB), {}, {.stop = &stop});
  EXPECT_FALSE(found.complete);
  EXPECT_EQ(found.value, 1);  // all that was asked for
}

TEST(Largest, RefusesWhatIsNoQuestion) {
  const ModelSpec images = registry().model("resnet50");
  const ModelSpec model = registry().model("gpt2");
  EXPECT_THROW((void)find_largest(images, resolve(images, {}), card_of(kGiB), {.measure = Measure::kSequence}), Error);
  EXPECT_THROW((void)with_card_options(card_of(kGiB), {.margin_gib = 1}, registry()), Error);
  EXPECT_THROW((void)find_largest(model, resolve(model, {}), card_of(kGiB), {.multiple_of = 0}), Error);
}

}  // namespace
}  // namespace memcalc
