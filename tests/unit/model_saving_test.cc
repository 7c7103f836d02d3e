// train/saving: what merging adapters and writing a checkpoint ask of the card.
#include "memcalc/train/saving.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "memcalc/memcalc.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/train/step.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

class ModelSavingTest : public ::testing::Test {
 protected:
  DeviceSpec device_ = registry().device("h200-sxm");
  ModelSpec llama_ = registry().model("tinyllama-1.1b", {.layers = 2});
  static constexpr Bytes kLargestLayer = Bytes{2048} * 5632;  // elements of gate_proj, up_proj, down_proj

  static RunOptions merged() {
    return {.batch_size = 1,
            .sequence_length = 16,
            .precision = Precision::kBf16,
            .loop = Loop::kTrainer,
            .stages = Stages::kAll,
            .saving = ModelSaving::kMerge,
            .lora_rank = 8};
  }
  [[nodiscard]] SymbolicRun run(const ModelSpec& model, const RunOptions& options) const {
    return run_symbolically(model, resolve(model, options).run, device_);
  }
  /// What a phase asks for above what is there when it begins, at most; without rounding.
  static Bytes rise(const SymbolicRun& run, Phase phase) {
    Bytes now = 0, most = 0;
    for (const Event& event : run.trace.events) {
      if (event.phase != phase || !event.moves_block()) continue;
      const Bytes bytes = run.trace.blocks[static_cast<std::size_t>(event.block)].requested;
      now += event.kind == EventKind::kAllocate ? bytes : -bytes;
      most = std::max(most, now);
    }
    return most;
  }
  /// What is left of it at the phase's end.
  static Bytes left(const SymbolicRun& run, Phase phase) {
    Bytes now = 0;
    for (const Event& event : run.trace.events) {
      if (event.phase != phase || !event.moves_block()) continue;
      const Bytes bytes = run.trace.blocks[static_cast<std::size_t>(event.block)].requested;
      now += event.kind == EventKind::kAllocate ? bytes : -bytes;
    }
    return now;
  }
};

TEST_F(ModelSavingTest, MergingNeedsTheProductAndItsMultipleOfTheLargestLayer) {
  const SymbolicRun merging = run(llama_, merged());
  EXPECT_EQ(rise(merging, Phase::kMerge), 2 * 4 * kLargestLayer);  // adapters are float32
  EXPECT_EQ(left(merging, Phase::kMerge), 0);
}

TEST_F(ModelSavingTest, AdaptersInTheTypeOfTheBaseMergeInHalfOfThat) {
  RunOptions options = merged();
  options.lora_in_base_dtype = true;
  EXPECT_EQ(rise(run(llama_, options), Phase::kMerge), 2 * 2 * kLargestLayer);
}

TEST_F(ModelSavingTest, A4BitWeightIsUnpackedSummedAndPackedAgain) {
  RunOptions options = merged();
  options.quantization = Quantization::kNf4;
  options.weights_dtype = DType::kBFloat16;
  const SymbolicRun merging = run(llama_, options);
  // Unpacked in bfloat16; the adapter's product, the sum, the sum as it comes back from the host, each in float32; the
  // codes and the float32 scale of each 64 of them, while the old ones live; a map of 16 codes, its magnitudes and
  // their maximum.
  const Bytes packed = kLargestLayer / 2 + 4 * kLargestLayer / 64;
  EXPECT_EQ(rise(merging, Phase::kMerge), (2 + 3 * 4) * kLargestLayer + packed + 64 + 64 + 4);
  EXPECT_EQ(left(merging, Phase::kMerge), 0);
}

TEST_F(ModelSavingTest, OfADoublyPackedWeightOnlyTheSharedMapOutlivesMergingAndEachMapIsCopiedToBeSaved) {
  RunOptions options = merged();
  options.quantization = Quantization::kNf4Double;
  options.weights_dtype = DType::kBFloat16;
  const SymbolicRun merging = run(llama_, options);
  constexpr Bytes kMap = 256 * 4;
  constexpr Bytes kLayers = 2 * 7;
  EXPECT_EQ(left(merging, Phase::kMerge), 0);
  EXPECT_EQ(rise(merging, Phase::kSave), kLayers * kMap);
  options.saving = ModelSaving::kCheckpoint;
  EXPECT_EQ(rise(run(llama_, options), Phase::kSave), kLayers * kMap);
}

TEST_F(ModelSavingTest, An8BitWeightIsUnpackedInFloat32) {
  RunOptions options = merged();
  options.quantization = Quantization::kInt8;
  options.weights_dtype = DType::kBFloat16;
  const SymbolicRun merging = run(llama_, options);
  // The old weight and sum, product and sum in float32, float16 on its way to be packed, the new weight and its scales.
  EXPECT_EQ(rise(merging, Phase::kMerge), (3 * 4 + 2 + 1) * kLargestLayer + 4 * 5632);
  EXPECT_EQ(left(merging, Phase::kMerge), 0);
}

