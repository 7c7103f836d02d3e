// symbolic/ops: what choosing, scattering, scanning and solving request. Numbers of torch 2.11: its host code run on a
// CUDA runtime that computes nothing, as torch.autograd.grad calls it. Bytes = elements * 4 in float32, * 2 in 16 bits.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "memcalc/symbolic/ops/as_strided.h"
#include "memcalc/symbolic/ops/copy_slices.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/scan.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/solve.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/ops/weight_norm.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::TapeBench;
using Requests = std::vector<Bytes>;

constexpr DType kFloat = DType::kFloat32;
constexpr DType kBfloat = DType::kBFloat16;

/// Forward, then backward, of an operator over inputs that the case makes.
void check(const std::function<Tensor(TapeBench&)>& call, const Requests& forward, const Requests& backward) {
  TapeBench bench;
  bench.warm_up();
  const Tensor output = call(bench);
  EXPECT_EQ(bench.requests(), forward);
  ASSERT_TRUE(output.requires_grad());
  bench.backward(output);
  EXPECT_EQ(bench.requests(), backward);
}

TEST(Scatter, OfASourceGathersItsGradientAndClearsTheOthers) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({8, 16}), source = bench.input({8, 4});
        const Tensor index = bench.input({8, 4}, DType::kInt64, false);
        bench.start();
        return scatter(x, index, source, Scattered::kReplaces);
      },
      {512}, {512, 128});
}

TEST(Scatter, ThatAddsHandsTheGradientOn) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({8, 16}), source = bench.input({8, 4});
        const Tensor index = bench.input({8, 4}, DType::kInt64, false);
        bench.start();
        return scatter(x, index, source, Scattered::kAdds);
      },
      {512}, {128});
}

TEST(Scatter, OfWholeRowsSelectsTheirGradient) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({8, 16}), source = bench.input({4, 16});
        const Tensor index = bench.input({4}, DType::kInt64, false);
        bench.start();
        return index_add(x, index, source);
      },
      {512}, {256});
}

TEST(Selection, OfRowsAddsTheirGradientToZeros) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({8, 16});
        const Tensor index = bench.input({4}, DType::kInt64, false);
        bench.start();
        return index_select(x, 0, index);
      },
      {256}, {512});
}

// A column of a mask is copied to one that is as large as x, here in the forward and in the backward pass.
TEST(MaskedScatter, CountsTheMaskAndLooksForItsPlacesInBackward) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({8, 16}, kBfloat), source = bench.input({32}, kBfloat);
        const Tensor mask = bench.input({8, 1}, DType::kBool, false);
        bench.start();
        return masked_scatter(x, mask, source);
      },
      {256, 1024, 128, 1279, -1279, -128, -1024}, {256, 128, 4, 1, -1, 512, 1023, -1023, -4, -128, 64, -512});
}

TEST(IndexByMask, KeepsTheMaskAndLooksForItsPlacesTwice) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({8, 8, 16});
        const Tensor mask = bench.input({8, 8}, DType::kBool, false);
        bench.start();
        return index_by_mask(x, 0, mask, 24);
      },
      {4, 1, -1, 384, 1023, -1023, -4, 1536, -384},
      {4096, 4,    1,    -1,  384, 1023, -1023, -4, 192,  192,  -192, 192, 192,
       -192, -192, -384, 192, 192, 192,  1,     -1, -192, -192, -192, -192});
}

TEST(CumulativeSum, OfColumnsCopiesThemForAWhile) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({4, 8, 16});
        bench.start();
        return cumulative_sum(transpose(x, 1, 2), 2, kFloat);
      },
      {2048, 2048, -2048}, {2048, 2048, 2048, -2048, -2048});
}

TEST(MaskedFill, OfColumnsIsRowMajor) {
  TapeBench bench;
  const Tensor x = bench.input({4, 8, 16});
  const Tensor mask = bench.input({4, 16, 1}, DType::kBool, false);
  EXPECT_TRUE(masked_fill(transpose(x, 1, 2), mask).is_contiguous());
}

TEST(Pad, ByNothingClonesTheLayout) {
  TapeBench bench;
  const Tensor columns = transpose(bench.input({4, 8, 16}), 1, 2);
  EXPECT_EQ(pad_to(columns, columns.shape()).strides(), columns.strides());
}

