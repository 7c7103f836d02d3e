// train/loop_megatron: what the ranks of a Megatron-LM run hold together, and how memory answers to the options.
// What others measured is compared by scripts/megatron_tables.
#include "memcalc/families/bert/spec.h"
#include "memcalc/families/deepseek/spec.h"
#include "memcalc/families/llama/spec.h"
#include "memcalc/families/nemotron_h/spec.h"
#include "memcalc/families/t5/spec.h"
#include "memcalc/train/loop_megatron.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "memcalc/alloc/replay.h"
#include "memcalc/models/megatron_config.h"
#include "support/small_models.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

ModelSpec llama() { return {.name = "small", .model_type = "llama", .architecture = test::llama_256_wide(8)}; }

ModelSpec deepseek() {
  DeepseekV2Spec spec;
  static_cast<RotaryDecoderSpec&>(spec) = test::llama_256_wide(8);
  spec.latent = {
      .q_lora_rank = 64, .kv_lora_rank = 32, .qk_nope_head_dim = 32, .qk_rope_head_dim = 16, .v_head_dim = 32};
  spec.experts = {.count = 16, .per_token = 2, .intermediate_size = 64};
  spec.n_shared_experts = 2;
  spec.first_k_dense_replace = 1;
  return {.name = "small", .model_type = "deepseek_v2", .architecture = spec};
}

/// Two Mamba mixers, an attention and an MLP of each of two stages.
ModelSpec hybrid() {
  NemotronHSpec spec;
  static_cast<RotaryDecoderSpec&>(spec) = test::llama_256_wide(8);
  spec.hidden_act = "relu2";
  using Mixer = NemotronHSpec::Mixer;
  spec.layers = {Mixer::kMamba, Mixer::kMlp, Mixer::kAttention, Mixer::kMamba,
                 Mixer::kMamba, Mixer::kMlp, Mixer::kAttention, Mixer::kMamba};
  spec.mamba = {.num_heads = 16, .head_dim = 32, .state_size = 16, .n_groups = 4, .conv_kernel = 4, .chunk_size = 64};
  return {.name = "small", .model_type = "nemotron_h", .architecture = spec};
}

ModelSpec bert() {
  BertSpec spec;
  spec.vocab_size = 1000;
  spec.hidden_size = 256;
  spec.num_hidden_layers = spec.num_attention_heads = 8;
  spec.intermediate_size = 512;
  spec.max_position_embeddings = 1024;
  spec.type_vocab_size = 2;
  spec.tie_word_embeddings = false;  // tied, the last stage holds the table once more
  spec.hidden_dropout_prob = spec.attention_probs_dropout_prob = 0.1;
  return {.name = "small", .model_type = "bert", .architecture = spec};
}

ModelSpec t5() {
  T5Spec spec;
  spec.vocab_size = 1000;
  spec.d_model = 256;
  spec.d_kv = 32;
  spec.d_ff = 512;
  spec.num_layers = 4;
  spec.num_decoder_layers = 2;
  spec.num_heads = 8;
  spec.dropout_rate = 0.1;
  return {.name = "small", .model_type = "t5", .architecture = spec};
}

RunSpec run_on(std::int64_t gpus) {
  RunSpec run;
  run.batch_size = 2;
  run.sequence_length = 1024;
  run.precision = Precision::kBf16;
  run.parallel.layout = MegatronLayout{};
  run.parallel.data_parallel = DataParallel::kMegatronDist;
  run.parallel.gpus = gpus;
  return run;
}

Bytes peak(const ModelSpec& model, const RunSpec& run, std::int64_t rank = 0) {
  return replay(run_megatron(model, run, test::h100(), rank).trace).peak_allocated;
}

/// Whole on every tensor-parallel rank: norms (but a mixer's own), routers, down-projections.
bool is_duplicated(const std::string& name) {
  if (name.ends_with("mixer.norm.weight")) return false;
  for (const char* part : {"norm", "router", "down_proj", "position_embeddings", "tokentype_embeddings",
                           "linear_proj.bias", "linear_fc2.bias", "lm_head", "binary_head", "pooler"}) {
    if (name.find(part) != std::string::npos) return true;
  }
  return false;
}

struct SplitCase {
  const char* name;
  ModelSpec (*model)();
  std::int64_t tensor, pipeline, virtual_stages, expert;
};

class Split : public ::testing::TestWithParam<SplitCase> {};

