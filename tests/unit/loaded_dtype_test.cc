// spec/loaded_dtype: the data type of the weights and the precision where they are not said.
#include "memcalc/spec/loaded_dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_names.h"
#include "support/paths.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

using ::testing::Contains;
using ::testing::HasSubstr;

ModelSpec stored_in(std::optional<DType> type) {
  ModelSpec model = SpecRegistry(test::specs_dir().string()).model("llama-3.2-1b");
  model.checkpoint_dtype = type;
  return model;
}

/// "amp-bf16 bfloat16": precision and weights.
std::string loaded(std::optional<DType> stored, RunOptions options) {
  if (!options.loop) options.loop = Loop::kBare;
  const RunSpec run = resolve(stored_in(stored), options).run;
  return std::string(name_of(run.precision)) + " " + std::string(name_of(weights_dtype_of(run)));
}

TEST(LoadedDtype, IsThatOfTheCheckpointWhereNothingIsSaid) {
  EXPECT_EQ(loaded(DType::kBFloat16, {}), "bf16 bfloat16");
  EXPECT_EQ(loaded(DType::kFloat16, {}), "fp16 float16");
  EXPECT_EQ(loaded(DType::kFloat32, {}), "fp32 float32");
  EXPECT_EQ(loaded(std::nullopt, {}), "fp32 float32");
}

TEST(LoadedDtype, AutocastLeavesItAsItIsStored) {
  EXPECT_EQ(loaded(DType::kBFloat16, {.mixed_precision = DType::kBFloat16}), "amp-bf16 bfloat16");
  EXPECT_EQ(loaded(DType::kFloat16, {.mixed_precision = DType::kBFloat16}), "amp-bf16 float16");
  EXPECT_EQ(loaded(DType::kFloat32, {.mixed_precision = DType::kBFloat16}), "amp-bf16 float32");
}

TEST(LoadedDtype, WhatIsSaidHolds) {
  EXPECT_EQ(loaded(DType::kBFloat16, {.precision = Precision::kFp32}), "fp32 float32");
  EXPECT_EQ(loaded(DType::kBFloat16, {.precision = Precision::kFp16}), "fp16 float16");
  EXPECT_EQ(loaded(DType::kBFloat16, {.weights_dtype = DType::kFloat32}), "fp32 float32");
  EXPECT_EQ(loaded(DType::kBFloat16, {.precision = Precision::kAmpBf16, .weights_dtype = DType::kFloat32}),
            "amp-bf16 float32");
  EXPECT_EQ(loaded(DType::kFloat32, {.weights_dtype = DType::kBFloat16}), "bf16 bfloat16");
}

TEST(LoadedDtype, TheLossScalerTakesNo16BitGradients) {
  EXPECT_EQ(loaded(DType::kBFloat16, {.mixed_precision = DType::kFloat16}), "amp-fp16 float32");
  EXPECT_EQ(loaded(DType::kBFloat16, {.mixed_precision = DType::kFloat16, .lora_rank = 8}), "amp-fp16 bfloat16");
  EXPECT_EQ(loaded(DType::kFloat16, {.mixed_precision = DType::kFloat16, .inference = Inference{}}),
            "amp-fp16 float16");
}

TEST(LoadedDtype, FsdpWithMixedPrecisionShardsFloat32) {
  RunOptions options{.mixed_precision = DType::kBFloat16, .gpus = 2};
  options.parallel.data_parallel = DataParallel::kFsdp2;
  EXPECT_EQ(loaded(DType::kBFloat16, options), "amp-bf16 float32");
  options.mixed_precision.reset();
  EXPECT_EQ(loaded(DType::kBFloat16, options), "bf16 bfloat16");
  options.torch.fsdp_param_dtype = DType::kBFloat16;
  EXPECT_EQ(loaded(DType::kBFloat16, options), "fp32 float32");
}

TEST(LoadedDtype, FsdpInTheTrainerMakesWhatIsLoadedInHalfFloat32) {
  RunOptions options{.precision = Precision::kAmpBf16, .weights_dtype = DType::kBFloat16, .loop = Loop::kTrainer};
  options.gpus = 2;
  options.parallel.data_parallel = DataParallel::kFsdp2;
  EXPECT_EQ(loaded(DType::kBFloat16, options), "amp-bf16 float32");
  options.lora_rank = 8;
  EXPECT_EQ(loaded(DType::kBFloat16, options), "amp-bf16 bfloat16");
}

TEST(LoadedDtype, OtherFrameworksConvertTheWeights) {
  RunOptions options{.gpus = 2, .framework = Framework::kDeepSpeed};
  options.parallel.data_parallel = DataParallel::kDsZero2;
  EXPECT_EQ(loaded(DType::kBFloat16, options), "fp32 float32");
}

TEST(LoadedDtype, InTheTrainerBf16IsItsFlagAndAFrozenBaseStaysAsStored) {
  RunOptions options{.mixed_precision = DType::kBFloat16, .loop = Loop::kTrainer, .gpus = 2};
  options.parallel.data_parallel = DataParallel::kDsZero2;
  EXPECT_EQ(loaded(DType::kBFloat16, options), "amp-bf16 bfloat16");
  options.loop = Loop::kBare;
  EXPECT_EQ(loaded(DType::kBFloat16, options), "bf16 bfloat16");
  options.loop = Loop::kTrainer;
  options.parallel.data_parallel = DataParallel::kFsdp2;
  options.lora_rank = 8;
  EXPECT_EQ(loaded(DType::kBFloat16, options), "amp-bf16 bfloat16");
}

TEST(LoadedDtype, IsToldWithTheOptionThatChangesIt) {
  const auto told = [](DType type, RunOptions options) { return resolve(stored_in(type), options).assumptions; };
  EXPECT_THAT(told(DType::kBFloat16, {}), Contains(HasSubstr("the run computes in it (--weights-dtype)")));
  EXPECT_THAT(told(DType::kBFloat16, {.mixed_precision = DType::kFloat16}),
              Contains(HasSubstr("weights are float32: the loss scaler")));
}

TEST(LoadedDtype, ANameKnowsAnotherTypeThanItsFile) {
  EXPECT_EQ(registry().model("google/gemma-2-2b").checkpoint_dtype, DType::kFloat32);
  EXPECT_EQ(registry().model("google/gemma-2-2b-it").checkpoint_dtype, DType::kBFloat16);
  EXPECT_EQ(registry().model("allenai/OLMo-2-1124-7B").checkpoint_dtype, DType::kFloat32);
  EXPECT_EQ(registry().model("allenai/OLMo-2-1124-7B-Instruct").checkpoint_dtype, DType::kBFloat16);
}

}  // namespace
}  // namespace memcalc
