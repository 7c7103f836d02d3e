// symbolic/tape, autograd: when memory is taken and returned. Events are written "+8192 mul; -4096".
// Checkpointed regions are in checkpoint_test.cc.
#include "memcalc/symbolic/tape.h"

#include <gtest/gtest.h>

#include <utility>

#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::TapeBench;

constexpr Operator kMade{"made"};

// Most tensors here are [32, 32] float32: 4096 bytes.
const Shape kSquare{32, 32};

class TapeTest : public ::testing::Test {
 protected:
  [[nodiscard]] Tensor plain(const Shape& shape = kSquare, DType dtype = DType::kFloat32) {
    return tape_.empty(shape, dtype, kMade);
  }
  [[nodiscard]] Tensor parameter(const Shape& shape = kSquare) { return tape_.parameter(shape, DType::kFloat32); }
  /// root.backward() as a loop calls it: the gradient given, of the root's layout, dies when all is done.
  void backward(const Tensor& root) {
    tape_.autograd.backward(root, tape_.empty_strided(root.shape(), root.strides(), root.dtype(), kMade));
  }

  TapeBench bench_;
  Tape& tape_ = bench_.tape;
};

// --- lifetimes

TEST_F(TapeTest, TheLastHandleFrees) {
  bench_.start();
  Tensor a = plain();
  Tensor b = a;
  a.reset();
  EXPECT_EQ(bench_.events(), "+4096 made");
  b.reset();
  EXPECT_EQ(bench_.events(), "+4096 made; -4096");
}

TEST_F(TapeTest, AReassignedHandleFreesAfterTheNewTensorExists) {
  bench_.start();
  Tensor a = plain();
  a = negate(a);  // as in Python: the right side is evaluated first
  EXPECT_EQ(bench_.events(), "+4096 made; +4096 neg; -4096");
}

TEST_F(TapeTest, ATemporaryArgumentDiesWithItsOperator) {
  const Tensor a = plain();
  bench_.start();
  const Tensor b = negate(negate(negate(a)));  // never three at once
  EXPECT_EQ(bench_.events(), "+4096 neg; +4096 neg; -4096; +4096 neg; -4096");
}

TEST_F(TapeTest, ViewsShareAStorage) {
  bench_.start();
  Tensor a = plain();
  Tensor row = slice(a, 0, 3, 1);
  Tensor turned = t(view(a, {16, 64}));
  drop(a, turned);
  EXPECT_EQ(bench_.events(), "+4096 made");
  row.reset();
  EXPECT_EQ(bench_.events(), "+4096 made; -4096");
}

TEST_F(TapeTest, NothingIsRequestedForNoElements) {
  bench_.start();
  { const Tensor none = plain({0, 32}); }
  tape_.memory.scratch(0, kMade);
  EXPECT_EQ(bench_.events(), "");
}

TEST_F(TapeTest, ScratchComesAndGoes) {
  bench_.start();
  tape_.memory.scratch(100, kMade);
  EXPECT_EQ(bench_.events(), "+100 made; -100");
}

TEST_F(TapeTest, AfterTheEndNothingIsRecorded) {
  Tensor a = plain();
  bench_.start();
  tape_.memory.stop();
  a.reset();
  EXPECT_EQ(bench_.events(), "");
}

TEST_F(TapeTest, WhatAutogradSavesLivesUntilItsBackward) {
  const Tensor x = bench_.input(kSquare);
  bench_.start();
  Tensor y;
  {
    const Tensor h = negate(x);
    y = gelu(h);  // saves its input
  }
  EXPECT_EQ(bench_.events(), "+4096 neg; +4096 gelu") << "h is a dead variable, but saved";
  bench_.backward(y);
  // GELU's gradient; then h; then neg's gradient, and GELU's dies.
  EXPECT_EQ(bench_.events(), "+4096 gelu_backward; -4096; +4096 neg; -4096");
}

TEST_F(TapeTest, ALossThatIsNeverDifferentiatedLetsItsGraphGo) {
  const Tensor x = bench_.input(kSquare);
  bench_.start();
  Tensor y = gelu(negate(gelu(x)));
  EXPECT_EQ(bench_.events(), "+4096 gelu; +4096 neg; -4096; +4096 gelu") << "x and neg's result are saved";
  bench_.start();
  y.reset();
  EXPECT_EQ(bench_.events(), "-4096; -4096");
}

