// Step times of whole runs, by properties that hold whatever the rates are: which rate a product takes, what loops and
// wrappers add, bubbles of pipelines, what is offloaded.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/json_reader.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

Report report_of(const ModelSpec& model, const RunOptions& options, const char* card = "h100-sxm") {
  return estimate(model, resolve(model, options), registry().device(card));
}

StepTime step_of(const ModelSpec& model, const RunOptions& options, const char* card = "h100-sxm") {
  return report_of(model, options, card).time.value().step;
}

double seconds_of(const StepTime& step, TimeClass time_class) {
  return step.by_class.at(static_cast<std::size_t>(time_class));
}

ModelSpec gpt2(int layers, int width = 1024) {
  const std::string config = R"({"model_type": "gpt2", "vocab_size": 50304, "n_positions": 1024, "n_head": 16, )"
                             R"("n_layer": )" +
                             std::to_string(layers) + R"(, "n_embd": )" + std::to_string(width) + "}";
  return model_from_hf_config(JsonDocument::parse(config, "gpt2").root(), "gpt2");
}

// The Trainer leaves torch's defaults: convolutions in TF32, products in float32. Taken for TF32, they ran at eight
// times their rate, and the Trainer's float32 rows came out 70 % too low.
TEST(StepTimes, ProductsOfTheTrainerAreNotInTf32) {
  RunOptions options;
  options.batch_size = 4;
  options.sequence_length = 512;
  options.precision = Precision::kFp32;
  options.loop = Loop::kBare;
  const ModelSpec bert = registry().model("bert-large");
  const double bare = seconds_of(step_of(bert, options), TimeClass::kContraction);
  options.loop = Loop::kTrainer;
  EXPECT_NEAR(seconds_of(step_of(bert, options), TimeClass::kContraction), bare, 0.01 * bare);
  options.precision = Precision::kTf32;
  EXPECT_LT(seconds_of(step_of(bert, options), TimeClass::kContraction), 0.5 * bare);
}

// The fused kernels of float32 attention do not ask whether TF32 is allowed: where they are nearly all of the
// products, it saves little.
TEST(StepTimes, AttentionIsNotInTf32) {
  RunOptions options;
  options.batch_size = 1;
  options.sequence_length = 16384;
  options.loop = Loop::kBare;
  options.precision = Precision::kFp32;
  const std::string config = R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 256, "num_hidden_layers": 1,)"
                             R"( "num_attention_heads": 4, "intermediate_size": 64})";
  const ModelSpec model = model_from_hf_config(JsonDocument::parse(config, "llama").root(), "llama");
  const double float32 = seconds_of(step_of(model, options), TimeClass::kContraction);
  options.precision = Precision::kTf32;
  EXPECT_GT(seconds_of(step_of(model, options), TimeClass::kContraction), 0.9 * float32);
}

// A call of generate() is its prompt and its tokens; weights that come from the host as they are used are not timed.
TEST(StepTimes, ACallIsItsPromptAndItsTokens) {
  RunOptions options;
  options.batch_size = 2;
  options.sequence_length = 512;
  options.inference = Inference{};
  options.precision = Precision::kBf16;
  const Report forward = report_of(gpt2(2), options);
  ASSERT_TRUE(forward.time);
  EXPECT_TRUE(forward.time->of_call);
  EXPECT_FALSE(forward.time->generation);
  options.inference->new_tokens = 9;
  const Report report = report_of(gpt2(2), options);
  ASSERT_TRUE(report.time && report.time->generation);
  const GenerationTime& times = *report.time->generation;
  EXPECT_GT(times.prefill_seconds, forward.time->step.step_seconds);
  EXPECT_NEAR(times.prefill_seconds + 8 * times.token_seconds, report.time->step.step_seconds, 1e-9);
  EXPECT_NEAR(report.time->tokens_per_second, 2 * 9 / report.time->step.step_seconds, 1e-6);
  EXPECT_GT(report_of(gpt2(4), options).time->generation->token_seconds, 1.3 * times.token_seconds);
  options.inference->new_tokens = 0;
  options.parallel.offload_parameters = OffloadTo::kHost;
  const Report offloaded = report_of(gpt2(2), options);
  EXPECT_FALSE(offloaded.time);
  EXPECT_TRUE(std::any_of(offloaded.not_modelled.begin(), offloaded.not_modelled.end(),
                          [](const std::string& each) { return each.starts_with("the time of a call: weights"); }));
}

