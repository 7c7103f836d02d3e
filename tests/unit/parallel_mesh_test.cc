// Runs on two dimensions of a mesh, and on transformers' expert parallelism: what all ranks hold together, rank by
// rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>

#include "memcalc/base/error.h"
#include "memcalc/memcalc.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/train/step.h"
#include "support/small_llama.h"

namespace memcalc {
namespace {

using test::device;
using test::Held;
using test::held_at_end;
using test::of;
using test::padded;
using test::small_llama;
using test::sum_over_ranks;
using test::Whole;
using test::whole_model;

// Bytes of what two tensor-parallel ranks hold together, rows padded to what `shards` ranks divide: the layers'
// matrices split by rows or columns, the rest a copy each.
Bytes split_and_padded(const Whole& whole, std::int64_t shards) {
  Bytes bytes = 0;
  for (Shape shape : whole.shapes) {
    const bool in_layer = shape.rank == 2 && shape[0] != 101;
    if (in_layer) shape[shape[1] == 100 || (shape[0] == 48 && shape[1] == 48) ? 1 : 0] /= 2;  // down_proj
    shape[0] = ceil_div(shape[0], shards) * shards;
    bytes += 2 * shape.elements() * 4;
  }
  return bytes;
}

RunSpec mesh_run(std::int64_t gpus, std::int64_t tensor, DataParallel mode) {
  RunOptions options{.batch_size = 2, .sequence_length = 16, .loop = Loop::kBare};
  options.gpus = gpus;
  options.parallel.tensor = tensor;
  options.parallel.data_parallel = mode;
  return resolve(small_llama(), options).run;
}

TEST(SumOverRanks, OfFsdp2OnSplitLayersIsEachPartAndItsPadding) {
  const Whole whole = whole_model();
  for (const std::int64_t shards : {2, 3}) {
    const Held sum = sum_over_ranks(mesh_run(2 * shards, 2, DataParallel::kFsdp2));
    const Bytes expected = split_and_padded(whole, shards);
    EXPECT_EQ(of(sum, Category::kWeights), expected + 2 * shards * whole.buffers) << shards;
    EXPECT_EQ(of(sum, Category::kGradients), expected) << shards;
    EXPECT_EQ(of(sum, Category::kOptimizerStates), 2 * split_and_padded(whole, 1)) << shards;
    EXPECT_EQ(of(sum, Category::kGatheredWeights), 0) << shards;
  }
}

TEST(SumOverRanks, OfHsdpOnSplitLayersIsACopyForEachGroup) {
  const Whole whole = whole_model();
  RunSpec run = mesh_run(8, 2, DataParallel::kFsdp2);
  run.parallel.torch().hsdp_shard = 2;
  EXPECT_EQ(of(sum_over_ranks(run), Category::kGradients), 2 * split_and_padded(whole, 2));
}

TEST(SumOverRanks, OfDdpOnSplitLayersIsACopyOfEachPart) {
  const Whole whole = whole_model();
  const Held sum = sum_over_ranks(mesh_run(4, 2, DataParallel::kDdp));
  EXPECT_EQ(of(sum, Category::kWeights), 2 * split_and_padded(whole, 1) + 4 * whole.buffers);
  EXPECT_EQ(of(sum, Category::kGradients), 2 * split_and_padded(whole, 1));
  EXPECT_EQ(of(sum, Category::kCommunication), 2 * split_and_padded(whole, 1));  // the buckets
  EXPECT_EQ(of(sum, Category::kOptimizerStates), 4 * split_and_padded(whole, 1));
}

RunSpec pipeline_run(std::int64_t gpus, DataParallel mode, PipelineSchedule schedule) {
  RunOptions options{.batch_size = 2, .sequence_length = 16, .loop = Loop::kBare};
  options.gpus = gpus;
  options.parallel.pipeline = 2;
  options.parallel.micro_batches = 3;
  options.parallel.schedule = schedule;
  options.parallel.data_parallel = mode;
  return resolve(small_llama(), options).run;
}

TEST(SumOverRanks, OfShardedStagesIsTheWholeAndItsPadding) {
  const Whole whole = whole_model();
  for (const PipelineSchedule schedule : {PipelineSchedule::kGpipe, PipelineSchedule::kOneForwardOneBackward}) {
    const Held sum = sum_over_ranks(pipeline_run(4, DataParallel::kFsdp2, schedule));
    EXPECT_EQ(of(sum, Category::kWeights), padded(whole, 2) + 4 * whole.buffers);
    EXPECT_EQ(of(sum, Category::kGradients), padded(whole, 2));
    EXPECT_EQ(of(sum, Category::kOptimizerStates), 2 * whole.parameters);
    EXPECT_EQ(of(sum, Category::kGatheredWeights), 0);
  }
  const Held copies = sum_over_ranks(pipeline_run(4, DataParallel::kDdp, PipelineSchedule::kOneForwardOneBackward));
  EXPECT_EQ(of(copies, Category::kWeights), 2 * whole.parameters + 4 * whole.buffers);
  EXPECT_EQ(of(copies, Category::kGradients), 2 * whole.parameters);
}

ModelSpec four_layers() {
  ModelSpec spec = small_llama();
  set_layers(spec, 4);
  return spec;
}

RunSpec several_stages(PipelineSchedule schedule, bool reshards) {
  RunOptions options{.batch_size = 2, .sequence_length = 16, .loop = Loop::kBare};
  options.gpus = 4;
  options.parallel = {.data_parallel = DataParallel::kFsdp2, .pipeline = 2, .schedule = schedule};
  options.parallel.virtual_stages = 2;
  options.torch.reshard_after_forward = reshards;
  return resolve(four_layers(), options).run;
}

// Each stage of a rank is sharded by itself, and whichever way its schedule gathers it, nothing is left gathered.
TEST(SumOverRanks, OfSeveralShardedStagesARankIsTheSame) {
  const Held interleaved = sum_over_ranks(several_stages(PipelineSchedule::kInterleaved, true), four_layers());
  for (const PipelineSchedule schedule :
       {PipelineSchedule::kInterleaved, PipelineSchedule::kZeroBubble, PipelineSchedule::kZeroBubbleV}) {
    const Held held = sum_over_ranks(several_stages(schedule, false), four_layers());
    EXPECT_EQ(of(held, Category::kWeights), of(interleaved, Category::kWeights));
    EXPECT_EQ(of(held, Category::kOptimizerStates), of(interleaved, Category::kOptimizerStates));
    EXPECT_EQ(of(held, Category::kGatheredWeights), 0);
  }
}

double products(const KernelList& kernels) {
  double flops = 0;
  for (const Kernel& kernel : kernels) {
    if (kernel.operator_class == OperatorClass::kContraction) flops += kernel.flops;
  }
  return flops;
}

TEST(ZeroBubble, ComputesWhatOtherSchedulesCompute) {
  const Whole whole = whole_model();
  const RunSpec split = pipeline_run(2, DataParallel::kNone, PipelineSchedule::kZeroBubble);
  const RunSpec usual = pipeline_run(2, DataParallel::kNone, PipelineSchedule::kOneForwardOneBackward);
  const Held sum = sum_over_ranks(split);
  EXPECT_EQ(of(sum, Category::kWeights), whole.parameters + 2 * whole.buffers);
  // What the second stage has sent back stays with its inputs, 2 x 16 x 48 numbers each, until the next step.
  EXPECT_EQ(of(sum, Category::kGradients), whole.parameters + 3 * (2 * 16 * 48 * 4));
  EXPECT_EQ(of(sum, Category::kOptimizerStates), 2 * whole.parameters);
  for (const std::int64_t rank : {0, 1}) {
    EXPECT_EQ(products(run_symbolically(small_llama(), split, device(), rank).kernels),
              products(run_symbolically(small_llama(), usual, device(), rank).kernels))
        << rank;
  }
}

// PipelineStage reduces gradients after the last backward: until then each rank of a stage holds them whole.
TEST(ShardedStages, HoldWholeGradientsUntilTheEndOfTheStep) {
  const auto backward_peak = [](std::int64_t gpus) {
    const RunSpec run = pipeline_run(gpus, DataParallel::kFsdp2, PipelineSchedule::kOneForwardOneBackward);
    const Trace trace = run_symbolically(small_llama(), run, device(), 0).trace;
    Bytes now = 0, most = 0;
    for (const Event& event : trace.events) {
      if (!event.moves_block()) continue;
      const Block& block = trace.blocks[static_cast<std::size_t>(event.block)];
      if (block.category != Category::kGradients) continue;
      now += event.kind == EventKind::kAllocate ? block.requested : -block.requested;
      if (event.phase == Phase::kBackward) most = std::max(most, now);
    }
    return most;
  };
  // The first stage: 101 x 48 of the embedding and a layer of 48 x (48 + 24 + 24 + 48 + 3 x 100 + 2).
  constexpr Bytes kStage = (101 * 48 + 48 * (48 + 24 + 24 + 48 + 300 + 2)) * 4;
  EXPECT_GE(backward_peak(4), kStage);
  EXPECT_GE(backward_peak(8), kStage);
}

// 8 experts of 3 x 32 x 16 in each of two layers.
ModelSpec small_mixtral() {
  constexpr const char* kConfig =
      R"({"model_type": "mixtral", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 16, "num_local_experts": 8,
          "num_experts_per_tok": 2, "max_position_embeddings": 64, "tie_word_embeddings": false})";
  return model_from_hf_config(JsonDocument::parse(kConfig, "small").root(), "small");
}

