// cost/calibrate.h: timings made with known rates give these rates back, and the committed rates meet the committed
// timings as well as they did when they were fitted.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "memcalc/cost/calibrate.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/spec/registry.h"
#include "support/paths.h"

namespace memcalc {
namespace {

DeviceSpec h100() { return SpecRegistry(test::specs_dir().string()).device("h100-sxm"); }

TEST(Calibrate, GivesKnownRatesBack) {
  const DeviceSpec device = h100();
  DeviceRates truth = *device.rates;
  truth.vectorized.bandwidth = 0.5;
  truth.vectorized.launch_us = 4;
  std::vector<OperatorTiming> timings;
  for (double bytes = 1e4; bytes < 1e10; bytes *= 3) {
    Kernel kernel;
    kernel.bytes = bytes;
    timings.push_back({"copy", {kernel}, kernel_seconds(kernel, device, truth)});
  }
  const Calibration calibration = calibrate(device, *device.rates, timings);
  EXPECT_NEAR(calibration.rates.vectorized.bandwidth, 0.5, 0.005);
  EXPECT_NEAR(calibration.rates.vectorized.launch_us, 4, 0.04);
  EXPECT_EQ(calibration.rates.half.plain, device.rates->half.plain);  // nothing depends on it: it stays
  EXPECT_LT(calibration.summary.at(0).median_error, 0.01);
}

TEST(Calibrate, LoopsOverWhatTheCacheHoldsDoNotDecide) {
  const DeviceSpec device = h100();
  std::vector<OperatorTiming> timings;
  for (double bytes = 1e4; bytes < 1e10; bytes *= 2) {
    Kernel kernel;
    kernel.bytes = bytes;
    DeviceRates rates = *device.rates;
    rates.vectorized.bandwidth = bytes > 4e6 && bytes < 2 * rates.cache.bytes ? 1.8 : 0.9;
    timings.push_back({"copy", {kernel}, kernel_seconds(kernel, device, rates)});
  }
  EXPECT_NEAR(calibrate(device, *device.rates, timings).rates.vectorized.bandwidth, 0.9, 0.005);
}

TEST(Calibrate, ReadsASweep) {
  const std::string rows =
      "{\"kind\": \"device\", \"name\": \"x\"}\n"
      "{\"kind\": \"gemm\", \"layout\": \"wgrad\", \"dtype\": \"bf16\", \"M\": 64, \"N\": 768, \"K\": 512, \"ms\": "
      "0.5}\n"
      "\n"
      "{\"kind\": \"softmax\", \"op\": \"softmax_bwd\", \"dtype\": \"fp32\", \"rows\": 8, \"h\": 16, \"ms\": 0.1}\n";
  const std::vector<OperatorTiming> timings = read_operator_timings(rows, "rows");
  ASSERT_EQ(timings.size(), 2);
  const auto* product = timings[0].kernels.at(0).as<work::Product>();
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(product->m, 768);  // dW[N, K] = g^T[N, M] x[M, K]
  EXPECT_EQ(product->k, 64);
  EXPECT_EQ(product->transposed, Transposed::kFirst);
  EXPECT_EQ(timings[1].kernels.size(), 2);  // the product of gradient and result, then the kernel itself
  EXPECT_THROW((void)read_operator_timings("{\"kind\": \"gemm\", \"dtype\": \"bf16\"}\n", "rows"), Error);
}

TEST(Calibrate, RefusesSizesThatNoOperatorHas) {
  const std::string convolution = R"("kind": "conv", "dtype": "bf16", "B": 8, "ci": 64, "co": 64, )";
  const std::string rows[] = {
      "",
      R"({"kind": "device"})",
      "{" + convolution + R"("hw": 56, "k": 3, "s": 0, "fwd_ms": 1, "fwdbwd_ms": 3})",  // a stride to divide by
      "{" + convolution + R"("hw": 2147483648, "k": 3, "s": 1, "fwd_ms": 1, "fwdbwd_ms": 3})",
      "{" + convolution + R"("hw": 56, "k": 3, "s": 1, "backward": true, "gradients": 1000000000000, "ms": 1})",
      R"({"kind": "sdpa", "backend": "flash", "dtype": "bf16", "B": 1099511627776, "H": 1099511627776, "S": 1, "D": 1, )"
      R"("causal": false, "fwd_ms": 1, "fwdbwd_ms": 3})",
      R"({"op": "all_reduce", "bytes": 67108864, "world": 8, "ms": 0})",  // no time to take the logarithm of
      R"({"kind": "gemm", "layout": "fwd", "dtype": "bf16", "M": 0, "N": 1, "K": 1, "ms": 1})",
  };
  for (const std::string& row : rows) EXPECT_THROW((void)read_operator_timings(row, "rows"), Error) << row;
}

TEST(Calibrate, CommittedRatesMeetTheSweep) {
  const DeviceSpec device = h100();
  std::ifstream in(test::measured_dir() / "op_times_h100.jsonl");
  std::ostringstream text;
  text << in.rdbuf();
  std::vector<double> errors;
  for (const OperatorTiming& each : read_operator_timings(text.str(), "op_times_h100.jsonl")) {
    if (each.name.rfind("product", 0) != 0) continue;
    const double predicted = kernel_seconds(each.kernels.at(0), device, *device.rates);
    errors.push_back(std::abs(predicted / each.seconds - 1));
  }
  ASSERT_GT(errors.size(), 800);
  std::nth_element(errors.begin(), errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2), errors.end());
  EXPECT_LT(errors[errors.size() / 2], 0.06);
}

}  // namespace
}  // namespace memcalc
