// spec/rules_versions: a run that breaks each rule.
#include "memcalc/spec/rule_tables.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

const RunOptions kBare{.loop = Loop::kBare};
const RunOptions kTrainer{.loop = Loop::kTrainer};

const test::RuleCase kCases[] = {
    {"attention-of-version", "gemma-2-2b", [](RunSpec& run) { run.profile.behaviors.gemma2_eager = true; }, kBare},
    {"experts-of-version", "deepseek-v2-lite", [](RunSpec& run) { run.profile.behaviors.experts = ExpertForm::kLoop; },
     kBare},
    {"deepseek-of-version", "deepseek-v2-lite",
     [](RunSpec& run) { run.profile.behaviors.deepseek_caches_latent = false; }, kBare},
    {"expert-parallel-of-version",
     "qwen3-30b-a3b",
     [](RunSpec& run) {
       run.profile.behaviors.experts = ExpertForm::kLoop;
       run.parallel.gpus = run.parallel.expert = 2;
     },
     {.loop = Loop::kBare, .optimizer = Optimizer::kAdamWForLoop}},
    {"reentrant-position-bias", "t5-small",
     [](RunSpec& run) {
       run.profile.behaviors.reentrant_checkpoints = true;
       run.training().checkpointing = Checkpointing::kFull;
     },
     kBare},
    {"reentrant-keyword", "whisper-tiny",
     [](RunSpec& run) {
       run.profile.behaviors.reentrant_checkpoints = true;
       run.training().checkpointing = Checkpointing::kFull;
     },
     kBare},
    {"compile-of-version", "gpt2",
     [](RunSpec& run) {
       run.profile.behaviors.compile_is_read = false;
       run.training().compile = true;
     },
     kBare},
    {"checkpointing-every-of-version", "gpt2",
     [](RunSpec& run) {
       run.profile.behaviors.checkpoints_every_nth = false;
       run.training().checkpointing = Checkpointing::kFull;
       run.training().checkpoint_every = 2;
     },
     kBare},
    {"loading-of-version", "gpt2",
     [](RunSpec& run) {
       run.profile.behaviors.loads_by_conversion = false;
       run.training().loading = ModelLoading::kHost;
     },
     kTrainer},
    {"fsdp2-upcast-of-version", "llama-3.2-1b",
     [](RunSpec& run) {
       run.profile.behaviors.fsdp2_upcasts = Fsdp2Upcast::kAllShards;
       run.precision = Precision::kAmpBf16;
       run.weights_dtype = DType::kBFloat16;
       run.parallel.data_parallel = DataParallel::kFsdp2;
       run.parallel.gpus = 2;
     },
     kTrainer},
    {"sft-chunks-of-version",
     "gpt2",
     [](RunSpec& run) {
       run.profile.behaviors.sft_loss = SftLossForm::kSortedChunks;
       run.training().balances_experts = true;
     },
     {.loop = Loop::kTrlSft}},
    {"trainer-of-version",
     "gpt2",
     [](RunSpec& run) { run.profile.behaviors.sft_loss = SftLossForm::kSortedChunks; },
     {.loop = Loop::kTrlDpo, .lora_rank = 8}},
    {"preferences-of-version",
     "gpt2",
     [](RunSpec& run) {
       run.profile.behaviors.preference_scores = PreferenceScores::kLogits;
       run.precision = Precision::kBf16;
     },
     {.loop = Loop::kTrlDpo, .lora_rank = 8}},
};

TEST(RulesOfVersions, EachIsBrokenByARun) { test::expect_each_rule_broken(rules_of_versions(), kCases); }

}  // namespace
}  // namespace memcalc