// What once crashed, or was answered as something else.
struct Odd {
  const char* name;
  const char* model;
  void (*ask)(RunOptions& options);
  const char* rule;  // nullptr: it is answered
};

void PrintTo(const Odd& odd, std::ostream* out) { *out << odd.name; }

constexpr Odd kOdd[] = {
    {"SpeechOnFsdp2WithRecomputation", "whisper-base",
     [](RunOptions& o) {
       o.parallel.data_parallel = DataParallel::kFsdp2;
       o.torch.fsdp_param_dtype = DType::kBFloat16;
       o.checkpointing = Checkpointing::kFull;
     },
     nullptr},
    {"FrozenPositionsOnZero3", "whisper-base",
     [](RunOptions& o) {
       o.parallel.data_parallel = DataParallel::kDsZero3;
       o.precision = Precision::kBf16;
     },
     "zero3-frozen"},
    {"ScalarOnFsdp1", "clip-vit-base-patch32", [](RunOptions& o) { o.parallel.data_parallel = DataParallel::kFsdp1; },
     "fsdp1-scalar"},
    {"ScalarOnFsdp2", "clip-vit-base-patch32", [](RunOptions& o) { o.parallel.data_parallel = DataParallel::kFsdp2; },
     "fsdp2-scalar"},
    {"SequentialOnFsdp1", "vgg16", [](RunOptions& o) { o.parallel.data_parallel = DataParallel::kFsdp1; }, nullptr},
    {"NormsOverAllHeads", "olmo-2-7b",
     [](RunOptions& o) {
       o.parallel.tensor = 2;
       o.optimizer = Optimizer::kAdamWForLoop;
     },
     "tp-norm-of-heads"},
    {"ExpertsOfTensorParallel", "mixtral-8x7b",
     [](RunOptions& o) {
       o.parallel.tensor = 2;
       o.optimizer = Optimizer::kAdamWForLoop;
     },
     "tp-of-experts"},
};