TEST_F(TapeTest, SavedTensorsCountAsActivations) {
  const Tensor x = bench_.input(kSquare);
  const Tensor h = negate(x);
  const Tensor y = gelu(h);
  const auto category = [&](const Tensor& tensor) {
    return tape_.memory.trace.blocks[static_cast<std::size_t>(tensor.block())].category;
  };
  EXPECT_EQ(category(h), Category::kActivations);
  EXPECT_EQ(category(y), Category::kTemporaries);
  const Tensor weight = parameter();
  const Tensor product = multiply(h, weight);
  EXPECT_EQ(category(weight), Category::kWeights) << "a weight stays one when it is saved";
}

// --- recording

TEST_F(TapeTest, NoGradSavesNothing) {
  const Tensor x = bench_.input(kSquare);
  bench_.start();
  {
    const NoGrad no_grad(tape_.modes);
    const Tensor y = gelu(negate(x));
    EXPECT_FALSE(y.requires_grad());
    EXPECT_EQ(bench_.events(), "+4096 neg; +4096 gelu; -4096");
  }
  EXPECT_TRUE(tape_.modes.grad_enabled);
}

TEST_F(TapeTest, WithoutAnInputThatNeedsAGradientNothingIsRecorded) {
  const Tensor x = plain();
  const Tensor frozen = tape_.parameter(kSquare, DType::kFloat32, false);
  EXPECT_FALSE(multiply(x, frozen).requires_grad());
  EXPECT_THROW(tape_.autograd.backward(x, plain()), Error);
}

TEST_F(TapeTest, OnlyWhatAGradientNeedsIsSaved) {
  const Tensor x = plain();
  const Tensor weight = parameter();
  bench_.start();
  Tensor h = negate(x);                       // needs no gradient
  Tensor y = multiply(std::move(h), weight);  // d weight = grad * h
  EXPECT_EQ(bench_.events(), "+4096 neg; +4096 mul") << "h is saved";
  Tensor g = negate(x);
  const Tensor z = add(y, std::move(g));  // saves nothing
  EXPECT_EQ(bench_.events(), "+4096 neg; +4096 mul; +4096 neg; +4096 add; -4096");
}

// --- the order of backward

TEST_F(TapeTest, OfTheReadyNodesTheLastRecordedRunsFirst) {
  const Tensor x = bench_.input(kSquare);
  const Tensor first = tanh(x);  // recorded first, so its backward is last
  const Tensor second = gelu(x);
  const Tensor sum = add(first, second);
  bench_.backward(sum);
  EXPECT_EQ(bench_.events(), "+4096 gelu_backward; +4096 tanh_backward; -4096")
      << "tanh's gradient is added into GELU's, which waited";
}

TEST_F(TapeTest, GradientsWaitUntilAllHaveArrived) {
  const Tensor x = bench_.input(kSquare);
  Tensor h = negate(x);
  Tensor a = gelu(h);
  Tensor b = relu(a);
  Tensor c = add(h, b);  // h's gradient comes at once, and through b and a
  drop(h, a, b);
  bench_.backward(c);
  // The gradient given waits for h; the caller holds it, so relu's and GELU's path is added out of place.
  EXPECT_EQ(bench_.events(),
            "+4096 threshold_backward; -4096; "    // b, the saved result, dies
            "+4096 gelu_backward; -4096; -4096; "  // relu's gradient dies, then h, which GELU saved
            "+4096 add; -4096; "                   // GELU's gradient dies in the sum
            "+4096 neg; -4096");
}

// --- input buffers

TEST_F(TapeTest, ASoleOwnerIsAddedToInPlace) {
  const Tensor x = bench_.input(kSquare);
  const Tensor y = add(gelu(x), gelu(x));
  bench_.backward(y);
  EXPECT_EQ(bench_.events(), "+4096 gelu_backward; +4096 gelu_backward; -4096") << "the second dies in the first";
}

