// train/trl/vllm, report/vllm_on_card: vLLM beside GRPOTrainer and RLOOTrainer, and as a server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/plan/ladder.h"
#include "memcalc/train/step.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using test::registry;

RunOptions grpo(VllmMode mode) {
  return {.batch_size = 4,
          .sequence_length = 64,
          .weights_dtype = DType::kBFloat16,
          .loop = Loop::kTrlGrpo,
          .accumulation_steps = 2,
          .completion_length = 16,
          .vllm = mode};
}

SymbolicRun simulated(const RunOptions& options) {
  const ModelSpec& model = registry().model("qwen2.5-0.5b");
  return run_symbolically(model, resolve(model, options).run, registry().device("h200-sxm"));
}

Report reported(const RunOptions& options, const char* name = "qwen2.5-0.5b", const char* card = "h200-sxm") {
  const ModelSpec& model = registry().model(name);
  return estimate(model, resolve(model, options), registry().device(card));
}

std::vector<Event> allocations(const Trace& trace, Category category) {
  std::vector<Event> found;
  for (const Event& event : trace.events) {
    if (event.kind != EventKind::kAllocate) continue;
    if (trace.blocks[static_cast<std::size_t>(event.block)].category == category) found.push_back(event);
  }
  return found;
}

TEST(Vllm, TheTrainerKeepsNoKeysAndValuesAndScoresEveryCompletionOnceMore) {
  const SymbolicRun by_vllm = simulated(grpo(VllmMode::kColocate));
  EXPECT_TRUE(allocations(by_vllm.trace, Category::kKeyValueCache).empty());
  EXPECT_FALSE(allocations(simulated(grpo(VllmMode::kNone)).trace, Category::kKeyValueCache).empty());
  // The ratio of each of 8 completions is made in each of 3 steps (masked_fill, [8, 1] float32).
  const auto& blocks = by_vllm.trace.blocks;
  const auto ratios = std::count_if(by_vllm.trace.events.begin(), by_vllm.trace.events.end(), [&](const Event& event) {
    return event.kind == EventKind::kAllocate && event.op != nullptr &&
           std::string(event.op->name) == "aten::masked_fill" &&
           blocks[static_cast<std::size_t>(event.block)].requested == 8 * 4;
  });
  EXPECT_EQ(ratios, 3);
}

TEST(Vllm, ASleeperEmptiesTheTrainersCacheInEveryStep) {
  const auto emptied = [](const RunOptions& options) {
    const Trace trace = simulated(options).trace;
    return std::count_if(trace.events.begin(), trace.events.end(),
                         [](const Event& event) { return event.kind == EventKind::kEmptyCache && event.step >= 0; });
  };
  RunOptions sleeps = grpo(VllmMode::kColocate);
  sleeps.vllm_sleep = true;
  EXPECT_EQ(emptied(sleeps), 3 * 4) << "three steps of sync_weights, wake_up twice, sleep";
  EXPECT_EQ(emptied(grpo(VllmMode::kColocate)), 0);
}

TEST(Vllm, AServerIsSentAGibibyteAtATimeOnStreamsThatAreNewInEachUpdate) {
  RunOptions options = grpo(VllmMode::kServer);
  options.weights_dtype = DType::kFloat32;
  const SymbolicRun run = simulated(options);
  const std::vector<Event> sent = allocations(run.trace, Category::kCommunication);
  ASSERT_EQ(sent.size(), 3 * 2U);
  Bytes bytes = 0;
  std::set<CudaStream> streams;
  for (const Event& event : sent) {
    const Block& block = run.trace.blocks[static_cast<std::size_t>(event.block)];
    bytes += block.requested;
    streams.insert(block.stream);
  }
  EXPECT_EQ(bytes, 3 * 494'032'768 * Bytes{4});
  EXPECT_EQ(streams.size(), 3 * 2U);
  EXPECT_GT(run.trace.blocks[static_cast<std::size_t>(sent[0].block)].requested, Bytes{1} << 30) << "the last is in it";
}

TEST(Vllm, AdaptersAreMergedBeforeTheWeightsGoAndTakenOutAfterwards) {
  RunOptions options = grpo(VllmMode::kColocate);
  options.lora_rank = 8;
  const SymbolicRun run = simulated(options);
  // delta_weight of gate_proj, up_proj and down_proj, [4864, 896] in the adapters' float32: the product and its
  // multiple, in and out, in 24 layers and 3 steps.
  const Bytes bytes = Bytes{4864} * 896 * 4;
  const auto made = std::count_if(run.trace.events.begin(), run.trace.events.end(), [&](const Event& event) {
    return event.kind == EventKind::kAllocate && event.step >= 0 && event.node == nullptr &&
           run.trace.blocks[static_cast<std::size_t>(event.block)].requested == bytes;
  });
  EXPECT_EQ(made, 3 * (2 + 2) * 24 * 3);
}

