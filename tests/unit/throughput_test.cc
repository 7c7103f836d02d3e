// report/throughput.h, and the FLOPs that cost() gives it: shares of the peak that are never above 1; numbers that
// cannot be.
#include "memcalc/report/throughput.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "memcalc/base/error.h"
#include "memcalc/cost/cost.h"
#include "memcalc/memcalc.h"
#include "memcalc/spec/registry.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// 1 s on a card of 100 FLOP/s.
StepTime step(double model_flops, double masked, double recomputed = 0) {
  StepTime step;
  step.step_seconds = 1;
  step.peak_flops_per_second = 100;
  step.model_flops = model_flops;
  step.hardware_flops = model_flops + recomputed;
  step.masked_model_flops = step.masked_hardware_flops = masked;
  return step;
}

Report report_of(const StepTime& step) {
  Report report;
  report.run.batch_size = 1;
  report.run.sequence_length = 1024;
  set_time(report, step);
  return report;
}

TEST(Throughput, OfBatchesAsWideAsTheirTextsTheAverageStepsTokensCount) {
  Report report;
  report.run.batch_size = 2;
  report.run.sequence_length = 1024;
  set_time(report, step(40, 0));
  EXPECT_EQ(report.time->tokens_per_second, 2048);

  report.run.training().lengths.emplace();
  report.epoch = EpochMemory{.steps = 10, .average_samples = 8, .average_tokens = 900};
  report.run.parallel.gpus = 2;
  set_time(report, step(40, 0));
  EXPECT_EQ(report.time->samples_per_second, 16) << "two ranks, the other taken to be like this one";
  EXPECT_EQ(report.time->tokens_per_second, 1800);
  EXPECT_EQ(training_run_of(report, 18000).steps, 10);

  report.epoch.reset();
  set_time(report, step(40, 0));
  EXPECT_EQ(report.time->tokens_per_second, 0) << "not those of --seq";
  EXPECT_THROW((void)training_run_of(report, 1e9), Error);
}

TEST(Throughput, EachAnswerToAPromptHasTokensOfItsOwn) {
  Report report;
  report.run.batch_size = 2;
  report.run.purpose = Inference{.new_tokens = 9, .return_sequences = 3};
  set_time(report, step(40, 0));
  EXPECT_EQ(report.time->tokens_per_second, 54);
}

TEST(Throughput, TheStepOfADataSetHasTheTokensOfItsBatches) {
  const ModelSpec& model = registry().model("bert-base");
  RunOptions options{.batch_size = 2, .loop = Loop::kTrainer};
  options.task = Task::kSequenceClassification;
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "memcalc_throughput.txt";
  std::ofstream(path) << "30\n30\n30\n30\n";
  options.lengths = path.string();
  const Report report = estimate(model, resolve(model, options).run, registry().device("h200-sxm"));
  EXPECT_EQ(report.epoch->average_samples, 2);
  EXPECT_EQ(report.epoch->average_tokens, 60);
  EXPECT_NEAR(report.time->tokens_per_second, 60 / report.time->step.step_seconds, 1e-6);
  EXPECT_NEAR(report.time->samples_per_second, 2 / report.time->step.step_seconds, 1e-6);
}

constexpr Operator kOp{"aten::_cudnn_attention_forward"};

DeviceSpec card(double bf16_flops_per_second) {
  DeviceSpec device;
  device.multiprocessors = 100;
  device.memory_bandwidth_bytes_per_second = 1e12;
  device.fp32_flops_per_second = 1e15;
  device.bf16_flops_per_second = bf16_flops_per_second;
  return device;
}

Kernel product(DType dtype, double flops) {
  Kernel product;
  product.op = &kOp;
  product.operator_class = OperatorClass::kContraction;
  product.kind = KernelKind::kCudnnAttention;
  product.dtype = dtype;
  product.flops = flops;
  return product;
}

// Of 100 + 2 x 50 FLOPs of causal attention the half is above the diagonal: also of those that its kernel's parts have.
TEST(StepFlops, FlopsAboveTheDiagonal) {
  KernelList list = {product(DType::kBFloat16, 100), product(DType::kBFloat16, 50), product(DType::kBFloat16, 50),
                     product(DType::kBFloat16, 40)};
  list[0].work = work::Attention{.causal = true};
  list[1].kind = list[2].kind = KernelKind::kPartOfPrevious;
  list[2].recomputed = list[3].recomputed = true;
  const StepTime time = cost(list, card(1e15), DeviceRates{});
  EXPECT_EQ(time.model_flops, 150);
  EXPECT_EQ(time.masked_model_flops, 75);
  EXPECT_EQ(time.hardware_flops, 240);
  EXPECT_EQ(time.masked_hardware_flops, 100);
}