TEST_F(TapeTest, ASharedGradientIsAddedToOutOfPlace) {
  const Tensor x = bench_.input(kSquare);
  const Tensor y = add(x, gelu(x));  // what waits for x is the gradient given, which its caller holds
  bench_.backward(y);
  EXPECT_EQ(bench_.events(), "+4096 gelu_backward; +4096 add; -4096");
}

TEST_F(TapeTest, AViewIsAddedToOutOfPlace) {
  const Tensor x = bench_.input(kSquare);
  Tensor turned = gelu(t(x));
  Tensor straight = gelu(x);  // recorded last: its gradient waits for x, a tensor of its own
  Tensor y = add(std::move(straight), t(std::move(turned)));
  bench_.backward(y);
  EXPECT_EQ(bench_.events(), "+4096 gelu_backward; +4096 gelu_backward; -4096");

  straight = gelu(x);
  turned = gelu(t(x));  // recorded last: what waits for x is a transposed view of its gradient
  y = add(std::move(straight), t(std::move(turned)));
  bench_.gradients[0].reset();  // of the first case
  bench_.backward(y);
  EXPECT_EQ(bench_.events(), "+4096 gelu_backward; +4096 gelu_backward; +4096 add; -4096; -4096");
}

// --- what arrives is brought to the shape and type of the forward's output

TEST_F(TapeTest, AGradientIsSummedToABroadcastShape) {
  const Tensor bias = bench_.input({32});
  const Tensor column = bench_.input({32, 1});
  const Tensor x = bench_.input(kSquare);
  const Tensor y = add(add(x, bias), column);
  bench_.backward(y);
  EXPECT_EQ(bench_.events(), "+128 sum; +128 sum");
  EXPECT_EQ(bench_.gradients[0].shape(), (Shape{32}));
  EXPECT_EQ(bench_.gradients[1].shape(), (Shape{32, 1}));
}

TEST_F(TapeTest, AGradientIsCastToTheTypeOfTheForward) {
  const Tensor half = bench_.input(kSquare, DType::kBFloat16);
  const Tensor full = bench_.input(kSquare);
  const Tensor y = add(half, full);  // promoted to float32
  bench_.backward(y);
  EXPECT_EQ(bench_.events(), "+2048 _to_copy");
  EXPECT_EQ(bench_.gradients[0].dtype(), DType::kBFloat16);
}

TEST_F(TapeTest, SummedFirstThenCast) {
  const Tensor bias = bench_.input({32}, DType::kBFloat16);
  const Tensor x = bench_.input(kSquare);
  const Tensor y = add(x, bias);
  bench_.backward(y);
  EXPECT_EQ(bench_.events(), "+128 sum; +64 _to_copy; -128");
}

// --- leaves

TEST_F(TapeTest, ALeafStealsAGradientOfItsOwn) {
  const Tensor weight = parameter();
  const Tensor y = gelu(weight);
  bench_.start();
  backward(y);
  EXPECT_EQ(bench_.events(), "+4096 made; +4096 gelu_backward; -4096");
  ASSERT_TRUE(weight.impl()->grad.defined());
  const auto block = static_cast<std::size_t>(weight.impl()->grad.block());
  EXPECT_EQ(tape_.memory.trace.blocks[block].category, Category::kGradients);
}

TEST_F(TapeTest, ALeafClonesASharedGradient) {
  const Tensor a = parameter();
  const Tensor b = parameter();
  const Tensor y = add(a, b);
  const Tensor given = plain();
  bench_.start();
  tape_.autograd.backward(y, given);
  EXPECT_EQ(bench_.events(), "+4096 clone; +4096 clone") << "both are the gradient given, which the caller keeps";
}

TEST_F(TapeTest, ALeafClonesAGradientOfAnotherLayout) {
  const Tensor weight = parameter({32, 64});
  Tensor y = gelu(t(weight));  // [64, 32], column-major, and so is its gradient: row-major for the weight
  bench_.start();
  backward(y);
  EXPECT_EQ(bench_.events(), "+8192 made; +8192 gelu_backward; -8192");
  y = gelu(contiguous(t(weight)));  // the gradient is row-major in [64, 32]: column-major for the weight
  weight.impl()->grad.reset();
  bench_.start();
  backward(y);
  // GELU's gradient, then the saved copy that contiguous() made; the clone; GELU's gradient, the one given.
  EXPECT_EQ(bench_.events(), "+8192 made; +8192 gelu_backward; -8192; +8192 clone; -8192; -8192");
}

