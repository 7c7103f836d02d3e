// spec/rules_training: a run that breaks each rule.
#include "memcalc/spec/rule_tables.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

const RunOptions kTrainer{.loop = Loop::kTrainer};
const RunOptions kOffloads{.precision = Precision::kBf16, .offload_optimizer = true};
const RunOptions kOffloadsGradients{
    .precision = Precision::kBf16, .offload_optimizer = true, .offload_gradients = true};

const test::RuleCase kCases[] = {
    {"muon-in-a-plain-loop", "gpt2", [](RunSpec& run) { run.training().optimizer = Optimizer::kMuon; }, kTrainer},
    {"adafactor-relative-in-a-plain-loop", "gpt2",
     [](RunSpec& run) { run.training().optimizer = Optimizer::kAdafactorRelative; }, kTrainer},
    {"optimizer-in-backward-loop", "gpt2", [](RunSpec& run) { run.training().optimizer_in_backward = true; }, kTrainer},
    {"optimizer-in-backward-gradients",
     "gpt2",
     [](RunSpec& run) { run.training().accumulation_steps = 2; },
     {.optimizer_in_backward = true}},
    {"torchao-optimizer-parallel",
     "gpt2",
     [](RunSpec& run) { run.training().optimizer = Optimizer::kAdamWTorchao8bit; },
     {.gpus = 2, .parallel = {.data_parallel = DataParallel::kFsdp2}}},
    {"skipped-steps-of-a-scaler", "gpt2", [](RunSpec& run) { run.training().skipped_steps = 1; }},
    {"skipped-steps-of-a-scaler",
     "gpt2",
     [](RunSpec& run) { run.training().skipped_steps = 1; },
     {.precision = Precision::kFp16}},
    {"checkpointing-every-n", "gpt2", [](RunSpec& run) { run.training().checkpoint_every = 0; }},
    // torchao's optimizer
    {"offload-gradients-with-optimizer", "gpt2", [](RunSpec& run) { run.training().offload_gradients = true; }},
    {"offload-optimizer-one-gpu", "gpt2", [](RunSpec& run) { run.parallel.gpus = 2; }, kOffloads},
    {"offload-optimizer-adamw", "gpt2", [](RunSpec& run) { run.training().optimizer = Optimizer::kSgd; }, kOffloads},
    {"offload-optimizer-without-scaler",
     "gpt2",
     [](RunSpec& run) { run.training().offload_optimizer = true; },
     {.precision = Precision::kAmpFp16}},
    {"offload-optimizer-without-clipping", "gpt2", [](RunSpec& run) { run.training().max_grad_norm = 1.0; }, kOffloads},
    {"offload-gradients-one-micro-batch", "gpt2", [](RunSpec& run) { run.training().accumulation_steps = 2; },
     kOffloadsGradients},
    // weights and states on the host of one GPU
    {"offload-states-one-gpu", "gpt2", [](RunSpec& run) { run.parallel.offload_states = OffloadTo::kHost; }},
    {"offload-parameters-one-gpu", "gpt2", [](RunSpec& run) { run.parallel.offload_parameters = OffloadTo::kHost; }},
    {"offload-parameters-to-host",
     "gpt2",
     [](RunSpec& run) { run.parallel.offload_parameters = OffloadTo::kNvme; },
     {.inference = Inference{}}},
    {"offload-parameters-unpacked",
     "gpt2",
     [](RunSpec& run) { run.parallel.offload_parameters = OffloadTo::kHost; },
     {.quantization = Quantization::kNf4, .inference = Inference{}}},
};

TEST(RulesOfTraining, EachIsBrokenByARun) { test::expect_each_rule_broken(rules_of_training(), kCases); }

TEST(RulesOfTraining, DeepSpeedScalesItsFp16Loss) {
  const ModelSpec model = test::model_of("gpt2");
  RunOptions options{.precision = Precision::kFp16, .loop = Loop::kBare};
  options.parallel.data_parallel = DataParallel::kDsZero2;
  RunSpec run = resolve(model, options).run;
  run.training().skipped_steps = 1;
  EXPECT_EQ(test::first_broken(model, run).rule(), "");
}

}  // namespace
}  // namespace memcalc
