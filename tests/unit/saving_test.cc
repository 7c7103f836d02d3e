// What a run saves and where: checkpointing of some layers, selective, activations on the host, host memory, and what
// is refused. The streams of real runs: stream_test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memcalc/memcalc.h"
#include "support/error_text.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

using ::testing::HasSubstr;

Report report_of(RunOptions options, const char* name = "gpt2") {
  options.batch_size = 4;
  options.sequence_length = 256;
  if (!options.loop) options.loop = Loop::kBare;
  const ModelSpec model = registry().model(name);
  return estimate(model, resolve(model, options), registry().device("h100-sxm"));
}

Bytes backward_peak(const RunOptions& options, const char* name = "gpt2") {
  return report_of(options, name).memory.phase_peaks[static_cast<std::size_t>(Phase::kBackward)];
}

TEST(Saving, EveryNthLayerLiesBetweenAllAndNone) {
  const Bytes none = backward_peak({});
  const Bytes all = backward_peak({.checkpointing = Checkpointing::kFull});
  const Bytes second = backward_peak({.checkpointing = Checkpointing::kFull, .checkpoint_every = 2});
  const Bytes third = backward_peak({.checkpointing = Checkpointing::kFull, .checkpoint_every = 3});
  EXPECT_LT(all, second);
  EXPECT_LT(second, third);
  EXPECT_LT(third, none);
}

TEST(Saving, SelectiveCheckpointingKeepsMoreThanFullAndRecomputesLess) {
  const Report full = report_of({.checkpointing = Checkpointing::kFull}, "llama-3.2-1b");
  const Report selective = report_of({.checkpointing = Checkpointing::kSelective}, "llama-3.2-1b");
  const auto recomputed = [](const Report& report) { return report.flops[0].recomputation; };
  EXPECT_GT(recomputed(selective), 0);
  EXPECT_LT(recomputed(selective), recomputed(full));
  // What is kept shows as forward ends; backward's peak is all gradients, in both.
  const auto forward = static_cast<std::size_t>(Phase::kForward);
  EXPECT_GT(selective.memory.phase_peaks[forward], full.memory.phase_peaks[forward]);
}

TEST(Saving, SelectiveCheckpointingSwitchesTheCacheOffAndSaysWhy) {
  const Report report = report_of({.checkpointing = Checkpointing::kSelective, .use_cache = true});
  EXPECT_FALSE(report.run.use_cache);
  EXPECT_THAT(report.assumptions, ::testing::Contains(HasSubstr("append to the cache again")));
}

TEST(Saving, OffloadedActivationsAreOnTheHostAndNotOnTheCard) {
  const Report kept = report_of({});
  const Report offloaded = report_of({.offload_activations = true});
  EXPECT_TRUE(kept.host_memory.rows.empty());
  ASSERT_EQ(offloaded.host_memory.rows.size(), 1U);
  EXPECT_TRUE(offloaded.host_memory.rows[0].pinned);
  const auto forward = static_cast<std::size_t>(Phase::kForward);
  EXPECT_LT(offloaded.memory.phase_peaks[forward], kept.memory.phase_peaks[forward]);
  EXPECT_GE(offloaded.host_memory.pinned, kept.memory.phase_peaks[forward] - offloaded.memory.phase_peaks[forward]);
}

TEST(Saving, WithCheckpointingOnlyTheArgumentsOfLayersAndTheRestAreOffloaded) {
  const Report all = report_of({.offload_activations = true});
  const Report checkpointed = report_of({.checkpointing = Checkpointing::kFull, .offload_activations = true});
  EXPECT_GT(checkpointed.host_memory.pinned, 0);
  EXPECT_LT(checkpointed.host_memory.pinned, all.host_memory.pinned);
}

TEST(Saving, BatchesOnTheHost) {
  // Ids and labels: two tensors of 4 x 256 x 8 bytes.
  const Report report = report_of({.dataloader_workers = 3, .prefetch_factor = 4, .pin_memory = true});
  ASSERT_EQ(report.host_memory.rows.size(), 2U);
  EXPECT_EQ(report.host_memory.rows[0].bytes, 3 * 4 * 2 * 8192);
  EXPECT_EQ(report.host_memory.rows[1].bytes, (3 * 4 + 2) * 2 * 8192);
  EXPECT_EQ(report.host_memory.total, report.host_memory.rows[0].bytes + report.host_memory.rows[1].bytes);
  EXPECT_EQ(report.host_memory.pinned, report.host_memory.rows[1].bytes);
}

TEST(Saving, TheTrainerPinsItsBatches) {
  EXPECT_EQ(report_of({.loop = Loop::kTrainer}).host_memory.pinned, 2 * 2 * 8192);
}