// A decoder's flash kernels leave out the blocks above the diagonal, an encoder's do not.
TEST(StepTimes, FlashAttentionOfADecoderIsCausal) {
  RunOptions options;
  options.batch_size = 1;
  options.sequence_length = 16384;
  options.precision = Precision::kBf16;
  options.loop = Loop::kBare;
  options.attention = Attention::kFlash;
  const auto contraction = [&](const std::string& family) {
    const std::string config = R"({"vocab_size": 64, "hidden_size": 256, "num_hidden_layers": 1, )"
                               R"("num_attention_heads": 4, "intermediate_size": 256, )"
                               R"("max_position_embeddings": 16384, "model_type": ")" +
                               family + R"("})";
    const ModelSpec model = model_from_hf_config(JsonDocument::parse(config, "model").root(), "model");
    return seconds_of(step_of(model, options), TimeClass::kContraction);
  };
  const double decoder = contraction("llama");
  const double encoder = contraction("bert");
  EXPECT_LT(decoder, 0.75 * encoder);
  EXPECT_GT(decoder, 0.4 * encoder);
}

// Without a KV cache transformers looks for packed sequences in forward, and Python waits for the answer: the card
// has nothing to do until the host has issued what comes next. With a cache it does not look.
TEST(StepTimes, ADecoderWithoutCacheWaitsInForward) {
  RunOptions options;
  options.batch_size = 4;
  options.sequence_length = 2048;
  options.precision = Precision::kBf16;
  options.loop = Loop::kBare;
  options.use_cache = true;
  const ModelSpec model = registry().model("llama-3.2-1b");
  EXPECT_EQ(seconds_of(step_of(model, options), TimeClass::kHost), 0);
  options.use_cache = false;
  EXPECT_GT(seconds_of(step_of(model, options), TimeClass::kHost), 100e-6);
}

// A checkpointed region is set up in forward and again where it is computed a second time, and each tensor that
// autograd saves in it passes through Python both times.
TEST(StepTimes, CheckpointingTakesTheHostInBothForwards) {
  RunOptions options;
  options.batch_size = 1;
  options.sequence_length = 128;
  options.loop = Loop::kBare;
  const auto host_of = [&](int layers) {
    ModelSpec model = gpt2(layers);
    const double kept = step_of(model, options).host_seconds;
    options.checkpointing = Checkpointing::kFull;
    const double computed = step_of(model, options).host_seconds;
    options.checkpointing = Checkpointing::kNone;
    return computed - kept;
  };
  const HostRates host = registry().device("h100-sxm").rates->host;
  const double regions = host.checkpoint_forward_us + host.checkpoint_backward_us;
  constexpr double kSavedTensors = 29;  // of GPT-2's layer in float32, with dropout
  const double hooks = kSavedTensors * (host.packed_tensor_us + host.unpacked_tensor_us);
  const double one_more = host_of(3) - host_of(2);
  EXPECT_GT(one_more, (regions + hooks) * 1e-6) << "beside the operators of the second forward";
  EXPECT_LT(one_more, 2 * (regions + hooks) * 1e-6);
}

TEST(StepTimes, TheTrainersPythonTakesTheHost) {
  RunOptions options;
  options.batch_size = 1;
  options.sequence_length = 128;
  options.loop = Loop::kBare;
  options.optimizer = Optimizer::kAdamWFused;
  const ModelSpec bert = registry().model("bert-base");
  const double bare = step_of(bert, options).host_seconds;
  options.loop = Loop::kTrainer;
  EXPECT_GT(step_of(bert, options).host_seconds, bare + 1e-3);
}

/// Megatron's pipeline of four stages, a sequence a micro-batch.
RunOptions pipeline_of_four(std::int64_t micro_batches, std::int64_t sequence_length, Precision precision) {
  RunOptions options;
  options.batch_size = 1;
  options.sequence_length = sequence_length;
  options.precision = precision;
  options.framework = Framework::kMegatron;
  options.gpus = 4;
  options.parallel.pipeline = 4;
  options.parallel.micro_batches = micro_batches;
  return options;
}

// Of equal stages (p - 1) / (m + p - 1) of the time is bubble; with v chunks a rank a v-th of that.
// Views of an evaluation, and of the steps before the one that is listed, are not that step's.
TEST(StepTimes, AnEvaluationIsNotInTheStep) {
  RunOptions options;
  options.batch_size = 2;
  options.sequence_length = 64;
  options.loop = Loop::kTrainer;
  const double alone = step_of(gpt2(2), options).step_seconds;
  options.eval_batch_size = 2;
  options.eval_samples = 8;
  EXPECT_NEAR(step_of(gpt2(2), options).step_seconds, alone, 0.002 * alone);
}

