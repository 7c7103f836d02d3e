// spec/rules_sizes: a run that breaks each rule.
#include "memcalc/families/deepseek/spec.h"
#include "memcalc/spec/parallel.h"
#include "memcalc/spec/rule_tables.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

const RunOptions kFourGpus{.gpus = 4};
const RunOptions kTensor{.optimizer = Optimizer::kAdamWForLoop, .parallel = {.tensor = 2}};
const RunOptions kMegatron{.precision = Precision::kBf16, .framework = Framework::kMegatron};

const test::RuleCase kCases[] = {
    {"gpus-hold-whole-copies", "llama-3.2-1b", [](RunSpec& run) { run.parallel.gpus = 3; }, kTensor},
    {"gpus-hold-whole-copies", "llama-3.2-1b", [](RunSpec& run) { run.parallel.tensor = 0; }},
    {"nodes-hold-equally-many-gpus", "llama-3.2-1b", [](RunSpec& run) { run.parallel.nodes = 3; }, kFourGpus},
    {"nodes-hold-equally-many-gpus", "llama-3.2-1b", [](RunSpec& run) { run.parallel.nodes = 2; }},
    {"framework-has-mode", "llama-3.2-1b", [](RunSpec& run) { run.parallel.data_parallel = DataParallel::kDsZero3; },
     kMegatron},
    {"framework-has-mode", "llama-3.2-1b",
     [](RunSpec& run) { run.parallel.data_parallel = DataParallel::kMegatronDist; }, kFourGpus},
    {"one-gpu-shares-nothing", "llama-3.2-1b", [](RunSpec& run) { run.parallel.data_parallel = DataParallel::kFsdp2; }},
    {"ranks-see-the-same-data", "llama-3.2-1b", [](RunSpec& run) { run.parallel.data_parallel = DataParallel::kDdp; },
     kTensor},
    {"stage-layers-of-torch-pipelines", "llama-3.2-1b", [](RunSpec& run) { run.parallel.stage_layers = {16}; }},
    {"stage-layers-of-torch-pipelines",
     "llama-3.2-1b",
     [](RunSpec& run) {
       run.parallel.stage_layers = {8, 8};
     },
     {.precision = Precision::kBf16, .framework = Framework::kMegatron, .parallel = {.pipeline = 2}}},
    {"tp-has-heads", "resnet50", [](RunSpec& run) { run.parallel.gpus = run.parallel.tensor = 2; }},
    {"tp-splits-heads", "llama-3.2-1b", [](RunSpec& run) { run.parallel.gpus = run.parallel.tensor = 3; }, kTensor},
    {"tp-splits-key-value-heads", "llama-3.2-1b", [](RunSpec& run) { run.parallel.gpus = run.parallel.tensor = 16; },
     kTensor},
    {"tp-splits-key-value-heads", "llama-3.2-1b", [](RunSpec& run) { run.parallel.gpus = run.parallel.tensor = 16; },
     kMegatron},
    {"tp-splits-global-key-value-heads", "gemma-4-31b-text",
     [](RunSpec& run) { run.parallel.gpus = run.parallel.tensor = 8; }, kTensor},
    {"ep-has-experts", "llama-3.2-1b", [](RunSpec& run) { run.parallel.gpus = run.parallel.expert = 2; }},
    {"ep-has-experts", "llama-3.2-1b", [](RunSpec& run) { run.parallel.gpus = run.parallel.expert = 2; }, kMegatron},
    {"ep-splits-experts", "mixtral-8x7b", [](RunSpec& run) { run.parallel.gpus = run.parallel.expert = 3; }},
    {"ep-splits-experts", "mixtral-8x7b", [](RunSpec& run) { run.parallel.gpus = run.parallel.expert = 3; }, kMegatron},
};

TEST(RulesOfSizes, EachIsBrokenByARun) { test::expect_each_rule_broken(rules_of_sizes(), kCases); }

TEST(RulesOfSizes, OneCopyIsToldAsAProduct) {
  const ModelSpec model = test::model_of("llama-3.2-1b");
  RunSpec run = resolve(model, RunOptions{.loop = Loop::kBare}).run;
  run.parallel.tensor = 4;
  run.parallel.pipeline = 2;
  run.parallel.gpus = 6;
  const Error error = test::first_broken(model, run);
  EXPECT_EQ(error.part(), "--gpus");
  EXPECT_STREQ(
      error.what(),
      "one copy of the model takes tp 4 x pp 2 = 8 GPUs, and 6 is no multiple of that; accepted: --gpus with a "
      "multiple of that");
}

// Megatron-core makes keys and values of all heads from DeepSeek's latent vector.
TEST(RulesOfSizes, LatentAttentionHasAKeyOfEachHeadUnderMegatron) {
  ModelSpec model = test::model_of("deepseek-v2-lite");
  model.architecture.change<DeepseekV2Spec>().num_key_value_heads = 1;
  RunOptions options{.precision = Precision::kBf16, .framework = Framework::kMegatron};
  options.parallel.tensor = 2;
  options.parallel.sequence_parallel = true;
  EXPECT_NO_THROW((void)resolve(model, options));
}

struct NoMode {
  const char* name;
  std::int64_t gpus;
  Framework framework;
  const char* rule;  // empty: accepted
  const char* says = "";
};

class ModeNone : public ::testing::TestWithParam<NoMode> {};

// What was asked for is not what a resolved run tells, so resolve_parallel() itself refuses.
TEST_P(ModeNone, IsRefusedWhereCopiesWouldShareNothing) {
  const NoMode& each = GetParam();
  RunOptions asked{.gpus = each.gpus, .framework = each.framework, .data_parallel_given = true};
  asked.parallel.tensor = 2;
  std::vector<std::string> assumptions;
  try {
    const Parallel p = resolve_parallel(asked, assumptions);
    EXPECT_STREQ(each.rule, "");
    EXPECT_EQ(p.data_parallel, DataParallel::kNone);
  } catch (const Error& error) {
    EXPECT_EQ(error.rule(), each.rule);
    EXPECT_EQ(error.part(), "--parallel");
    EXPECT_THAT(error.what(), ::testing::HasSubstr(each.says));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ModeNone,
    ::testing::ValuesIn(
        {NoMode{
             "Copies", 8, Framework::kTorch, "parallel-none-with-copies",
             "8 GPUs hold 4 copies of the model, which drift apart where nothing averages their gradients; accepted: "
             "--parallel ddp, zero1, fsdp1, fsdp2, or --gpus 2"},
         NoMode{"OneCopy", 2, Framework::kTorch, ""},
         NoMode{"CopiesOfMegatron", 8, Framework::kMegatron, "parallel-none-with-copies", "ddp (Megatron's own)"},
         NoMode{"OneCopyOfMegatron", 2, Framework::kMegatron, ""},
         NoMode{"DeepSpeed", 2, Framework::kDeepSpeed, "parallel-none-of-deepspeed", "its stage 0"}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace memcalc
