// spec/run_options and spec/validate: the defaults, that each is said, and what is refused.
#include "memcalc/spec/run_options.h"
#include "memcalc/families/bert/spec.h"
#include "memcalc/families/bloom/spec.h"
#include "memcalc/families/falcon/spec.h"
#include "memcalc/families/gpt2/spec.h"
#include "memcalc/families/jamba/spec.h"
#include "memcalc/families/llama/spec.h"
#include "memcalc/families/mamba/spec.h"
#include "memcalc/families/torchvision/spec.h"
#include "memcalc/families/vit/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "memcalc/base/error.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/spec/validate.h"
#include "support/error_text.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

ModelSpec bert() {
  return {.name = "bert-test", .model_type = "bert", .architecture = BertSpec{.max_position_embeddings = 512}};
}

ModelSpec roberta() {
  return {.name = "roberta-test",
          .model_type = "roberta",
          .architecture = BertSpec{.max_position_embeddings = 514, .first_position = 2, .is_roberta = true}};
}

ModelSpec gpt2() { return {.name = "gpt2-test", .model_type = "gpt2", .architecture = Gpt2Spec{.n_positions = 1024}}; }

ModelSpec llama(std::int64_t positions) {
  return {
      .name = "llama-test", .model_type = "llama", .architecture = LlamaSpec{{.max_position_embeddings = positions}}};
}

