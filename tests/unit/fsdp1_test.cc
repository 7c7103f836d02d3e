// FSDP1 of adapters, of generation and of frozen layers: which unit is gathered when. The orders are those of
// torch 2.11 itself: FullyShardedDataParallel of this model on two processes of a CPU (gloo), with peft 0.21.2's
// fsdp_auto_wrap_policy and mixed precision (2026-11-28).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/memcalc.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/train/step.h"
#include "support/small_llama.h"

namespace memcalc {
namespace {

using test::device;
using test::small_llama;

constexpr std::int64_t kLayers = 2;

RunSpec run_of(RunOptions options) {
  options.batch_size = options.batch_size.value_or(2);
  options.sequence_length = 16;
  options.precision = options.precision.value_or(Precision::kAmpBf16);
  options.gpus = 2;
  options.parallel.data_parallel = DataParallel::kFsdp1;
  return resolve(small_llama(), options).run;
}

SymbolicRun simulated(const RunOptions& options) { return run_symbolically(small_llama(), run_of(options), device()); }

/// Unit by unit what the saving of a sharded state dict gathers, and which unit is let go ("-48").
std::vector<std::string> gathered_to_save(const SymbolicRun& run) {
  const std::map<Bytes, std::string> names = {{(2 * 101 * 48 + 48) * 2, "root"},
                                              {(6912 + 14400 + 96) * 2, "layer"},
                                              {4 * 48 * 4, "48"},
                                              {4 * 24 * 4, "24"},
                                              {4 * 100 * 4, "100"}};
  std::vector<std::string> order;
  std::map<BlockId, std::string> whole;
  for (const Event& event : run.trace.events) {
    if (event.phase != Phase::kSave || !event.moves_block()) continue;
    const bool takes = event.kind == EventKind::kAllocate;
    if (takes && std::string_view(event.op->name) == "c10d::_allgather_base_") {
      whole[event.block] = names.at(run.trace.blocks[event.block].requested);
      order.push_back(whole[event.block]);
    } else if (!takes && whole.contains(event.block)) {
      order.push_back("-" + whole[event.block]);
    }
  }
  return order;
}

/// What a step gathers, unit by unit, told by its bytes in bfloat16: root, layer, and A or B of a matrix with so many
/// inputs or outputs.
std::vector<std::string> gathered_in_step(const SymbolicRun& run) {
  // Flat parameters of two ranks; the layer's are 48 x (48 + 24 + 24) + 48 x 48 + 3 x 48 x 100 + 2 x 48 numbers.
  const std::map<Bytes, std::string> names = {{(2 * 101 * 48 + 48) * 2, "root"},
                                              {(6912 + 14400 + 96) * 2, "layer"},
                                              {4 * 48 * 2, "48"},
                                              {4 * 24 * 2, "24"},
                                              {4 * 100 * 2, "100"}};
  std::vector<std::string> order;
  for (const Kernel& kernel : run.kernels) {
    if (std::string_view(kernel.op->name) != "c10d::_allgather_base_") continue;
    const auto found = names.find(static_cast<Bytes>(kernel.as<work::Communication>()->bytes));
    if (found != names.end()) order.push_back(found->second);  // else numbers that the loop gathers
  }
  return order;
}

using Order = std::vector<std::string>;

std::string words(const Order& order) {
  std::string text;
  for (const std::string& each : order) text += each + " ";
  return text;
}

void append(Order& order, const Order& more) { order.insert(order.end(), more.begin(), more.end()); }

/// lora_A and lora_B of q, k, v, o, gate, up and down, as forward calls them: by the side that is not the rank.
const Order kForward = {"48", "48", "48", "24", "48", "24", "48", "48", "48", "100", "48", "100", "100", "48"};
Order backward_of_adapters() { return {kForward.rbegin(), kForward.rend()}; }

RunOptions lora(Checkpointing checkpointing) {
  RunOptions options{.loop = Loop::kTrainer, .checkpointing = checkpointing, .lora_rank = 4};
  options.weights_dtype = DType::kBFloat16;
  return options;
}

// accelerate's save_fsdp_model with SHARDED_STATE_DICT: a layer is whole while its adapters are gathered, the root all
// the time; of the optimizer's states those of the adapters.
TEST(Fsdp1, ALayerStaysWholeWhileItsAdaptersAreSaved) {
  RunOptions options = lora(Checkpointing::kNone);
  options.stages = Stages::kAll;
  options.loading = ModelLoading::kHost;
  options.saving = ModelSaving::kSharded;
  Order expected = {"root"}, of_optimizer;
  for (std::int64_t i = 0; i < kLayers; ++i) {
    expected.emplace_back("layer");
    for (const std::string& each : kForward) {
      append(expected, {each, "-" + each});
      append(of_optimizer, {each, "-" + each});
    }
    expected.emplace_back("-layer");
  }
  expected.emplace_back("-root");
  append(expected, of_optimizer);
  EXPECT_EQ(words(gathered_to_save(simulated(options))), words(expected));
}

TEST(Fsdp1, EachMatrixOfAnAdapterIsAUnit) {
  Order expected = {"root"};
  for (std::int64_t i = 0; i < kLayers; ++i) {
    expected.emplace_back("layer");
    append(expected, kForward);
  }
  for (std::int64_t i = 0; i < kLayers; ++i) {
    expected.emplace_back("layer");
    append(expected, backward_of_adapters());
  }
  EXPECT_EQ(words(gathered_in_step(simulated(lora(Checkpointing::kNone)))), words(expected));
}

// The layer's own hooks are around its checkpoint, the adapters' within it. lora_B of the last product is gathered as
// the recomputation begins, and stays.
TEST(Fsdp1, ARecomputationGathersTheAdaptersOnceMore) {
  Order expected = {"root"};
  for (std::int64_t i = 0; i < kLayers; ++i) {
    expected.emplace_back("layer");
    append(expected, kForward);
  }
  for (std::int64_t i = 0; i < kLayers; ++i) {
    expected.emplace_back("layer");
    expected.emplace_back("48");  // lora_B of down_proj
    append(expected, {kForward.begin(), kForward.end() - 1});
    const Order backward = backward_of_adapters();
    append(expected, {backward.begin() + 1, backward.end()});
  }
  EXPECT_EQ(words(gathered_in_step(simulated(lora(Checkpointing::kFull)))), words(expected));
}

// use_reentrant=True, axolotl's default and that of transformers 4: the layer's backward begins with its recomputation.
TEST(Fsdp1, AReentrantCheckpointFindsItsLayerGathered) {
  RunOptions options = lora(Checkpointing::kFull);
  options.reentrant = true;
  Order expected = {"root"};
  for (std::int64_t i = 0; i < kLayers; ++i) {
    expected.emplace_back("layer");
    append(expected, kForward);
  }
  for (std::int64_t i = 0; i < kLayers; ++i) {
    expected.emplace_back("layer");
    append(expected, kForward);
    append(expected, backward_of_adapters());
  }
  EXPECT_EQ(words(gathered_in_step(simulated(options))), words(expected));
}

// BACKWARD_PRE: each unit gathers the one before it in the order of forward. A recomputation finds the last lora_A
// there.
TEST(Fsdp1, APrefetchGathersAUnitAhead) {
  RunOptions options = lora(Checkpointing::kFull);
  options.torch.prefetches_backward = true;
  Order expected = {"root"};
  for (std::int64_t i = 0; i < kLayers; ++i) {
    expected.emplace_back("layer");
    append(expected, kForward);
  }
  for (std::int64_t i = 0; i < kLayers; ++i) {
    append(expected, {"layer", "48", "100"});  // lora_B and lora_A of down_proj
    append(expected, {kForward.begin(), kForward.end() - 2});
    const Order backward = backward_of_adapters();
    append(expected, {backward.begin() + 1, backward.end()});
  }
  EXPECT_EQ(words(gathered_in_step(simulated(options))), words(expected));
}

/// The most that is gathered at a time, in a phase.
Bytes most_gathered(const Trace& trace, Phase phase) {
  std::vector<bool> live(trace.blocks.size());
  Bytes now = 0, most = 0;
  for (const Event& event : trace.events) {
    const auto block = static_cast<std::size_t>(event.block);
    const bool takes = event.kind == EventKind::kAllocate, gives = event.kind == EventKind::kFree;
    if ((takes || gives) && trace.blocks[block].category == Category::kGatheredWeights && takes != live[block]) {
      live[block] = takes;
      now += (takes ? 1 : -1) * trace.blocks[block].requested;
    }
    if (event.phase == phase) most = std::max(most, now);
  }
  return most;
}

// next_iter() comes with the end of a backward pass: what a pass without gradients has noted is prefetched by, too.
TEST(Fsdp1, APassWithoutGradientsLeavesTheOrderToThePrefetch) {
  const auto most = [](bool prefetches) {
    RunOptions options{
        .loop = Loop::kTrlKto, .checkpointing = Checkpointing::kNone, .reference = Reference::kPrecomputed};
    options.torch.prefetches_backward = prefetches;
    return simulated(options).trace;
  };
  constexpr Bytes kLayer = (6912 + 14400 + 96) * 2;
  EXPECT_EQ(most_gathered(most(true), Phase::kBackward), most_gathered(most(false), Phase::kBackward) + kLayer);
}

// A frozen layer is resharded when the gradient of its input is there, behind the hook that gathers the one before.
TEST(Fsdp1, OfFrozenLayersTwoAreWholeAtATimeInBackward) {
  constexpr Bytes kRoot = (2 * 101 * 48 + 48) * 2, kLayer = (6912 + 14400 + 96) * 2, kAdapter = 4 * 100 * 2;
  const Trace trace = simulated(lora(Checkpointing::kNone)).trace;
  EXPECT_GE(most_gathered(trace, Phase::kBackward), kRoot + 2 * kLayer);
  EXPECT_LE(most_gathered(trace, Phase::kBackward), kRoot + 2 * kLayer + 2 * kAdapter);
}

TEST(Fsdp1, TheBaseStaysAsItWasLoadedAndTheAdaptersAreFloat32) {
  const SymbolicRun run = simulated(lora(Checkpointing::kNone));
  Bytes frozen = 0;
  for (const ParameterInfo& each : run.parameters) {
    EXPECT_EQ(each.dtype, each.trainable ? DType::kFloat32 : DType::kBFloat16) << each.name;
    EXPECT_EQ(each.trainable, each.name.find("lora_") != std::string::npos) << each.name;
    if (!each.trainable) frozen += each.held.elements() * 2;
  }
  EXPECT_LE(frozen, (2 * 101 * 48 + 48 + kLayers * (6912 + 14400 + 96)));
}

// bnb_4bit_quant_storage=bfloat16: half a byte a number, flattened with the norms.
TEST(Fsdp1, APackedLayerIsGatheredAsItIsStored) {
  RunOptions options = lora(Checkpointing::kNone);
  options.quantization = Quantization::kNf4;
  options.prepares_for_kbit = false;
  EXPECT_THROW((void)simulated(options), Error) << "bytes are no parameters of FSDP1";
  options.quant_storage = DType::kBFloat16;
  std::int64_t layers = 0;
  for (const Kernel& kernel : simulated(options).kernels) {
    if (std::string_view(kernel.op->name) != "c10d::_allgather_base_") continue;
    if (kernel.as<work::Communication>()->bytes == (6912 + 14400) / 2 + 96 * 2) ++layers;
  }
  EXPECT_EQ(layers, 2 * kLayers) << "forward, backward";
}

// accelerate casts the shards of what was loaded in 16 bits; those live beside them until a unit's first reshard.
TEST(Fsdp1, ShardsOfWhatWasLoadedInSixteenBitsAreCast) {
  RunOptions options{.loop = Loop::kTrainer};
  options.weights_dtype = DType::kBFloat16;
  const RunSpec run = run_of(options);
  EXPECT_EQ(run.training().sharded_from, DType::kBFloat16);
  EXPECT_EQ(run.weights_dtype, DType::kFloat32);
  const Trace trace = simulated(options).trace;
  constexpr Bytes kShard = (6912 + 14400 + 96) / 2;
  std::int64_t loaded = 0, cast = 0;
  for (const Block& block : trace.blocks) {
    if (block.category != Category::kWeights) continue;
    if (block.requested == kShard * 2) ++loaded;
    if (block.requested == kShard * 4) ++cast;
  }
  EXPECT_EQ(loaded, kLayers);
  EXPECT_EQ(cast, 2 * kLayers) << "a flat parameter in 16 bits has as many bytes as a shard of two ranks in float32";
}

// input_buffer.cpp, accumulate: TRL's head owns the gradient of its weight, a Linear layer's is the transpose of a
// product.
TEST(Fsdp1, GradientsOfATiedEmbeddingMeetInPlaceBehindTrlsHead) {
  constexpr const char* kConfig =
      R"({"model_type": "llama", "vocab_size": 101, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 12, "intermediate_size": 100, "max_position_embeddings": 64,
          "tie_word_embeddings": true})";
  const ModelSpec tied = model_from_hf_config(JsonDocument::parse(kConfig, "tied").root(), "tied");
  for (const auto& [loop, sums] : {std::pair(Loop::kTrainer, 3), std::pair(Loop::kTrlSft, 0)}) {
    RunOptions options{.batch_size = 2, .sequence_length = 16, .precision = Precision::kAmpBf16, .loop = loop};
    options.gpus = 2;
    options.parallel.data_parallel = DataParallel::kFsdp1;
    const Trace trace = run_symbolically(tied, resolve(tied, options).run, device()).trace;
    EXPECT_EQ(
        std::count_if(trace.events.begin(), trace.events.end(),
                      [&trace](const Event& event) {
                        return event.kind == EventKind::kAllocate && std::string_view(event.op->name) == "aten::add" &&
                               trace.blocks[static_cast<std::size_t>(event.block)].stream == CudaStream::kAllGather;
                      }),
        sums)
        << "third tensors, in three steps";
  }
}