TEST_P(Split, TheRanksTogetherHoldTheWholeModelOnce) {
  const SplitCase& c = GetParam();
  const ModelSpec model = c.model();
  RunSpec run = run_on(c.tensor * c.pipeline * c.expert);
  run.target_sequence_length = 128;
  run.parallel.tensor = c.tensor;
  run.parallel.sequence_parallel = c.tensor > 1;
  run.parallel.pipeline = c.pipeline;
  run.parallel.virtual_stages = c.virtual_stages;
  run.parallel.expert = c.expert;
  run.parallel.megatron().expert_tensor = 1;
  std::int64_t held = 0;
  for (const RankGroup& group : megatron_ranks(model, run)) {
    for (const ParameterInfo& each : run_megatron(model, run, test::h100(), group.first).parameters) {
      const bool expert = each.name.find(".experts.") != std::string::npos;
      const std::int64_t copies = expert ? c.expert : is_duplicated(each.name) ? 1 : c.tensor;
      held += each.elements * copies;
    }
  }
  EXPECT_EQ(held, count_parameters(megatron_config(model, run)).total);
}

INSTANTIATE_TEST_SUITE_P(
    All, Split,
    ::testing::ValuesIn({SplitCase{"OneRank", llama, 1, 1, 1, 1}, SplitCase{"Tensor", llama, 4, 1, 1, 1},
                         SplitCase{"Pipeline", llama, 1, 4, 1, 1}, SplitCase{"Interleaved", llama, 2, 2, 4, 1},
                         SplitCase{"Experts", deepseek, 1, 1, 1, 8}, SplitCase{"AllAtOnce", deepseek, 2, 4, 2, 4},
                         SplitCase{"Bert", bert, 1, 1, 1, 1}, SplitCase{"BertTensor", bert, 4, 1, 1, 1},
                         SplitCase{"BertInterleaved", bert, 2, 2, 4, 1}, SplitCase{"T5", t5, 1, 1, 1, 1},
                         SplitCase{"T5Tensor", t5, 4, 1, 1, 1}}),
    [](const auto& info) { return info.param.name; });

TEST(MegatronTest, TheRanksOfAHybridModelHoldItOnce) {
  for (const std::int64_t tensor : {1, 2}) {
    for (const std::int64_t pipeline : {1, 2}) {
      RunSpec run = run_on(tensor * pipeline);
      run.parallel.tensor = tensor;
      run.parallel.pipeline = pipeline;
      std::int64_t held = 0;
      for (const RankGroup& group : megatron_ranks(hybrid(), run)) {
        for (const ParameterInfo& each : run_megatron(hybrid(), run, test::h100(), group.first).parameters) {
          held += each.elements * (is_duplicated(each.name) ? 1 : tensor);
        }
      }
      EXPECT_EQ(held, count_parameters(megatron_config(hybrid(), run)).total) << tensor << " x " << pipeline;
    }
  }
}

TEST(MegatronTest, AMambaMixerKeepsItsProjectionTheScanAndTheNorm) {
  // A layer more of 8,192 tokens: x and the norm's output (256 wide) of in_proj, its projection (2 x 512 + 2 x 4 x 16
  // + 16 = 1168) by batch, the scan's result before the gate, what the norm and out_proj take (512 each); 16 bits.
  const auto activations = [](std::int64_t layers) {
    ModelSpec model = hybrid();
    auto spec = model.architecture.as<NemotronHSpec>();
    spec.layers.assign(static_cast<std::size_t>(layers), NemotronHSpec::Mixer::kMamba);
    spec.num_hidden_layers = layers;
    model.architecture = spec;
    RunSpec run = run_on(1);
    run.batch_size = 8;
    const SymbolicRun symbolic = run_megatron(model, run, test::h100(), 0);
    Bytes held = 0;
    for (const HeldRow& row : symbolic.held) held += row.bytes;
    return replay(symbolic.trace).peak_allocated - held;
  };
  const std::int64_t tokens = 8 * 1024, widths = 256 + 256 + 1168 + 3 * 512;
  const double more = static_cast<double>(activations(9) - activations(8));
  EXPECT_NEAR(more / (static_cast<double>(tokens * widths) * 2), 1, 0.01);
}

TEST(MegatronTest, ExpertsOneAfterAnotherHoldWhatGroupedOnesDo) {
  RunSpec grouped = run_on(8);
  grouped.parallel.expert = 4;
  RunSpec sequential = grouped;
  sequential.parallel.megatron().groups_experts = false;
  const auto held = [](const RunSpec& run) { return run_megatron(deepseek(), run, test::h100(), 0).held; };
  const std::vector<HeldRow> a = held(grouped), b = held(sequential);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].bytes, b[i].bytes) << a[i].name;
}

