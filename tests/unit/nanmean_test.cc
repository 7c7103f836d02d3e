// symbolic/ops/nanmean.h: what means and deviations that leave out what is no number request and free. As an H200 was
// asked in TRL 1.16's GRPOTrainer (torch 2.11, 2026-11-30).
#include "memcalc/symbolic/ops/nanmean.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::TapeBench;
using Requests = std::vector<Bytes>;

/// Of 8 numbers of one group.
Requests requests_of(const std::function<Tensor(const Tensor&)>& call) {
  TapeBench bench;
  bench.warm_up();
  const Tensor x = bench.input({1, 8}, DType::kFloat32, false);
  bench.start();
  const Tensor result = call(x);
  return bench.requests();
}

TEST(Nanmean, CountsWhatIsANumber) {
  EXPECT_EQ(requests_of([](const Tensor& x) { return no_grad::nanmean(x, 0b10, true); }),
            (Requests{8, 8, 64, -64, -8, 4, 4, -4, -8}));
}

TEST(Nanmean, ADeviationIsOfTwoMeans) {
  const Requests requests = requests_of([](const Tensor& x) { return no_grad::nanstd(x, 0b10); });
  EXPECT_EQ(requests.size(), 43U);  // 22 blocks, of which all but the result die
  EXPECT_EQ(std::count_if(requests.begin(), requests.end(), [](Bytes each) { return each > 0; }), 22);
}

}  // namespace
}  // namespace memcalc