TEST_F(ModelSavingTest, ACheckpointOfADenseModelAsksNothingOfTheCard) {
  RunOptions options = merged();
  options.saving = ModelSaving::kCheckpoint;
  EXPECT_EQ(rise(run(llama_, options), Phase::kSave), 0);
  options.lora_rank.reset();
  EXPECT_EQ(rise(run(llama_, options), Phase::kSave), 0);
}

TEST_F(ModelSavingTest, ACheckpointOfExpertsTakesGateAndUpOfAllLayersApart) {
  const ModelSpec model = registry().model("mixtral-8x7b", {.layers = 2});
  RunOptions options = merged();
  options.lora_rank.reset();
  options.saving = ModelSaving::kCheckpoint;
  const SymbolicRun saving = run(model, options);
  constexpr Bytes kGateAndUp = Bytes{8} * 2 * 14336 * 4096 * 2;  // 8 experts, bfloat16
  EXPECT_EQ(rise(saving, Phase::kSave), 2 * kGateAndUp);
}

RunOptions of_two_ranks(DataParallel data_parallel, ModelSaving saving) {
  RunOptions options{.batch_size = 1,
                     .sequence_length = 16,
                     .precision = Precision::kAmpBf16,
                     .weights_dtype = DType::kBFloat16,
                     .loop = Loop::kTrainer,
                     .stages = Stages::kAll,
                     .loading = ModelLoading::kHost,
                     .saving = saving,
                     .gpus = 2};
  options.parallel.data_parallel = data_parallel;
  options.data_parallel_given = true;
  return options;
}

TEST_F(ModelSavingTest, AFullStateDictGathersTheLargestParameterAndAShardedOneNothing) {
  const SymbolicRun full = run(llama_, of_two_ranks(DataParallel::kFsdp2, ModelSaving::kFull));
  constexpr Bytes kEmbedding = Bytes{32000} * 2048 * 4;  // what trains is float32
  EXPECT_EQ(rise(full, Phase::kSave), kEmbedding);
  EXPECT_EQ(rise(run(llama_, of_two_ranks(DataParallel::kFsdp2, ModelSaving::kSharded)), Phase::kSave), 0);
}

TEST_F(ModelSavingTest, OnSeveralGpusAModelComesFromEachRanksHost) {
  for (const auto& [mode, saving, share] : {std::tuple(DataParallel::kDdp, ModelSaving::kCheckpoint, 1),
                                            std::tuple(DataParallel::kFsdp2, ModelSaving::kSharded, 2)}) {
    const RunOptions options = of_two_ranks(mode, saving);
    const SymbolicRun ranks = run(llama_, options);
    for (const Event& event : ranks.trace.events) EXPECT_NE(event.phase, Phase::kBuild);
    const Report report = estimate(llama_, resolve(llama_, options), device_);
    const Bytes size = mode == DataParallel::kDdp ? 2 : 4;  // bfloat16; accelerate shards float32
    const Bytes whole = size * report.parameters_total;
    ASSERT_EQ(report.stages.at(0).name, "load");
    EXPECT_EQ(report.stages[0].peak_allocated, 0);
    EXPECT_EQ(report.stages[0].host_bytes, 2 * whole);
    ASSERT_EQ(report.stages.at(1).name, "prepare");
    EXPECT_GE(report.stages[1].peak_allocated, whole / share);
  }
}

TEST_F(ModelSavingTest, AJobShowsItsStagesInTheirOrderAndTheLargest) {
  RunOptions options = merged();
  options.eval_batch_size = 2;
  options.loading = ModelLoading::kHost;
  const Report report = estimate(llama_, resolve(llama_, options), device_);
  std::string names;
  Bytes largest = 0;
  for (const StageRow& row : report.stages) {
    names += row.name + " ";
    if (row.is_largest) largest = row.peak_allocated;
    EXPECT_LE(row.peak_allocated, report.memory.peak_allocated) << row.name;
    EXPECT_FALSE(row.lowered_by.empty()) << row.name;
  }
  EXPECT_EQ(names, "load prepare train evaluate merge save ");
  EXPECT_EQ(largest, report.memory.peak_allocated);
  EXPECT_EQ(report.stages.front().peak_allocated, 0);  // on the host alone
  EXPECT_EQ(report.stages.front().host_bytes, Bytes{2} * (report.parameters_total - report.parameters_trainable));
}

