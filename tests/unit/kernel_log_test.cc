#include "memcalc/symbolic/kernel_log.h"

#include <gtest/gtest.h>

namespace memcalc {
namespace {

constexpr Operator kAdd{"aten::add"}, kMm{"aten::mm"}, kNode{"MmBackward0"}, kItem{"aten::item"};

class KernelLogTest : public testing::Test {
 protected:
  KernelLogTest() { log_.recording = true; }

  void add() { log_.add(kAdd, OperatorClass::kElementwise, DType::kFloat32, 1, 800); }

  Moment moment_;
  KernelLog log_{moment_};
};

TEST_F(KernelLogTest, AKernelIsStampedWithTheMomentAtWhichItIsIssued) {
  moment_.phase = Phase::kBackward;
  moment_.node = &kNode;
  moment_.stream = CudaStream::kReduceScatter;
  {
    const Recomputing recomputing(moment_);
    add();
  }
  add();
  const KernelList& list = log_.list();
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].phase, Phase::kBackward);
  EXPECT_EQ(list[0].node, &kNode);
  EXPECT_EQ(list[0].stream, CudaStream::kReduceScatter);
  EXPECT_TRUE(list[0].recomputed);
  EXPECT_FALSE(list[1].recomputed);
}

TEST_F(KernelLogTest, NothingIsWrittenDownUnlessItRecords) {
  log_.recording = false;
  add();
  log_.product(kMm, DType::kFloat32, 1, 2, 3, 4);
  log_.grouped_product(kMm, DType::kFloat32, 1, 2, 3, 4);
  log_.collective(kAdd, Collective::kAllReduce, DType::kFloat32, 8, 2);
  log_.synchronize(kItem);
  EXPECT_EQ(log_.size(), 0U);
  EXPECT_EQ(log_.last(), nullptr);
}

TEST_F(KernelLogTest, AKernelCountsTheViewsAndNodesThatTheHostPassedSinceTheLastOne) {
  log_.pass_view();
  log_.pass_view();
  log_.pass_node();
  add();
  add();
  EXPECT_EQ(log_.list()[0].views, 2);
  EXPECT_EQ(log_.list()[0].nodes, 1);
  EXPECT_EQ(log_.list()[1].views, 0);
  EXPECT_EQ(log_.list()[1].nodes, 0);
}

TEST_F(KernelLogTest, AnElementwiseKernelReadsAndWritesEachElementUnlessItSaysHowMany) {
  add();
  log_.add(kAdd, OperatorClass::kElementwise, DType::kFloat32, 1, 800, KernelKind::kVectorized, 7);
  EXPECT_EQ(log_.list()[0].elements, 100);  // 800 bytes, 4 each, read and written
  EXPECT_EQ(log_.list()[1].elements, 7);
}

TEST_F(KernelLogTest, GradientsOfGroupsReadAndWriteTheBufferThatTheyAreAddedTo) {
  log_.grouped_weight_gradient(kMm, DType::kBFloat16, 2, 6, 4, 5, DType::kFloat32);
  const Kernel& gradient = *log_.last();
  EXPECT_EQ(gradient.flops, 2.0 * 6 * 4 * 5);
  EXPECT_EQ(gradient.bytes, 6.0 * (4 + 5) * 2 + 2.0 * 2 * 4 * 5 * 4);
  EXPECT_EQ(*gradient.as<work::Product>(), (work::Product{.batch = 2,
                                                          .m = 4,
                                                          .n = 5,
                                                          .k = 3,
                                                          .transposed = Transposed::kFirst,
                                                          .accumulated_bytes = 2 * 2 * 4 * 5 * 4}));
}

TEST_F(KernelLogTest, AProductHasTwoFlopsForEachMultiplicationAndReadsAndWritesItsThreeMatrices) {
  log_.product(kMm, DType::kBFloat16, 5, 2, 3, 4, KernelKind::kMatrixProduct, Transposed::kSecond);
  const Kernel& product = *log_.last();
  EXPECT_EQ(product.flops, 2.0 * 5 * 2 * 3 * 4);
  EXPECT_EQ(product.bytes, 5.0 * (2 * 4 + 4 * 3 + 2 * 3) * 2);
  EXPECT_EQ(*product.as<work::Product>(),
            (work::Product{.batch = 5, .m = 2, .n = 3, .k = 4, .transposed = Transposed::kSecond}));
}

