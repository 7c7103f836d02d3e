// spec/rules_stages: a run that breaks each rule.
#include "memcalc/spec/rule_tables.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

const RunOptions kLoads{.stages = Stages::kAll, .loading = ModelLoading::kDeviceMap};
const RunOptions kSaves{.stages = Stages::kAll, .saving = ModelSaving::kCheckpoint};

const RunOptions kPlainlyLoaded{.loop = Loop::kBare, .stages = Stages::kAll, .loading = ModelLoading::kHost};
const RunOptions kLoadsAndSaves{
    .loop = Loop::kTrainer, .stages = Stages::kAll, .loading = ModelLoading::kHost, .saving = ModelSaving::kCheckpoint};
const RunOptions kMerges{.loop = Loop::kTrainer,
                         .stages = Stages::kAll,
                         .loading = ModelLoading::kHost,
                         .saving = ModelSaving::kMerge,
                         .lora_rank = 8};

void shard_among_two(RunSpec& run) {
  run.parallel.data_parallel = DataParallel::kFsdp2;
  run.parallel.gpus = 2;
}
void share_among_two(RunSpec& run) {
  run.parallel.data_parallel = DataParallel::kDsZero2;
  run.parallel.layout = DeepSpeedZero{};
  run.parallel.gpus = 2;
  run.precision = Precision::kAmpBf16;
}
void split_among_two(RunSpec& run) {
  run.parallel.data_parallel = DataParallel::kDdp;
  run.parallel.gpus = 2;
}

const test::RuleCase kCases[] = {
    {"load-on-several-gpus", "gpt2", split_among_two, kLoads},
    {"load-on-several-gpus", "gpt2", shard_among_two, kPlainlyLoaded},
    {"load-rank0-of-several", "gpt2", [](RunSpec& run) { run.training().loading = ModelLoading::kRank0; }, kLoads},
    {"load-packed-on-card",
     "gpt2",
     [](RunSpec& run) { run.training().loading = ModelLoading::kHost; },
     {.lora_rank = 8, .quantization = Quantization::kNf4}},
    {"load-from-transformers",
     "resnet50",
     [](RunSpec& run) { run.training().loading = ModelLoading::kHost; },
     {.loop = Loop::kBare}},
    {"save-counts-all-stages", "gpt2", [](RunSpec& run) { run.training().stages = Stages::kTrain; }, kSaves},
    {"save-after-loading", "gpt2", split_among_two, kSaves},
    {"save-full-or-sharded", "gpt2", [](RunSpec& run) { run.training().saving = ModelSaving::kFull; }, kSaves},
    {"save-of-shards", "gpt2", shard_among_two, kLoadsAndSaves},
    {"save-merge-one-gpu", "gpt2", share_among_two, kMerges},
    {"save-of-trainers",
     "gpt2",
     [](RunSpec& run) { run.training().saving = ModelSaving::kCheckpoint; },
     {.loop = Loop::kTrlGrpo, .vllm = VllmMode::kColocate, .stages = Stages::kAll, .lora_rank = 8}},
    {"save-merge-needs-adapters", "gpt2", [](RunSpec& run) { run.training().saving = ModelSaving::kMerge; }, kSaves},
    {"save-transformers-model",
     "resnet50",
     [](RunSpec& run) { run.training().saving = ModelSaving::kCheckpoint; },
     {.loop = Loop::kBare, .stages = Stages::kAll}},
    {"stages-after-loading", "gpt2", split_among_two, {.loop = Loop::kBare, .stages = Stages::kAll}},
};

TEST(RulesOfStages, EachIsBrokenByARun) { test::expect_each_rule_broken(rules_of_stages(), kCases); }

/// What a run is told, "accepted" where it breaks no rule.
std::string told(RunOptions options, std::int64_t gpus, DataParallel mode) {
  options.gpus = gpus;
  options.parallel.data_parallel = mode;
  const ModelSpec model = test::model_of("gpt2");
  return test::first_broken(model, resolve(model, options).run).what();
}

TEST(RulesOfStages, DeepSpeedLoadsAndSavesInTheTrainerAndDdpMerges) {
  RunOptions shared = kLoadsAndSaves;
  shared.precision = Precision::kAmpBf16;
  EXPECT_EQ(told(shared, 2, DataParallel::kDsZero3), "accepted");
  EXPECT_EQ(told(shared, 2, DataParallel::kDsZero1), "accepted");
  EXPECT_EQ(told(kMerges, 2, DataParallel::kDdp), "accepted");
  const RunOptions packed{.loop = Loop::kTrainer,
                          .stages = Stages::kAll,
                          .saving = ModelSaving::kMerge,
                          .lora_rank = 8,
                          .quantization = Quantization::kNf4};
  EXPECT_EQ(told(packed, 2, DataParallel::kDdp), "accepted");
}

TEST(RulesOfStages, TrainersOfTrlSaveAsTheTrainerDoes) {
  for (const Loop loop : {Loop::kTrlDpo, Loop::kTrlGrpo, Loop::kTrlReward, Loop::kTrlOrpo, Loop::kTrlOnlineDpo}) {
    const RunOptions saves{
        .loop = loop, .stages = Stages::kAll, .loading = ModelLoading::kDeviceMap, .saving = ModelSaving::kCheckpoint};
    EXPECT_EQ(told(saves, 1, DataParallel::kNone), "accepted");
  }
}

TEST(RulesOfStages, APackedBaseIsLoadedByADeviceMap) {
  const RunOptions packed{.lora_rank = 8, .quantization = Quantization::kNf4};
  EXPECT_EQ(resolve(test::model_of("gpt2"), packed).run.training().loading, ModelLoading::kDeviceMap);
  EXPECT_EQ(resolve(test::model_of("gpt2"), RunOptions{}).run.training().loading, ModelLoading::kConfig);
}

}  // namespace
}  // namespace memcalc
