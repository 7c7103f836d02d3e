// symbolic/ops/cut_cross_entropy.h: what the kernels ask for, by axolotl's fork of cut_cross_entropy.
#include "memcalc/symbolic/ops/cut_cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "memcalc/memcalc.h"
#include "support/error_text.h"
#include "support/tape_bench.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

using test::TapeBench;
using ::testing::EndsWith;
using ::testing::HasSubstr;

/// 2 sequences of 5 tokens, width 128, vocabulary 300: 8 labels count.
struct Loss {
  explicit Loss(bool head_trains) {
    hidden = bench.input({2, 5, 128}, DType::kBFloat16);
    weight = bench.input({300, 128}, DType::kBFloat16, head_trains);
    labels = bench.input({2, 5}, DType::kInt64, false);
    bench.start();
  }
  void forward(bool softcap = false) { loss = cut_cross_entropy(hidden, weight, {}, labels, 8, softcap); }

  TapeBench bench;
  Tensor hidden, weight, labels, loss;
};

TEST(CutCrossEntropy, KeepsANumberForEachLabelAndOneForEachWordOfTheVocabulary) {
  Loss run(true);
  run.forward();
  const std::string events = run.bench.events();
  // The places of the labels: a mask of 8, its places as int64 and int32, and the rows that they sum to in int64.
  EXPECT_THAT(events, HasSubstr("+8 ne; ")) << events;
  EXPECT_THAT(events, HasSubstr("+128 nonzero; ")) << events;
  EXPECT_THAT(events, HasSubstr("+64 _to_copy; -128; +64 sum; +128 _to_copy; -128; -64; ")) << events;
  // lse, a lock, the mean logits; the negative logits of the labels, which become the losses; their sum.
  EXPECT_THAT(events, EndsWith("+32 lse; +4 lse; +1200 lse; -4; +32 new_zeros; +4 sum; -32")) << events;
}

TEST(CutCrossEntropy, CapsTheLogitsOfTheLabelsInATensorOfTheirOwn) {
  Loss run(true);
  run.forward(true);
  EXPECT_THAT(run.bench.events(), EndsWith("+32 new_zeros; +32 indexed_neg_dot; -32; +4 sum; -32"));
}

TEST(CutCrossEntropy, SortsTheVocabularyAndWritesBothGradients) {
  Loss run(true);
  run.forward();
  run.bench.start();
  run.bench.backward(run.loss);
  // Values, places and positions of the sort; the order as int32; gradients of 10 rows and of the head; locks. The list
  // of valid rows (64 bytes) lives with the node.
  EXPECT_EQ(run.bench.events(),
            "+1200 sort; +2400 sort; +2400 sort; -2400; -1200; +1200 _to_copy; -2400; "
            "+2560 zeros_like; +76800 zeros_like; +8 LinearCrossEntropyFunctionBackward; "
            "+24 LinearCrossEntropyFunctionBackward; -8; -24; -1200; -32; -1200");
}

TEST(CutCrossEntropy, OfAFrozenHeadHasNoGradient) {
  Loss run(false);
  run.forward();
  run.bench.start();
  run.bench.backward(run.loss);
  EXPECT_THAT(run.bench.events(), ::testing::Not(HasSubstr("76800")));
}

Report report_of(const std::string& words) { return estimate(test::question_of(test::words_in(words))); }

TEST(CutCrossEntropy, LeavesTheLogitsOutOfARun) {
  const std::string words =
      "--model llama-3.2-1b --bs 4 --seq 1024 --bf16 --weights-dtype bf16 --lora 8 --gpu h100-sxm";
  const Report plain = report_of(words), cut = report_of(words + " --cut-cross-entropy");
  // Logits of 4 x 1024 x 128,256 in bfloat16, and in float32 for the loss.
  EXPECT_GT(plain.memory.peak_allocated - cut.memory.peak_allocated, Bytes{4} * 1024 * 128'256 * 6);
  EXPECT_GT(report_of("--model gemma-2-2b --bs 1 --seq 512 --bf16 --weights-dtype bf16 --cut-cross-entropy")
                .memory.peak_allocated,
            0);
}

TEST(CutCrossEntropy, TakesNoFloat32) {
  EXPECT_THAT(error_text([] {
                (void)report_of("--model llama-3.2-1b --layers 2 --bf16 --weights-dtype fp32 --cut-cross-entropy");
              }),
              HasSubstr("its kernels take states and a head of 16 bits"));
}

}  // namespace
}  // namespace memcalc