TEST_F(TapeTest, TheSecondMicroBatchIsAddedInPlace) {
  const Tensor weight = parameter();
  backward(gelu(weight));
  const Tensor y = gelu(weight);
  bench_.start();
  backward(y);
  EXPECT_EQ(bench_.events(), "+4096 made; +4096 gelu_backward; -4096; -4096") << "the new gradient dies";
}

TEST_F(TapeTest, ATiedLeafGetsOneSum) {
  const Tensor weight = parameter();
  Tensor first = gelu(weight);
  Tensor second = tanh(weight);
  const Tensor y = add(std::move(first), std::move(second));
  bench_.start();
  backward(y);
  // tanh's gradient waits at the leaf (its saved result dies); GELU's is added in place and dies; the sum is stolen.
  EXPECT_EQ(bench_.events(), "+4096 made; +4096 tanh_backward; -4096; +4096 gelu_backward; -4096; -4096");
}

// --- autocast

TEST_F(TapeTest, AutocastCastsAWeightOnceARegion) {
  const Tensor weight = parameter();
  const Tensor x = plain();
  bench_.warm_up();
  std::optional<Autocasting> region(std::in_place, tape_.modes.autocast, DType::kBFloat16);
  bench_.start();
  Tensor y = linear(x, weight, {});
  EXPECT_EQ(bench_.events(), "+2048 _to_copy; +2048 _to_copy; +2048 mm") << "the weight, then x";
  Tensor z = linear(x, weight, {});
  EXPECT_EQ(bench_.events(), "+2048 _to_copy; +2048 _to_copy; +2048 mm; +2048 _to_copy; +2048 mm")
      << "x again, the weight from the cache";
  drop(y, z);
  bench_.start();
  region.reset();
  EXPECT_EQ(bench_.events(), "-2048") << "no graph holds the copy any more";
}

TEST_F(TapeTest, AGraphKeepsTheCopyAfterTheRegion) {
  const Tensor weight = parameter();
  const Tensor x = bench_.input(kSquare);
  bench_.warm_up();
  std::optional<Autocasting> region(std::in_place, tape_.modes.autocast, DType::kFloat16);
  const Tensor y = linear(x, weight, {});  // needs the 16-bit weight for x's gradient
  bench_.start();
  region.reset();
  EXPECT_EQ(bench_.events(), "");
}

TEST_F(TapeTest, AutocastDoesNotCacheWhatIsFrozenOrNoParameter) {
  const Tensor frozen = tape_.parameter(kSquare, DType::kFloat32, false);
  const Tensor x = plain(kSquare, DType::kBFloat16);
  bench_.warm_up();
  const Autocasting autocasting(tape_.modes.autocast, DType::kBFloat16);
  bench_.start();
  { const Tensor y = linear(x, frozen, {}); }
  EXPECT_EQ(bench_.events(), "+2048 _to_copy; +2048 mm; -2048; -2048");
}

// --- workspaces

TEST_F(TapeTest, EachThreadTakesItsWorkspaceAfterItsFirstProduct) {
  const Tensor x = bench_.input({32, 32});
  const Tensor weight = parameter();
  const Tensor bias = parameter({32});
  tape_.moment.phase = Phase::kForward;
  bench_.start();
  const Tensor y = linear(x, weight, bias);
  EXPECT_EQ(bench_.events(), "+4096 addmm; +33554432 cublas_workspace; +1048576 cublaslt_workspace");
  bench_.start();
  const Tensor z = linear(y, weight, bias);
  EXPECT_EQ(bench_.events(), "+4096 addmm");
  bench_.backward(z);
  EXPECT_EQ(bench_.events().substr(0, 40), "+4096 mm; +33554432 cublas_workspace; +4") << "no cuBLASLt there";
}

}  // namespace
}  // namespace memcalc