TEST(Vllm, MergingOnAServersStreamsTakesAWorkspaceEachTime) {
  RunOptions options = grpo(VllmMode::kServer);
  const auto workspaces = [&] {
    const Trace trace = simulated(options).trace;
    const std::vector<Event> taken = allocations(trace, Category::kWorkspaces);
    return std::count_if(taken.begin(), taken.end(), [&](const Event& event) {
      return trace.blocks[static_cast<std::size_t>(event.block)].stream != CudaStream::kDefault;
    });
  };
  EXPECT_EQ(workspaces(), 0);
  options.lora_rank = 8;
  EXPECT_EQ(workspaces(), 3) << "0.92 GiB of weights are one buffer, merged and taken apart on one stream";
  options.weights_dtype = DType::kFloat32;
  EXPECT_EQ(workspaces(), 2 * 3) << "two buffers: taken apart on the second one's stream";
}

TEST(Vllm, AsksForItsShareOfTheWholeCard) {
  RunOptions options = grpo(VllmMode::kColocate);
  options.vllm_max_length = 64;
  const Report report = reported(options);
  ASSERT_TRUE(report.vllm.has_value());
  const VllmMemory& vllm = *report.vllm;
  EXPECT_EQ(vllm.requested, (report.device.memory_bytes * 3 + 9) / 10);
  EXPECT_EQ(vllm.weights, 494'032'768 * Bytes{2});
  EXPECT_EQ(vllm.cache_per_token, Bytes{24} * 2 * 2 * 64 * 2) << "layers, keys and values, heads, width, 16 bits";
  EXPECT_EQ(vllm.activations, Bytes{4096} * 2 * (2 * 896 + 3 * 4864));
  EXPECT_EQ(vllm.cache_of_longest, 64 * vllm.cache_per_token);
  EXPECT_EQ(vllm.sequences, 8);
  EXPECT_EQ(vllm.cache_of_all, 8 * 64 * vllm.cache_per_token);
  EXPECT_EQ(vllm.cache % (16 * vllm.cache_per_token), 0);
  EXPECT_LE(vllm.weights + vllm.activations + vllm.cache, vllm.requested);
  EXPECT_TRUE(vllm.starts);
  EXPECT_EQ(vllm.while_training, vllm.while_generating);
  EXPECT_EQ(*report.device_used_bytes, vllm.while_training);
  EXPECT_LE(vllm.utilization.least, vllm.utilization.least_for_all);
  EXPECT_LT(vllm.utilization.least_for_all, vllm.utilization.most);
}

TEST(Vllm, TheRangeOfUtilizationIsWhatLetsBothRun) {
  RunOptions options = grpo(VllmMode::kColocate);
  options.vllm_max_length = 64;
  const UtilizationRange range = reported(options).vllm->utilization;
  for (const double inside : {range.least, range.most}) {
    options.vllm_utilization = inside;
    const Report report = reported(options);
    EXPECT_TRUE(report.vllm->starts) << inside;
    EXPECT_LE(report.needed(), report.device.usable_bytes()) << inside;
  }
  options.vllm_utilization = range.least - 0.01;
  EXPECT_FALSE(options.vllm_utilization > 0 && reported(options).vllm->starts);
  options.vllm_utilization = range.most + 0.01;
  EXPECT_GT(reported(options).needed(), reported(options).device.usable_bytes());
}

TEST(Vllm, WhileItSleepsTheCardIsTheTrainers) {
  RunOptions options = grpo(VllmMode::kColocate);
  options.vllm_max_length = 64;
  const Report awake = reported(options);
  options.vllm_sleep = true;
  const Report sleeps = reported(options);
  EXPECT_LT(sleeps.vllm->while_training, awake.vllm->while_training - sleeps.vllm->requested / 2);
  EXPECT_LT(sleeps.vllm->while_generating, awake.vllm->while_generating) << "the trainer's cache is emptied first";
  EXPECT_GE(sleeps.vllm->utilization.most, awake.vllm->utilization.most);
  EXPECT_EQ(*sleeps.device_used_bytes, std::max(sleeps.vllm->while_training, sleeps.vllm->while_generating));
}