class OddRuns : public ::testing::TestWithParam<Odd> {};

TEST_P(OddRuns, AreAnsweredOrRefusedInALine) {
  const ModelSpec model = SpecRegistry(test::specs_dir().string()).model(GetParam().model);
  RunOptions options{.batch_size = 2, .loop = Loop::kBare};
  options.gpus = 2;
  GetParam().ask(options);
  const auto ask = [&] { (void)run_symbolically(model, resolve(model, options).run, device(), 0); };
  if (GetParam().rule == nullptr) return ask();
  try {
    ask();
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::kInternal);
    EXPECT_EQ(error.rule(), GetParam().rule) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(All, OddRuns, ::testing::ValuesIn(kOdd),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ExpertParallel, SharesTheExpertsAndCopiesTheRest) {
  RunOptions options{.batch_size = 2, .sequence_length = 16, .loop = Loop::kBare};
  options.optimizer = Optimizer::kAdamWForLoop;
  const auto held = [&](std::int64_t ranks) {
    options.parallel.expert = ranks;
    const RunSpec run = resolve(small_mixtral(), options).run;
    return held_at_end(run_symbolically(small_mixtral(), run, device(), 0).trace);
  };
  constexpr Bytes kExperts = 2 * 8 * (3 * 32 * 16) * 4;
  const Held whole = held(1);
  for (const std::int64_t ranks : {2, 8}) {
    const Held part = held(ranks);
    const Bytes elsewhere = kExperts - kExperts / ranks;
    EXPECT_EQ(of(part, Category::kWeights), of(whole, Category::kWeights) - elsewhere) << ranks;
    EXPECT_EQ(of(part, Category::kGradients), of(whole, Category::kGradients) - elsewhere) << ranks;
    EXPECT_EQ(of(part, Category::kOptimizerStates), of(whole, Category::kOptimizerStates) - 2 * elsewhere) << ranks;
  }
}

}  // namespace
}  // namespace memcalc
