// train/parallel/deepspeed_zero and deepspeed_zero3: what the ranks hold together, and what stands at the peak.
#include "memcalc/families/gpt2/spec.h"
#include "memcalc/train/parallel/deepspeed_zero.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

#include "memcalc/alloc/replay.h"
#include "memcalc/cost/collective.h"
#include "memcalc/symbolic/within_call.h"
#include "memcalc/train/step.h"
#include "support/small_models.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

ModelSpec llama() { return {.name = "small", .model_type = "llama", .architecture = test::llama_256_wide(4)}; }

RunSpec run_on(std::int64_t gpus, DataParallel mode) {
  RunSpec run;
  run.batch_size = 2;
  run.sequence_length = 128;
  run.precision = Precision::kBf16;
  run.training().loop = Loop::kBare;
  run.training().optimizer = Optimizer::kAdamWFused;
  run.parallel.gpus = gpus;
  run.parallel.data_parallel = mode;
  run.parallel.layout = DeepSpeedZero{};
  return run;
}

std::int64_t parameters_of(const SymbolicRun& run) {
  std::int64_t total = 0;
  for (const ParameterInfo& each : run.parameters) total += each.elements;
  return total;
}

TEST(DeepSpeedTest, TheRanksTogetherHoldEveryElementOnceAndThePadding) {
  for (const std::int64_t ranks : {1, 2, 3, 4, 7, 64}) {
    for (const std::int64_t parameters : {1, 2, 1000, 123457}) {
      const std::int64_t flat = DeepSpeedZero1And2::flat_elements(parameters, ranks);
      EXPECT_EQ(flat % ranks, 0);
      EXPECT_EQ(flat / ranks * 2 % 4, 0) << "parts start at multiples of 4 bytes";
      EXPECT_GE(flat, parameters);
      EXPECT_LT(flat - parameters, 2 * ranks);
    }
  }
}