// fully_sharded_data_parallel.py, clip_grad_norm_
TEST(Fsdp1, TheRootKeepsAZeroForRanksWithoutGradients) {
  const Trace trace = simulated({.loop = Loop::kTrainer}).trace;
  EXPECT_EQ(std::count_if(trace.events.begin(), trace.events.end(),
                          [](const Event& event) {
                            return event.kind == EventKind::kAllocate &&
                                   std::string_view(event.op->name) == "aten::scalar_tensor";
                          }),
            1)
      << "made in the first step, kept in all";
}

TEST(Fsdp1, LayersMayBeFrozenPartsOfThemNot) {
  RunOptions options{.loop = Loop::kTrainer};
  options.frozen = {"layers.0."};
  const Order order = gathered_in_step(simulated(options));
  EXPECT_EQ(order, (Order{"root", "layer", "layer", "layer", "layer"})) << "the embedding trains";
  options.frozen = {"q_proj"};
  EXPECT_THROW((void)simulated(options), Error);
}

TEST(Fsdp1, TrlsTrainersKeepTheRootFromAPassWithoutGradients) {
  const Order order = gathered_in_step(simulated({.batch_size = 2,
                                                  .loop = Loop::kTrlKto,
                                                  .checkpointing = Checkpointing::kNone,
                                                  .reference = Reference::kPrecomputed}));
  EXPECT_EQ(order, (Order{"root", "layer", "layer", "layer", "layer", "layer", "layer"}))
      << "answers of others, forward, backward";
  const Order reward = gathered_in_step(simulated(
      {.task = Task::kSequenceClassification, .loop = Loop::kTrlReward, .checkpointing = Checkpointing::kNone}));
  EXPECT_EQ(std::count(reward.begin(), reward.end(), "layer"), 2 * kLayers);
}

