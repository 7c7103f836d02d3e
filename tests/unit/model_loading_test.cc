// train/loading: what from_pretrained and model.to("cuda") ask of the card.
#include "memcalc/train/loading.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/train/step.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

class ModelLoadingTest : public ::testing::Test {
 protected:
  DeviceSpec device_ = registry().device("h200-sxm");

  static RunOptions loaded(ModelLoading loading) {
    return {.batch_size = 1,
            .sequence_length = 16,
            .precision = Precision::kBf16,
            .loop = Loop::kTrainer,
            .stages = Stages::kAll,
            .loading = loading};
  }
  [[nodiscard]] SymbolicRun run(const ModelSpec& model, const RunOptions& options) const {
    return run_symbolically(model, resolve(model, options).run, device_);
  }
  [[nodiscard]] Report report_of(const ModelSpec& model, const RunOptions& options) const {
    return estimate(model, resolve(model, options), device_);
  }
  /// Sizes of what a phase asks for, of operators of this name.
  static std::vector<Bytes> requests(const SymbolicRun& run, Phase phase, std::string_view op) {
    std::vector<Bytes> sizes;
    for (const Event& event : run.trace.events) {
      if (event.kind != EventKind::kAllocate || event.phase != phase || event.op == nullptr) continue;
      if (event.op->name == op) sizes.push_back(run.trace.blocks[static_cast<std::size_t>(event.block)].requested);
    }
    return sizes;
  }
  static std::vector<Bytes> parameter_sizes(const SymbolicRun& run) {
    std::vector<Bytes> sizes;
    for (const ParameterInfo& each : run.parameters) sizes.push_back(each.elements * size_of(each.dtype));
    return sizes;
  }
  static Bytes sum(const std::vector<Bytes>& sizes) {
    Bytes sum = 0;
    for (const Bytes size : sizes) sum += size;
    return sum;
  }
  static Bytes peak(const Report& report, std::string_view stage) {
    for (const StageRow& row : report.stages) {
      if (row.name == stage) return row.peak_allocated;
    }
    return -1;
  }
};

TEST_F(ModelLoadingTest, ADeviceMapWarmsTheAllocatorUpWithOneBlockAsLargeAsTheModel) {
  const ModelSpec model = registry().model("tinyllama-1.1b", {.layers = 2});
  const SymbolicRun loaded_run = run(model, loaded(ModelLoading::kDeviceMap));
  const std::vector<Bytes> weights = parameter_sizes(loaded_run);
  EXPECT_EQ(requests(loaded_run, Phase::kBuild, "caching_allocator_warmup"), std::vector<Bytes>{sum(weights)});
  std::vector<Bytes> copies = requests(loaded_run, Phase::kBuild, "aten::_to_copy");
  std::vector<Bytes> sorted = weights;
  std::sort(sorted.begin(), sorted.end());
  std::sort(copies.begin(), copies.end());
  EXPECT_EQ(copies, sorted);
}

TEST_F(ModelLoadingTest, WeightsOfADeviceMapShareOneSegment) {
  const ModelSpec model = registry().model("tinyllama-1.1b", {.layers = 2});
  const Report report = report_of(model, loaded(ModelLoading::kDeviceMap));
  // Weights of up to 1 MiB lie in segments of 2 MiB of their own, and leave their share of the large one empty.
  constexpr Bytes kSmallSegment = Bytes{2} << 20;
  Bytes small = 0;
  for (const Bytes size : parameter_sizes(run(model, loaded(ModelLoading::kDeviceMap)))) {
    if (size <= kSmallSegment / 2) small += size;
  }
  const StageRow& load = report.stages.front();
  ASSERT_EQ(load.name, "load");
  EXPECT_LE(load.peak_reserved - load.peak_allocated, small + 2 * kSmallSegment);
}

TEST_F(ModelLoadingTest, WhatIsLoadedOnTheHostComesToTheCardInOneStepAndInItsOrder) {
  const ModelSpec model = registry().model("tinyllama-1.1b", {.layers = 2});
  RunOptions options = loaded(ModelLoading::kHost);
  options.lora_rank = 8;
  const SymbolicRun moved = run(model, options);
  for (const Event& event : moved.trace.events) EXPECT_NE(event.phase, Phase::kBuild);
  std::vector<Bytes> copies = requests(moved, Phase::kPrepare, "aten::_to_copy");
  const std::vector<Bytes> weights =
      parameter_sizes(moved);  // adapters in float32 already: peft casts them on the host
  ASSERT_GE(copies.size(), weights.size());
  copies.resize(weights.size());  // what follows are buffers
  EXPECT_EQ(copies, weights);
}

TEST_F(ModelLoadingTest, ExpertsAreLoadedOneByOneAndPutTogether) {
  const ModelSpec model = registry().model("mixtral-8x7b", {.layers = 1});
  const Report whole = report_of(model, loaded(ModelLoading::kDeviceMap));
  const SymbolicRun loaded_run = run(model, loaded(ModelLoading::kDeviceMap));
  Bytes gate_up = 0, norm = 0;
  for (const ParameterInfo& each : loaded_run.parameters) {
    if (each.name.ends_with(".experts.gate_up_proj")) gate_up = each.elements * size_of(each.dtype);
    if (each.name == "model.norm.weight") norm = each.elements * size_of(each.dtype);
  }
  ASSERT_GT(gate_up, 0);
  // Gate and up by themselves live while they are joined; by then all is there but the layer's two norms, the attention
  // and the last norm, which sort after "mlp".
  const Bytes weights = sum(parameter_sizes(loaded_run));
  EXPECT_GT(peak(whole, "load"), weights - (Bytes{100} << 20));
  EXPECT_LE(peak(whole, "load"), weights + gate_up + (Bytes{4} << 20));
  EXPECT_GT(peak(whole, "load"), weights - (Bytes{100} << 20) + gate_up);
  EXPECT_GT(norm, 0);
}

TEST_F(ModelLoadingTest, WithoutAllStagesTheLoadedModelLeavesWhatItReserves) {
  const ModelSpec model = registry().model("gpt2", {.layers = 2});
  RunOptions options = loaded(ModelLoading::kDeviceMap);
  options.stages = Stages::kTrain;
  const Report report = report_of(model, options);
  EXPECT_TRUE(report.stages.empty());
  EXPECT_EQ(report.memory.phase_peaks[static_cast<std::size_t>(Phase::kPrepare)], 0);
}

TEST_F(ModelLoadingTest, AHeadIsLoadedInThePlaceOfItsNameInTheCheckpoint) {
  // "embed_out" of a checkpoint sorts before "gpt_neox", the module's "lm_head" after it.
  const SymbolicRun neox = run(registry().model("pythia-160m", {.layers = 1}), loaded(ModelLoading::kDeviceMap));
  const std::vector<Bytes> copies = requests(neox, Phase::kBuild, "aten::_to_copy");
  ASSERT_EQ(neox.parameters.back().name, "lm_head.weight");
  EXPECT_EQ(copies.front(), neox.parameters.back().elements * 2);
  EXPECT_NE(copies.back(), copies.front());
}

TEST(LoadsBefore, NumbersAreComparedAsNumbers) {
  EXPECT_TRUE(loads_before("model.layers.9.weight", "model.layers.10.weight"));
  EXPECT_FALSE(loads_before("model.layers.10.weight", "model.layers.9.weight"));
  EXPECT_TRUE(loads_before("lm_head.weight", "model.embed_tokens.weight"));
  EXPECT_TRUE(loads_before("a.b", "a.b.c"));
}

}  // namespace
}  // namespace memcalc
