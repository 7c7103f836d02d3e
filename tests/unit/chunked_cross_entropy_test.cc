// models/chunked_cross_entropy against TRL's _chunked_cross_entropy_loss: how many chunks there are in 1.7, 1.12 and
// 1.14, what is done to their logits, and where Python reads the card.
#include "memcalc/models/chunked_cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "memcalc/models/module.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

constexpr std::array kForms{SftLossForm::kCheckpointedChunks, SftLossForm::kSortedChunks,
                            SftLossForm::kChunksWithoutFloat32Copies};

/// A head of 16 numbers over 50 words, of a row of 601 tokens.
struct Ran {
  std::int64_t products = 0, reads = 0, multiplied = 0;
  Shape loss;
};

Ran run(SftLossForm form, std::int64_t targets, LogitsChange change) {
  Behaviors behaviors;
  behaviors.sft_loss = form;
  test::TapeBench bench(test::h100(), behaviors);
  bench.tape.kernels.recording = true;
  ModuleBuilder builder(bench.tape, DType::kFloat32);
  const Linear head(builder, "lm_head", 16, 50, false);
  const Tensor states = bench.input({1, 601, 16});
  const FusedHeadCall call{.outputs = {}, .targets = targets};
  Batch batch;
  batch.labels = bench.input({1, 601}, DType::kInt64, false);
  batch.fused_head = &call;
  const std::size_t first = bench.tape.kernels.list().size();
  ModelOutput output;
  chunked_forward(head, states, batch, output, change);
  Ran ran;
  ran.loss = output.loss.shape();
  for (std::size_t i = first; i < bench.tape.kernels.list().size(); ++i) {
    const Kernel& kernel = bench.tape.kernels.list()[i];
    if (kernel.operator_class == OperatorClass::kContraction) ++ran.products;
    if (kernel.kind == KernelKind::kSynchronize) ++ran.reads;
    if (kernel.op != nullptr && kernel.op->name == std::string_view("aten::mul")) ++ran.multiplied;
  }
  return ran;
}

TEST(ChunkedCrossEntropy, Takes256TokensThatHaveALabelAtATime) {
  for (const SftLossForm form : kForms) {
    EXPECT_EQ(run(form, 600, LogitsChange::kNone).products, 3);
    EXPECT_EQ(run(form, 256, LogitsChange::kNone).products, 1);
    EXPECT_EQ(run(form, 257, LogitsChange::kNone).products, 2);
    EXPECT_EQ(run(form, 600, LogitsChange::kNone).loss, Shape{});
  }
}

TEST(ChunkedCrossEntropy, PackedFormsTakeOneChunkAtLeastAndReadTheCountOnTheHost) {
  EXPECT_EQ(run(SftLossForm::kCheckpointedChunks, 0, LogitsChange::kNone).products, 0);
  EXPECT_EQ(run(SftLossForm::kSortedChunks, 0, LogitsChange::kNone).products, 1);
  EXPECT_EQ(run(SftLossForm::kChunksWithoutFloat32Copies, 0, LogitsChange::kNone).products, 1);
  EXPECT_EQ(run(SftLossForm::kSortedChunks, 600, LogitsChange::kNone).reads, 1);
  EXPECT_EQ(run(SftLossForm::kChunksWithoutFloat32Copies, 600, LogitsChange::kNone).reads, 1);
}

TEST(ChunkedCrossEntropy, ReadsOfTheLogitsChangesWhatTrlReads) {
  for (const SftLossForm form : kForms) {
    const std::int64_t plain = run(form, 256, LogitsChange::kNone).multiplied;
    const auto more = [&](LogitsChange change) { return run(form, 256, change).multiplied - plain; };
    EXPECT_EQ(more(LogitsChange::kMultiplied), 1) << "Cohere's logit_scale";
    EXPECT_EQ(more(LogitsChange::kSoftcapped), 1) << "Gemma's final_logit_softcapping";
    EXPECT_EQ(more(LogitsChange::kDivided), 0) << "not Granite's logits_scaling";
    EXPECT_EQ(more(LogitsChange::kStatesDivided), 0);
    const bool is_read = form != SftLossForm::kCheckpointedChunks;
    EXPECT_EQ(more(LogitsChange::kMultipliedSoftcapped), is_read ? 2 : 1) << "output_multiplier, not in 1.7";
  }
}

}  // namespace
}  // namespace memcalc
