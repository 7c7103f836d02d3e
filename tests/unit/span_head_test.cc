// models/span_head: two numbers of each token, a loss where a batch has labels.
#include "memcalc/models/span_head.h"

#include <gtest/gtest.h>

#include "memcalc/models/module.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

TEST(SpanHead, GivesStartsAndEndsAndWithLabelsALoss) {
  for (const bool has_labels : {false, true}) {
    test::TapeBench bench;
    ModuleBuilder builder(bench.tape, DType::kFloat32);
    const Linear head = span_head(builder, 16);
    EXPECT_EQ(head.weight.shape(), (Shape{2, 16}));
    Tensor states = bench.input({3, 8, 16});
    Batch batch;
    if (has_labels) {
      batch.labels = bench.input({3}, DType::kInt64, false);
      batch.others.push_back(bench.input({3}, DType::kInt64, false));
    }
    ModelOutput output;
    predict_spans(head, states, batch, output);
    EXPECT_FALSE(states.defined());
    EXPECT_EQ(output.logits.shape(), (Shape{3, 8}));
    ASSERT_EQ(output.others.size(), 1U);
    EXPECT_EQ(output.others.front().shape(), (Shape{3, 8}));
    EXPECT_NE(output.logits.block(), output.others.front().block()) << "copies of the halves";
    EXPECT_EQ(output.loss.defined(), has_labels);
    if (has_labels) {
      EXPECT_EQ(output.loss.shape(), Shape{});
      EXPECT_TRUE(output.loss.requires_grad());
    }
  }
}

}  // namespace
}  // namespace memcalc
