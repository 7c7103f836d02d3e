// models/load_balancing_loss.h against what torch 2.11 asks for when transformers 5.17's load_balancing_loss_func runs:
// recorded with fake tensors on a host without a card (two layers of 64 tokens and 8 experts, 2 a token).
#include "memcalc/models/load_balancing_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "support/tape_bench.h"

namespace memcalc {
namespace {

using ::testing::ElementsAreArray;

constexpr DType kBf16 = DType::kBFloat16;

class LoadBalancingLossTest : public testing::Test {
 protected:
  LoadBalancingLossTest() { bench_.warm_up(); }

  /// Under autocast, as TRL runs it.
  Tensor loss_of(bool masked) {
    const std::vector<Tensor> gate_logits{bench_.input({64, 8}, kBf16), bench_.input({64, 8}, kBf16)};
    const Tensor mask = masked ? bench_.input({2, 32}, DType::kInt64, false) : Tensor();
    bench_.start();
    const Autocasting region(bench_.tape.modes.autocast, kBf16);
    return load_balancing_loss(gate_logits, 2, mask);
  }

  test::TapeBench bench_;
};

TEST_F(LoadBalancingLossTest, AsksForWhatTheRecordingHas) {
  const Tensor loss = loss_of(true);
  // zeros, zeros, the mask in float32; of each layer: softmax, topk, counts, probabilities, rows; the loss.
  const std::vector<Bytes> forward{32,   32,   256,                                       //
                                   2048, 2048, -2048, 512, 1024,                          //
                                   32,   512,  -512,  32,  -32,  -32,                     //
                                   2048, 32,   -2048, 32,  -32,  -32,  4,     4, -4,      //
                                   2048, 2048, -2048, 512, 1024, -512, -1024,             //
                                   32,   512,  -512,  32,  -32,  -32,                     //
                                   2048, 32,   -2048, 32,  -32,  -32,  4,     4, -4, -4,  //
                                   32,   32,   32,    4,   -32,  4};
  std::vector<Bytes> requests = bench_.requests();
  ASSERT_GE(requests.size(), forward.size());
  const std::vector<Bytes> dying(requests.begin() + static_cast<std::ptrdiff_t>(forward.size()), requests.end());
  requests.resize(forward.size());
  EXPECT_THAT(requests, ElementsAreArray(forward));
  Bytes freed = 0;  // in whatever order: the function's variables, and the scalar before the last product
  for (const Bytes each : dying) freed += each;
  EXPECT_EQ(freed, -(32 + 32 + 512 + 1024 + 32 + 4));
}

TEST_F(LoadBalancingLossTest, BackwardGoesThroughTheLayersFromTheLast) {
  const Tensor loss = loss_of(true);
  bench_.start();
  bench_.backward(loss);
  // Of a layer: the product's gradient, softmax's, its conversion; the last layer first. On a card softmax's gradient
  // has a product of its own beside its result (native/cuda/SoftMax.cu), which fake tensors do not show.
  const std::string of_layer =
      "+2048 _softmax_backward_data; +2048 _softmax_backward_data; -2048; -2048; -2048; "
      "+1024 _to_copy; -2048";
  EXPECT_EQ(bench_.events(), "+4 mul; +32 mul; -4; -32; +32 div; -32; -4; +2048 mul; " + of_layer +
                                 "; +2048 mul; -32; -256; " + of_layer);
}

TEST_F(LoadBalancingLossTest, WithoutAMaskEveryTokenCountsAndNoneIsWeighted) {
  (void)loss_of(false);
  const std::vector<Bytes> requests = bench_.requests();
  EXPECT_EQ(std::count(requests.begin(), requests.end(), 64 * 2 * 4), 2) << "topk's values alone, not weights of them";
  EXPECT_EQ(std::count(requests.begin(), requests.end(), 256), 0) << "no mask";
}

}  // namespace
}  // namespace memcalc
