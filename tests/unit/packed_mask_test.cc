// masking_utils.py: what a row of several sequences gets as its mask.
#include <gtest/gtest.h>

#include "memcalc/models/attention.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

constexpr std::int64_t kTokens = 24;

class PackedMaskTest : public testing::Test {
 protected:
  Tensor mask_of(std::int64_t sequences, Attention attention = Attention::kSdpa) {
    RunSpec run;
    run.attention = attention;
    Batch batch;
    batch.position_ids = bench_.input({1, kTokens}, DType::kInt64, false);
    batch.sequences = sequences;
    return create_causal_mask(run, bench_.input({1, kTokens, 8}), batch, false);
  }

  test::TapeBench bench_;
};

TEST_F(PackedMaskTest, SeveralSequencesOfARowGetAMask) {
  const Tensor mask = mask_of(3);
  ASSERT_TRUE(mask.defined());
  EXPECT_EQ(mask.shape(), (Shape{1, 1, kTokens, kTokens}));
  EXPECT_EQ(mask.dtype(), DType::kBool);
}

TEST_F(PackedMaskTest, OneSequenceIsLeftToTheKernel) { EXPECT_FALSE(mask_of(1).defined()); }

TEST_F(PackedMaskTest, EagerAttentionAddsNumbersInEitherCase) {
  EXPECT_EQ(mask_of(3, Attention::kEager).dtype(), DType::kFloat32);
  EXPECT_TRUE(mask_of(1, Attention::kEager).defined());
}

TEST_F(PackedMaskTest, FlashAttentionTakesLengthsInstead) { EXPECT_FALSE(mask_of(3, Attention::kFlash).defined()); }

// transformers 4.57.6: the mask's functions are called by torch.vmap, whose batched tensors are Python's. Rows that
// might be packed are looked up twice.
TEST(MaskByVmap, CostsTheHostAnIndexOrTwo) {
  Behaviors behaviors;
  behaviors.masks_by_vmap = true;
  test::TapeBench bench(test::h100(), behaviors);
  bench.tape.kernels.recording = true;
  RunSpec run;
  Batch batch;
  batch.position_ids = bench.input({1, kTokens}, DType::kInt64, false);
  batch.sequences = 3;
  ASSERT_TRUE(create_causal_mask(run, bench.input({1, kTokens, 8}), batch, false).defined());
  std::int64_t indices = 0;
  for (const Kernel& kernel : bench.tape.kernels.list()) {
    const auto* work = kernel.as<work::OfHost>();
    if (work != nullptr && work->what == HostWork::kVmappedIndex) indices += work->times;
  }
  EXPECT_EQ(indices, 2);
}

}  // namespace
}  // namespace memcalc
