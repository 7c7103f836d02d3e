// plan/utilization.h: the two known measures with their published examples, logs, and a trace worked out by hand.
#include <gtest/gtest.h>

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
