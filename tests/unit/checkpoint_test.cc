// symbolic/checkpoint: what a checkpointed region keeps, when it runs again and where it stops. Events are written
// "+8192 mul; -4096".
#include "memcalc/symbolic/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/linear.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

constexpr Operator kMade{"made"};

// Most tensors here are [32, 32] float32: 4096 bytes.
const Shape kSquare{32, 32};

class CheckpointTest : public ::testing::Test {
 protected:
  /// gelu(neg(x)) and relu after it: saves neg's result and relu's.
  static Tensor region(const KeptTensors& kept) {
    Tensor h = negate(kept[0]);
    h = gelu(h);
    return relu(h);
  }

  test::TapeBench bench_;
  Tape& tape_ = bench_.tape;
};

TEST_F(CheckpointTest, ForwardKeepsTheInputsOnly) {
  const Tensor x = bench_.input(kSquare);
  Tensor input = negate(x);
  bench_.start();
  Tensor y = run_checkpointed({input}, 1, region);
  input.reset();
  // neg, gelu; h is reassigned, so neg's result dies; relu; GELU's result dies.
  EXPECT_EQ(bench_.events(), "+4096 neg; +4096 gelu; -4096; +4096 relu; -4096");
  bench_.start();
  y.reset();
  EXPECT_EQ(bench_.events(), "-4096; -4096") << "y, and with the graph the kept input";
}

TEST_F(CheckpointTest, BackwardRunsTheRegionAgainAndStopsAtTheLastSavedTensor) {
  const Tensor x = bench_.input(kSquare);
  const Tensor y = run_checkpointed({x}, 1, [](const KeptTensors& kept) {
    Tensor h = gelu(negate(kept[0]));  // saves neg's result: the last saved tensor …
    return negate(h);                  // … so this is not run again, nor GELU itself
  });
  bench_.backward(y);
  EXPECT_EQ(bench_.events(),
            "+4096 neg; "  // the gradient of the second neg
            "+4096 neg; "  // the region again: stopped when GELU saves its input, before its result
            "+4096 gelu_backward; "
            "-4096; -4096; "  // the second neg's gradient, the recomputed tensor
            "+4096 neg; -4096");
}

TEST_F(CheckpointTest, TensorsAreHandedOutByTheirNumber) {
  const Tensor x = bench_.input(kSquare);
  const Tensor y = run_checkpointed({x}, 1, region);
  bench_.backward(y);
  EXPECT_EQ(bench_.events(),
            "+4096 neg; +4096 gelu; +4096 relu; -4096; "  // again up to relu's result, the last saved; GELU's dies
            "+4096 threshold_backward; -4096; "           // relu's result was number 1
            "+4096 gelu_backward; -4096; -4096; "         // threshold's gradient, neg's result (number 0)
            "+4096 neg; -4096");
}

TEST_F(CheckpointTest, ARegionThatSavesNothingIsNotRunAgain) {
  const Tensor x = bench_.input(kSquare);
  const Tensor y = run_checkpointed({x}, 1, [](const KeptTensors& kept) { return negate(kept[0]); });
  bench_.backward(y);
  EXPECT_EQ(bench_.events(), "+4096 neg");
}

TEST_F(CheckpointTest, PositionalArgumentsDieAfterTheKeywords) {
  const Tensor x = bench_.input(kSquare);
  Tensor positional = negate(x);                                   // 4096
  Tensor keyword = tape_.empty({32, 64}, DType::kFloat32, kMade);  // 8192
  Tensor y = run_checkpointed({positional, keyword}, 1, [](const KeptTensors& kept) { return gelu(kept[0]); });
  drop(positional, keyword);
  bench_.start();
  y.reset();
  EXPECT_EQ(bench_.events(), "-8192; -4096; -4096");  // and y itself after its history
}

TEST_F(CheckpointTest, WhatABranchWithoutGradientSavedIsNotKept) {
  const Tensor x = bench_.input(kSquare);
  Tensor y = run_checkpointed({x}, 1, [](const KeptTensors& kept) {
    const Tensor dead_end = relu(kept[0]);  // saves its result, and dies with the region
    return gelu(negate(kept[0]));
  });
  bench_.backward(y);
  // relu's result dies when recomputation stops, since nothing will ask for it; negate's is what GELU wants.
  EXPECT_EQ(bench_.events(), "+4096 relu; +4096 neg; -4096; +4096 gelu_backward; -4096; +4096 neg; -4096");
}

// A decoder's layer without a mask, as of BART: (hidden_states, None, encoder_hidden_states, mask=...).
TEST_F(CheckpointTest, AReentrantRegionGetsEachArgumentInItsPlaceAgain) {
  const Tensor x = bench_.input(kSquare);
  const Tensor encoded = gelu(x);
  const Tensor keyword = tape_.empty({32, 64}, DType::kFloat32, kMade);
  std::vector<std::vector<bool>> given;
  const Tensor y = run_checkpointed_reentrant({x, Tensor(), encoded, keyword}, 3, [&](const KeptTensors& kept) {
    std::vector<bool>& call = given.emplace_back();
    for (const Tensor& each : kept) call.push_back(each.defined());
    EXPECT_EQ(kept.back().shape(), keyword.shape());
    return negate(kept[0]) + relu(kept[2]);
  });
  bench_.backward(y);
  const std::vector<bool> places = {true, false, true, true};
  EXPECT_EQ(given, std::vector({places, places}));
  // What the encoder saved is asked for once, after the region: the region has its result without its history.
  const std::string events = bench_.events();
  EXPECT_GT(events.find("gelu_backward"), events.find("threshold_backward")) << events;
  EXPECT_EQ(events.find("gelu_backward"), events.rfind("gelu_backward")) << events;
}

TEST_F(CheckpointTest, TheRecomputationHasAnAutocastCacheOfItsOwn) {
  const Tensor weight = tape_.parameter(kSquare, DType::kFloat32);
  const Tensor x = bench_.input(kSquare, DType::kBFloat16);
  bench_.warm_up();
  std::optional<Autocasting> region(std::in_place, tape_.modes.autocast, DType::kBFloat16);
  bench_.start();
  const Tensor y =
      run_checkpointed({x}, 1, [&weight](const KeptTensors& kept) { return gelu(linear(kept[0], weight, {})); });
  EXPECT_EQ(bench_.events(), "+2048 _to_copy; +2048 mm; +2048 gelu; -2048");
  region.reset();
  bench_.backward(y);
  EXPECT_FALSE(tape_.modes.autocast.is_on());
  EXPECT_EQ(bench_.events().substr(0, 25), "+2048 _to_copy; +2048 mm;") << "the weight is cast again";
}

TEST_F(CheckpointTest, RecomputedNodesAreMarked) {
  tape_.kernels.recording = true;
  const Tensor x = bench_.input(kSquare);
  const Tensor y = run_checkpointed({x}, 1, region);
  const auto operators = [this](bool recomputed) {  // without the work of the host alone
    return std::count_if(tape_.kernels.list().begin(), tape_.kernels.list().end(), [recomputed](const Kernel& kernel) {
      return kernel.recomputed == recomputed && !kernel.as<work::OfHost>();
    });
  };
  ASSERT_EQ(operators(false), 3);
  bench_.backward(y);
  EXPECT_EQ(operators(true), 3) << "neg, gelu, relu";
  EXPECT_FALSE(tape_.moment.recomputing);
}

}  // namespace
}  // namespace memcalc