TEST_F(KernelLogTest, OnlyAFloat32ProductThatIsAllowedToRunsInTf32) {
  const auto last_is_tf32 = [this] { return log_.last()->as<work::Product>()->tf32; };
  log_.product(kMm, DType::kFloat32, 1, 2, 3, 4);
  EXPECT_FALSE(last_is_tf32());
  log_.products_in_tf32 = log_.convolutions_in_tf32 = true;
  log_.product(kMm, DType::kFloat32, 1, 2, 3, 4);
  EXPECT_TRUE(last_is_tf32());
  log_.product(kMm, DType::kBFloat16, 1, 2, 3, 4);
  EXPECT_FALSE(last_is_tf32());
  log_.product(kMm, DType::kFloat32, 1, 2, 3, 4, KernelKind::kPartOfPrevious);
  EXPECT_FALSE(last_is_tf32()) << "inside of fused attention";
  const work::Convolution convolution{.groups = 1, .pixels = 4, .channels = 8, .depth = 27, .group_channels = 3};
  log_.convolution(kMm, DType::kFloat32, KernelKind::kConvolution, convolution, 100);
  EXPECT_TRUE(log_.last()->as<work::Convolution>()->tf32);
  log_.convolution(kMm, DType::kFloat32, KernelKind::kDepthwiseConvolution, convolution, 100);
  EXPECT_FALSE(log_.last()->as<work::Convolution>()->tf32);
}

TEST_F(KernelLogTest, AConvolutionReadsItsImageOnceAndAnAttentionIsItsFirstProduct) {
  log_.convolution(kMm, DType::kFloat32, KernelKind::kConvolution,
                   {.groups = 2, .pixels = 4, .channels = 8, .depth = 27, .group_channels = 3}, 100);
  EXPECT_EQ(log_.last()->flops, 2.0 * 2 * 4 * 8 * 27);
  EXPECT_EQ(log_.last()->bytes, 100);
  log_.attention(kMm, DType::kBFloat16, KernelKind::kFlashAttention,
                 {.heads = 6, .queries = 5, .keys = 7, .width = 64, .causal = true});
  EXPECT_EQ(log_.last()->flops, 2.0 * 6 * 5 * 7 * 64);
  EXPECT_TRUE(log_.last()->as<work::Attention>()->causal);
  EXPECT_EQ(log_.last()->as<work::Product>(), nullptr);
}

TEST_F(KernelLogTest, ReplayedKernelsStandForAsManyCallsAsWhatRunsNow) {
  log_.repeats = 3;
  add();
  const KernelList recorded = log_.take();
  EXPECT_EQ(log_.size(), 0U);
  log_.repeats = 5;
  log_.replay(recorded);
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_EQ(log_.list()[0].repeats, 5);
}

TEST_F(KernelLogTest, ACollectiveKnowsInFrontOfWhichKernelItIsAwaited) {
  const std::size_t place = log_.collective(kAdd, Collective::kAllGather, DType::kFloat32, 8, 2);
  add();
  add();
  log_.await(place);
  log_.await(0);
  log_.await(99);
  add();
  EXPECT_EQ(place, 1U);
  EXPECT_EQ(log_.list()[0].as<work::Communication>()->awaited_after, 3);
  log_.recording = false;
  EXPECT_EQ(log_.collective(kAdd, Collective::kAllGather, DType::kFloat32, 8, 2), 0U);
}

TEST_F(KernelLogTest, SeparateKernelsAreRecordedAndLeaveTheLogAsItWas) {
  add();
  log_.recording = false;
  {
    const SeparateKernels separate(log_);
    EXPECT_EQ(log_.size(), 0U);
    add();
    add();
    EXPECT_EQ(log_.take().size(), 2U);
  }
  EXPECT_EQ(log_.size(), 1U);
  EXPECT_FALSE(log_.recording);
}

TEST_F(KernelLogTest, AStreamIsCurrentUntilItsScopeEnds) {
  {
    const OnStream on_copy(moment_, CudaStream::kCopy);
    EXPECT_EQ(moment_.stream, CudaStream::kCopy);
  }
  EXPECT_EQ(moment_.stream, CudaStream::kDefault);
}

}  // namespace
}  // namespace memcalc
