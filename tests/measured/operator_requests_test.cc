// Every operator alone against an H100: tests/measured/ops_h100.jsonl holds what single calls of torch 2.11 requested
// from the allocator, forward and backward; memcalc's operators request the same, in the same order. What is not
// compared is listed here with its reason and its count.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "measured/operators/op_case.h"

namespace memcalc::measured {
namespace {

struct Tally {
  int checked = 0;
  int different = 0;
  std::string first_differences;
};

using Reasons = std::map<std::string, int>;

struct GroupResult {
  std::map<std::string, Tally> by_op;
  int checked = 0;
  Reasons skipped;    // nothing compared
  Reasons unchecked;  // the forward was compared, the backward not
};

GroupResult run_group(const std::vector<Runner>& runners) {
  std::map<std::string, const Run*> by_op;
  for (const Runner& runner : runners) by_op[runner.op] = &runner.run;
  GroupResult result;
  for (const OpCase& each : op_cases()) {
    const auto run = by_op.find(each.op());
    if (run == by_op.end()) continue;
    const Outcome outcome = (*run->second)(each);
    if (!outcome.skipped.empty()) {
      ++result.skipped[outcome.skipped];
      continue;
    }
    if (!outcome.unchecked.empty()) ++result.unchecked[outcome.unchecked];
    Tally& tally = result.by_op[each.op()];
    ++tally.checked;
    ++result.checked;
    if (outcome.difference.empty()) continue;
    if (++tally.different <= 3) tally.first_differences += each.parameters() + " " + outcome.difference + "\n";
  }
  return result;
}

GroupResult expect_equal(const std::vector<Runner>& runners) {
  GroupResult result = run_group(runners);
  for (const auto& [op, tally] : result.by_op) {
    EXPECT_EQ(tally.different, 0) << op << ": of " << tally.checked << " cases\n" << tally.first_differences;
    ::testing::Test::RecordProperty(op, tally.checked);
  }
  return result;
}

TEST(OperatorRequests, EveryOpOfTheFileHasOneRunner) {
  std::map<std::string, int> runners;
  for (const auto& group :
       {attention_runners(), reduction_runners(), elementwise_runners(), norm_and_loss_runners(), product_runners(),
        movement_runners(), indexing_runners(), training_runners(), other_runners()}) {
    for (const Runner& runner : group) ++runners[runner.op];
  }
  EXPECT_EQ(op_cases().size(), 17865U);
  for (const OpCase& each : op_cases()) EXPECT_EQ(runners[each.op()], 1) << each.op();
}

// A group's ops are exact in every case that is compared; the rest is what the test says.
TEST(OperatorRequests, Attention) {
  const GroupResult result = expect_equal(attention_runners());
  EXPECT_EQ(result.checked, 2676);
  EXPECT_EQ(result.skipped, (Reasons{{"math forced in float32: with as many key heads torch takes the "
                                      "memory-efficient kernel",
                                      24}}));
}

TEST(OperatorRequests, Reductions) {
  const GroupResult result = expect_equal(reduction_runners());
  EXPECT_EQ(result.checked, 10738);
  EXPECT_EQ(result.skipped, (Reasons{{"a sum with another dtype than its input's is not used", 9},
                                     {"sums of int64 are not used", 17}}));
  EXPECT_EQ(result.unchecked, (Reasons{{"sums of everything are not differentiated in memcalc", 30}}));
}

TEST(OperatorRequests, Elementwise) {
  const GroupResult result = expect_equal(elementwise_runners());
  EXPECT_EQ(result.checked, 379);
  EXPECT_EQ(result.skipped, Reasons{});
  EXPECT_EQ(result.unchecked, (Reasons{{"the backward of the case's abs() is not modelled", 15}}));
}

TEST(OperatorRequests, NormsLossesEmbeddings) {
  const GroupResult result = expect_equal(norm_and_loss_runners());
  EXPECT_EQ(result.checked, 2215);
  EXPECT_EQ(result.skipped, Reasons{});
}

TEST(OperatorRequests, Products) {
  const GroupResult result = expect_equal(product_runners());
  EXPECT_EQ(result.checked, 820);
  EXPECT_EQ(result.skipped, (Reasons{{"a fresh process's product of a vector, under autocast, or baddbmm", 3},
                                     {"the measurement begins with frees of the case before it", 1}}));
  EXPECT_EQ(result.unchecked, (Reasons{{"backward from a sum in a fresh process", 17}}));
}

TEST(OperatorRequests, Movement) {
  const GroupResult result = expect_equal(movement_runners());
  EXPECT_EQ(result.checked, 127);
  EXPECT_EQ(result.skipped, Reasons{});
}

TEST(OperatorRequests, Indexing) {
  const GroupResult result = expect_equal(indexing_runners());
  EXPECT_EQ(result.checked, 114);
  EXPECT_EQ(result.skipped, Reasons{});
}

TEST(OperatorRequests, OptimizersClippingLossScaling) {
  const GroupResult result = expect_equal(training_runners());
  EXPECT_EQ(result.checked, 104);
  EXPECT_EQ(result.skipped, (Reasons{{"a step that the loss scaler leaves out: depends on values", 16},
                                     {"get_total_norm alone, clipping without foreach", 12},
                                     {"optimizer settings that memcalc does not offer", 8}}));
}

TEST(OperatorRequests, WithoutAnOperatorHere) {
  const GroupResult result = expect_equal(other_runners());
  EXPECT_EQ(result.checked, 0);
  EXPECT_EQ(result.skipped, (Reasons{{"a division by a tensor that needs a gradient", 15},
                                     {"element-wise operators that no model here uses", 31},
                                     {"integer operators that no model here uses", 72},
                                     {"no measurement: a mark of the harness", 14},
                                     {"reductions that no model here uses", 251},
                                     {"sorting, selecting and indexing by values", 115},
                                     {"written out in the loops and models, which the histories check", 104}}));
}

}  // namespace
}  // namespace memcalc::measured
