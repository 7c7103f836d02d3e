// spec/rules_stages: a run that breaks each rule.
#include "memcalc/spec/rule_tables.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

const RunOptions kLoads{.stages = Stages::kAll, .loading = ModelLoading::kDeviceMap};
const RunOptions kSaves{.stages = Stages::kAll, .saving = ModelSaving::kCheckpoint};

void split_among_two(RunSpec& run) {
  run.parallel.data_parallel = DataParallel::kDdp;
  run.parallel.gpus = 2;
}

const test::RuleCase kCases[] = {
    {"load-one-gpu", "gpt2", split_among_two, kLoads},
    {"load-packed-on-card",
     "gpt2",
     [](RunSpec& run) { run.training().loading = ModelLoading::kHost; },
     {.lora_rank = 8, .quantization = Quantization::kNf4}},
    {"load-from-transformers",
     "resnet50",
     [](RunSpec& run) { run.training().loading = ModelLoading::kHost; },
     {.loop = Loop::kBare}},
    {"save-counts-all-stages", "gpt2", [](RunSpec& run) { run.training().stages = Stages::kTrain; }, kSaves},
    {"save-one-gpu", "gpt2", split_among_two, kSaves},
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
