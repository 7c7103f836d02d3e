// spec/parallel: what is filled in of how a run is split, and which rule a run breaks then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/spec/parallel.h"
#include "support/paths.h"

namespace memcalc {
namespace {

using ::testing::HasSubstr;

ModelSpec model(const std::string& name) { return SpecRegistry(test::specs_dir().string()).model(name); }

RunOptions bare() { return {.batch_size = 1, .sequence_length = 16, .loop = Loop::kBare}; }

struct Refusal {
  const char* name;
  std::function<void(RunOptions&)> ask;
  const char* rule;
};

// What a run that was asked for breaks once its defaults are filled in; rules_*_test.cc breaks every rule.
const Refusal kRefusals[] = {
    {"GpusThatTheProductDoesNotDivide",
     [](RunOptions& o) {
       o.gpus = 6;
       o.parallel.tensor = 4;
       o.optimizer = Optimizer::kAdamWForLoop;
     },
     "gpus-hold-whole-copies"},
    {"HeadsThatCannotBeSplit", [](RunOptions& o) { o.parallel.tensor = 3; }, "tp-splits-heads"},
    {"NothingToShare", [](RunOptions& o) { o.parallel.data_parallel = DataParallel::kFsdp2; },
     "one-gpu-shares-nothing"},
    {"NoRanksLeft",
     [](RunOptions& o) {
       o.gpus = 2;
       o.parallel.tensor = 2;
       o.parallel.data_parallel = DataParallel::kDdp;
     },
     "ranks-see-the-same-data"},
    {"AnotherFramework",
     [](RunOptions& o) {
       o.gpus = 2;
       o.parallel.data_parallel = DataParallel::kDsZero3;
       o.framework = Framework::kMegatron;
     },
     "framework-has-mode"},
    {"DeepSpeedOptionsOfTorch", [](RunOptions& o) { o.deepspeed.sub_group_size = 5; },
     "deepspeed-options-of-deepspeed"},
    {"FsdpOptionsOfDdp",
     [](RunOptions& o) {
       o.gpus = 2;
       o.torch.fsdp_param_dtype = DType::kBFloat16;
     },
     "fsdp-dtypes-of-fsdp"},
    {"FsdpStatesAloneOnTheHost",
     [](RunOptions& o) {
       o.gpus = 2;
       o.parallel.data_parallel = DataParallel::kFsdp2;
       o.parallel.offload_states = OffloadTo::kHost;
     },
     "fsdp2-offloads-all"},
    {"Zero1InTheTrainer",
     [](RunOptions& o) {
       o.gpus = 2;
       o.loop = Loop::kTrainer;
       o.parallel.data_parallel = DataParallel::kZero1;
     },
     "trainer-modes"},
    {"PipelinesInTheTrainer",
     [](RunOptions& o) {
       o.loop = Loop::kTrainer;
       o.parallel.pipeline = 2;
     },
     "trainer-splits-no-model"},
    {"ZeroBubbleBesideDdp",
     [](RunOptions& o) {
       o.gpus = 4;
       o.parallel.pipeline = 2;
       o.parallel.schedule = PipelineSchedule::kZeroBubble;
     },
     "zero-bubble-ddp"},
    {"ZeroBubbleVOfFourStages",
     [](RunOptions& o) {
       o.parallel.pipeline = 2;
       o.parallel.virtual_stages = 4;
       o.parallel.schedule = PipelineSchedule::kZeroBubbleV;
     },
     "zbv-has-two-stages"},
    {"MoreStagesThanLayers", [](RunOptions& o) { o.parallel.pipeline = 32; }, "pp-stages-have-layers"},
    {"SequenceBesideDdp", [](RunOptions& o) { o.gpus = 4, o.parallel.tensor = 2, o.parallel.sequence_parallel = true; },
     "sp-ddp"},
    {"ForeachOverDTensors", [](RunOptions& o) { o.parallel.tensor = 2; }, "tp-optimizer"},
};

class Refusals : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refusals, BreakARule) {
  RunOptions options = bare();
  GetParam().ask(options);
  try {
    (void)resolve(model("llama-3.2-1b"), options);
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_EQ(error.rule(), GetParam().rule) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Refusals, ::testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Trainer, Fsdp2ShardsDecodersWhetherOrNotTheyTieTheHead) {
  RunOptions options = bare();
  options.loop = Loop::kTrainer;
  options.gpus = 2;
  options.parallel.data_parallel = DataParallel::kFsdp2;
  EXPECT_NO_THROW((void)resolve(model("llama-3.2-1b"), options));
  EXPECT_NO_THROW((void)resolve(model("llama-3-8b"), options)) << "its head is its own";
}

TEST(Pipelines, AreCombinedAsTorchRunsThem) {
  const auto accepted = [](const std::function<void(RunOptions&)>& ask) {
    RunOptions options = bare();
    options.parallel.pipeline = 2;
    ask(options);
    EXPECT_NO_THROW((void)resolve(model("llama-3.2-1b"), options));
  };
  accepted([](RunOptions& o) {
    o.gpus = 8;
    o.parallel.context = 2;
    o.parallel.virtual_stages = 2;
    o.parallel.schedule = PipelineSchedule::kInterleaved;
    o.parallel.data_parallel = DataParallel::kFsdp2;
  });
  accepted([](RunOptions& o) {
    o.parallel.schedule = PipelineSchedule::kZeroBubble;
    o.checkpointing = Checkpointing::kFull;
  });
  accepted([](RunOptions& o) {
    o.parallel.stage_layers = {9, 7};
    o.lora_rank = 8;
  });
  RunOptions options = bare();
  options.parallel.pipeline = 2;
  options.parallel.schedule = PipelineSchedule::kZeroBubbleV;
  EXPECT_EQ(resolve(model("llama-3.2-1b"), options).run.parallel.virtual_stages, 2);
}

TEST(Defaults, AreFilledInAndSaid) {
  RunOptions options = bare();
  options.gpus = 4;
  const ResolvedRun ddp = resolve(model("llama-3.2-1b"), options);
  EXPECT_EQ(ddp.run.parallel.data_parallel, DataParallel::kDdp);
  EXPECT_THAT(ddp.assumptions, ::testing::Contains(HasSubstr("DistributedDataParallel")));
  options.framework = Framework::kMegatron;
  options.precision = Precision::kBf16;
  const ResolvedRun megatron = resolve(model("llama-3.2-1b"), options);
  EXPECT_EQ(megatron.run.parallel.data_parallel, DataParallel::kDdp);
  EXPECT_THAT(megatron.assumptions, ::testing::Contains(HasSubstr("Megatron's own DistributedDataParallel")));
  options = bare();
  options.parallel.tensor = 2;
  options.optimizer = Optimizer::kAdamWForLoop;
  const ResolvedRun tensor = resolve(model("llama-3.2-1b"), options);
  EXPECT_EQ(tensor.run.parallel.gpus, 2);
  EXPECT_EQ(data_parallel_size(tensor.run.parallel), 1);
  options = bare();
  options.gpus = 4;
  options.parallel.context = 2;
  options.parallel.data_parallel = DataParallel::kFsdp2;
  options.parallel.offload_parameters = OffloadTo::kHost;
  const ResolvedRun context = resolve(model("llama-3.2-1b"), options);
  EXPECT_EQ(sharing_ranks(context.run.parallel), 4);  // shards of parameters, over 2 x 2 ranks
  EXPECT_EQ(context.run.parallel.offload_states, OffloadTo::kHost);
  EXPECT_THAT(context.assumptions, ::testing::Contains(HasSubstr("CPUOffloadPolicy")));
}

// transformers/integrations/deepspeed.py, trainer_config_finalize.
TEST(DeepSpeedSizes, OfTheTrainerFollowTheModelsWidth) {
  RunOptions options{.precision = Precision::kAmpBf16, .loop = Loop::kTrainer, .gpus = 2};
  options.parallel.data_parallel = DataParallel::kDsZero3;
  const ResolvedRun in_trainer = resolve(model("llama-3.2-1b"), options);
  const DeepSpeedZero& sizes = in_trainer.run.parallel.deepspeed();
  EXPECT_EQ(sizes.reduce_bucket_size, 2048 * 2048);
  EXPECT_EQ(sizes.prefetch_bucket_size, 3'774'873) << "0.9 of it";
  EXPECT_EQ(sizes.param_persistence_threshold, 20480);
  EXPECT_THAT(in_trainer.assumptions, ::testing::Contains(HasSubstr("\"auto\"")));
  options.deepspeed_sizes.reduce_bucket_size = 500'000'000;
  EXPECT_EQ(resolve(model("llama-3.2-1b"), options).run.parallel.deepspeed().reduce_bucket_size, 500'000'000);
  options.loop = Loop::kBare;
  options.precision = Precision::kBf16;
  EXPECT_EQ(resolve(model("llama-3.2-1b"), options).run.parallel.deepspeed().prefetch_bucket_size, 50'000'000);
}

/// What each framework was asked for at once.
RunOptions of_all_frameworks(Framework framework, std::int64_t gpus) {
  RunOptions options{.precision = Precision::kBf16, .loop = Loop::kBare, .gpus = gpus, .framework = framework};
  options.torch.ddp_bucket_view = true;
  if (framework != Framework::kTorch) options.deepspeed.sub_group_size = 5;
  options.megatron.vocabulary_multiple = 64;
  return options;
}

TEST(Layout, HoldsWhatItsFrameworkWasAskedForAlone) {
  const auto layout = [](Framework framework, std::int64_t gpus) {
    const Parallel p = resolve(model("llama-3.2-1b"), of_all_frameworks(framework, gpus)).run.parallel;
    EXPECT_EQ(p.framework(), framework);
    return p;
  };
  EXPECT_TRUE(layout(Framework::kTorch, 2).torch().ddp_bucket_view);
  EXPECT_EQ(layout(Framework::kDeepSpeed, 1).deepspeed().sub_group_size, 5);
  EXPECT_EQ(layout(Framework::kMegatron, 1).megatron().vocabulary_multiple, 64);
  const Parallel one = layout(Framework::kTorch, 1);
  EXPECT_TRUE(std::holds_alternative<OneGpu>(one.layout));
  EXPECT_EQ(one.gathered_dtype(), std::nullopt);
  EXPECT_THROW((void)one.torch(), std::bad_variant_access);
}

}  // namespace
}  // namespace memcalc
