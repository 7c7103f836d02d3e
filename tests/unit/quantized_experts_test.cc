// --quantize-experts: what axolotl's moe_quant.py leaves of the matrices of a mixture's experts, and when they are
// whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/train/step.h"
#include "support/error_text.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kRun =
    "--model qwen3-30b-a3b --layers 3 --bs 1 --seq 256 --bf16 --weights-dtype bf16 --lora 8 --lora-targets "
    "q_proj,v_proj "
    "--quantize nf4 --no-prepare-kbit --gpu h200-sxm ";
// 128 experts of 768 x 2048: gate and up, and down.
constexpr std::int64_t kUp = 128 * 2 * std::int64_t{768} * 2048, kDown = kUp / 2;

Report report_of(const std::string& more) {
  return estimate(test::question_of(test::words_in(std::string(kRun) + more)));
}

Bytes weights_of(const Report& report) {
  return report.memory.categories_at_peak[static_cast<std::size_t>(Category::kWeights)];
}

TEST(QuantizedExperts, AreHalfAByteForEachWeightAndAScaleForEachBlock) {
  const Bytes whole = weights_of(report_of("--checkpointing full"));
  const Bytes packed = weights_of(report_of("--checkpointing full --quantize-experts"));
  const double saved = static_cast<double>(whole - packed) / (3.0 * static_cast<double>(kUp + kDown));
  EXPECT_NEAR(saved, 2 - 0.5 - 4.0 / 64, 1e-4);
}

/// How many of the step's blocks are a layer's unpacked matrices, and how many of them are alive at once.
struct Unpacked {
  int made = 0, most = 0;
};

Unpacked unpacked_in(const std::string& more) {
  const Question question = test::question_of(test::words_in(std::string(kRun) + "--quantize-experts " + more));
  const Trace trace = run_symbolically(question.model, question.run.run, question.device).trace;
  Unpacked result;
  int alive = 0;
  for (const Event& event : trace.events) {
    if (!event.moves_block()) continue;
    const Block& block = trace.blocks[static_cast<std::size_t>(event.block)];
    const bool is_one =
        block.category != Category::kWeights && (block.requested == 2 * kUp || block.requested == 2 * kDown);
    if (!is_one) continue;
    const bool takes = event.kind == EventKind::kAllocate;
    alive += takes ? 1 : -1;
    result.made += takes ? 1 : 0;
    result.most = std::max(result.most, alive);
  }
  return result;
}

// Python's graph keeps the matrices by which it differentiates; checkpoints unpack them again.
TEST(QuantizedExperts, AreWholeUntilBackwardHasReadThem) {
  const Unpacked kept = unpacked_in("--checkpointing none"), again = unpacked_in("--checkpointing full --no-reentrant");
  EXPECT_EQ(kept.most, 6) << "of three layers";
  EXPECT_EQ(again.most, 2) << "of one";
  EXPECT_GT(again.made, kept.made);
}

TEST(QuantizedExperts, AreRefusedWhereTheyAreNotKnown) {
  const auto refusal = [](const std::string& words) {
    return error_text([&] { (void)estimate(test::question_of(test::words_in(words))); });
  };
  EXPECT_THAT(refusal("--model llama-3.2-1b --lora 8 --quantize nf4 --quantize-experts"),
              HasSubstr("no parameter of three dimensions"));
  EXPECT_THAT(
      refusal("--model qwen3-30b-a3b --layers 1 --lora 8 --lora-targets down_proj --quantize nf4 --quantize-experts"),
      HasSubstr("adapters of packed experts"));
  EXPECT_THAT(refusal(std::string(kRun) + "--quantize-experts --compile"), HasSubstr("in eager training on one GPU"));
}

}  // namespace
}  // namespace memcalc
