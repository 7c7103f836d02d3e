// Runs on several GPUs without a GPU: what all ranks hold together, rank by rank; DDP's buckets, ZeRO-1's partition;
// the streams of the allocator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <variant>
#include <vector>

#include "memcalc/alloc/caching_allocator.h"
#include "memcalc/families/llama/spec.h"
#include "memcalc/memcalc.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/parallel/ddp.h"
#include "memcalc/train/parallel/zero1.h"
#include "memcalc/train/ranks.h"
#include "memcalc/train/step.h"
#include "support/registry.h"
#include "support/small_llama.h"

namespace memcalc {
namespace {

using test::registry;

using test::device;
using test::Held;
using test::held_at_end;
using test::of;
using test::padded;
using test::small_llama;
using test::sum_over_ranks;
using test::Whole;
using test::whole_model;
using ::testing::ElementsAre;

RunSpec run_on(std::int64_t gpus, DataParallel mode, std::int64_t micro_batches = 1) {
  RunOptions options{.batch_size = 2, .sequence_length = 16, .loop = Loop::kBare};
  options.gpus = gpus;
  options.accumulation_steps = micro_batches;
  options.parallel.data_parallel = mode;
  return resolve(small_llama(), options).run;
}

TEST(SumOverRanks, OfFsdp2IsTheWholeAndItsPadding) {
  const Whole whole = whole_model();
  for (const std::int64_t ranks : {2, 3, 5}) {
    const Held sum = sum_over_ranks(run_on(ranks, DataParallel::kFsdp2));
    EXPECT_EQ(of(sum, Category::kWeights), padded(whole, ranks) + ranks * whole.buffers) << ranks;
    EXPECT_EQ(of(sum, Category::kGradients), padded(whole, ranks)) << ranks;
    EXPECT_EQ(of(sum, Category::kOptimizerStates), 2 * whole.parameters) << ranks;
    EXPECT_EQ(of(sum, Category::kGatheredWeights), 0) << ranks;
    EXPECT_EQ(of(sum, Category::kCommunication), 0) << ranks;
  }
}

// Adapters of rank 1 have one row: of four ranks three hold none of it. Optimizers that look at rows and columns take
// it.
TEST(Fsdp2, ARankMayHoldNoRowOfAMatrix) {
  for (const Optimizer optimizer : {Optimizer::kAdafactorTorch, Optimizer::kAdafactor, Optimizer::kAdamWFused}) {
    RunOptions options{.batch_size = 1, .sequence_length = 16, .loop = Loop::kBare, .optimizer = optimizer};
    options.lora_rank = 1;
    options.gpus = 4;
    options.parallel.data_parallel = DataParallel::kFsdp2;
    EXPECT_GT(estimate(small_llama(), resolve(small_llama(), options).run, device()).memory.peak_allocated, 0);
  }
}

RunSpec in_trainer(std::int64_t gpus, Precision precision) {
  RunOptions options{.batch_size = 2, .sequence_length = 16, .precision = precision, .loop = Loop::kTrainer};
  options.weights_dtype = precision == Precision::kFp32 ? DType::kFloat32 : DType::kBFloat16;
  options.gpus = gpus;
  options.parallel.data_parallel = DataParallel::kFsdp2;
  return resolve(small_llama(), options).run;
}

// fsdp2_prepare_model: the embedding is gathered again for its backward, norm and head stay from forward on.
TEST(Fsdp2OfTheTrainer, GathersTheEmbeddingTwiceAndTheHeadOnce) {
  const SymbolicRun run = run_symbolically(small_llama(), in_trainer(2, Precision::kFp32), device());
  constexpr Bytes kVocabularyByWidth = 102 * 48 * 4;  // of two ranks, padded
  std::int64_t gathered = 0;
  for (const Block& block : run.trace.blocks) {
    gathered += block.category == Category::kGatheredWeights && block.requested == kVocabularyByWidth ? 1 : 0;
  }
  EXPECT_EQ(gathered, 3 * (2 + 1)) << "in three steps";
}

// fsdp2_prepare_model's input_weight and output_weight (accelerate 1.15): embedding and head stay whole until it
// returns, also while the head's shard, on its way to the host, is made on the card.
TEST(Fsdp2OfTheTrainer, HoldsEmbeddingAndHeadUntilAllIsSharded) {
  RunSpec run = in_trainer(2, Precision::kFp32);
  run.parallel.offload_parameters = run.parallel.offload_states = OffloadTo::kHost;
  const SymbolicRun result = run_symbolically(small_llama(), run, device());
  constexpr Bytes kMatrix = 101 * 48 * 4, kShard = 51 * 48 * 4;  // embedding or head
  std::unordered_set<BlockId> whole;                             // of these, those on the card
  std::vector<std::size_t> whole_beside_shard;
  for (const Event& event : result.trace.events) {
    if (!event.moves_block() || event.step >= 0) continue;
    const Bytes bytes = result.trace.blocks[static_cast<std::size_t>(event.block)].requested;
    if (event.kind != EventKind::kAllocate) {
      whole.erase(event.block);
    } else if (event.op->name == std::string_view("fsdp::_move_states_to_device") && bytes == kMatrix) {
      whole.insert(event.block);
    } else if (event.op->name == std::string_view("aten::new_zeros") && bytes == kShard) {
      whole_beside_shard.push_back(whole.size());
    }
  }
  EXPECT_THAT(whole_beside_shard, ElementsAre(1, 2));
  EXPECT_TRUE(whole.empty());
}

RunOptions packed_on_host(Quantization kind) {
  RunOptions options{.batch_size = 2, .sequence_length = 16, .precision = Precision::kAmpBf16, .loop = Loop::kTrainer};
  options.gpus = 2;
  options.parallel.data_parallel = DataParallel::kFsdp2;
  options.parallel.offload_parameters = OffloadTo::kHost;
  options.lora_rank = 4;
  options.quantization = kind;
  options.quant_storage = DType::kBFloat16;
  return options;
}

// bitsandbytes' QuantState is no parameter: it goes to the card with its weight and stays there. Nothing else does.
TEST(Fsdp2OfTheTrainer, KeepsWhatPackedWeightsAreScaledWithOnTheCardAlone) {
  for (const Quantization kind : {Quantization::kNf4, Quantization::kNf4Double}) {
    const RunSpec run = resolve(small_llama(), packed_on_host(kind)).run;
    const SymbolicRun result = run_symbolically(small_llama(), run, device());
    Bytes constants = 0, packed = 0;
    for (const ParameterInfo& each : result.parameters) {
      constants += each.packed.constants;
      packed += each.packed.weight;
    }
    ASSERT_GT(packed, 0);
    const Held sum = sum_over_ranks(run);
    EXPECT_EQ(of(sum, Category::kWeights), 2 * (constants + whole_model().buffers)) << name_of(kind);
    EXPECT_EQ(of(sum, Category::kGradients), 0);
    EXPECT_EQ(of(sum, Category::kOptimizerStates), 0);
    ASSERT_EQ(result.held_on_host.front().name, "offloaded parameters");
    EXPECT_TRUE(result.held_on_host.front().pinned) << "CPUOffloadPolicy's default";
    EXPECT_GE(result.held_on_host.front().bytes, packed / 2);
  }
}

// Each card would hold the whole base otherwise, before it is sharded.
TEST(Fsdp2OfTheTrainer, MovesPackedUnitsToTheCardOneByOne) {
  const RunSpec run = resolve(small_llama(), packed_on_host(Quantization::kNf4)).run;
  const SymbolicRun result = run_symbolically(small_llama(), run, device());
  std::unordered_set<BlockId> moved;
  std::size_t most = 0;
  bool has_loaded_there = false;
  for (const Event& event : result.trace.events) {
    if (!event.moves_block() || event.step >= 0) continue;
    if (event.kind != EventKind::kAllocate) {
      moved.erase(event.block);
      continue;
    }
    const std::string_view op = event.op->name;
    has_loaded_there = has_loaded_there || op == "caching_allocator_warmup" || op == "bitsandbytes::quantize_4bit";
    if (op == "fsdp::_move_states_to_device") moved.insert(event.block);
    most = std::max(most, moved.size());
  }
  EXPECT_FALSE(has_loaded_there);
  // Two layers of 7 linear modules: 14 maps of codes and 14 tensors of scales stay, and of the second layer 7 packed
  // weights, 14 parts of adapters and 2 norms are there at once.
  EXPECT_EQ(most, 28 + 7 + 14 + 2);
}

// FSDP2's gradients are on the host, and so are their norms.
TEST(Fsdp2OfTheTrainer, ClipsGradientsOnTheHost) {
  RunSpec run = in_trainer(2, Precision::kFp32);
  for (const bool offloads : {false, true}) {
    if (offloads) run.parallel.offload_parameters = run.parallel.offload_states = OffloadTo::kHost;
    const SymbolicRun result = run_symbolically(small_llama(), run, device());
    const bool on_card = std::any_of(result.trace.events.begin(), result.trace.events.end(), [](const Event& event) {
      return event.op != nullptr && event.op->name == std::string_view("aten::linalg_vector_norm");
    });
    EXPECT_EQ(on_card, !offloads);
  }
}

TEST(Fsdp2OfTheTrainer, TurnsWhatTrainsIntoFloat32) {
  const Held sum = sum_over_ranks(in_trainer(3, Precision::kAmpBf16));
  const Whole whole = whole_model();
  EXPECT_EQ(of(sum, Category::kWeights), padded(whole, 3) + 3 * whole.buffers);
}

TEST(SumOverRanks, OfFsdp1IsTheWholeAndItsAlignment) {
  const Whole whole = whole_model();
  for (const std::int64_t ranks : {2, 3}) {
    const Held sum = sum_over_ranks(run_on(ranks, DataParallel::kFsdp1));
    const Bytes padding = of(sum, Category::kWeights) - ranks * whole.buffers - whole.parameters;
    // Three flat parameters, each aligned to 16 bytes a tensor and to the ranks.
    EXPECT_GE(padding, 0) << ranks;
    EXPECT_LE(padding, static_cast<Bytes>(whole.shapes.size()) * 16 + 3 * ranks * 4) << ranks;
    EXPECT_EQ(of(sum, Category::kGradients), whole.parameters + padding) << ranks;
    EXPECT_EQ(of(sum, Category::kOptimizerStates), 2 * whole.parameters) << ranks;
  }
}

TEST(SumOverRanks, OfZero1HasTheStatesOnce) {
  const Whole whole = whole_model();
  const Held sum = sum_over_ranks(run_on(3, DataParallel::kZero1));
  EXPECT_EQ(of(sum, Category::kWeights), 3 * (whole.parameters + whole.buffers));
  EXPECT_EQ(of(sum, Category::kGradients), 3 * whole.parameters);
  EXPECT_EQ(of(sum, Category::kCommunication), 3 * whole.parameters);  // the buckets
  EXPECT_EQ(of(sum, Category::kOptimizerStates), 2 * whole.parameters);
}

TEST(SumOverRanks, OfDdpIsACopyForEach) {
  const Whole whole = whole_model();
  const Held sum = sum_over_ranks(run_on(2, DataParallel::kDdp));
  EXPECT_EQ(of(sum, Category::kWeights), 2 * (whole.parameters + whole.buffers));
  EXPECT_EQ(of(sum, Category::kGradients), 2 * whole.parameters);
  EXPECT_EQ(of(sum, Category::kCommunication), 2 * whole.parameters);
  EXPECT_EQ(of(sum, Category::kOptimizerStates), 4 * whole.parameters);
}

TEST(SumOverRanks, OfTensorParallelSharesTheMatricesOfTheLayers) {
  const Whole whole = whole_model();
  RunOptions options{.batch_size = 2, .sequence_length = 16, .loop = Loop::kBare};
  options.optimizer = Optimizer::kAdamWForLoop;
  options.parallel.tensor = 2;
  const Held sum = sum_over_ranks(resolve(small_llama(), options).run);
  // Not shared: embedding and head, 101 x 48 each, and five norms of 48.
  const Bytes twice = (2 * 101 * 48 + 5 * 48) * 4;
  EXPECT_EQ(of(sum, Category::kWeights), whole.parameters + twice + 2 * whole.buffers);
  EXPECT_EQ(of(sum, Category::kGradients), whole.parameters + twice);
  EXPECT_EQ(of(sum, Category::kOptimizerStates), 2 * (whole.parameters + twice));
}

// The plan that splits embedding and head, too: norms are whole on each rank, the embedding's gradient is.
TEST(SumOverRanks, OfTensorParallelWithTheSequenceSharesAllMatrices) {
  ModelSpec model = small_llama();
  model.architecture.change<LlamaSpec>().vocab_size = 102;
  RunOptions options{.batch_size = 2, .sequence_length = 16, .loop = Loop::kBare};
  const Held whole = sum_over_ranks(resolve(model, options).run, model);
  options.parallel.tensor = 2;
  options.parallel.sequence_parallel = true;
  const Held sum = sum_over_ranks(resolve(model, options).run, model);
  const Bytes norms = 5 * 48 * 4;
  const Bytes buffers = of(whole, Category::kWeights) - of(whole, Category::kGradients);
  EXPECT_EQ(of(sum, Category::kWeights), of(whole, Category::kWeights) + norms + buffers);
  EXPECT_EQ(of(sum, Category::kGradients), of(whole, Category::kGradients) + norms + 102 * 48 * 4);
  EXPECT_EQ(of(sum, Category::kOptimizerStates), of(whole, Category::kOptimizerStates) + 2 * norms);
}

TEST(SumOverRanks, OfHsdpIsACopyForEachGroup) {
  const Whole whole = whole_model();
  RunSpec run = run_on(4, DataParallel::kFsdp2);
  run.parallel.torch().hsdp_shard = 2;
  const Held sum = sum_over_ranks(run);
  EXPECT_EQ(of(sum, Category::kWeights), 2 * padded(whole, 2) + 4 * whole.buffers);
  EXPECT_EQ(of(sum, Category::kGradients), 2 * padded(whole, 2));
  EXPECT_EQ(of(sum, Category::kOptimizerStates), 2 * 2 * whole.parameters);
}

TEST(SumOverRanks, OfOffloadedFsdp2IsOnTheHost) {
  RunSpec run = run_on(2, DataParallel::kFsdp2);
  run.parallel.offload_parameters = run.parallel.offload_states = OffloadTo::kHost;
  const Held sum = sum_over_ranks(run);
  EXPECT_EQ(of(sum, Category::kWeights), 2 * whole_model().buffers);
  EXPECT_EQ(of(sum, Category::kGradients), 0);
  EXPECT_EQ(of(sum, Category::kOptimizerStates), 0);
}

RunSpec context_run(std::int64_t ranks, DataParallel mode) {
  RunOptions options{.batch_size = 2, .sequence_length = 48, .precision = Precision::kBf16, .loop = Loop::kBare};
  options.parallel.context = ranks;
  options.parallel.data_parallel = mode;
  return resolve(small_llama(), options).run;
}

// What is shared under context parallelism is what is shared without; here in two bytes.
TEST(SumOverRanks, OfContextParallelIsACopyForEachOrOfFsdp2TheWhole) {
  const Whole whole = whole_model();
  for (const std::int64_t ranks : {2, 3, 4}) {
    const Held copies = sum_over_ranks(context_run(ranks, DataParallel::kNone));
    EXPECT_EQ(of(copies, Category::kWeights), ranks * (whole.parameters / 2 + whole.buffers)) << ranks;
    EXPECT_EQ(of(copies, Category::kGradients), ranks * whole.parameters / 2) << ranks;
    EXPECT_EQ(of(copies, Category::kOptimizerStates), ranks * whole.parameters) << ranks;
    EXPECT_EQ(of(copies, Category::kCommunication), 0) << ranks;
    const Held shards = sum_over_ranks(context_run(ranks, DataParallel::kFsdp2));
    EXPECT_EQ(of(shards, Category::kWeights), padded(whole, ranks) / 2 + ranks * whole.buffers) << ranks;
    EXPECT_EQ(of(shards, Category::kOptimizerStates), whole.parameters) << ranks;
  }
}

TEST(SumOverRanks, OfAPipelineIsTheWholeOnce) {
  const Whole whole = whole_model();
  RunOptions options{.batch_size = 2, .sequence_length = 16, .loop = Loop::kBare};
  options.parallel.pipeline = 2;
  options.parallel.micro_batches = 3;
  const Held sum = sum_over_ranks(resolve(small_llama(), options).run);
  EXPECT_EQ(of(sum, Category::kWeights), whole.parameters + 2 * whole.buffers);
  EXPECT_EQ(of(sum, Category::kGradients), whole.parameters);
  EXPECT_EQ(of(sum, Category::kOptimizerStates), 2 * whole.parameters);
  // A buffer for each micro-batch's input or gradient that arrives: 2 x 16 x 48 numbers.
  EXPECT_EQ(of(sum, Category::kCommunication), 2 * 3 * (2 * 16 * 48 * 4));
}

TEST(DataParallelModule, HoldsEverythingOnItsFirstGpu) {
  const Whole whole = whole_model();
  const RunSpec run = run_on(2, DataParallel::kDp);
  const Held first = held_at_end(run_symbolically(small_llama(), run, device(), 0).trace);
  const Held other = held_at_end(run_symbolically(small_llama(), run, device(), 1).trace);
  EXPECT_EQ(of(first, Category::kWeights), whole.parameters + whole.buffers);
  EXPECT_EQ(of(first, Category::kGradients), whole.parameters);
  EXPECT_EQ(of(first, Category::kOptimizerStates), 2 * whole.parameters);
  EXPECT_EQ(of(other, Category::kWeights), whole.buffers);
  EXPECT_EQ(of(other, Category::kGatheredWeights), 0);
  EXPECT_EQ(of(other, Category::kGradients), 0);
  EXPECT_EQ(of(other, Category::kOptimizerStates), 0);
}

std::vector<std::string> names(const RunSpec& run) {
  std::vector<std::string> result;
  for (const RankGroup& each : distinct_ranks(small_llama(), run, device())) result.push_back(each.name);
  return result;
}

TEST(DistinctRanks, AreThoseThatHoldOtherSizes) {
  EXPECT_THAT(names(run_on(4, DataParallel::kDdp)), ElementsAre("all 4 ranks"));
  // 48, 24 and 100 rows are even over 2 ranks, 101 are not.
  EXPECT_THAT(names(run_on(2, DataParallel::kFsdp2)), ElementsAre("rank 0", "rank 1"));
  EXPECT_THAT(names(run_on(3, DataParallel::kDp)), ElementsAre("GPU 0", "GPUs 1 to 2"));
  EXPECT_THAT(names(context_run(4, DataParallel::kNone)),
              ElementsAre("context rank 0", "context ranks 1 to 2", "context rank 3"));
}

TEST(DistinctRanks, OfALargeJobAreFew) {
  const auto groups = [](DataParallel mode) { return distinct_ranks(small_llama(), run_on(100'000, mode), device()); };
  // Rows are dealt one by one: rank 0 has one of each parameter, the last ranks have none.
  const std::vector<RankGroup> sharded = groups(DataParallel::kFsdp2);
  EXPECT_EQ(sharded.front().first, 0);
  EXPECT_EQ(sharded.back().name, "ranks 101 to 99999");
  EXPECT_EQ(sharded.back().count, 99'899);
  std::int64_t count = 0;
  for (const RankGroup& each : sharded) count += each.count;
  EXPECT_EQ(count, 100'000);
  // ZeRO-1: more than 16 ranks update a parameter; the one that has most stands for all.
  const std::vector<RankGroup> partitioned = groups(DataParallel::kZero1);
  ASSERT_EQ(partitioned.size(), 1U);
  EXPECT_EQ(partitioned.front().count, 100'000);
}

TEST(DistinctRanks, ThatAreNoNeighboursAreNamedUpTo64) {
  RunSpec run = run_on(1024, DataParallel::kFsdp2);
  run.parallel.context = 2;
  const std::vector<RankGroup> groups = distinct_ranks(small_llama(), run, device());
  EXPECT_THAT(groups.back().name, testing::AllOf(testing::StartsWith("ranks 10"), testing::EndsWith(" more")));
  EXPECT_LT(groups.back().name.size(), 500U);
}

TEST(DistinctRanks, AreAllWhereBatchesAreAsLongAsTheDataMakesThem) {
  RunOptions options{.batch_size = 2, .loop = Loop::kTrainer};
  options.lengths = "lognormal:8,0.5,16,60";
  options.gpus = 3;
  options.parallel.data_parallel = DataParallel::kDdp;
  EXPECT_THAT(names(resolve(small_llama(), options).run), ElementsAre("rank 0", "rank 1", "rank 2"));
}

TEST(Ddp, FillsBucketsUntilTheyReachTheirLimit) {
  Tape tape(device());
  const auto tensor = [&](Bytes bytes, DType dtype) {
    static constexpr Operator kTest{"test"};
    return tape.empty({bytes / size_of(dtype)}, dtype, kTest);
  };
  // The first limit is 1 MiB, all others 25 MiB; a bucket closes with the tensor that reaches its limit.
  const std::vector<Tensor> tensors = {
      tensor(kMiB / 2, DType::kFloat32),  tensor(kMiB / 2, DType::kFloat32),  // 1 MiB: closed
      tensor(20 * kMiB, DType::kFloat32), tensor(4 * kMiB, DType::kFloat32), tensor(2 * kMiB, DType::kFloat32),  // 26
      tensor(kMiB / 2, DType::kBFloat16), tensor(3 * kMiB, DType::kFloat32)};
  EXPECT_THAT(bucket_assignment(tensors, std::array{kFirstBucketBytes, kBucketBytes}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3, 4), ElementsAre(6), ElementsAre(5)));
  tape.memory.stop();
}

RunOptions adapters_under_ddp() {
  RunOptions options{.batch_size = 2, .sequence_length = 16, .precision = Precision::kAmpBf16, .loop = Loop::kTrainer};
  options.weights_dtype = DType::kBFloat16;
  options.gpus = 2;
  options.parallel.data_parallel = DataParallel::kDdp;
  options.lora_rank = 4;
  return options;
}

/// Sizes of what the operator asked for, in the first step and before it.
std::vector<Bytes> requests_of(const SymbolicRun& run, std::string_view op, int step) {
  std::vector<Bytes> sizes;
  for (const Event& event : run.trace.events) {
    if (!event.moves_block() || event.kind != EventKind::kAllocate || event.op == nullptr) continue;
    if (event.step == step && event.op->name == op) {
      sizes.push_back(run.trace.blocks[static_cast<std::size_t>(event.block)].requested);
    }
  }
  return sizes;
}

// _sync_module_states: what has the same type is one buffer, and two 4-bit numbers are a byte.
TEST(Ddp, BroadcastsPackedWeightsAsTheBytesThatTheyAre) {
  RunOptions options = adapters_under_ddp();
  options.quantization = Quantization::kNf4;
  const SymbolicRun run = run_symbolically(small_llama(), resolve(small_llama(), options).run, device());
  Bytes packed = 0;
  for (const ParameterInfo& each : run.parameters) {
    if (each.packing == Quantization::kNf4) packed += each.elements / 2;
  }
  ASSERT_GT(packed, 0);
  EXPECT_THAT(requests_of(run, "aten::cat", -1), ::testing::Contains(packed));
}

// peft's model is no PreTrainedModel, so that the Trainer switches the search on although layers are recomputed; DDP
// then clones the outputs.
TEST(Ddp, SearchesForUnusedParametersWhereAdaptersAreRecomputed) {
  for (const bool adapts : {true, false}) {
    RunOptions options = adapters_under_ddp();
    if (!adapts) options.lora_rank.reset();
    options.checkpointing = Checkpointing::kFull;
    const SymbolicRun run = run_symbolically(small_llama(), resolve(small_llama(), options).run, device());
    const std::int64_t vocabulary = small_llama().architecture.as<LlamaSpec>().vocab_size;
    const Bytes logits = 2 * 16 * vocabulary * size_of(DType::kFloat32);
    const std::vector<Bytes> clones = requests_of(run, "aten::clone", 2);
    EXPECT_EQ(std::count(clones.begin(), clones.end(), logits), adapts ? 1 : 0);
  }
}

// T5's decoder keeps its cache in the Trainer: keys and values are among the module's outputs, and no windows of them.
TEST(Ddp, ClonesTheCacheThatAModuleReturns) {
  RunOptions options{.batch_size = 2, .sequence_length = 16, .loop = Loop::kTrainer};
  options.gpus = 2;
  options.parallel.data_parallel = DataParallel::kDdp;
  const ModelSpec& model = registry().model("t5-small");
  const SymbolicRun run = run_symbolically(model, resolve(model, options).run, device());
  const std::vector<Bytes> clones = requests_of(run, "aten::clone", 2);
  const Bytes keys = 2 * 16 * 512 * size_of(DType::kFloat32);
  EXPECT_GE(std::count(clones.begin(), clones.end(), keys), 6 * 4) << "keys and values of six layers' two attentions";
}

// reducer.cpp, finalize_backward: one bucket after the other, in backward, beside those that are still on their way.
TEST(Ddp, GradientsAreCopiedOutOfABucketWhenItHasCome) {
  const auto buckets_awaited = [](bool view) {
    RunSpec run = run_on(2, DataParallel::kDdp);
    std::get<TorchMesh>(run.parallel.layout).ddp_bucket_view = view;
    const KernelList kernels = run_symbolically(small_llama(), run, device()).kernels;
    std::int64_t awaited = 0;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const auto* reduced = kernels[i].as<work::Communication>();
      if (reduced == nullptr || reduced->kind != Collective::kAllReduce || reduced->awaited_after == 0) continue;
      const Kernel& copy = kernels[i + static_cast<std::size_t>(reduced->awaited_after)];
      EXPECT_EQ(std::string_view(copy.op->name), "Reducer");
      EXPECT_EQ(kernels[i].stream, CudaStream::kAllReduce) << "ProcessGroupNCCL's";
      EXPECT_EQ(copy.phase, Phase::kBackward);
      ++awaited;
    }
    return awaited;
  };
  EXPECT_GE(buckets_awaited(false), 1);
  EXPECT_EQ(buckets_awaited(true), 0) << "gradients are views of the buckets";
}

TEST(Zero1, GivesTheLargestToTheRankThatHasLeast) {
  const std::vector<std::int64_t> elements = {10, 40, 30, 20, 30};
  const ZeroPartition partition = zero_partition(elements, 2);
  // By size: 40 to 0 (40, 0), 30 to 1 (40, 30), 30 to 1 (40, 60), 20 to 0 (60, 60), 10 to 0.
  EXPECT_THAT(partition.order, ElementsAre(1, 2, 4, 3, 0));
  EXPECT_THAT(partition.rank_of, ElementsAre(0, 0, 1, 0, 1));
}

// _broadcast_params_from_rank, torch 2.11.
TEST(Zero1, BroadcastsEachParameterByItself) {
  const SymbolicRun run = run_symbolically(small_llama(), run_on(2, DataParallel::kZero1), device());
  const auto broadcasts = std::count_if(run.kernels.begin(), run.kernels.end(), [](const Kernel& kernel) {
    const auto* sent = kernel.as<work::Communication>();
    return sent != nullptr && sent->kind == Collective::kBroadcast && kernel.phase == Phase::kOptimizer;
  });
  EXPECT_EQ(static_cast<std::size_t>(broadcasts), run.parameters.size());
}

// foreach_reduce and _accumulate_sharded_grad, torch 2.11: from the second micro-batch on.
TEST(Fsdp, AddsShardsOfGradientsOnTheStreamThatReduces) {
  const auto additions = [](DataParallel kind, std::int64_t micro_batches) {
    std::int64_t count = 0;
    const SymbolicRun run = run_symbolically(small_llama(), run_on(2, kind, micro_batches), device());
    for (const Kernel& kernel : run.kernels) {
      if (kernel.stream != CudaStream::kReduceScatter || kernel.op == nullptr) continue;
      if (std::string_view(kernel.op->name) == "aten::add") count += kernel.repeats;
    }
    return count;
  };
  for (const DataParallel kind : {DataParallel::kFsdp1, DataParallel::kFsdp2}) EXPECT_EQ(additions(kind, 1), 0);
  EXPECT_EQ(additions(DataParallel::kFsdp2, 3), 2 * (2 * 9 + 3)) << "each parameter's";
  EXPECT_EQ(additions(DataParallel::kFsdp1, 3), 2 * 3) << "of two layers and the root";
}

TEST(Streams, HavePoolsOfTheirOwn) {
  CachingAllocator allocator;
  const auto block = allocator.allocate(4 * kMiB, 0);
  allocator.free(block);
  EXPECT_EQ(allocator.reserved(), 20 * kMiB);
  const auto other = allocator.allocate(4 * kMiB, 1);  // the free block belongs to stream 0
  EXPECT_EQ(allocator.reserved(), 40 * kMiB);
  allocator.free_later(other);
  EXPECT_EQ(allocator.allocated(), 0);
  (void)allocator.allocate(18 * kMiB, 1);  // not where `other` still waits
  EXPECT_EQ(allocator.reserved(), 58 * kMiB);
  allocator.finish(other);
  (void)allocator.allocate(18 * kMiB, 1);  // of the 20 MiB that are whole again
  EXPECT_EQ(allocator.reserved(), 58 * kMiB);
}

}  // namespace
}  // namespace memcalc