std::string refusal(const ModelSpec& model, const RunOptions& options) {
  try {
    (void)resolve(model, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "accepted";
}

/// The rule that is broken; "" where none is.
std::string broken(const ModelSpec& model, const RunOptions& options) {
  return error_rule([&] { (void)resolve(model, options); });
}

TEST(RunOptions, TrainerIsTheDefaultWithItsOwnDefaults) {
  const ResolvedRun resolved = resolve(bert(), {});
  EXPECT_EQ(resolved.run.task, Task::kSequenceClassification);
  EXPECT_EQ(resolved.run.batch_size, 1);
  EXPECT_EQ(resolved.run.sequence_length, 512);
  EXPECT_EQ(resolved.run.precision, Precision::kFp32);
  EXPECT_EQ(resolved.run.training().loop, Loop::kTrainer);
  EXPECT_EQ(resolved.run.training().optimizer, Optimizer::kAdamWFused);
  EXPECT_EQ(resolved.run.training().max_grad_norm, 1.0);
  for (const char* said : {"task seqcls", "batch size 1", "sequence length 512", "precision fp32", "Trainer",
                           "fused AdamW", "clipped at norm 1.0", "no mask"}) {
    EXPECT_THAT(resolved.assumptions, Contains(HasSubstr(said)));
  }
}

TEST(RunOptions, ThePlainLoopHasTorchsDefaults) {
  const ResolvedRun resolved = resolve(gpt2(), {.loop = Loop::kBare});
  EXPECT_EQ(resolved.run.task, Task::kCausalLm);
  EXPECT_EQ(resolved.run.training().optimizer, Optimizer::kAdamWForeach);
  EXPECT_EQ(resolved.run.training().max_grad_norm, std::nullopt);
  EXPECT_THAT(resolved.assumptions, Contains(HasSubstr("foreach AdamW")));
}

TEST(RunOptions, NetworksOfTorchvisionAreForThePlainLoop) {
  const ModelSpec vit{.name = "vit-test", .model_type = "vit", .architecture = VitSpec{.image_size = 224}};
  EXPECT_EQ(resolve(vit, {}).run.training().loop, Loop::kTrainer);
  const ModelSpec resnet{
      .name = "resnet-test", .model_type = "torchvision", .architecture = TorchvisionSpec{"resnet18"}};
  EXPECT_EQ(resolve(resnet, {}).run.training().loop, Loop::kBare);
  EXPECT_EQ(resolve(resnet, {.loop = Loop::kTrainer}).run.training().loop, Loop::kTrainer);
  EXPECT_EQ(broken(resnet, {.precision = Precision::kBf16, .loop = Loop::kTrainer}), "torchvision-trainer-images");
}

TEST(RunOptions, WhatWasSaidIsNoAssumption) {
  const ResolvedRun resolved = resolve(bert(), {.task = Task::kMaskedLm,
                                                .batch_size = 4,
                                                .sequence_length = 128,
                                                .precision = Precision::kAmpFp16,
                                                .loop = Loop::kTrainer,
                                                .optimizer = Optimizer::kAdamWForeach,
                                                .max_grad_norm = 0.0,
                                                .padding = true,
                                                .skipped_steps = 0});
  EXPECT_EQ(resolved.assumptions, std::vector<std::string>{});
  EXPECT_EQ(resolved.run.training().optimizer, Optimizer::kAdamWForeach)
      << "adamw under the Trainer is the foreach one";
  EXPECT_EQ(resolved.run.training().max_grad_norm, std::nullopt) << "0 switches clipping off";
}

TEST(RunOptions, DeepSpeedClipsAtOneUnlessItsConfigurationSaysZero) {
  RunOptions options{.loop = Loop::kBare};
  options.precision = Precision::kBf16;
  options.parallel.gpus = 2;
  options.parallel.data_parallel = DataParallel::kDsZero2;
  EXPECT_EQ(resolve(bert(), options).run.training().max_grad_norm, 1.0);
  options.max_grad_norm = 0;
  EXPECT_EQ(resolve(bert(), options).run.training().max_grad_norm, std::nullopt);
}

TEST(RunOptions, DefaultSequenceIsTheTrainedContextAtMost2048) {
  EXPECT_EQ(resolve(gpt2(), {}).run.sequence_length, 1024);
  EXPECT_EQ(resolve(roberta(), {}).run.sequence_length, 512);
  EXPECT_EQ(resolve(llama(2048), {}).run.sequence_length, 2048);
  const ResolvedRun resolved = resolve(llama(131072), {});
  EXPECT_EQ(resolved.run.sequence_length, 2048);
  EXPECT_THAT(resolved.assumptions, Contains(HasSubstr("131072")));
}

TEST(RunOptions, PositionsEndWhereTheTableEnds) {
  EXPECT_EQ(refusal(bert(), {.sequence_length = 512}), "accepted");
  EXPECT_EQ(broken(bert(), {.sequence_length = 513}), "sequence-within-positions");
  EXPECT_EQ(refusal(roberta(), {.sequence_length = 512}), "accepted") << "of 514 rows two are never reached";
  EXPECT_EQ(broken(roberta(), {.sequence_length = 513}), "sequence-within-positions");
  EXPECT_EQ(broken(gpt2(), {.sequence_length = 1025}), "sequence-within-positions");
}

TEST(RunOptions, RotaryPositionsMayGoOnButItIsSaid) {
  constexpr const char* kSaid = "4096 is beyond the 2048 tokens that the model was trained with";
  EXPECT_THAT(resolve(llama(2048), {.sequence_length = 4096}).assumptions, Contains(HasSubstr(kSaid)));
  EXPECT_THAT(resolve(llama(2048), {.sequence_length = 2048}).assumptions, Not(Contains(HasSubstr("beyond"))));
  const ModelSpec falcon{
      .name = "falcon-test",
      .model_type = "falcon",
      .architecture = FalconSpec{.hidden_size = 64, .num_attention_heads = 1, .max_position_embeddings = 2048}};
  EXPECT_THAT(resolve(falcon, {.sequence_length = 4096}).assumptions, Contains(HasSubstr(kSaid)));
}

TEST(RunOptions, ModelsWithoutPositionsHaveALengthAllTheSame) {
  const ModelSpec bloom{.name = "bloom-test", .model_type = "bloom", .architecture = BloomSpec{}};
  const ResolvedRun resolved = resolve(bloom, {});
  EXPECT_EQ(resolved.run.sequence_length, 2048);
  EXPECT_THAT(resolved.assumptions, Contains(HasSubstr("sequence length 2048: the model has no positions")));
  EXPECT_THAT(resolve(bloom, {.sequence_length = 4096}).assumptions, Not(Contains(HasSubstr("sequence length"))));
  const ModelSpec mamba{.name = "mamba-test", .model_type = "mamba", .architecture = MambaSpec{}};
  EXPECT_EQ(resolve(mamba, {}).run.sequence_length, 512);
  EXPECT_THAT(resolve(mamba, {}).assumptions, Contains(HasSubstr("512: the model runs token by token")));
}

TEST(RunOptions, ModelsThatRunTokenByTokenStayWithinTheirContext) {
  JambaSpec sizes;
  sizes.max_position_embeddings = 4096;
  EXPECT_EQ(resolve({.name = "jamba-test", .model_type = "jamba", .architecture = sizes}, {}).run.sequence_length, 512);
  sizes.max_position_embeddings = 128;
  EXPECT_EQ(resolve({.name = "jamba-test", .model_type = "jamba", .architecture = sizes}, {}).run.sequence_length, 128);
}

TEST(RunOptions, NumbersOutOfRange) {
  for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    EXPECT_THAT(refusal(bert(), {.batch_size = wrong}), HasSubstr("--bs: expected a whole number of 1 or more"));
    EXPECT_THAT(refusal(bert(), {.sequence_length = wrong}), HasSubstr("--seq: expected"));
    EXPECT_THAT(refusal(bert(), {.accumulation_steps = wrong}), HasSubstr("--accum: expected"));
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double wrong : {-0.1, 1.0, 2.0, nan}) {
    EXPECT_THAT(refusal(bert(), {.dropout = wrong}), HasSubstr("--dropout: expected"));
  }
  for (const double wrong : {-1.0, nan, std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(refusal(bert(), {.max_grad_norm = wrong}), HasSubstr("--clip-grad: expected"));
  }
}

TEST(RunOptions, HeadsThatAFamilyDoesNotHave) {
  EXPECT_EQ(broken(llama(2048), {.task = Task::kMaskedLm}), "task-of-decoders");
  EXPECT_EQ(broken(bert(), {.task = Task::kCausalLm}), "task-of-encoders");
  EXPECT_EQ(broken(bert(), {.use_cache = true}), "cache-of-decoders");
  EXPECT_EQ(broken(bert(), {.checkpointing = Checkpointing::kFull, .use_cache = true}), "cache-of-decoders");
}

TEST(RunOptions, DtypesThatContradictEachOther) {
  EXPECT_EQ(broken(bert(), {.precision = Precision::kBf16, .weights_dtype = DType::kFloat32}),
            "precision-is-that-of-weights");
  EXPECT_EQ(broken(bert(), {.precision = Precision::kFp32, .weights_dtype = DType::kFloat16}),
            "precision-is-that-of-weights");
  EXPECT_EQ(refusal(bert(), {.precision = Precision::kAmpBf16, .weights_dtype = DType::kBFloat16}), "accepted");
  EXPECT_EQ(resolve(bert(), {.weights_dtype = DType::kBFloat16}).run.precision, Precision::kBf16);
  EXPECT_EQ(broken(bert(), {.attention = Attention::kFlash}), "flash-attention-in-16-bit");
  EXPECT_EQ(refusal(bert(), {.precision = Precision::kAmpFp16, .attention = Attention::kFlash}), "accepted");
}

TEST(RunOptions, CheckpointingSwitchesTheCacheOff) {
  const ResolvedRun resolved = resolve(gpt2(), {.checkpointing = Checkpointing::kFull, .use_cache = true});
  EXPECT_FALSE(resolved.run.use_cache);
  EXPECT_THAT(resolved.assumptions, Contains(HasSubstr("use_cache")));
}

TEST(RunOptions, AdaptersOfTrlUnderZeRo3) {
  ModelSpec model = llama(1024);
  model.architecture.change<LlamaSpec>().hidden_size = 64;  // DeepSpeed's buckets follow from it
  RunOptions options{.loop = Loop::kTrlSft, .lora_rank = 8};
  options.precision = Precision::kAmpBf16;
  options.weights_dtype = DType::kBFloat16;
  options.gpus = 2;
  options.parallel.data_parallel = DataParallel::kFsdp2;
  const RunSpec sharded = resolve(model, options).run;
  EXPECT_FALSE(sharded.fine_tuning.lora->in_base_dtype);
  EXPECT_FALSE(sharded.checkpoints_reentrantly());
  options.parallel.data_parallel = DataParallel::kDsZero3;
  const RunSpec zero3 = resolve(model, options).run;
  EXPECT_TRUE(zero3.fine_tuning.lora->in_base_dtype);
  EXPECT_TRUE(zero3.checkpoints_reentrantly());
  options.loop = Loop::kTrainer;
  EXPECT_FALSE(resolve(model, options).run.fine_tuning.lora->in_base_dtype);
}

TEST(RunNames, EveryNameIsReadBack) {
  for (const auto name : kOptimizerNames) EXPECT_EQ(name_of(*enum_from<Optimizer>(kOptimizerNames, name)), name);
  for (const auto name : kPrecisionNames) EXPECT_EQ(name_of(*enum_from<Precision>(kPrecisionNames, name)), name);
  EXPECT_EQ(enum_from<Task>(kTaskNames, "Causal"), std::nullopt);
  EXPECT_EQ(*enum_from<DType>(kWeightDTypeNames, "bf16"), DType::kBFloat16);
}

}  // namespace
}  // namespace memcalc
