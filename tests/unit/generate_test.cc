// train/generate: which tokens of a long generation are executed, and that the others change no peak.
#include "memcalc/train/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "memcalc/alloc/replay.h"
#include "memcalc/memcalc.h"
#include "memcalc/report/accounting.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

RunSpec generating(const ModelSpec& model, std::int64_t tokens, std::int64_t beams = 1) {
  return resolve(model, {.batch_size = 4,
                         .sequence_length = 100,
                         .precision = Precision::kBf16,
                         .inference = Inference{.new_tokens = tokens, .beams = beams}})
      .run;
}

TEST(ExecutedTokens, AllOfAShortGenerationBothEndsOfALongOne) {
  const auto indices = [](std::int64_t new_tokens, std::size_t layers, std::int64_t most) {
    std::vector<std::int64_t> result;
    std::int64_t covered = 0;
    for (const ExecutedToken& each : executed_tokens(new_tokens, layers, most)) {
      result.push_back(each.index);
      covered += each.skipped + 1;
      EXPECT_EQ(covered, each.index + 1) << "every token is executed or skipped once";
    }
    return result;
  };
  EXPECT_EQ(indices(3, 2, 1000), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(indices(500, 2, 1000).size(), 500U) << "500 tokens of 2 layers are as many as allowed";
  const std::vector<std::int64_t> sampled = indices(501, 2, 1000);
  EXPECT_EQ(sampled.size(), 32U);
  EXPECT_EQ(sampled[15], 15);
  EXPECT_EQ(sampled[16], 485);
  EXPECT_EQ(sampled.back(), 500);
}

struct Peaks {
  Bytes requested, allocated, reserved;
};

Peaks peaks_of(const ModelSpec& model, const RunSpec& run, std::int64_t most_layer_tokens) {
  const DeviceSpec device = registry().device("h100-sxm");
  Tape tape(device);
  const std::unique_ptr<Model> built = build_model(model, run, tape, DType::kBFloat16);
  const InferenceCalls calls = run_inference(tape, *built, run, model.model_type, most_layer_tokens);
  const ReplayResult result = replay(tape.memory.trace, {.peaks_from = calls.second_call});
  EXPECT_EQ(*std::max_element(result.phase_peaks.begin() + 1, result.phase_peaks.end()), result.peak_allocated);
  return {result.exact_peak, result.peak_allocated, result.peak_reserved};
}

struct Long {
  const char* model;
  std::int64_t tokens, beams;
};

void PrintTo(const Long& each, std::ostream* out) { *out << each.model << " " << each.beams; }

class LongGeneration : public ::testing::TestWithParam<Long> {};

// The largest sum of requests is the same to the byte. Allocated differs by the allocator's unsplit remainders, and the
// holes that the skipped tokens would have left are missing, which moves what is reserved: usually less, in Gemma 3's
// sliding layers 6 % more. The report says so.
TEST_P(LongGeneration, TheExecutedTokensHoldThePeak) {
  const ModelSpec model = registry().model(GetParam().model, {.layers = 2});
  const RunSpec run = generating(model, GetParam().tokens, GetParam().beams);
  const Peaks all = peaks_of(model, run, GetParam().tokens * 2);
  const Peaks sampled = peaks_of(model, run, 0);
  EXPECT_EQ(sampled.requested, all.requested);
  EXPECT_NEAR(static_cast<double>(sampled.allocated), static_cast<double>(all.allocated), 2.0 * (1 << 20));
  EXPECT_NEAR(static_cast<double>(sampled.reserved), static_cast<double>(all.reserved),
              0.1 * static_cast<double>(all.reserved));
}

INSTANTIATE_TEST_SUITE_P(All, LongGeneration,
                         ::testing::Values(Long{"llama-3.2-1b", 900, 1}, Long{"llama-3.2-1b", 600, 3},
                                           Long{"gpt2", 900, 1}, Long{"t5-base", 700, 1}, Long{"t5-base", 400, 2},
                                           Long{"gemma-3-1b", 900, 1}));

TEST(Generation, EagerAttentionSeesTheSkippedTokensToo) {
  const ModelSpec model = registry().model("gpt2", {.layers = 2});
  RunSpec run = generating(model, 900);
  run.attention = Attention::kEager;
  EXPECT_EQ(peaks_of(model, run, 0).requested, peaks_of(model, run, 900 * 2).requested);
}

// The head sees the last token of the prompt alone, and its scores are float32.
// Of ALiBi: BloomForCausalLM.forward() and MptForCausalLM.forward() have no position_ids.
TEST(Generation, ModelsWithoutPositionIdsAreGivenNone) {
  const DeviceSpec device = registry().device("h100-sxm");
  const auto requests = [&](const ModelSpec& model, const RunSpec& run, bool takes_position_ids) {
    Tape tape(device);
    const std::unique_ptr<Model> built = build_model(model, run, tape, DType::kBFloat16);
    EXPECT_EQ(built->takes_position_ids, model.model_type == "gpt2") << model.model_type;
    built->takes_position_ids = takes_position_ids;
    (void)run_inference(tape, *built, run, model.model_type, kMostLayerTokens);
    const auto& events = tape.memory.trace.events;
    return std::count_if(events.begin(), events.end(),
                         [](const Event& event) { return event.kind == EventKind::kAllocate; });
  };
  for (const char* name : {"bloom-560m", "mpt-7b", "gpt2"}) {
    const ModelSpec model = registry().model(name, {.layers = 2});
    const RunSpec run = generating(model, 8);
    EXPECT_GT(requests(model, run, true), requests(model, run, false)) << name;
  }
}

TEST(Generation, TheHeadSeesTheLastTokenAlone) {
  const ModelSpec model = registry().model("llama-3.2-1b", {.layers = 1});
  const SymbolicRun run = run_symbolically(model, generating(model, 3), registry().device("h100-sxm"));
  constexpr Bytes kVocabulary = 128256;
  const auto has = [&](Bytes bytes) {
    return std::any_of(run.trace.blocks.begin(), run.trace.blocks.end(),
                       [&](const Block& block) { return block.requested == bytes; });
  };
  EXPECT_TRUE(has(4 * kVocabulary * 2)) << "four sequences, bfloat16";
  EXPECT_TRUE(has(4 * kVocabulary * 4)) << "and their float32 copies";
  EXPECT_FALSE(has(4 * 100 * kVocabulary * 2)) << "not of all tokens";
}

// 2 (keys and values) x 16 layers x 8 heads x 64 x 2 bytes; beams are rows of their own.
TEST(Generation, CacheOfTheReport) {
  const ModelSpec model = registry().model("llama-3.2-1b");
  const Report report = estimate(model, generating(model, 8, 3), registry().device("h100-sxm"));
  ASSERT_TRUE(report.kv_cache.has_value());
  EXPECT_EQ(report.kv_cache->bytes_per_token, 2 * 16 * 8 * 64 * 2);
  EXPECT_EQ(report.kv_cache->sequences, 12);
  EXPECT_EQ(report.kv_cache->tokens, 107) << "the last token's keys are never asked for";
  EXPECT_EQ(report.kv_cache->bytes, 12 * 107 * report.kv_cache->bytes_per_token);
}

// num_return_sequences: so many rows for each prompt, drawn apart.
TEST(Generation, AnswersAreRowsOfTheirOwn) {
  const ModelSpec model = registry().model("llama-3.2-1b", {.layers = 2});
  RunSpec run = generating(model, 8);
  run.inference()->sampling = Sampling{};
  run.inference()->return_sequences = 3;
  const Report report = estimate(model, run, registry().device("h100-sxm"));
  ASSERT_TRUE(report.kv_cache.has_value());
  EXPECT_EQ(report.kv_cache->sequences, 12);
  run.inference()->return_sequences = 1;
  run.batch_size = 12;
  EXPECT_NEAR(static_cast<double>(estimate(model, run, registry().device("h100-sxm")).memory.peak_allocated),
              static_cast<double>(report.memory.peak_allocated), 65536)
      << "but for the ids and masks of the batch";
}

// The ids of two of three beams have a gap behind them, so that reshape copies them. Those of one beam are a view.
TEST(Generation, SomeOfTheBeamsAreCopiedOut) {
  const ModelSpec model = registry().model("llama-3.2-1b", {.layers = 1});
  const auto copies_of = [&](std::int64_t answers) {
    RunSpec run = generating(model, 8, 3);
    run.inference()->return_sequences = answers;
    const SymbolicRun made = run_symbolically(model, run, registry().device("h100-sxm"));
    return std::count_if(made.trace.blocks.begin(), made.trace.blocks.end(),
                         [&](const Block& block) { return block.requested == 4 * answers * (100 + 8) * 8; });
  };
  EXPECT_EQ(copies_of(2), 2) << "one of each call";
  EXPECT_EQ(copies_of(1), 0);
}

// MLA caches the latent and the rotated key alone: (512 + 64) x 2 bytes x 27 layers.
TEST(Generation, LatentAttentionCachesTheLatent) {
  const ModelSpec model = registry().model("deepseek-v2-lite");
  const Report report = estimate(model, generating(model, 2), registry().device("h200-sxm"));
  EXPECT_EQ(report.kv_cache->bytes_per_token, (512 + 64) * 2 * 27);
}

TEST(Inference, HasNothingOfATraining) {
  const RunSpec run = generating(registry().model("gpt2"), 3);
  ASSERT_NE(run.inference(), nullptr);
  EXPECT_EQ(run.inference()->new_tokens, 3);
  EXPECT_FALSE(run.trains());
  EXPECT_THROW((void)run.training(), std::bad_variant_access);
  EXPECT_EQ(run.checkpointing(), Checkpointing::kNone);
  EXPECT_FALSE(run.uses_trainer());
  EXPECT_FALSE(run.compiles());
  EXPECT_EQ(run.accumulation_steps(), 1);
  EXPECT_EQ(resolve(registry().model("gpt2"), {}).run.inference(), nullptr);
}

TEST(Inference, WhatIsRefused) {
  const struct {
    const char* model;
    RunOptions options;
    const char* rule;
  } cases[] = {
      {"bert-base", {.inference = Inference{.new_tokens = 5}}, "new-tokens-of-language-models"},
      {"gpt2", {.inference = Inference{.beams = 2}}, "beams-need-new-tokens"},
      {"gpt2", {.sequence_length = 1000, .inference = Inference{.new_tokens = 25}}, "new-tokens-within-positions"},
      {"t5-base", {.inference = Inference{}}, "infer-ids-of-the-decoder"},
  };
  for (const auto& each : cases) {
    EXPECT_EQ(error_rule([&] { (void)resolve(registry().model(each.model), each.options); }), each.rule);
  }
}

// No dropout, no gradients, nothing saved: the peak is below that of the training step's forward pass.
TEST(Inference, NothingIsKeptForABackwardPass) {
  for (const char* name : {"bert-base", "resnet50", "vit-base", "gpt2", "efficientnet_b0", "swin_t", "bart-base"}) {
    const ModelSpec model = registry().model(name);
    const Report report =
        estimate(model, resolve(model, {.batch_size = 2, .inference = Inference{}}).run, registry().device("h100-sxm"));
    const auto at = [&](Category category) {
      return report.memory.categories_at_peak[static_cast<std::size_t>(category)];
    };
    EXPECT_EQ(at(Category::kActivations), 0) << name;
    EXPECT_EQ(at(Category::kGradients), 0) << name;
    EXPECT_EQ(at(Category::kOptimizerStates), 0) << name;
    EXPECT_EQ(total_of(report.accounting.profile).total_bytes, report.parameters_total * 4) << name;
  }
}

/// What a training run with an evaluation asks for in its phase: the blocks of so many bytes.
std::int64_t asked_in_evaluation(const char* model, const RunOptions& options, Bytes bytes) {
  const ModelSpec& spec = registry().model(model);
  const Trace trace = run_symbolically(spec, resolve(spec, options).run, registry().device("h200-sxm")).trace;
  return std::count_if(trace.events.begin(), trace.events.end(), [&](const Event& event) {
    return event.kind == EventKind::kAllocate && event.phase == Phase::kEvaluation &&
           trace.blocks[static_cast<std::size_t>(event.block)].requested == bytes;
  });
}

RunOptions predicting(std::int64_t tokens, std::int64_t beams = 1) {
  return {.batch_size = 2,
          .sequence_length = 44,
          .target_sequence_length = 30,
          .loop = Loop::kTrainer,
          .eval_batch_size = 7,
          .eval_samples = 14,
          .eval_new_tokens = tokens,
          .eval_beams = beams};
}

TEST(PredictWithGenerate, EachTokenHasScoresOfTheWholeVocabularyInFloat32) {
  constexpr Bytes kScores = 7 * 32128 * 4;  // of a batch's samples, t5-base
  const auto scores = [](std::int64_t tokens) { return asked_in_evaluation("t5-base", predicting(tokens), kScores); };
  EXPECT_EQ(scores(9) - scores(5), 2 * 4 * 2) << "a head's and its copy, of four tokens more, in two batches";
}

TEST(PredictWithGenerate, PredictionsAreJoinedOverTheSet) {
  const auto tokens_of = [](std::int64_t rows, std::int64_t length) { return rows * length * 8; };
  // generation_max_length counts the decoder's start.
  EXPECT_GT(asked_in_evaluation("t5-base", predicting(24), tokens_of(14, 25)), 0);
  EXPECT_EQ(asked_in_evaluation("t5-base", predicting(26), tokens_of(14, 25)), 0);
}

TEST(PredictWithGenerate, ShortPredictionsArePaddedToTwentyTokens) {
  EXPECT_GT(asked_in_evaluation("t5-base", predicting(5), 14 * 20 * 8), 0);
  EXPECT_EQ(asked_in_evaluation("t5-base", predicting(24), 14 * 20 * 8), 0);
}

TEST(PredictWithGenerate, BeamsMultiplyTheCachesAndBartsLastTokenIsForced) {
  constexpr Bytes kScores = 7 * 4 * 32128 * 4;
  EXPECT_GT(asked_in_evaluation("t5-base", predicting(6, 4), kScores), 0);
  EXPECT_EQ(asked_in_evaluation("t5-base", predicting(6), kScores), 0);
  EXPECT_TRUE(special_tokens_of("bart").forces_end);
  EXPECT_FALSE(special_tokens_of("t5").forces_end);
}

TEST(PredictWithGenerate, CheckpointingSwitchesT5sCacheOffInTrainingAlone) {
  const ModelSpec& spec = registry().model("t5-base");
  RunOptions options = predicting(5);
  options.eval_new_tokens.reset();
  options.checkpointing = Checkpointing::kFull;
  const Trace trace = run_symbolically(spec, resolve(spec, options).run, registry().device("h200-sxm")).trace;
  const auto caches = [&](bool in_evaluation) {
    return std::count_if(trace.events.begin(), trace.events.end(), [&](const Event& event) {
      return event.kind == EventKind::kAllocate && (event.phase == Phase::kEvaluation) == in_evaluation &&
             trace.blocks[static_cast<std::size_t>(event.block)].category == Category::kKeyValueCache;
    });
  };
  EXPECT_GT(caches(true), 0);
  EXPECT_EQ(caches(false), 0);
}

}  // namespace
}  // namespace memcalc
