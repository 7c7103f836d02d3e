// power_limit.h: steps whose products would draw more than the card may.
#include "memcalc/cost/power_limit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "memcalc/cost/timeline.h"
#include "support/plain_rates.h"

namespace memcalc {
namespace {

using test::device;
using test::kernel;
using test::rates;
using test::seconds_of;

// The others wait for the card that is the slowest at its power limit: of eight it takes 1.42 standard deviations more.
TEST(PowerLimit, ProductsTakeTheTimeOfTheSlowestCard) {
  Kernel product;
  product.kind = KernelKind::kMatrixProduct;
  product.operator_class = OperatorClass::kContraction;
  product.dtype = DType::kBFloat16;
  product.work = work::Product{.m = 4096, .n = 4096, .k = 4096};
  Kernel gather;
  gather.work = work::Communication{.kind = Collective::kAllGather, .bytes = 1e6, .ranks = 8};
  KernelList alone, together;
  alone.push_back(product);
  together.push_back(product);
  together.push_back(gather);
  const double one = seconds_of(alone, device(), rates()).front();
  const double gap = 0.4e-6;  // longer between kernels of hosts of several cards
  EXPECT_NEAR((seconds_of(together, device(), rates()).front() - gap) / one, 1 + 1.424 * 0.015, 2e-3);
}

Kernel product_of_4096() {
  Kernel product = kernel(6.0 * 4096 * 4096);
  product.kind = KernelKind::kMatrixProduct;
  product.operator_class = OperatorClass::kContraction;
  product.dtype = DType::kBFloat16;
  product.flops = 2.0 * 4096 * 4096 * 4096;
  product.work = work::Product{.m = 4096, .n = 4096, .k = 4096};
  return product;
}

// Products t, other kernels o: 2 t / x + 0.5 o = x t + o.
TEST(PowerLimit, ProductsWithoutAPauseLowerTheirClock) {
  const Kernel product = product_of_4096();
  KernelList list;
  list.push_back(product);
  DeviceRates limited = rates();
  const double full = seconds_of(list, device(), limited).front();
  limited.power = {.products = 2, .best = product.flops / full / 1e15, .others = 0.5, .idle = 0, .source = "a test"};
  EXPECT_NEAR(seconds_of(list, device(), limited).front() / full, std::sqrt(2.0), 1e-6);
  list.push_back(kernel(1e12 * full));  // as long as the product
  EXPECT_NEAR(seconds_of(list, device(), limited).front() / full, (std::sqrt(0.25 + 8) - 0.5) / 2, 2e-3);
  list.push_back(kernel(4e12 * full));
  EXPECT_NEAR(seconds_of(list, device(), limited).front() / full, 1, 1e-6) << "2 + 0.5 * 5 is less than 1 + 5";
  limited.power.full_clock = 1.1;  // the rates are of loops at the limit
  EXPECT_NEAR(seconds_of(list, device(), limited).front() / full, 1 / 1.1, 1e-6);
  list.resize(1);
  EXPECT_NEAR(seconds_of(list, device(), limited).front() / full, std::sqrt(2.0) / 1.1, 1e-6);
}

// The limit looks back tens of milliseconds: a stage that waits runs its first products at the full clock, whatever the
// mean of its step is, and the last as if it never waited.
TEST(PowerLimit, APauseHelpsWhatComesSoonAfterIt) {
  const Kernel product = product_of_4096();
  DeviceRates limited = rates();
  const double full = seconds_of(KernelList{product}, device(), limited).front();
  limited.power = {.products = 2, .best = product.flops / full / 1e15, .others = 0.5, .idle = 0, .source = "a test"};
  const KernelList list(static_cast<std::size_t>(0.4 / full), product);
  const std::vector<double> seconds = seconds_of(list, device(), limited, 1);
  EXPECT_NEAR(seconds.front() / full, 1, 1e-6);
  EXPECT_NEAR(seconds.back() / full, std::sqrt(2.0), 1e-3);
  KernelList micro_batches(1, product);
  micro_batches.front().repeats = static_cast<std::int64_t>(list.size());
  const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
  EXPECT_NEAR(seconds_of(micro_batches, device(), limited, 1).front() / mean, 1, 0.2) << "told as one";
}

// The same die under half the limit: products draw twice as much of it, other kernels at most all of it.
TEST(PowerLimit, AnotherLimitIsTheSamePowerOverFewerWatts) {
  const Kernel product = product_of_4096();
  KernelList list;
  list.push_back(product);
  DeviceRates limited = rates();
  const double full = seconds_of(list, device(), limited).front();
  limited.power = {
      .watts = 700, .products = 1.5, .best = product.flops / full / 1e15, .others = 0.8, .idle = 0, .source = "a test"};
  DeviceSpec card = device();
  card.power_watts = 350;
  EXPECT_NEAR(seconds_of(list, card, limited).front() / full, std::sqrt(3.0), 1e-6);
  list.push_back(kernel(1e12 * full));
  EXPECT_NEAR(seconds_of(list, card, limited).front() / full, std::sqrt(3.0), 2e-3) << "the other saves nothing";
  card.power_watts = 0;  // not known: the rates' own
  list.resize(1);
  EXPECT_NEAR(seconds_of(list, card, limited).front() / full, std::sqrt(1.5), 1e-6);
}

// An all-reduce beside them draws 0.33 of the limit beyond what the products save by taking longer, a gather 0.06.
TEST(PowerLimit, CollectivesBesideProductsLowerTheirClock) {
  const Kernel product = product_of_4096();
  DeviceRates limited = rates();
  const double full = seconds_of({product}, device(), limited).front();
  limited.power = {.products = 2, .best = product.flops / full / 1e15, .others = 0.5, .idle = 0, .source = "a test"};
  Kernel collective;
  collective.stream = CudaStream::kAllReduce;
  const auto product_beside = [&](Collective kind) {
    collective.work = work::Communication{.kind = kind, .bytes = 1e6, .ranks = 2};
    return seconds_of({product, collective}, device(), limited);
  };
  const double beside_nothing_known = product_beside(Collective::kSend).front();
  const std::vector<double> reduced = product_beside(Collective::kAllReduce);
  // Products t, all-reduce c: 2 t / x + 0.33 c = x t.
  const double drawn = 0.33 * reduced.back();
  const double longer = (std::sqrt(drawn * drawn + 8 * full * full) + drawn) / (2 * full) / std::sqrt(2.0);
  EXPECT_GT(longer, 1.002);
  EXPECT_NEAR((reduced.front() / beside_nothing_known - 1) / (longer - 1), 1, 0.1);
  EXPECT_LT(product_beside(Collective::kAllGather).front(), reduced.front());
  // A collective alone is at no limit.
  EXPECT_EQ(seconds_of({collective}, device(), limited).size(), 1U);
}

}  // namespace
}  // namespace memcalc