// The peak is that of the type of most FLOPs; unless the others' rate is so high that more is computed than it allows.
TEST(StepFlops, ThePeakOfMixedTypes) {
  const DeviceSpec fast_halves = card(100e15);
  KernelList list = {product(DType::kBFloat16, 1e6), product(DType::kFloat32, 2e6)};
  const StepTime slow = cost(list, fast_halves, DeviceRates{});
  EXPECT_EQ(slow.peak_flops_per_second, 1e15);
  list = {product(DType::kBFloat16, 0.9e18), product(DType::kFloat32, 1e18)};
  list[1].kind = KernelKind::kPartOfPrevious;
  const StepTime fast = cost(list, fast_halves, DeviceRates{});
  EXPECT_EQ(fast.peak_flops_per_second, 100e15);
}

TEST(Throughput, MfuCountsCausalAttentionInFullWhileItFits) {
  const Report report = report_of(step(80, 30));
  EXPECT_DOUBLE_EQ(report.time->mfu, 0.8);
  EXPECT_DOUBLE_EQ(report.time->hfu, 0.8);
  EXPECT_TRUE(report.assumptions.empty());
}

TEST(Throughput, MfuLeavesTheMaskedHalfOutWhereItWouldExceedOne) {
  Report report = report_of(step(120, 50));
  EXPECT_DOUBLE_EQ(report.time->mfu, 0.7);
  ASSERT_EQ(report.assumptions.size(), 1U);
  EXPECT_NE(report.assumptions.front().find("the half that is computed"), std::string::npos);
  set_time(report, step(120, 50));
  EXPECT_EQ(report.assumptions.size(), 1U);  // once
  const Report recomputed = report_of(step(90, 40, 20));
  EXPECT_DOUBLE_EQ(recomputed.time->mfu, 0.5);  // as HFU: else the two could not be compared
  EXPECT_DOUBLE_EQ(recomputed.time->hfu, 0.7);
}

std::string refusal(const Report& report, double tokens) {
  try {
    (void)training_run_of(report, tokens);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Throughput, SaysWhereTheRatesOfACardAreFrom) {
  const auto rates_from = [&](const char* card) {
    Report report;
    report.device = registry().device(card);
    set_time(report, step(40, 0));
    return report.time->rates_from;
  };
  EXPECT_EQ(rates_from("h100"), "");
  EXPECT_EQ(rates_from("rtx-4090"), "an H100's by the datasheet, products by what others timed on this card");
  EXPECT_EQ(rates_from("rtx-4090"), rates_from("4090")) << "the second is read from memory";
  EXPECT_TRUE(rates_from("b200").starts_with("what MooreThreads/SimuMax ")) << rates_from("b200");
}

TEST(TrainingRun, TokensThatCannotBeAreRefused) {
  const Report report = report_of(step(80, 30));
  EXPECT_EQ(refusal(report, 1e30), "--tokens: found 1e+30; accepted: 1 to 1e+18 tokens");
  for (const double tokens : {0.0, -1.0, 0.5, 1.1e18, kNan, kInfinity}) EXPECT_NE(refusal(report, tokens), "");
  for (const double tokens : {1.0, 1.5e12, 1e18}) EXPECT_EQ(refusal(report, tokens), "");
}

TEST(Throughput, SaysWhatAStepLacksInsteadOfAnError) {
  Report report;
  report.run.parallel.offload_states = OffloadTo::kNvme;
  set_time(report, step(40, 0));
  EXPECT_EQ(report.time->lacks, "the optimizer's step on NVMe");
  EXPECT_FALSE(report.time->error);
  report.time->tokens_per_second = 1;
  EXPECT_EQ(refusal(report, 1e9),
            "--tokens: found a step whose time lacks the optimizer's step on NVMe; accepted: steps whose time is "
            "known as a whole");
}

TEST(InputPipeline, NumbersThatCannotBeAreRefused) {
  const InputPipeline good{.sample_seconds = 0.1, .sample_bytes = 1e5, .storage_bytes_per_second = 1e9};
  Report report = report_of(step(80, 30));
  EXPECT_NO_THROW(feed(report, good));
  for (const double value : {kNan, kInfinity, -1.0, 2e18}) {
    for (double InputPipeline::*const member :
         {&InputPipeline::sample_seconds, &InputPipeline::sample_bytes, &InputPipeline::storage_bytes_per_second}) {
      InputPipeline bad = good;
      bad.*member = value;
      EXPECT_THROW(feed(report, bad), Error) << value;
    }
  }
}

}  // namespace
}  // namespace memcalc
