// How a run may be split: what is filled in, what is refused and with which words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/spec/validate_parallel.h"
#include "support/paths.h"

namespace memcalc {
namespace {

using ::testing::HasSubstr;

ModelSpec model(const std::string& name) { return SpecRegistry(test::specs_dir().string()).model(name); }

RunOptions bare() { return {.batch_size = 1, .sequence_length = 16, .loop = Loop::kBare}; }

struct Refusal {
  const char* name;
  std::function<void(RunOptions&)> ask;
  const char* message;
};

const Refusal kRefusals[] = {
    {"GpusThatTheProductDoesNotDivide",
     [](RunOptions& o) {
       o.gpus = 6;
       o.parallel.tensor = 4;
       o.optimizer = Optimizer::kAdamWForLoop;
     },
     "tp 4 = 4 does not divide it"},
    {"HeadsThatCannotBeSplit", [](RunOptions& o) { o.parallel.tensor = 3; }, "a head cannot be split"},
    {"KeyValueHeads", [](RunOptions& o) { o.parallel.tensor = 16; }, "key/value heads"},
    {"NothingToShare", [](RunOptions& o) { o.parallel.data_parallel = DataParallel::kFsdp2; }, "one GPU has nothing"},
    {"NoRanksLeft",
     [](RunOptions& o) {
       o.gpus = 2;
       o.parallel.tensor = 2;
       o.parallel.data_parallel = DataParallel::kDdp;
     },
     "takes all GPUs"},
    {"AnotherFramework",
     [](RunOptions& o) {
       o.gpus = 2;
       o.parallel.data_parallel = DataParallel::kDsZero3;
       o.framework = Framework::kMegatron;
     },
     "ds-zero3 is deepspeed's"},
    {"HsdpThatIsNoDivisor",
     [](RunOptions& o) {
       o.gpus = 4;
       o.parallel.data_parallel = DataParallel::kFsdp2;
       o.parallel.hsdp_shard = 3;
     },
     "expected a divisor of the 4"},
    {"FsdpOptionsOfDdp",
     [](RunOptions& o) {
       o.gpus = 2;
       o.parallel.fsdp_param_dtype = DType::kBFloat16;
     },
     "accepted: --parallel fsdp2 or fsdp1"},
    {"BucketViewsOfFsdp",
     [](RunOptions& o) {
       o.gpus = 2;
       o.parallel.data_parallel = DataParallel::kFsdp2;
       o.parallel.ddp_bucket_view = true;
     },
     "accepted: --parallel ddp or zero1"},
    {"FsdpStatesAloneOnTheHost",
     [](RunOptions& o) {
       o.gpus = 2;
       o.parallel.data_parallel = DataParallel::kFsdp2;
       o.parallel.offload_states = OffloadTo::kHost;
     },
     "give --offload-parameters host"},
    {"FsdpOnNvme",
     [](RunOptions& o) {
       o.gpus = 2;
       o.parallel.data_parallel = DataParallel::kFsdp2;
       o.parallel.offload_parameters = OffloadTo::kNvme;
     },
     "accepted: host"},
    {"Zero1InTheTrainer",
     [](RunOptions& o) {
       o.gpus = 2;
       o.loop = Loop::kTrainer;
       o.parallel.data_parallel = DataParallel::kZero1;
     },
     "accepted: --loop bare, or --parallel ddp, dp, fsdp1 or fsdp2"},
    {"Fsdp1OfAClassifierInTheTrainer",
     [](RunOptions& o) {
       o.gpus = 2;
       o.loop = Loop::kTrainer;
       o.task = Task::kSequenceClassification;
       o.parallel.data_parallel = DataParallel::kFsdp1;
     },
     "accepted: --task causal"},
    {"Fsdp2WithALossScaler",
     [](RunOptions& o) {
       o.gpus = 2;
       o.loop = Loop::kTrainer;
       o.precision = Precision::kAmpFp16;
       o.parallel.data_parallel = DataParallel::kFsdp2;
     },
     "accepted: --precision amp-bf16, bf16, fp32"},
    {"PipelinesInTheTrainer",
     [](RunOptions& o) {
       o.loop = Loop::kTrainer;
       o.parallel.pipeline = 2;
     },
     "accelerate prepares a model for pp"},
    {"HostsThatDoNotDivide",
     [](RunOptions& o) {
       o.gpus = 4;
       o.parallel.nodes = 3;
     },
     "nodes 3 does not divide gpus 4"},
    {"UlyssesOfTorch",
     [](RunOptions& o) {
       o.parallel.context = 2;
       o.parallel.context_type = ContextParallel::kUlysses;
     },
     "accepted: all-gather, ring"},
    {"SequenceThatBalancingCannotCut", [](RunOptions& o) { o.parallel.context = 3; }, "no multiple of 2 x cp = 6"},
    {"ContextParallelWithMasks",
     [](RunOptions& o) {
       o.parallel.context = 2;
       o.padding = true;
     },
     "takes no attention mask"},
    {"StagesBesideFsdp1",
     [](RunOptions& o) {
       o.gpus = 4;
       o.parallel.pipeline = 2;
       o.parallel.data_parallel = DataParallel::kFsdp1;
     },
     "accepted: fsdp2, ddp"},
    {"ZeroBubbleBesideDdp",
     [](RunOptions& o) {
       o.gpus = 4;
       o.parallel.pipeline = 2;
       o.parallel.schedule = PipelineSchedule::kZeroBubble;
     },
     "reach no hook of DistributedDataParallel"},
    {"ZeroBubbleOfShardsThatAreTakenAway",
     [](RunOptions& o) {
       o.gpus = 4;
       o.parallel.pipeline = 2;
       o.parallel.schedule = PipelineSchedule::kZeroBubbleV;
       o.parallel.data_parallel = DataParallel::kFsdp2;
     },
     "accepted: --no-reshard-after-forward"},
    {"ZeroBubbleVOfFourStages",
     [](RunOptions& o) {
       o.parallel.pipeline = 2;
       o.parallel.virtual_stages = 4;
       o.parallel.schedule = PipelineSchedule::kZeroBubbleV;
     },
     "two stages a rank"},
    {"LayersOfTooFewStages",
     [](RunOptions& o) {
       o.parallel.pipeline = 4;
       o.parallel.stage_layers = {8, 8};
     },
     "2 numbers for 4 stages"},
    {"LayersThatAreNotThere",
     [](RunOptions& o) {
       o.parallel.pipeline = 2;
       o.parallel.stage_layers = {8, 7};
     },
     "together 15, but the model has 16"},
    {"LayersOfNoStages", [](RunOptions& o) { o.parallel.stage_layers = {16}; }, "of a pipeline under torch"},
    {"TensorParallelBesideZero1",
     [](RunOptions& o) {
       o.gpus = 4;
       o.parallel.tensor = 2;
       o.parallel.data_parallel = DataParallel::kZero1;
     },
     "accepted: fsdp2, ddp"},
    {"ClippingOverTwoMeshes",
     [](RunOptions& o) {
       o.gpus = 4;
       o.parallel.tensor = 2;
       o.parallel.data_parallel = DataParallel::kFsdp2;
       o.max_grad_norm = 1.0;
     },
     "DTensors of two meshes"},
    {"HsdpOfFsdp1",
     [](RunOptions& o) {
       o.gpus = 4;
       o.parallel.data_parallel = DataParallel::kFsdp1;
       o.parallel.hsdp_shard = 2;
     },
     "HYBRID_SHARD"},
    {"ExpertsOfADenseModel", [](RunOptions& o) { o.parallel.expert = 2; }, "llama has no experts"},
    {"ZeroBubbleWithSelectiveRecomputation",
     [](RunOptions& o) {
       o.parallel.pipeline = 2;
       o.parallel.schedule = PipelineSchedule::kZeroBubble;
       o.checkpointing = Checkpointing::kSelective;
     },
     "accepted: --checkpointing none, full"},
    {"UnevenRounds",
     [](RunOptions& o) {
       o.parallel.pipeline = 2;
       o.parallel.micro_batches = 5;
       o.parallel.virtual_stages = 2;
       o.parallel.schedule = PipelineSchedule::kInterleaved;
     },
     "a multiple of its 2 rounds"},
    {"InterleavedWithOneStage",
     [](RunOptions& o) {
       o.parallel.pipeline = 2;
       o.parallel.schedule = PipelineSchedule::kInterleaved;
     },
     "give --virtual-stages 2"},
    {"FewerMicroBatchesThanStages",
     [](RunOptions& o) {
       o.parallel.pipeline = 4;
       o.parallel.micro_batches = 3;
     },
     "as many as stages, 4"},
    {"MoreStagesThanLayers", [](RunOptions& o) { o.parallel.pipeline = 32; }, "more stages than the 16 layers"},
    {"SequenceWithoutRanks", [](RunOptions& o) { o.gpus = 2, o.parallel.sequence_parallel = true; }, "give --tp"},
    {"SequenceThatRanksDoNotDivide",
     [](RunOptions& o) {
       o.sequence_length = 17;
       o.parallel.tensor = 4, o.parallel.sequence_parallel = true;
     },
     "tp 4 does not divide the sequence length 17"},
    {"SequenceBesideDdp", [](RunOptions& o) { o.gpus = 4, o.parallel.tensor = 2, o.parallel.sequence_parallel = true; },
     "accepted: fsdp2"},
    {"SequenceWithClipping",
     [](RunOptions& o) {
       o.parallel.tensor = 2, o.parallel.sequence_parallel = true;
       o.max_grad_norm = 1.0;
     },
     "accepted: no clipping"},
    {"LossParallelOfWholeLogits",
     [](RunOptions& o) {
       o.optimizer = Optimizer::kAdamWForLoop;
       o.parallel.tensor = 2, o.parallel.loss_parallel = true;
     },
     "give --tp and --sp"},
    {"ForeachOverDTensors", [](RunOptions& o) { o.parallel.tensor = 2; }, "adamw-for"},
};

class Refusals : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refusals, SayWhy) {
  RunOptions options = bare();
  GetParam().ask(options);
  try {
    (void)resolve(model("llama-3.2-1b"), options);
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Refusals, ::testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Trainer, Fsdp2ShardsDecodersWithATiedHead) {
  RunOptions options = bare();
  options.loop = Loop::kTrainer;
  options.gpus = 2;
  options.parallel.data_parallel = DataParallel::kFsdp2;
  EXPECT_NO_THROW((void)resolve(model("llama-3.2-1b"), options));
  EXPECT_THROW((void)resolve(model("llama-3-8b"), options), Error);  // its head is its own
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

}  // namespace
}  // namespace memcalc