TEST(MegatronTest, GatheredTokensAreThoseOfAllRanks) {
  RunSpec exchanged = run_on(8);
  exchanged.parallel.expert = 8;
  RunSpec gathered = exchanged;
  gathered.parallel.megatron().gathers_tokens = true;
  // Experts get as many rows in both, and keep them; the gathered tokens stand in a buffer once.
  const double ratio =
      static_cast<double>(peak(deepseek(), gathered)) / static_cast<double>(peak(deepseek(), exchanged));
  EXPECT_NEAR(ratio, 1, 0.25);
  EXPECT_NE(peak(deepseek(), gathered), peak(deepseek(), exchanged));
}

// ChainedOptimizer of the dense parameters' and the experts': each gathers all buffers when it has stepped. Experts'
// gradients are scaled by the data-parallel ranks, though only one holds them.
TEST(MegatronTest, WithExpertsBothOptimizersGatherAndAllGradientsAreScaled) {
  const auto in_the_step = [](const ModelSpec& model, std::int64_t experts_over, std::string_view op) {
    RunSpec run = run_on(8);
    run.parallel.expert = experts_over;
    int count = 0;
    for (const Kernel& each : run_megatron(model, run, test::h100(), 0).kernels) {
      count += each.phase == Phase::kOptimizer && each.op != nullptr && op == each.op->name ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(in_the_step(llama(), 1, "c10d::_allgather_base_"), 1);
  EXPECT_EQ(in_the_step(deepseek(), 8, "c10d::_allgather_base_"), 2);
  EXPECT_EQ(in_the_step(deepseek(), 8, "c10d::_reduce_scatter_base_"), 1);
  EXPECT_EQ(in_the_step(deepseek(), 1, "c10d::_allgather_base_"), 4) << "the experts' buffer, too";
  EXPECT_EQ(in_the_step(llama(), 1, "aten::mul"), 1);
  EXPECT_EQ(in_the_step(deepseek(), 8, "aten::mul"), 2);
}

// token_dispatcher.py: by the counts the host splits what is exchanged; of experts padded to their capacity it knows
// them.
TEST(MegatronTest, TheHostWaitsForTheCountsOfTokensThatNoCapacityPads) {
  const auto waits = [](bool pads) {
    RunSpec run = run_on(8);
    run.parallel.expert = 8;
    if (pads) run.parallel.megatron().expert_capacity = 1;
    int count = 0;
    for (const Kernel& each : run_megatron(deepseek(), run, test::h100(), 0).kernels) {
      count += each.phase == Phase::kForward && each.kind == KernelKind::kSynchronize ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(waits(false), 8) << "one a layer of experts, of eight layers, and the loss, which is looked at for NaN";
  EXPECT_EQ(waits(true), 1);
}

/// How many collectives of a kind forward and backward of a micro-batch have.
int collectives(const RunSpec& run, Collective kind, const ModelSpec& model = llama()) {
  int count = 0;
  for (const Kernel& each : run_megatron(model, run, test::h100(), 0).kernels) {
    const auto* found = each.as<work::Communication>();
    count += each.phase != Phase::kOptimizer && found != nullptr && found->kind == kind ? 1 : 0;
  }
  return count;
}

// context_parallel.py, flash_attn_a2a_communicate: query, key, value and the output, and their gradients.
TEST(MegatronTest, HeadsAreExchangedForPositions) {
  RunSpec run = run_on(8);
  EXPECT_EQ(collectives(run, Collective::kAllToAll), 0);
  run.parallel.context = 4;
  run.parallel.context_type = ContextParallel::kUlysses;
  EXPECT_EQ(collectives(run, Collective::kAllToAll), 8 * 8);
}

// Of eight layers; the embedding's and the head's own: layers.py, LinearWithGradAccumulationAndAsyncCommunication and
// VocabParallelEmbedding with reduce_scatter_embeddings.
TEST(MegatronTest, EmbeddingAndHeadCommunicate) {
  RunSpec run = run_on(8);
  run.parallel.tensor = 2;
  run.parallel.sequence_parallel = true;
  EXPECT_EQ(collectives(run, Collective::kAllGather), 8 * 6 + 3);
  EXPECT_EQ(collectives(run, Collective::kReduceScatter), 8 * 4 + 2);
}

// dispatch_postprocess and combine_preprocess: of padded experts all chunks are alike, so that PyTorch copies them.
TEST(MegatronTest, RowsOfPaddedExpertsAreCopiedByPyTorch) {
  RunSpec run = run_on(8);
  run.parallel.expert = 4;
  const auto copies = [&run] {
    int count = 0;
    for (const Kernel& each : run_megatron(deepseek(), run, test::h100(), 0).kernels) {
      count += each.op != nullptr && each.op->name == std::string_view("aten::clone") ? 1 : 0;
    }
    return count;
  };
  const int sorted = copies();
  run.parallel.megatron().expert_capacity = 1;
  EXPECT_EQ(copies() - sorted, 7 * 6) << "of seven layers: rows, their probabilities, what experts give; and back";
}

TEST(MegatronTest, MuonHasOneMomentOfMatrices) {
  RunSpec adam = run_on(1);
  adam.parallel.data_parallel = DataParallel::kDdp;
  RunSpec muon = adam;
  muon.training().optimizer = Optimizer::kMuon;
  const auto states = [](const RunSpec& run) { return run_megatron(llama(), run, test::h100(), 0).held[2].bytes; };
  std::int64_t matrices = 0;
  for (const ParameterInfo& each : run_megatron(llama(), adam, test::h100(), 0).parameters) {
    const bool by_vocabulary =
        each.name.find("word_embeddings") != std::string::npos || each.name.find("output_layer") != std::string::npos;
    if (each.shape.rank == 2 && !by_vocabulary) matrices += each.elements;
  }
  EXPECT_EQ(states(adam) - states(muon), 4 * matrices);
}

TEST(MegatronTest, TheDistributedOptimizerTurns18BytesInto6And12OverD) {
  const auto bytes_per_parameter = [](std::int64_t gpus, DataParallel mode) {
    RunSpec run = run_on(gpus);
    run.parallel.data_parallel = mode;
    const SymbolicRun symbolic = run_megatron(llama(), run, test::h100(), 0);
    Bytes bytes = 0;
    for (const HeldRow& row : symbolic.held) bytes += row.bytes;
    return static_cast<double>(bytes) / static_cast<double>(symbolic.parameters_of_model);
  };
  EXPECT_DOUBLE_EQ(bytes_per_parameter(8, DataParallel::kDdp), 18);
  for (const std::int64_t gpus : {1, 2, 4, 8}) {
    // Padding: parameters start at multiples of 64 elements, the buffer ends at a multiple of 128 x ranks.
    EXPECT_NEAR(bytes_per_parameter(gpus, DataParallel::kMegatronDist), 6.0 + 12.0 / static_cast<double>(gpus), 0.01);
  }
}

TEST(MegatronTest, WhatIsHeldBetweenStepsIsWhatTheTraceNeverFrees) {
  const SymbolicRun symbolic = run_megatron(llama(), run_on(4), test::h100(), 0);
  std::array<Bytes, kCategoryCount> left{};
  for (const Event& event : symbolic.trace.events) {
    if (!event.moves_block()) continue;
    const Block& block = symbolic.trace.blocks[static_cast<std::size_t>(event.block)];
    left[static_cast<std::size_t>(block.category)] +=
        event.kind == EventKind::kAllocate ? block.requested : -block.requested;
  }
  const auto of = [&](Category category) { return left[static_cast<std::size_t>(category)]; };
  const Bytes frequencies = 32 / 2 * 4;  // of the rotary embedding
  EXPECT_EQ(of(Category::kWeights) - frequencies, symbolic.held[0].bytes);
  EXPECT_EQ(of(Category::kGradients), symbolic.held[1].bytes);
  EXPECT_EQ(of(Category::kOptimizerStates), symbolic.held[2].bytes);
  EXPECT_EQ(of(Category::kActivations), 0);
}

TEST(MegatronTest, MemoryAnswersToTheOptions) {
  RunSpec plain = run_on(8);
  plain.parallel.pipeline = 4;
  plain.parallel.micro_batches = 16;
  const Bytes first = peak(llama(), plain, 0);
  EXPECT_LT(peak(llama(), plain, 2), first) << "a later stage has fewer micro-batches in flight";

  RunSpec many = plain;
  many.parallel.micro_batches = 512;
  EXPECT_EQ(peak(llama(), many), first) << "micro-batches beyond those in flight cost nothing";

  RunSpec full = plain;
  full.training().checkpointing = Checkpointing::kFull;
  RunSpec selective = plain;
  selective.training().checkpointing = Checkpointing::kSelective;
  selective.parallel.megatron().attention = MegatronAttention::kUnfused;
  RunSpec unfused = plain;
  unfused.parallel.megatron().attention = MegatronAttention::kUnfused;
  EXPECT_LT(peak(llama(), full), first);
  EXPECT_LT(peak(llama(), selective), peak(llama(), unfused));

  // Of 16 micro-batches 4 are in flight, 2 layers each; flash-attn keeps a copy of what it gives: 2 x 1024 x 256, 16
  // bits.
  RunSpec flash = plain;
  flash.parallel.megatron().attention = MegatronAttention::kFlash;
  EXPECT_NEAR(static_cast<double>(peak(llama(), flash) - first), 8 * 2 * 1024 * 256 * 2, 2 * 1024 * 256 * 2);

  RunSpec interleaved = plain;
  interleaved.parallel.virtual_stages = 2;
  EXPECT_GT(peak(llama(), interleaved), first) << "1 + (P - 1) / (P V) times the activations";

  RunSpec two_put_off = plain;
  two_put_off.parallel.megatron().defers_head_gradient = true;
  two_put_off.parallel.megatron().deferral_limit = 2;
  RunSpec all_put_off = two_put_off;
  all_put_off.parallel.megatron().deferral_limit = 0;
  const std::int64_t last_stage = 6;
  EXPECT_GT(peak(llama(), two_put_off, last_stage), peak(llama(), plain, last_stage));
  EXPECT_GT(peak(llama(), all_put_off, last_stage), peak(llama(), two_put_off, last_stage));
  EXPECT_EQ(peak(llama(), all_put_off, 0), first) << "only the last stage has a head";

  RunSpec tensor = run_on(8);
  tensor.parallel.tensor = 2;
  RunSpec sequence = tensor;
  sequence.parallel.sequence_parallel = true;
  EXPECT_LT(peak(llama(), sequence), peak(llama(), tensor));

  RunSpec even = run_on(8), uneven = even;
  uneven.parallel.megatron().expert_imbalance = 2;
  EXPECT_GT(peak(deepseek(), uneven), peak(deepseek(), even));
}

TEST(MegatronTest, AnEncodersMemoryAnswersToTheOptions) {
  RunSpec fused = run_on(1);
  fused.sequence_length = 512;
  fused.target_sequence_length = 128;
  RunSpec unfused = fused, local = fused, separate = fused, full = fused;
  unfused.parallel.megatron().attention = MegatronAttention::kUnfused;
  local.parallel.megatron().attention = separate.parallel.megatron().attention = MegatronAttention::kLocal;
  separate.parallel.megatron().fuses_softmax = false;
  separate.parallel.megatron().softmax_in_float32 = true;
  full.training().checkpointing = Checkpointing::kFull;
  for (const ModelSpec& model : {bert(), t5()}) {
    EXPECT_LT(peak(model, fused), peak(model, unfused));
    EXPECT_LT(peak(model, local), peak(model, separate)) << "float32 scores";
    EXPECT_LT(peak(model, full), peak(model, fused));
  }
}

TEST(MegatronTest, Release12OfTheEngineHasNoDeterministicFusedAttentionBeforeHopper) {
  DeviceSpec ampere = test::h100();
  ampere.compute_capability_major = 8;
  const auto peak_on = [](const RunSpec& run, const DeviceSpec& device) {
    return replay(run_megatron(llama(), run, device, 0).trace).peak_allocated;
  };
  RunSpec old = run_on(1);
  old.parallel.megatron().engine_1_2 = true;
  RunSpec deterministic = old, unfused = old;
  deterministic.parallel.megatron().deterministic = true;
  unfused.parallel.megatron().attention = MegatronAttention::kUnfused;
  EXPECT_EQ(peak_on(deterministic, ampere), peak_on(unfused, ampere));
  EXPECT_LT(peak_on(old, ampere), peak_on(unfused, ampere));
  EXPECT_LT(peak_on(deterministic, test::h100()), peak_on(unfused, test::h100()));
  EXPECT_LT(peak_on(old, ampere), peak_on(run_on(1), ampere)) << "no dummy gradients of weights";
}

TEST(MegatronTest, AlikeStagesAreOneGroupOfALongPipeline) {
  LlamaSpec spec = test::llama_256_wide(8);
  spec.num_hidden_layers = 32;
  const ModelSpec model{.name = "deep", .model_type = "llama", .architecture = spec};
  RunSpec run = run_on(64);
  run.parallel.pipeline = 32;
  const auto groups = megatron_ranks(model, run);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[1].name, "stages 1 to 30");
  EXPECT_EQ(groups[1].first, 2);
  EXPECT_EQ(groups[1].count, 60);
  EXPECT_EQ(groups[0].holds, "embedding, layer 0; 32 micro-batches in flight");
}

}  // namespace
}  // namespace memcalc
