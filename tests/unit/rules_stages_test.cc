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
const RunOptions kMerges{
    .stages = Stages::kAll, .loading = ModelLoading::kHost, .saving = ModelSaving::kMerge, .lora_rank = 8};

void shard_among_two(RunSpec& run) {
  run.parallel.data_parallel = DataParallel::kFsdp2;
  run.parallel.gpus = 2;
}
void split_among_two(RunSpec& run) {
  run.parallel.data_parallel = DataParallel::kDdp;
  run.parallel.gpus = 2;
}

const test::RuleCase kCases[] = {
    {"load-on-several-gpus", "gpt2", split_among_two, kLoads},
    {"load-on-several-gpus", "gpt2", shard_among_two, kPlainlyLoaded},
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
    {"save-merge-one-gpu", "gpt2", split_among_two, kMerges},
    {"save-of-trainers",
     "gpt2",
     [](RunSpec& run) { run.training().saving = ModelSaving::kCheckpoint; },
     {.loop = Loop::kTrlDpo, .stages = Stages::kAll, .lora_rank = 8}},
    {"save-merge-needs-adapters", "gpt2", [](RunSpec& run) { run.training().saving = ModelSaving::kMerge; }, kSaves},
    {"save-transformers-model",
     "resnet50",
     [](RunSpec& run) { run.training().saving = ModelSaving::kCheckpoint; },
     {.loop = Loop::kBare, .stages = Stages::kAll}},
};

TEST(RulesOfStages, EachIsBrokenByARun) { test::expect_each_rule_broken(rules_of_stages(), kCases); }

TEST(RulesOfStages, APackedBaseIsLoadedByADeviceMap) {
  const RunOptions packed{.lora_rank = 8, .quantization = Quantization::kNf4};
  EXPECT_EQ(resolve(test::model_of("gpt2"), packed).run.training().loading, ModelLoading::kDeviceMap);
  EXPECT_EQ(resolve(test::model_of("gpt2"), RunOptions{}).run.training().loading, ModelLoading::kConfig);
}

}  // namespace
}  // namespace memcalc
