// train/step_patterns: the steps of a training with batches of many lengths, most of which a model of few layers tells.
// Their trace is that of every step executed, event by event.
#include "memcalc/train/step_patterns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/train/every_step.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

struct Case {
  std::string name;
  std::string model;
  RunOptions options;
};

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

RunOptions with_lengths(RunOptions options, const std::string& lengths) {
  options.lengths = lengths;
  options.weights_dtype = DType::kBFloat16;
  return options;
}

class ToldSteps : public ::testing::TestWithParam<Case> {};

TEST_P(ToldSteps, AreThoseThatAreExecuted) {
  const ModelSpec& model = registry().model(GetParam().model);
  const DeviceSpec& card = registry().device("h100-sxm");
  const ResolvedRun run = resolve(model, GetParam().options);
  const SymbolicRun told = run_symbolically(model, run.run, card);
  const SymbolicRun executed = run_every_step(model, run.run, card);
  ASSERT_EQ(told.trace.blocks.size(), executed.trace.blocks.size());
  ASSERT_EQ(told.trace.events.size(), executed.trace.events.size());
  for (std::size_t i = 0; i < told.trace.blocks.size(); ++i) {
    const Block &a = told.trace.blocks[i], &b = executed.trace.blocks[i];
    ASSERT_EQ(a.requested, b.requested) << "block " << i;
    ASSERT_EQ(a.category, b.category) << "block " << i;
    ASSERT_EQ(a.stream, b.stream) << "block " << i;
  }
  for (std::size_t i = 0; i < told.trace.events.size(); ++i) {
    const Event &a = told.trace.events[i], &b = executed.trace.events[i];
    ASSERT_TRUE(a.op == b.op && a.node == b.node && a.block == b.block) << "event " << i;
    ASSERT_TRUE(a.kind == b.kind && a.phase == b.phase && a.step == b.step) << "event " << i;
  }
  EXPECT_EQ(told.kernels.size(), executed.kernels.size());
}

INSTANTIATE_TEST_SUITE_P(
    OfTrainers, ToldSteps,
    ::testing::Values(
        Case{"Sft", "qwen2.5-0.5b",
             with_lengths({.batch_size = 4, .sequence_length = 1024, .loop = Loop::kTrlSft},
                          "lognormal:200,0.6,1024,400")},
        Case{"SftWithAdapters", "llama-3.2-1b",
             [] {
               RunOptions options{.batch_size = 2, .sequence_length = 1024, .loop = Loop::kTrlSft};
               options.lora_rank = 8;
               options.accumulation_steps = 3;
               return with_lengths(options, "lognormal:300,0.8,1024,350");
             }()},
        Case{"TrainerOfGpt2", "gpt2",
             with_lengths(
                 {.batch_size = 8, .sequence_length = 512, .precision = Precision::kAmpBf16, .loop = Loop::kTrainer},
                 "lognormal:100,0.9,512,900")},
        Case{"TrainerWithSeveralEpochs", "bert-base",
             [] {
               RunOptions options{
                   .batch_size = 4, .sequence_length = 512, .precision = Precision::kAmpBf16, .loop = Loop::kTrainer};
               options.accumulation_steps = 2;
               options.steps = 150;
               return with_lengths(options, "lognormal:100,0.9,512,410");
             }()}),
    name_of_case);

// transformers 5.5: _run_epoch() returns, and its variables are gone before the next epoch's first batches are there.
TEST(Epochs, DropTheirLastStepsVariables) {
  const ModelSpec& model = registry().model("gpt2");
  const auto first_of_step_13 = [&](bool drops) {
    RunOptions options{.batch_size = 8, .sequence_length = 64, .loop = Loop::kTrainer};
    options.steps = 15;
    RunSpec run = resolve(model, with_lengths(options, "lognormal:20,0.5,64,100")).run;
    run.profile.behaviors.drops_with_epoch = drops;
    const Trace trace = run_symbolically(model, run, registry().device("h100-sxm")).trace;
    const auto first = std::find_if(trace.events.begin(), trace.events.end(),
                                    [](const Event& event) { return event.moves_block() && event.step == 13; });
    return first->kind;
  };
  EXPECT_EQ(first_of_step_13(true), EventKind::kFree);
  EXPECT_EQ(first_of_step_13(false), EventKind::kAllocate);
}

}  // namespace
}  // namespace memcalc