TEST(Vllm, DoesNotStartWhereItsCacheIsTooSmallOrTooLittleIsFree) {
  RunOptions options = grpo(VllmMode::kColocate);
  options.vllm_utilization = 0.02;  // 32,768 tokens of 12 KiB and a gibibyte of weights in 2.8 GiB: it does
  EXPECT_TRUE(reported(options).vllm->starts);
  options.vllm_utilization = 0.01;
  const Report small = reported(options);
  EXPECT_FALSE(small.vllm->starts);
  EXPECT_EQ(small.verdict, Verdict::kDoesNotFit);
  EXPECT_FALSE(small.full_card.has_value()) << "the card is not full";
  EXPECT_THAT(render(small, Format::kText), HasSubstr("Does NOT run on h200-sxm: vLLM does not start: its cache"));
  EXPECT_THAT(small.vllm->notes, Contains(HasSubstr("32,768 tokens")));
  EXPECT_THAT(small.vllm->notes, Contains(HasSubstr("--vllm-max-length 64")));
  options.vllm_utilization = 1;
  const Report large = reported(options);
  EXPECT_FALSE(large.vllm->starts);
  EXPECT_THAT(large.vllm->notes, Contains(HasSubstr("Free memory on device")));
}

TEST(Vllm, RemediesShortenItsSequencesTakeALesserShareOrLetItSleep) {
  const auto remedies = [](RunOptions options, const char* name, const char* card) {
    options.sequence_length = 1024;
    options.completion_length = 512;
    return remedies_for(reported(options, name, card));
  };
  RunOptions options = grpo(VllmMode::kColocate);
  const std::vector<Remedy> of_8b = remedies(options, "llama-3.1-8b", "h100-sxm");
  ASSERT_FALSE(of_8b.empty());
  EXPECT_THAT(of_8b.front().techniques,
              ElementsAre("vLLM's longest sequence as long as --seq", "vLLM sleeps while the model trains"));
  EXPECT_THAT(of_8b.front().command, HasSubstr("--vllm-sleep --vllm-max-length 1024"));
  options.vllm_utilization = 0.5;
  const std::vector<Remedy> of_small = remedies(options, "qwen2.5-1.5b", "rtx-4090");
  ASSERT_FALSE(of_small.empty());
  EXPECT_THAT(of_small.front().command, HasSubstr("--vllm-utilization 0.25"));
  for (const std::vector<Remedy>& each : {of_8b, of_small}) {
    for (const Remedy& remedy : each) {
      EXPECT_EQ(remedy.verdict, Verdict::kFits);
      EXPECT_THAT(remedy.command, HasSubstr("--loop trl-grpo")) << "a plain loop would be another job";
    }
  }
}

TEST(Vllm, CacheAndWeightsAreThoseOfOthersLogs) {
  constexpr double kGibibyte = 1 << 30;
  RunOptions options = grpo(VllmMode::kColocate);
  // LMCache issue 3430 (2026-05): Qwen3-8B, "Available KV cache memory: 6.37 GiB", "GPU KV cache size: 46,368 tokens".
  const VllmMemory qwen = *reported(options, "qwen3-8b").vllm;
  EXPECT_NEAR(static_cast<double>(46'368 * qwen.cache_per_token) / kGibibyte, 6.37, 0.005);
  // vLLM pull request 10511 (2024-12): Meta-Llama-3-8B, "model weights take 14.96GiB".
  const VllmMemory llama = *reported(options, "llama-3.1-8b").vllm;
  EXPECT_NEAR(static_cast<double>(llama.weights) / kGibibyte, 14.96, 0.005);
}

TEST(Vllm, LayersWithAWindowKeepNoMoreThanThatAndWhatIsBeingComputed) {
  RunOptions options = grpo(VllmMode::kColocate);
  options.vllm_max_length = 32768;
  const Report report = reported(options, "gemma-3-1b");
  // 4 of 26 layers see all; the others 512 tokens and two batches of 4,096; blocks of 16 tokens, one head of 256.
  const Bytes block = Bytes{16} * 2 * 256 * 2;
  EXPECT_EQ(report.vllm->cache_of_longest, block * (4 * 2048 + 22 * ((511 + 8192 + 15) / 16 + 1)));
}

TEST(Vllm, ItsBytesAreInEveryFormatAndNotInAServersReport) {
  RunOptions options = grpo(VllmMode::kColocate);
  const Report report = reported(options);
  EXPECT_THAT(render(report, Format::kText), HasSubstr("vLLM on the same card"));
  EXPECT_THAT(render(report, Format::kJson), HasSubstr("\"least_for_all\""));
  EXPECT_THAT(render(report, Format::kCsv), HasSubstr("vllm,most_utilization"));
  options.vllm = VllmMode::kServer;
  EXPECT_FALSE(reported(options).vllm.has_value());
}

}  // namespace
}  // namespace memcalc