// The reference is the model without its adapters, whose modules are not called; trainers on preferences.
TEST(Fsdp1, AReferenceWithoutAdaptersGathersNone) {
  RunOptions options = lora(Checkpointing::kNone);
  options.loop = Loop::kTrlDpo;
  options.completion_length = 4;
  const Order order = gathered_in_step(simulated(options));
  EXPECT_EQ(std::count(order.begin(), order.end(), "layer"), 3 * kLayers) << "reference, forward, backward";
  EXPECT_EQ(std::count(order.begin(), order.end(), "100"), 2 * 3 * kLayers) << "gate, up and down: forward, backward";
}

// summon_full_params(model, recurse=False): the root in float32, each token gathers the layers.
TEST(Fsdp1, GenerationHoldsTheRootInItsOwnTypeAndALayerAtATime) {
  constexpr Bytes kRoot = (2 * 101 * 48 + 48) * 4, kLayer = (6912 + 14400 + 96) * 2;
  for (const Loop loop : {Loop::kTrlGrpo, Loop::kTrlOnlineDpo}) {
    const Trace trace = simulated({.loop = loop, .completion_length = 4}).trace;
    EXPECT_GE(most_gathered(trace, Phase::kDecode), kRoot + kLayer);
    EXPECT_LE(most_gathered(trace, Phase::kDecode), kRoot + 3 * kLayer) << "two more may wait for their stream";
  }
}

// Without mixed precision adapters generate, too: each of the tokens runs all layers and all adapters.
TEST(Fsdp1, AdaptersGenerateWhereAllIsOfOneType) {
  RunOptions options{.precision = Precision::kBf16, .loop = Loop::kTrlGrpo, .completion_length = 4, .lora_rank = 4};
  const Order order = gathered_in_step(simulated(options));
  const auto layers = std::count(order.begin(), order.end(), "layer");
  EXPECT_EQ(layers, (4 + 2) * kLayers) << "four tokens, forward, backward";
  EXPECT_THROW((void)simulated({.loop = Loop::kTrlGrpo, .completion_length = 4, .lora_rank = 4}), Error);
}

}  // namespace
}  // namespace memcalc
