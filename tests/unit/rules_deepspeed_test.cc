// spec/rules_deepspeed: a run that breaks each rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "memcalc/spec/rule_tables.h"
#include "support/error_text.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

RunOptions zero(DataParallel mode) {
  RunOptions options{.precision = Precision::kBf16, .gpus = 4};
  options.parallel.data_parallel = mode;
  return options;
}

RunOptions ulysses(std::int64_t ranks) {
  RunOptions options = zero(DataParallel::kDsZero3);
  options.sequence_length = 96;
  options.gpus = ranks;
  options.parallel.context = ranks;
  options.parallel.context_type = ContextParallel::kUlysses;
  return options;
}

RunOptions in_trainer(RunOptions options) {
  options.loop = Loop::kTrainer;
  options.precision = Precision::kAmpBf16;
  return options;
}

const RunOptions kInTrainer = in_trainer(zero(DataParallel::kDsZero2));
const RunOptions kAdaptersInTrainer = [] {
  RunOptions options = kInTrainer;
  options.lora_rank = 8;
  return options;
}();
const RunOptions kStage2 = zero(DataParallel::kDsZero2);
const RunOptions kUlysses = ulysses(2);

const test::RuleCase kCases[] = {
    {"deepspeed-has-mode", "llama-3.2-1b", [](RunSpec& run) { run.parallel.data_parallel = DataParallel::kDdp; },
     kStage2},
    {"deepspeed-tp", "llama-3.2-1b", [](RunSpec& run) { run.parallel.tensor = 2; }, kStage2},
    {"deepspeed-pp", "llama-3.2-1b", [](RunSpec& run) { run.parallel.pipeline = 2; }, kStage2},
    {"deepspeed-ep", "mixtral-8x7b", [](RunSpec& run) { run.parallel.expert = 2; }, kStage2},
    {"deepspeed-sp", "llama-3.2-1b", [](RunSpec& run) { run.parallel.sequence_parallel = true; }, kStage2},
    {"deepspeed-precision", "llama-3.2-1b", [](RunSpec& run) { run.precision = Precision::kTf32; }, kStage2},
    {"deepspeed-adapters", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.lora = Lora{.rank = 8}; }, kStage2},
    {"deepspeed-zero3-trained-head", "llama-3.2-1b",
     [](RunSpec& run) {
       run.parallel.data_parallel = DataParallel::kDsZero3;
       run.task = Task::kSequenceClassification;
       run.fine_tuning.lora->trains_head = true;
     },
     kAdaptersInTrainer},
    {"trainer-deepspeed-precision", "llama-3.2-1b", [](RunSpec& run) { run.precision = Precision::kFp16; }, kInTrainer},
    {"deepspeed-frozen", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.frozen = {"model.embed_tokens"}; },
     kStage2},
    {"deepspeed-nvme-of-stage-3", "llama-3.2-1b", [](RunSpec& run) { run.parallel.offload_states = OffloadTo::kNvme; },
     kStage2},
    {"deepspeed-parameters-of-stage-3", "llama-3.2-1b",
     [](RunSpec& run) { run.parallel.offload_parameters = OffloadTo::kHost; }, kStage2},
    // Ulysses
    {"deepspeed-cp-is-ulysses", "llama-3.2-1b",
     [](RunSpec& run) { run.parallel.context_type = ContextParallel::kRing; }, kUlysses},
    {"ulysses-families", "gemma-2b", [](RunSpec& run) { run.parallel.context = 2; },
     [] {
       RunOptions options = zero(DataParallel::kDsZero3);
       options.sequence_length = 96;
       options.parallel.context_type = ContextParallel::kUlysses;
       return options;
     }()},
    {"ulysses-families", "llama-3.2-1b", [](RunSpec& run) { run.task = Task::kSequenceClassification; }, kUlysses},
    {"ulysses-splits-heads", "llama-3.2-1b", [](RunSpec& run) { run.parallel.gpus = run.parallel.context = 3; },
     kUlysses},
    {"ulysses-splits-key-value-heads", "qwen2.5-1.5b",  // 12 heads, 2 key/value heads
     [](RunSpec& run) { run.parallel.gpus = run.parallel.context = 3; }, kUlysses},
    {"ulysses-splits-sequence", "llama-3.2-1b", [](RunSpec& run) { run.sequence_length = 97; }, kUlysses},
    {"ulysses-attention", "llama-3.2-1b", [](RunSpec& run) { run.attention = Attention::kEager; }, kUlysses},
    {"ulysses-padding", "llama-3.2-1b", [](RunSpec& run) { run.padding = true; }, kUlysses},
    {"ulysses-liger", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.liger = true; }, kUlysses},
    {"ulysses-selective-checkpointing", "llama-3.2-1b",
     [](RunSpec& run) { run.training().checkpointing = Checkpointing::kSelective; }, kUlysses},
};

TEST(RulesOfDeepSpeed, EachIsBrokenByARun) { test::expect_each_rule_broken(rules_of_deepspeed(), kCases); }

TEST(RulesOfDeepSpeed, APrecisionThatTheLoopHasStandsFirst) {
  const auto refusal = [](Loop loop, Precision precision) -> std::string {
    RunOptions options = kInTrainer;
    options.loop = loop;
    options.precision = precision;
    return error_text([&] { (void)resolve(test::model_of("llama-3.2-1b"), options); });
  };
  const auto accepts = [](const std::string& first) { return testing::HasSubstr("accepted: --precision " + first); };
  EXPECT_THAT(refusal(Loop::kTrainer, Precision::kFp16), accepts("amp-fp16, amp-bf16 or fp32, or --loop bare"));
  EXPECT_THAT(refusal(Loop::kTrainer, Precision::kBf16), accepts("amp-bf16, amp-fp16 or fp32, or --loop bare"));
  EXPECT_THAT(refusal(Loop::kTrlSft, Precision::kAmpFp16), accepts("amp-bf16 or fp32 (--loop trainer: amp-fp16, too)"));
}

TEST(RulesOfDeepSpeed, ThirdStageOffloadsAllToEitherPlace) {
  const ModelSpec model = test::model_of("llama-3.2-1b");
  for (const OffloadTo place : {OffloadTo::kHost, OffloadTo::kNvme}) {
    RunOptions options = zero(DataParallel::kDsZero3);
    options.loop = Loop::kBare;
    options.parallel.offload_states = options.parallel.offload_parameters = place;
    EXPECT_NO_THROW((void)resolve(model, options));
  }
}

}  // namespace
}  // namespace memcalc
