// symbolic/ops/view: what Python's indexing leaves behind.
#include "memcalc/symbolic/ops/view.h"

#include <gtest/gtest.h>

#include "support/tape_bench.h"

namespace memcalc {
namespace {

// Recorded with torch 2.8.0, 2.9.1, 2.10.0 and 2.15.0 of PyPI: x[:, 0:, :].grad_fn is a SliceBackward0 in the first
// alone. Its backward fills a tensor of the input's size.
TEST(View, AnOpenSliceIsAViewBeforeTorch29) {
  Behaviors old;
  old.open_slices_are_views = true;
  for (const bool is_old : {false, true}) {
    test::TapeBench bench(test::h100(), is_old ? old : Behaviors{});
    const Tensor x = bench.input({4, 8, 16});
    bench.start();
    const Tensor y = open_slices(x, {0, 1, 2});
    EXPECT_EQ(y.shape(), x.shape());
    EXPECT_EQ(bench.events(), "");
    bench.backward(y);
    EXPECT_EQ(bench.requests().size(), is_old ? 5U : 0U) << bench.events();  // three, and two die
  }
}

}  // namespace
}  // namespace memcalc