TEST(Saving, AnOffloadedOptimizerLeavesOnlySmallStatesOnTheCard) {
  // GPT-2 has 124,439,808 parameters; its tensors under 4096 elements have 121,344: each layer's two norms, three
  // biases of 768 and one of 2304 and of 3072; the last norm.
  constexpr Bytes kSmall = 12 * (4 * 768 + 2304 + 768 + 3072 + 768) + 2 * 768;
  const Report report = report_of({.precision = Precision::kBf16, .offload_optimizer = true});
  EXPECT_EQ(report.memory.categories_at_peak[static_cast<std::size_t>(Category::kOptimizerStates)],
            2 * 2 * kSmall + 4 * (12 * 8 + 2));
  ASSERT_EQ(report.host_memory.rows.size(), 3U);
  EXPECT_EQ(report.host_memory.rows[2].bytes, 2 * 2 * (124439808 - kSmall) + 4 * (12 * 4 + 2)) << "two moments in bf16";
  EXPECT_FALSE(report.host_memory.rows[2].pinned);
  EXPECT_EQ(report.host_memory.rows[0].bytes, report.host_memory.rows[1].bytes);
  EXPECT_GE(report.host_memory.rows[0].bytes, 2 * (124439808 - kSmall)) << "blocks are powers of two";
}

TEST(Saving, OffloadedGradientsDieInBackward) {
  const RunOptions kept{.precision = Precision::kBf16, .offload_optimizer = true};
  RunOptions dropped = kept;
  dropped.offload_gradients = true;
  EXPECT_LT(report_of(dropped).memory.phase_peaks[static_cast<std::size_t>(Phase::kOptimizer)],
            report_of(kept).memory.phase_peaks[static_cast<std::size_t>(Phase::kOptimizer)] / 2 + (Bytes{160} << 20));
}

TEST(Saving, RefusesAnOffloadedOptimizerWhereItWouldGoWrong) {
  struct Case {
    RunOptions options;
    const char* rule;
  };
  const Case cases[] = {
      {{.offload_gradients = true}, "offload-gradients-with-optimizer"},
      {{.optimizer = Optimizer::kSgd, .offload_optimizer = true}, "offload-optimizer-adamw"},
      {{.precision = Precision::kAmpFp16, .offload_optimizer = true}, "offload-optimizer-without-scaler"},
      {{.max_grad_norm = 1.0, .offload_optimizer = true}, "offload-optimizer-without-clipping"},
      {{.accumulation_steps = 2, .offload_optimizer = true, .offload_gradients = true},
       "offload-gradients-one-micro-batch"},
  };
  for (const Case& each : cases) EXPECT_EQ(error_rule([&] { (void)report_of(each.options); }), each.rule);
}

TEST(Saving, RefusesToOffloadShardsOfOneGpu) {
  RunOptions parameters;
  parameters.parallel.offload_parameters = OffloadTo::kHost;
  EXPECT_EQ(error_rule([&] { (void)report_of(parameters); }), "offload-parameters-one-gpu");
  RunOptions states;
  states.parallel.offload_states = OffloadTo::kHost;
  EXPECT_EQ(error_rule([&] { (void)report_of(states); }), "offload-states-one-gpu");
}

TEST(Saving, OffloadedWeightsAreOnTheCardWhileTheirModuleRuns) {
  const auto report_with = [&](std::int64_t layers, bool offloads) {
    const ModelSpec model = registry().model("bert-base", {.layers = layers});
    RunOptions options{.batch_size = 2, .sequence_length = 128, .inference = Inference{}};
    if (offloads) options.parallel.offload_parameters = OffloadTo::kHost;
    return estimate(model, resolve(model, options), registry().device("h100-sxm"));
  };
  const Report two = report_with(2, true);
  const Report six = report_with(6, true);
  EXPECT_EQ(two.memory.exact_peak, six.memory.exact_peak);
  EXPECT_EQ(two.memory.peak_reserved, six.memory.peak_reserved);
  // Four projections of 768, the two of the MLP, two norms.
  constexpr Bytes kLayer = 4 * (4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768);
  ASSERT_EQ(six.host_memory.rows.size(), 1U);
  EXPECT_EQ(six.host_memory.total - two.host_memory.total, 4 * kLayer);
  EXPECT_EQ(two.host_memory.total, 4 * two.parameters_total);
  const Bytes embedding = 4 * 30522 * 768;  // the largest module: its weight, while a token's row is looked up
  const Bytes at_peak = two.memory.categories_at_peak[static_cast<std::size_t>(Category::kWeights)];
  EXPECT_EQ(at_peak, embedding + 2 * 512 * 8) << "beside it two buffers: position ids, token types";
  EXPECT_GT(report_with(2, false).memory.exact_peak, two.memory.exact_peak);
}

TEST(Saving, RefusesToOffloadWeightsThatNoHookedModuleHolds) {
  const ModelSpec model = registry().model("vit-base-patch16-224");
  RunOptions options{.batch_size = 2, .inference = Inference{}};
  options.parallel.offload_parameters = OffloadTo::kHost;
  EXPECT_THAT(error_text([&] { (void)estimate(model, resolve(model, options), registry().device("h100-sxm")); }),
              HasSubstr("cls_token"));
  options.parallel.offload_parameters = OffloadTo::kNvme;
  EXPECT_EQ(error_rule([&] { (void)resolve(model, options); }), "offload-parameters-to-host");
}

TEST(Saving, RefusesToCheckpointEveryZerothLayer) {
  EXPECT_EQ(error_rule([] { (void)report_of({.checkpoint_every = 0}); }), "checkpointing-every-n");
}

TEST(Saving, ExpandableSegmentsHaveNoSlack) {
  const Report report = report_of({.expandable_segments = true});
  EXPECT_LT(report.memory.slack_at_peak, kMiB);
  EXPECT_LE(report.memory.peak_allocated, report_of({}).memory.peak_allocated);
}

}  // namespace
}  // namespace memcalc
