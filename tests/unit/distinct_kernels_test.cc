#include "memcalc/cost/distinct_kernels.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/plain_rates.h"

namespace memcalc {
namespace {

using test::kernel;

TEST(DistinctKernels, EqualOnesAreAskedOnceAndAllAreTold) {
  const KernelList list = {kernel(8), kernel(16), kernel(8), kernel(8, Phase::kBackward), kernel(16)};
  const DistinctKernels distinct(list);
  int asked = 0;
  const std::vector<double> bytes = distinct.of_distinct([&](const Kernel& each) {
    ++asked;
    return each.bytes;
  });
  EXPECT_EQ(asked, 3);
  const std::vector<double> all = distinct.of_all(bytes);
  ASSERT_EQ(all.size(), list.size());
  for (std::size_t i = 0; i < list.size(); ++i) EXPECT_EQ(all[i], list[i].bytes);
  EXPECT_EQ(distinct.number_of(0), distinct.number_of(2));
  EXPECT_NE(distinct.number_of(0), distinct.number_of(3));
}

}  // namespace
}  // namespace memcalc