TEST_F(ModelSavingTest, EveryFormatShowsTheStages) {
  const Report report = estimate(llama_, resolve(llama_, merged()), device_);
  EXPECT_NE(render(report, Format::kText).find("Stages of the job"), std::string::npos);
  EXPECT_NE(render(report, Format::kJson).find("\"stages\": ["), std::string::npos);
  EXPECT_NE(render(report, Format::kCsv).find("stage_allocated,merge,"), std::string::npos);
  EXPECT_NE(render(report, Format::kMarkdown).find("| stage merge"), std::string::npos);
}

TEST_F(ModelSavingTest, TheStepsOfAJobThatSavesAreThoseOfOneThatDoesNot) {
  RunOptions options = merged();
  const Report saved = estimate(llama_, resolve(llama_, options), device_);
  options.saving = ModelSaving::kNone;
  const Report plain = estimate(llama_, resolve(llama_, options), device_);
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kOptimizer}) {
    const auto i = static_cast<std::size_t>(phase);
    EXPECT_EQ(saved.memory.phase_peaks.at(i), plain.memory.phase_peaks.at(i));
  }
  EXPECT_EQ(saved.time->step.step_seconds, plain.time->step.step_seconds);
}

RunOptions in_trainer(DataParallel mode, ModelLoading loading, ModelSaving saving) {
  RunOptions options{.batch_size = 1,
                     .sequence_length = 16,
                     .precision = Precision::kAmpBf16,
                     .loop = Loop::kTrainer,
                     .stages = Stages::kAll,
                     .loading = loading,
                     .saving = saving};
  options.gpus = 2;
  options.parallel.data_parallel = mode;
  return options;
}

TEST_F(ModelSavingTest, Zero3GathersTheLargestModuleForACheckpoint) {
  const SymbolicRun saved =
      run(llama_, in_trainer(DataParallel::kDsZero3, ModelLoading::kHost, ModelSaving::kCheckpoint));
  const Bytes embedding = 32000 * Bytes{2048} * 2;
  const Bytes norms = 5 * Bytes{2048} * 2;  // whole between steps, parted before the others are gathered
  EXPECT_EQ(rise(saved, Phase::kSave), embedding - norms);
}

TEST_F(ModelSavingTest, Zero3LoadsInPartsAndOneModuleWhole) {
  const SymbolicRun loaded = run(llama_, in_trainer(DataParallel::kDsZero3, ModelLoading::kHost, ModelSaving::kNone));
  Bytes all = 0;
  for (const ParameterInfo& each : loaded.parameters) all += each.elements * 2;
  const Bytes embedding = 32000 * Bytes{2048};
  EXPECT_LT(rise(loaded, Phase::kBuild), all / 2 + embedding * 6 + kMiB)
      << "parts, and one module as it is made and cast";
  EXPECT_GE(left(loaded, Phase::kBuild), all / 2);
}

TEST_F(ModelSavingTest, Zero2AsksNothingOfTheCardForACheckpoint) {
  const SymbolicRun saved =
      run(llama_, in_trainer(DataParallel::kDsZero2, ModelLoading::kHost, ModelSaving::kCheckpoint));
  EXPECT_EQ(rise(saved, Phase::kSave), 0);
}

TEST_F(ModelSavingTest, Fsdp1KeepsTheRootWholeWhileItCutsTheLayers) {
  const auto saved = [&](ModelSaving saving) {
    return rise(run(llama_, in_trainer(DataParallel::kFsdp1, ModelLoading::kHost, saving)), Phase::kSave);
  };
  const Bytes embedding = 32000 * Bytes{2048} * 4;
  EXPECT_GE(saved(ModelSaving::kFull), embedding);
  EXPECT_GT(saved(ModelSaving::kSharded), saved(ModelSaving::kFull));
}

TEST_F(ModelSavingTest, Fsdp1IsSentByRank0WhetherTheOthersReadTheModelOrNot) {
  const auto prepared = [&](ModelLoading loading) {
    return rise(run(llama_, in_trainer(DataParallel::kFsdp1, loading, ModelSaving::kNone)), Phase::kPrepare);
  };
  EXPECT_EQ(prepared(ModelLoading::kRank0), prepared(ModelLoading::kHost));
}

TEST_F(ModelSavingTest, ARankThatReceivesTheModelHasTwoParametersWholeAtMost) {
  const auto prepared = [&](ModelLoading loading) {
    return rise(run(llama_, in_trainer(DataParallel::kFsdp2, loading, ModelSaving::kNone)), Phase::kPrepare);
  };
  EXPECT_LE(prepared(ModelLoading::kRank0), prepared(ModelLoading::kHost));
}

}  // namespace
}  // namespace memcalc