TEST(Gather, KeepsWhatItGathersFrom) {
  TapeBench bench;
  const Tensor index = bench.input({8, 4}, DType::kInt64, false);
  Tensor scaled = slice(bench.input({8, 17}), 1, 0, 16);
  Tensor copy = contiguous(scaled);
  const Tensor result = gather(copy, index);
  bench.start();
  copy.reset();
  EXPECT_EQ(bench.requests(), Requests{});
}

TEST(SolveTriangular, TakesPointersToTheMatricesOfAStack) {
  check(
      [](TapeBench& bench) {
        const Tensor a = bench.input({2, 3, 8, 8}), b = bench.input({2, 3, 8, 16});
        bench.start();
        return solve_triangular(a, b);
      },
      {3072, 48, 48, -48, -48}, {3072, 48, 48, -48, -48, 1536, 1536, -1536, 1536, -1536});
}

TEST(WeightNorm, KeepsTheNormsInFloat32) {
  check(
      [](TapeBench& bench) {
        const Tensor v = bench.input({16, 8, 4}, kBfloat), g = bench.input({1, 1, 4}, kBfloat);
        bench.start();
        return weight_norm(v, g);
      },
      {1024, 16}, {1024, 8, -16});
}

TEST(CtcLoss, KeepsAlphaAndMakesBetaInBackward) {
  check(
      [](TapeBench& bench) {
        const Tensor log_probs = bench.input({16, 8, 4});
        const Tensor targets = bench.input({16}, DType::kInt64, false);
        bench.start();
        return ctc_loss(log_probs, targets, 2);
      },
      {64, 64, 64, 2560, 32, -64, -64, -64}, {64, 64, 64, 2560, 2048, -2560, -64, -64, -64, -2560});
}

// cuda/LossCTC.cu: full_like(log_probs, …, LEGACY_CONTIGUOUS_MEMORY_FORMAT).
TEST(CtcLoss, HasARowMajorGradientOfTransposedLogProbabilities) {
  TapeBench bench;
  bench.warm_up();
  const Tensor log_probs = bench.strided_input({16, 4, 8}, {8, 128, 1});
  const Tensor targets = bench.input({16}, DType::kInt64, false);
  bench.backward(ctc_loss(log_probs, targets, 2));
  ASSERT_EQ(bench.gradients.size(), 1U);
  EXPECT_TRUE(bench.gradients[0].is_contiguous());
}

TEST(Unbind, OfManyPartsPutsAZeroForThoseThatNobodyUsed) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({5, 8, 16});
        bench.start();
        return unbind(x, 0)[1];
      },
      {}, {4, 4, 4, 4, 2560, -4, -4, -4, -4});
}

// CopySlices: the whole gradient is copied, and its part laid out anew.
TEST(CopyIntoView, OfRowsGoesBackToTheSource) {
  TapeBench bench;
  const Tensor source = bench.input({4, 16});
  const Tensor base = bench.tape.empty({4, 2, 16}, kFloat, Operator{"aten::zeros"});
  const Tensor written = copy_into_view(base, select(base, 1), source);
  bench.start();
  bench.backward(written);
  EXPECT_EQ(bench.requests(), (Requests{512, 256, -512}));
}

// The gradient of a transposed result is no row-major one: it, or its product with the result, is copied.
// h = x * 2; h.view(2, 2, 4, 16).permute(0, 1, 3, 2).contiguous().view(2, 8, 16) + h * 3: the view's gradient is copied
// by reshape, to which the other one is added in place.
TEST(Reshape, ThatCopiedAGradientOwnsIt) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({2, 8, 16});
        bench.start();
        const Tensor h = multiply_scalar(x), q = multiply_scalar(h);
        return view(contiguous(permute(view(h, {2, 2, 4, 16}), {0, 1, 3, 2})), {2, 8, 16}) + q;
      },
      {1024, 1024, 1024, 1024, -1024, -1024, -1024}, {1024, 1024, -1024, 1024, -1024});
}

Requests backward_of_transposed(Tensor (*softmax_of)(Arg)) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({4, 8, 16, 32}), gradient = bench.input({4, 16, 8, 32}, kFloat, false);
  const Tensor y = transpose(softmax_of(x), 1, 2);
  bench.start();
  bench.backward(y, gradient);
  return bench.requests();
}