// _allgather_params_coalesced() ends with a synchronize(): behind what persists, the last that a step gathers.
TEST(DeepSpeedTest, Zero3WaitsForWhatPersistsAtTheEndOfAStep) {
  for (const std::int64_t persists : {100'000, 0}) {
    RunSpec spec = run_on(2, DataParallel::kDsZero3);
    spec.parallel.deepspeed().param_persistence_threshold = persists;
    const SymbolicRun run = run_symbolically(llama(), spec, test::h100());
    ASSERT_FALSE(run.kernels.empty());
    EXPECT_EQ(run.kernels[run.kernels.size() - 1].kind == KernelKind::kSynchronize, persists > 0);
  }
}

// ThroughputTimer.start() ends with a synchronize(), so that no step has a lead.
TEST(DeepSpeedTest, EachForwardPassWaitsForTheCard) {
  for (const DataParallel mode : {DataParallel::kDsZero1, DataParallel::kDsZero2, DataParallel::kDsZero3}) {
    RunSpec spec = run_on(2, mode);
    spec.training().accumulation_steps = 3;
    std::int64_t waits = 0;
    for (const Kernel& kernel : run_symbolically(llama(), spec, test::h100()).kernels) {
      const bool of_timer = kernel.op != nullptr && kernel.op->name == std::string_view("deepspeed::ThroughputTimer");
      if (of_timer) waits += kernel.kind == KernelKind::kSynchronize ? kernel.repeats : 0;
    }
    EXPECT_EQ(waits, 3);
  }
}

// unscale_and_clip_grads of stages 1 and 2: whether the norm is one, and a pass over this rank's part.
TEST(DeepSpeedTest, ClippingAsksOnceMoreAndScalesItsPart) {
  const auto of_step = [](double norm) {
    RunSpec spec = run_on(2, DataParallel::kDsZero2);
    if (norm > 0) spec.training().max_grad_norm = norm;
    const SymbolicRun run = run_symbolically(llama(), spec, test::h100());
    std::int64_t waits = 0;
    double bytes = 0;
    for (const Kernel& kernel : run.kernels) {
      if (kernel.phase != Phase::kOptimizer) continue;
      waits += kernel.kind == KernelKind::kSynchronize ? 1 : 0;
      bytes += kernel.bytes;
    }
    return std::tuple(waits, bytes, static_cast<double>(parameters_of(run)));
  };
  const auto [clipped, moved, parameters] = of_step(1);
  const auto [never, moved_without, same] = of_step(0);
  EXPECT_EQ(clipped, never + 1);
  EXPECT_NEAR((moved - moved_without) / (parameters / 2 * 8), 1, 0.01) << "float32, read and written";
  EXPECT_EQ(parameters, same);
}

TEST(DeepSpeedTest, WhatIsHeldBetweenStepsIsWhatTheTraceNeverFrees) {
  for (const DataParallel mode : {DataParallel::kDsZero1, DataParallel::kDsZero2}) {
    const SymbolicRun run = run_symbolically(llama(), run_on(4, mode), test::h100());
    std::array<Bytes, kCategoryCount> left{};
    for (const Event& event : run.trace.events) {
      if (!event.moves_block()) continue;
      const Block& block = run.trace.blocks[static_cast<std::size_t>(event.block)];
      left[static_cast<std::size_t>(block.category)] +=
          event.kind == EventKind::kAllocate ? block.requested : -block.requested;
    }
    const std::int64_t parameters = parameters_of(run);
    EXPECT_EQ(run.held[0].bytes, 2 * DeepSpeedZero1And2::flat_elements(parameters, 4));
    EXPECT_EQ(run.held[2].bytes, 12 * DeepSpeedZero1And2::flat_elements(parameters, 4) / 4 + 4) << "and a step counter";
    EXPECT_GE(left[static_cast<std::size_t>(Category::kWeights)], run.held[0].bytes);
    EXPECT_LT(left[static_cast<std::size_t>(Category::kWeights)], run.held[0].bytes + 4096) << "and rotary buffers";
    EXPECT_EQ(left[static_cast<std::size_t>(Category::kGradients)], 0);
    EXPECT_GE(left[static_cast<std::size_t>(Category::kOptimizerStates)], run.held[2].bytes);
    EXPECT_LT(left[static_cast<std::size_t>(Category::kOptimizerStates)], run.held[2].bytes + 1024);
  }
}

// dist.all_reduce() of stage_1_and_2.py runs on the current stream without overlap_comm, also from a gradient's hook.
// Each gradient passes through the bucket and is divided there, two passes over all of them, and one over this rank's
// half is kept.
TEST(DeepSpeedTest, ReductionsStandBetweenKernelsThatCopyWithoutOverlap) {
  for (const bool overlaps : {false, true}) {
    RunSpec spec = run_on(2, DataParallel::kDsZero2);
    std::get<DeepSpeedZero>(spec.parallel.layout).overlap_comm = overlaps;
    const SymbolicRun run = run_symbolically(llama(), spec, test::h100());
    std::int64_t reductions = 0;
    double moved = 0;
    for (const Kernel& kernel : run.kernels) {
      if (kernel.communicates() && kernel.phase == Phase::kBackward) {
        ++reductions;
        EXPECT_EQ(runs_beside(kernel), overlaps);
      }
      const bool copies = kernel.op != nullptr && kernel.op->name == std::string_view("aten::_to_copy");
      if (copies && kernel.phase == Phase::kBackward) moved += kernel.bytes;
    }
    EXPECT_GE(reductions, 1);
    EXPECT_GE(moved, 2.5 * 2 * 2.0 * static_cast<double>(parameters_of(run)))
        << "two passes over all and one over this rank's half";
  }
}

// partition_grads: the first micro-batch of a step is copied into the parts, each later one is added to them.
TEST(DeepSpeedTest, Stage3AddsWhatLaterMicroBatchesLeave) {
  const auto added = [](std::int64_t micro_batches) {
    RunSpec spec = run_on(2, DataParallel::kDsZero3);
    spec.training().accumulation_steps = micro_batches;
    const SymbolicRun run = run_symbolically(llama(), spec, test::h100());
    double elements = 0;
    for (const Kernel& kernel : run.kernels) {
      const bool adds = kernel.op != nullptr && kernel.op->name == std::string_view("aten::add");
      if (adds && kernel.phase == Phase::kBackward && is_of_host_work(kernel)) {
        elements += static_cast<double>(kernel.repeats) * kernel.elements;
      }
    }
    return std::pair(elements, parameters_of(run));
  };
  const auto [one, parameters] = added(1);
  const auto [three, same] = added(3);
  EXPECT_EQ(parameters, same);
  EXPECT_EQ(three - one, 2 * static_cast<double>(parameters) / 2) << "this rank's half, twice";
}

TEST(DeepSpeedTest, TheTrainersTwoGroupsArePartedEachByItself) {
  RunSpec spec = run_on(2, DataParallel::kDsZero2);
  spec.training().loop = Loop::kTrainer;
  spec.precision = Precision::kAmpBf16;
  const SymbolicRun run = run_symbolically(llama(), spec, test::h100());
  std::int64_t decayed = 0, rest = 0;
  for (const ParameterInfo& each : run.parameters) {
    EXPECT_EQ(each.dtype, DType::kBFloat16) << each.name << ": cast by the engine";
    (each.shape.rank > 1 ? decayed : rest) += each.elements;
  }
  const std::int64_t flat = DeepSpeedZero1And2::flat_elements(decayed, 2) + DeepSpeedZero1And2::flat_elements(rest, 2);
  EXPECT_EQ(run.held[0].bytes, 2 * flat);
  EXPECT_EQ(run.held[2].bytes, 12 * flat / 2 + 2 * 4) << "and a step counter of each group";
}

Bytes peak_of(const RunSpec& run) { return replay(run_symbolically(llama(), run, test::h100()).trace).exact_peak; }

// The engine halves the model, and no autocast and no scaler of torch's stand around it.
TEST(DeepSpeedTest, TheTrainersFloat16HoldsWhatItsBfloat16Does) {
  const auto held = [](Precision precision) {
    RunSpec spec = run_on(2, DataParallel::kDsZero2);
    spec.training().loop = Loop::kTrainer;
    spec.precision = precision;
    const SymbolicRun run = run_symbolically(llama(), spec, test::h100());
    return std::pair{replay(run.trace).exact_peak, run.trace.events.size()};
  };
  const auto [brain, events] = held(Precision::kAmpBf16);
  const auto [half, its_events] = held(Precision::kAmpFp16);
  EXPECT_EQ(half, brain);
  EXPECT_EQ(its_events, events);
  EXPECT_LT(half, held(Precision::kFp32).first);
}

TEST(DeepSpeedTest, TheBucketStandsInBackward) {
  RunSpec run = run_on(4, DataParallel::kDsZero2);
  const Bytes by_default = peak_of(run);
  run.parallel.deepspeed().reduce_bucket_size = 100'000'000;
  EXPECT_EQ(by_default - peak_of(run), 2 * 400'000'000);
  run.parallel.deepspeed().overlap_comm = true;
  EXPECT_EQ(by_default - peak_of(run), 2 * 300'000'000) << "two of them";
}

TEST(DeepSpeedTest, Stage3HoldsItsPartsItsGradientsItsBucketAndTheStates) {
  for (const std::int64_t ranks : {2, 3, 4}) {
    RunSpec spec = run_on(ranks, DataParallel::kDsZero3);
    spec.parallel.deepspeed().reduce_bucket_size = 1'000'000;
    spec.parallel.deepspeed().param_persistence_threshold = 0;
    const SymbolicRun run = run_symbolically(llama(), spec, test::h100());
    std::int64_t parts = 0;
    for (const ParameterInfo& each : run.parameters) parts += (each.elements + ranks - 1) / ranks;
    ASSERT_EQ(run.held.size(), 5U);
    EXPECT_EQ(run.held[0].bytes, 2 * parts) << "weights";
    EXPECT_EQ(run.held[1].bytes, 0) << "small parameters kept whole";
    EXPECT_EQ(run.held[2].bytes, 2 * parts) << "gradients";
    EXPECT_EQ(run.held[3].bytes, 2 * 1'000'000) << "the bucket";
    EXPECT_EQ(run.held[4].bytes, 12 * parts + 4) << "float32 copy, two moments and a step counter";
    std::int64_t together = parts * ranks;
    EXPECT_GE(together, parameters_of(run));
    EXPECT_LT(together - parameters_of(run), ranks * static_cast<std::int64_t>(run.parameters.size()));
  }
}

TEST(DeepSpeedTest, OffloadLeavesNoStatesOnTheCardAndSaysWhatTheHostHolds) {
  for (const DataParallel mode : {DataParallel::kDsZero1, DataParallel::kDsZero2, DataParallel::kDsZero3}) {
    RunSpec spec = run_on(2, mode);
    spec.parallel.offload_states = OffloadTo::kHost;
    const SymbolicRun run = run_symbolically(llama(), spec, test::h100());
    for (const Block& block : run.trace.blocks) EXPECT_NE(block.category, Category::kOptimizerStates);
    Bytes host = 0;
    for (const HeldRow& row : run.held_on_host) host += row.bytes;
    EXPECT_GE(host, 16 * parameters_of(run) / 2);
    EXPECT_LT(peak_of(spec), peak_of(run_on(2, mode)));
  }
}

TEST(DeepSpeedTest, Stage3HooksTheModulesOfGpt2) {
  Gpt2Spec spec;
  spec.n_embd = 64;
  spec.n_head = 4;
  spec.n_layer = 2;
  spec.n_inner = 128;
  spec.n_positions = 256;
  spec.vocab_size = 1000;
  spec.activation_function = "gelu_new";
  const ModelSpec gpt2{.name = "small", .model_type = "gpt2", .architecture = spec};
  EXPECT_NO_THROW((void)run_symbolically(gpt2, run_on(2, DataParallel::kDsZero3), test::h100()));
}

RunSpec adapters_in_trainer(DataParallel mode) {
  RunSpec run = run_on(2, mode);
  run.training().loop = Loop::kTrainer;
  run.precision = Precision::kAmpBf16;
  run.weights_dtype = DType::kBFloat16;
  run.fine_tuning.lora = Lora{.rank = 8};
  return run;
}

std::int64_t elements_of(const SymbolicRun& run, bool trainable) {
  std::int64_t total = 0;
  for (const ParameterInfo& each : run.parameters) total += each.trainable == trainable ? each.elements : 0;
  return total;
}

TEST(DeepSpeedTest, Stage3SharesAFrozenBaseIn16BitsAndKeepsFloat32Adapters) {
  RunSpec spec = adapters_in_trainer(DataParallel::kDsZero3);
  spec.parallel.deepspeed().reduce_bucket_size = 1'000'000;
  const SymbolicRun run = run_symbolically(llama(), spec, test::h100());
  const std::int64_t base = elements_of(run, false), adapters = elements_of(run, true);
  ASSERT_EQ(run.held.size(), 6U);
  EXPECT_EQ(run.held[0].bytes, 2 * base / 2) << "frozen weights";
  EXPECT_EQ(run.held[1].bytes, 4 * adapters / 2) << "adapters";
  EXPECT_EQ(run.held[3].bytes, 2 * adapters / 2) << "gradients are reduced in 16 bits";
  EXPECT_EQ(run.held[4].bytes, 2 * 1'000'000) << "the bucket";
  EXPECT_EQ(run.held[5].bytes, 12 * adapters / 2 + 4) << "states of the adapters alone";
  spec.fine_tuning.lora->in_base_dtype = true;
  EXPECT_EQ(run_symbolically(llama(), spec, test::h100()).held[1].bytes, 2 * adapters / 2);
}

TEST(DeepSpeedTest, Stage3SharesPackedWeightsAsBytesAndCastsTheirAdapters) {
  RunSpec spec = adapters_in_trainer(DataParallel::kDsZero3);
  spec.fine_tuning.quantization = Quantization::kNf4;
  const SymbolicRun run = run_symbolically(llama(), spec, test::h100());
  const std::int64_t adapters = elements_of(run, true);
  std::int64_t shared = 0;  // bytes of the base
  for (const ParameterInfo& each : run.parameters) {
    if (!each.trainable) shared += each.packing == Quantization::kNf4 ? each.elements / 2 : 2 * each.elements;
  }
  EXPECT_EQ(run.held[0].bytes, shared / 2);
  EXPECT_EQ(run.held[1].bytes, 2 * adapters / 2) << "the engine casts what was not built under zero.Init";
}

// MatMul4Bit keeps a view of the gathered weight for backward: it lives on though ZeRO-3 lets the parameter go.
TEST(DeepSpeedTest, PackedWeightsThatStage3GatheredStayUntilBackwardIsOver) {
  RunSpec spec = adapters_in_trainer(DataParallel::kDsZero3);
  spec.fine_tuning.quantization = Quantization::kNf4;
  spec.parallel.deepspeed().param_persistence_threshold = 0;
  spec.parallel.deepspeed().max_reuse_distance = 0;
  spec.parallel.deepspeed().prefetch_bucket_size = 0;
  const SymbolicRun run = run_symbolically(llama(), spec, test::h100());
  constexpr Bytes kDownProj = 256 * 512 / 2;
  std::int64_t live = 0, most = 0;
  for (const Event& event : run.trace.events) {
    if (!event.moves_block()) continue;
    const Block& block = run.trace.blocks[static_cast<std::size_t>(event.block)];
    if (block.category != Category::kGatheredWeights || block.requested != kDownProj) continue;
    live += event.kind == EventKind::kAllocate ? 1 : -1;
    most = std::max(most, live);
  }
  EXPECT_GE(most, 4 * 3) << "gate, up and down of four layers";
  EXPECT_EQ(live, 0);
}

/// Gathers of the last step before the first operator whose name begins so.
std::int64_t gathers_before(const SymbolicRun& run, std::string_view op) {
  std::int64_t count = 0;
  for (const Event& event : run.trace.events) {
    if (event.step != 2 || event.op == nullptr || event.kind != EventKind::kAllocate) continue;
    if (std::string_view(event.op->name).starts_with(op)) break;
    if (std::string_view(event.op->name) == "c10d::_allgather_base_") ++count;
  }
  return count;
}

// Each module that begins gathers one parameter ahead. Before the embedding: the model with its head, the base model,
// the embedding; with adapters also peft's model and the one inside. Before attention: a norm and three linear layers;
// with adapters also the layer, and of each linear layer peft's module, dropout and both adapters.
TEST(DeepSpeedTest, Stage3GathersAheadAtModulesWithoutParametersOfPeft) {
  for (const bool adapts : {false, true}) {
    RunSpec spec = adapters_in_trainer(DataParallel::kDsZero3);
    if (!adapts) spec.fine_tuning.lora.reset();
    spec.parallel.deepspeed().param_persistence_threshold = 0;
    spec.parallel.deepspeed().prefetch_bucket_size = 1;
    const SymbolicRun run = run_symbolically(llama(), spec, test::h100());
    EXPECT_EQ(gathers_before(run, "aten::index_select"), adapts ? 5 : 3);
    EXPECT_EQ(gathers_before(run, "aten::_cudnn_attention_forward"), adapts ? 5 + 1 + 1 + 3 * 5 : 3 + 1 + 3);
  }
}

TEST(DeepSpeedTest, MoreRanksHoldLessAndStage2NoGradientsOfOthers) {
  const auto peak = [](std::int64_t gpus, DataParallel mode) { return peak_of(run_on(gpus, mode)); };
  EXPECT_LT(peak(8, DataParallel::kDsZero1), peak(2, DataParallel::kDsZero1));
  EXPECT_LT(peak(8, DataParallel::kDsZero2), peak(8, DataParallel::kDsZero1));
  EXPECT_LT(peak(8, DataParallel::kDsZero3), peak(2, DataParallel::kDsZero3));
}

}  // namespace
}  // namespace memcalc
