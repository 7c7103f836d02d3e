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

/// A product that would draw twice the limit, and collectives on a stream of their own beside it.
class CollectivesBeside : public testing::Test {
 protected:
  CollectivesBeside() {
    card_.link_bytes_per_second = 450e9;
    limited_.power = {.watts = 700,
                      .products = 2,
                      .best = product_.flops / full_ / 1e15,
                      .others = 0.5,
                      .idle = 0,
                      .source = "a test"};
  }
  /// `times`: how many times as long as the product at the full clock; two ranks gather and scatter by sending half.
  [[nodiscard]] Kernel collective(Collective kind, double times, Phase phase = Phase::kBackward) const {
    Kernel kernel;
    kernel.stream = CudaStream::kAllReduce;
    kernel.phase = phase;
    const bool sends_half = kind == Collective::kReduceScatter || kind == Collective::kAllGather;
    kernel.work = work::Communication{.kind = kind, .bytes = times * full_ * 450e9 * (sends_half ? 2 : 1), .ranks = 2};
    return kernel;
  }
  /// How many times as long a product takes as beside next to nothing.
  [[nodiscard]] double longer(const Kernel& beside) const {
    Kernel nothing = collective(Collective::kAllReduce, 1e-3);
    const auto seconds = [&](const Kernel& each) { return seconds_of({each, product_}, card_, limited_).back(); };
    return seconds(beside) / seconds(nothing);
  }

  Kernel product_ = product_of_4096();
  DeviceSpec card_ = device();
  DeviceRates limited_ = rates();
  double full_ = seconds_of({product_}, device(), rates()).front();
};

/// x of products t that draw so many times the limit, and of what else draws all the time: draws t / x + beside t = x
/// t.
double x_of(double draws, double beside) { return (beside + std::sqrt(beside * beside + 4 * draws)) / 2; }
constexpr double kLinks = 0.034;  // of the limit: awake, between collectives

TEST_F(CollectivesBeside, LowerTheClockByWhatTheyDraw) {
  for (const Collective kind : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kBroadcast}) {
    EXPECT_NEAR(longer(collective(kind, 1)), x_of(2, 0.2) / x_of(2, kLinks), 0.01);
  }
  EXPECT_NEAR(longer(collective(Collective::kReduceScatter, 0.5)), x_of(2, (0.2 + kLinks) / 2) / x_of(2, kLinks), 0.01);
}

TEST_F(CollectivesBeside, LeaveLinksAsleepThatJoinOtherCards) {
  const auto after = [&](std::int64_t distance) {
    Kernel between = collective(Collective::kAllReduce, 1e-6);
    std::get<work::Communication>(between.work).distance = distance;
    return seconds_of({between, product_}, card_, limited_).back();
  };
  EXPECT_NEAR(after(1) / after(limited_.link.gpus_per_host), x_of(2, kLinks) / x_of(2, 0), 1e-3);
}

TEST_F(CollectivesBeside, LeaveTheLinksAwakeForAWhile) {
  const auto last_of = [&](double products_seconds, double link_bytes_per_second) {
    card_.link_bytes_per_second = link_bytes_per_second;
    card_.pcie_bytes_per_second = 64e9;
    KernelList list{collective(Collective::kAllReduce, 1e-6)};
    list.insert(list.end(), static_cast<std::size_t>(products_seconds / full_), product_);
    return seconds_of(list, card_, limited_).back();
  };
  EXPECT_NEAR(last_of(0.018, 450e9) / last_of(0.018, 0), x_of(2, kLinks) / x_of(2, 0), 1e-3);
  EXPECT_NEAR(last_of(0.4, 450e9) / last_of(0.4, 0), 1, 1e-3) << "they sleep again";
}

// A collective with nothing beside it draws 0.38 of the limit, its links among it, where another kernel draws half.
TEST_F(CollectivesBeside, SavePowerWhereTheyBlock) {
  Kernel blocking = collective(Collective::kAllReduce, 1);
  blocking.stream = CudaStream::kDefault;
  // 2 t / x + 0.034 t + 0.38 t = x t + t
  EXPECT_NEAR(seconds_of({blocking, product_}, card_, limited_).back() / full_, x_of(2, 0.38 + kLinks - 1), 0.03);
}

TEST_F(CollectivesBeside, DrawNoMoreThanKernelsRunBesideThem) {
  EXPECT_LE(longer(collective(Collective::kAllReduce, 10)), 1 + 1e-9) << "the card waits for most of it";
  limited_.power.idle = 0.8;  // where it draws as much as the limit with a collective
  EXPECT_NEAR(longer(collective(Collective::kAllReduce, 10)), longer(collective(Collective::kAllReduce, 1)), 0.01);
}

// What is gathered runs beside what was computed before, from the end of the kernel on that runs when it is issued.
TEST_F(CollectivesBeside, GathersAreIssuedAhead) {
  constexpr std::size_t kProducts = 20;
  const auto gather = [&](double times) {
    Kernel result = collective(Collective::kAllGather, times, Phase::kForward);
    result.stream = CudaStream::kAllGather;
    return result;
  };
  const auto last_of = [&](double times) {
    KernelList list{gather(1e-6)};
    list.insert(list.end(), kProducts, product_);
    list.push_back(gather(times));
    list.insert(list.end(), kProducts, product_);
    return seconds_of(list, card_, limited_).back();
  };
  // Half of the products have it beside themselves.
  // 1.5 %: the limit looks back over 40 ms, into the first gather's products.
  EXPECT_NEAR(last_of(kProducts - 2) / last_of(1e-6), x_of(2, (0.2 + kLinks) / 2) / x_of(2, kLinks), 0.015);
}

TEST_F(CollectivesBeside, DrawMoreOfALowerLimit) {
  card_.power_watts = 350;
  EXPECT_NEAR(longer(collective(Collective::kAllReduce, 1)), x_of(4, 0.4) / x_of(4, 2 * kLinks), 0.01);
}

TEST_F(CollectivesBeside, DrawWhatTheyMove) {
  const double whole = longer(collective(Collective::kAllReduce, 1)) - 1;
  Kernel over_network = collective(Collective::kAllReduce, 1);
  auto& group = std::get<work::Communication>(over_network.work);
  group.distance = limited_.link.gpus_per_host;
  group.bytes *= limited_.link.network_bytes_per_second / 450e9;
  EXPECT_LT(longer(over_network) - 1, 0.1 * whole) << "of a thirty-sixth of the bytes";
  card_.link_bytes_per_second = 225e9;
  EXPECT_NEAR((longer(collective(Collective::kAllReduce, 0.5)) - 1) / whole, 0.5, 0.1) << "as long, half of the bytes";
}

}  // namespace
}  // namespace memcalc
