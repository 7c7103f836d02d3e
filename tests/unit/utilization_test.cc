// plan/utilization.h: the two known measures with their published examples, logs, and a trace worked out by hand.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "memcalc/plan/utilization.h"

namespace memcalc {
namespace {

double fact(const Answer& answer, const std::string& key) {
  for (const Fact& each : answer.facts) {
    if (each.key == key) return std::get<double>(each.value);
  }
  ADD_FAILURE() << "no fact " << key;
  return 0;
}

TEST(Utilization, AchievedOverPeak) {  // 100 TFLOP/s on an A100's 312 is 32.05 %
  const JobFigures job{.achieved_flops_per_second = 100e12, .peak_flops_per_second = 312e12};
  EXPECT_NEAR(fact(answer_of(job, std::nullopt, nullptr), "mfu"), 0.3205, 5e-5);
}

TEST(Utilization, ThroughputOverReference) {  // 3 samples/s of 2048 tokens on 4 GPUs; of 3300 that is 46.5 %
  const JobFigures job{
      .samples_per_second = 3, .sequence_length = 2048, .gpus = 4, .reference_tokens_per_second = 3300};
  const Answer answer = answer_of(job, std::nullopt, nullptr);
  EXPECT_DOUBLE_EQ(fact(answer, "tokens_per_second_per_gpu"), 1536);
  EXPECT_NEAR(fact(answer, "share_of_reference"), 0.465, 5e-4);
}

std::string refusal(const JobFigures& job) {
  try {
    (void)answer_of(job, std::nullopt, nullptr);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Utilization, FiguresThatCannotBeAreRefused) {
  EXPECT_EQ(refusal({.achieved_flops_per_second = 1e14, .peak_flops_per_second = 0}),
            "--peak: found 0; accepted: 1 to 1e+20 FLOP/s");
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {0.0, -1.0, kNan, kInfinity, 1e300}) {
    EXPECT_NE(refusal({.achieved_flops_per_second = value, .peak_flops_per_second = 1e14}), "") << value;
    EXPECT_NE(refusal({.samples_per_second = value, .sequence_length = 1}), "") << value;
    EXPECT_NE(refusal({.tokens_per_second = value}), "") << value;
    EXPECT_NE(refusal({.tokens_per_second = 1, .reference_tokens_per_second = value}), "") << value;
  }
  EXPECT_EQ(refusal({.achieved_flops_per_second = 312e12, .peak_flops_per_second = 312e12}), "");
  EXPECT_NE(refusal({.achieved_flops_per_second = 313e12, .peak_flops_per_second = 312e12})
                .find("313 TFLOP/s achieved on a card of 312 TFLOP/s"),
            std::string::npos);
}

// A model's step of 4 samples of 1000 tokens has 8e15 FLOPs: 1000 tokens/s are 2e15 FLOP/s.
TEST(Utilization, TokensOfAKnownModelOverAPeak) {
  Report report;
  report.run.batch_size = 4;
  report.run.sequence_length = 1000;
  report.flops[0] = {OperatorClass::kContraction, 2e15, 6e15, 9e15, 1e15, 0};  // recomputed and the optimizer's: not
  JobFigures job{.peak_flops_per_second = 4e15, .tokens_per_second = 1000};
  Answer answer = answer_of(job, std::nullopt, &report);  // no time is known of the card
  EXPECT_DOUBLE_EQ(fact(answer, "mfu"), 0.5);
  EXPECT_EQ(answer.headline, "Utilisation: 50.00 % of the card's peak.");
  report.time = Throughput{};
  report.time->step.model_flops = 4e15;
  answer = answer_of(job, std::nullopt, &report);
  EXPECT_DOUBLE_EQ(fact(answer, "mfu"), 0.25);
  job.gpus = 2;  // the run of one card stands for each
  EXPECT_DOUBLE_EQ(fact(answer_of(job, std::nullopt, &report), "mfu"), 0.125);
  job.peak_flops_per_second.reset();
  EXPECT_EQ(answer_of(job, std::nullopt, &report).headline,
            "Throughput alone: no peak of the card is known; give --peak.");
}

TEST(Utilization, SaysWhatAShareLacks) {
  const JobFigures with_peak{.peak_flops_per_second = 1e15, .tokens_per_second = 1000};
  EXPECT_EQ(answer_of(with_peak, std::nullopt, nullptr).headline,
            "Throughput alone: beside a peak it takes the FLOPs of a token; give --model or --achieved.");
  EXPECT_EQ(answer_of({.tokens_per_second = 1000}, std::nullopt, nullptr).headline,
            "Throughput alone: no reference or peak was given (--reference, --peak).");
}

TEST(Utilization, FromALog) {
  struct Case {
    const char* text;
    double tokens;
    double samples;
  };
  constexpr Case kCases[] = {
      {"{'train_runtime': 10.0, 'train_samples_per_second': 3.0, 'train_steps_per_second': 1}", 0, 3},
      {"step 1 tokens/s: 100\nstep 2 tokens/s: 250.5", 250.5, 0},
      {"loss 3.0", 0, 0},
      {"tokens/s: nan samples/s: inf", 0, 0},  // of a job that diverged, or was too short to time
      {"tokens/s: 1e999 samples/s: -3", 0, 0},
  };
  for (const Case& each : kCases) {
    JobFigures job;
    read_log(each.text, job);
    EXPECT_EQ(job.tokens_per_second.value_or(0), each.tokens) << each.text;
    EXPECT_EQ(job.samples_per_second.value_or(0), each.samples) << each.text;
  }
}

TEST(Utilization, NothingToSayIsRefused) { EXPECT_THROW((void)answer_of(JobFigures{}, std::nullopt, nullptr), Error); }

// Two kernels that overlap by 1 us, a gap of 2 us, a copy: 10 us in all, 8 of them busy.
constexpr const char* kTrace = R"json({"traceEvents": [
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 50},
  {"ph": "X", "cat": "kernel", "name": "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NTT", "ts": 100, "dur": 4},
  {"ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4>", "ts": 103, "dur": 3},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD (Device -> Device)", "ts": 108, "dur": 2}]})json";

TEST(Utilization, TraceByHand) {
  const TraceSummary trace = read_chrome_trace(kTrace, "t");
  EXPECT_EQ(trace.kernels, 3);
  EXPECT_NEAR(trace.wall_seconds, 10e-6, 1e-12);
  EXPECT_NEAR(trace.busy_seconds, 8e-6, 1e-12);
  EXPECT_NEAR(trace.tensor_core_seconds, 4e-6, 1e-12);
  EXPECT_NEAR(trace.by_class[static_cast<std::size_t>(TimeClass::kMovement)], 2e-6, 1e-12);
  EXPECT_NEAR(fact(answer_of({}, trace, nullptr), "idle_share"), 0.2, 1e-9);
  EXPECT_THROW((void)read_chrome_trace(R"({"traceEvents": []})", "t"), Error);
  // A duration that vanishes beside its time stamp: all shares of the profile would be 0 / 0.
  constexpr const char* kNoTime = R"({"traceEvents": [{"cat": "kernel", "name": "k", "ts": 1e17, "dur": 1e-9}]})";
  EXPECT_THROW((void)read_chrome_trace(kNoTime, "t"), Error);
}

TEST(Utilization, KernelNames) {
  struct Case {
    const char* name;
    bool tensor_cores;
    TimeClass time_class;
  };
  constexpr Case kCases[] = {
      {"ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn", true, TimeClass::kContraction},
      {"ampere_sgemm_128x64_nn", false, TimeClass::kContraction},
      {"cutlass_80_simt_sgemm_128x32_8x5_nn_align1", false, TimeClass::kContraction},
      {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", true, TimeClass::kContraction},
      {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>", false, TimeClass::kOptimizer},
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL", false, TimeClass::kCommunication},
      {"void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>", false, TimeClass::kNormalization},
  };
  for (const Case& each : kCases) {
    EXPECT_EQ(is_tensor_core_kernel(each.name), each.tensor_cores) << each.name;
    EXPECT_EQ(class_of_kernel(each.name), each.time_class) << each.name;
  }
}

}  // namespace
}  // namespace memcalc