TEST(Softmax, CopiesAGradientThatIsNotRowMajor) {
  EXPECT_EQ(backward_of_transposed(softmax), (Requests{65536, 65536, 65536, -65536, -65536}));
  EXPECT_EQ(backward_of_transposed(log_softmax), (Requests{65536, 65536, -65536}));
}

// Windows of 32 rows that start every 32: the gradient is copied into zeros as large as the storage.
TEST(AsStrided, CopiesTheGradientIntoTheStorageOfAWindowedView) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({48, 64});
        bench.start();
        return as_strided(x, {3, 1, 16}, {1, 1024, 64});
      },
      {}, {12288});
}

// Windows of 1024 elements that start every 256: elements are in several, so their gradients are added by place.
TEST(AsStrided, AddsByPlaceWhereWindowsOverlap) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({48, 64}), gradient = bench.input({4, 2, 32, 64}, kFloat, false);
  const Tensor windows = as_strided(x, gradient.shape(), {768, 256, 8, 1});
  bench.start();
  bench.backward(windows, gradient);
  EXPECT_EQ(bench.requests(), (Requests{12288, 24576, 131072, -131072, -24576}));
}

// What repeats an element is summed; what repeated it before is counted, and the gradient shared.
TEST(AsStrided, SharesTheGradientOfAnElementThatTheOperandRepeats) {
  check(
      [](TapeBench& bench) {
        const Tensor x = bench.input({16});
        bench.start();
        return as_strided(expand(x, {8, 16}), {8, 4}, {0, 1});
      },
      {}, {16, 64, 128, 64, 1024, 4, -4, -1024, -64, -128, -16, 64, -64});
}

// h = a * 2; z = h.view(16, 8).t(); z.add_(1); z * 1: z is made anew from what h has become.
TEST(ChangeView, ThatAddsHandsACopyOfTheGradientOn) {
  check(
      [](TapeBench& bench) {
        const Tensor a = bench.input({8, 16});
        bench.start();
        Tensor z = t(view(multiply_scalar(a), {16, 8}));
        Tensor base = viewed_by(z);
        EXPECT_TRUE(base.defined());
        EXPECT_EQ(base.shape(), (Shape{8, 16}));
        const Tensor changed = change_view(base, z, {}, InPlace::kAdd);
        drop(base);
        z = as_strided(changed, z.shape(), z.strides());
        return multiply_scalar(z);
      },
      {512, 512, -512}, {512, 512, -512, 512, 512, -512, -512, 512, -512});
}

// h.view(16, 8).t().mul_(2); h * 1: the product with the copied part is copied back.
TEST(ChangeView, ThatMultipliesHandsAProductOn) {
  check(
      [](TapeBench& bench) {
        const Tensor a = bench.input({8, 16});
        bench.start();
        const Tensor h = multiply_scalar(a);
        const Tensor changed = change_view(h, t(view(h, {16, 8})), {}, InPlace::kMultiply);
        return multiply_scalar(changed);
      },
      {512, 512, -512}, {512, 512, 512, 512, -512, -512, -512, 512, -512});
}

// h.view(8, 16).addcmul_(k, b); h * 1: b's gradient is the copied part's product with k, which is scaled first.
TEST(ChangeView, ThatAddsAProductScalesTheGradient) {
  check(
      [](TapeBench& bench) {
        const Tensor a = bench.input({8, 16}), b = bench.input({8, 16}), k = bench.input({8, 16}, kFloat, false);
        bench.start();
        const Tensor h = multiply_scalar(a);
        const Tensor kept[] = {k};
        const Tensor changed = change_view(h, view(h, {8, 16}), b, InPlace::kAdd, kept);
        return multiply_scalar(changed);
      },
      {512, 512, -512}, {512, 512, 512, 512, 512, -512, -512, -512, 512, -512});
}

TEST(ViewedBy, IsUndefinedWhereNoViewIsFollowed) {
  TapeBench bench;
  const Tensor followed = bench.input({8, 16}), plain = bench.input({8, 16}, kFloat, false);
  EXPECT_FALSE(viewed_by(multiply_scalar(followed)).defined());
  EXPECT_FALSE(viewed_by(t(plain)).defined());
}

}  // namespace
}  // namespace memcalc