TEST(StepTimes, BubblesOfAPipeline) {
  const ModelSpec model = gpt2(32, 2048);
  RunOptions options = pipeline_of_four(12, 1024, Precision::kBf16);
  const StepTime step = step_of(model, options);
  const double busy = step.forward_seconds + step.backward_seconds;
  const double bubble = seconds_of(step, TimeClass::kBubble);
  EXPECT_NEAR(bubble / (bubble + busy), 3.0 / (12 + 3), 0.04);
  options.parallel.micro_batches = 48;
  // Of few micro-batches the host decides more: 6.8 % with the host that stands for all.
  EXPECT_NEAR(seconds_of(step_of(model, options), TimeClass::kBubble), bubble, 0.08 * bubble) << "whatever m is";
  options.parallel.micro_batches = 12;
  options.parallel.schedule = PipelineSchedule::kInterleaved;
  options.parallel.virtual_stages = 2;
  EXPECT_NEAR(seconds_of(step_of(model, options), TimeClass::kBubble), bubble / 2, 0.1 * bubble);
  options.parallel.pipeline = 1;
  options.parallel.virtual_stages = 1;
  options.parallel.schedule = PipelineSchedule::kOneForwardOneBackward;
  EXPECT_EQ(seconds_of(step_of(model, options), TimeClass::kBubble), 0);
}

// torch's hosts issue ahead of what a stage receives: where they decide the step, the card's bubble is no time of its
// own. Megatron's wait for each message.
TEST(StepTimes, ABubbleHidesBehindTheHostThatDecides) {
  const ModelSpec model =
      model_from_hf_config(JsonDocument::parse(R"({"model_type": "llama", "vocab_size": 1000, "hidden_size": 256, )"
                                               R"("num_hidden_layers": 8, "num_attention_heads": 4, )"
                                               R"("intermediate_size": 512, "tie_word_embeddings": false})",
                                               "llama")
                               .root(),
                           "llama");
  RunOptions options = pipeline_of_four(8, 128, Precision::kBf16);
  EXPECT_GT(seconds_of(step_of(model, options), TimeClass::kBubble), 0);
  options.framework = Framework::kTorch;
  options.loop = Loop::kBare;
  const StepTime step = step_of(model, options);
  EXPECT_GT(seconds_of(step, TimeClass::kHost), 0.5 * step.step_seconds);
  EXPECT_EQ(seconds_of(step, TimeClass::kBubble), 0);
}

// Float16 gradients are cast to float32 in Megatron's step, after the schedule has copied blocks into the trace.
TEST(StepTimes, AnInterleavedPipelineInFloat16Answers) {
  RunOptions options = pipeline_of_four(16, 256, Precision::kFp16);
  options.parallel.schedule = PipelineSchedule::kInterleaved;
  options.parallel.virtual_stages = 2;
  EXPECT_GT(report_of(gpt2(16), options).memory.peak_allocated, 0);
}

TEST(StepTimes, ASecondHostIsSlower) {
  RunOptions options;
  options.batch_size = 1;
  options.sequence_length = 512;
  options.precision = Precision::kBf16;
  options.loop = Loop::kBare;
  options.parallel.data_parallel = DataParallel::kDdp;
  const ModelSpec model = gpt2(24);
  options.gpus = 8;
  const Report one_host = report_of(model, options, "a100-sxm4-80gb");  // of 8 cards: specs/networks.json
  options.gpus = 16;
  const Report two_hosts = report_of(model, options, "a100-sxm4-80gb");
  EXPECT_GT(two_hosts.time->step.communication_seconds, 1.1 * one_host.time->step.communication_seconds);
  const auto told = [](const Report& report) {
    return std::any_of(report.assumptions.begin(), report.assumptions.end(), [](const std::string& each) {
      return each.starts_with("hosts of 8 cards, each with 25.0 GB/s to other hosts: DGX A100");
    });
  };
  EXPECT_FALSE(told(one_host));
  EXPECT_TRUE(told(two_hosts));
}

// What autograd saves crosses the bus in forward and again in backward.
TEST(StepTimes, OffloadedActivationsCrossTheBus) {
  RunOptions options;
  options.batch_size = 8;
  options.sequence_length = 512;
  options.precision = Precision::kBf16;
  options.loop = Loop::kBare;
  const ModelSpec bert = registry().model("bert-base");
  const StepTime kept = step_of(bert, options);
  options.offload_activations = true;
  const Report offloaded = report_of(bert, options);
  const double bus = registry().device("h100-sxm").rates->transfer.pinned_bytes_per_second;
  double copied = 0;  // the pinned blocks are powers of two, so a little more than the bytes
  for (const HostMemoryRow& row : offloaded.host_memory.rows) {
    if (row.name == "offloaded activations") copied += static_cast<double>(row.bytes);
  }
  const double both_ways = 2 * copied / bus;
  EXPECT_GT(both_ways, 0);
  EXPECT_NEAR(seconds_of(offloaded.time->step, TimeClass::kMovement) - seconds_of(kept, TimeClass::kMovement),
              both_ways, 0.3 * both_ways);
}

}  // namespace
}  // namespace memcalc
