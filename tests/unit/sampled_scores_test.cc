// train/sampled_scores.h, and the sorts and running sums of rows that it asks for. Bytes and times are an H200's of
// 2026-11-30 (tests/measured/sampling_times_h200.jsonl).
#include "memcalc/train/sampled_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "memcalc/cost/kernel_time.h"
#include "memcalc/spec/registry.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/scan.h"
#include "memcalc/symbolic/ops/sort.h"
#include "support/paths.h"
#include "support/registry.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::registry;

using test::TapeBench;

/// As max_memory_allocated() counts: blocks of 512 bytes.
Bytes peak_of(const std::vector<Bytes>& requests) {
  Bytes now = 0, most = 0;
  for (const Bytes each : requests) {
    now += each > 0 ? round_up(each, 512) : -round_up(-each, 512);
    most = std::max(most, now);
  }
  return most;
}

struct Rows {
  std::int64_t rows, vocabulary;
  Bytes sorted, largest;            // the peaks of sort and topk
  double sort_us, sum_us, topk_us;  // what they took
};

constexpr Rows kMeasured[] = {
    {1, 50304, 1628672, 31744, 59.26, 7.39, 64.32},
    {2, 50304, 4454912, 58880, 83.23, 68.37, 66.46},
    {64, 128256, 363331584, 540160, 625.23, 211.86, 155.22},
    {16, 151936, 107435520, 446464, 254.34, 194.61, 94.53},
    {128, 151936, 622330368, 877568, 2044.06, 254.72, 411.44},
};

TEST(SampledScores, SortsAndTheLargestAskAsACardWasAsked) {
  for (const Rows& each : kMeasured) {
    SCOPED_TRACE(std::to_string(each.rows) + " x " + std::to_string(each.vocabulary));
    const auto peak = [&](const std::function<Selection(const Tensor&)>& call) {
      TapeBench bench(SpecRegistry(test::specs_dir().string()).device("h200-sxm"));
      const Tensor x = bench.input({each.rows, each.vocabulary}, DType::kFloat32, false);
      bench.start();
      const Selection result = call(x);
      return peak_of(bench.requests());
    };
    EXPECT_NEAR(static_cast<double>(peak([](const Tensor& x) { return sort(x); })), static_cast<double>(each.sorted),
                0.005 * static_cast<double>(each.sorted));
    EXPECT_NEAR(static_cast<double>(peak([](const Tensor& x) { return topk(x, 50); })),
                static_cast<double>(each.largest), 0.005 * static_cast<double>(each.largest) + 8192);
  }
}

TEST(SampledScores, RowsTakeWhatACardTook) {
  const DeviceSpec device = registry().device("h200-sxm");
  const DeviceRates& rates = *device.rates;
  for (const Rows& each : kMeasured) {
    SCOPED_TRACE(std::to_string(each.rows) + " x " + std::to_string(each.vocabulary));
    TapeBench bench(device);
    bench.tape.kernels.recording = true;
    const Tensor x = bench.input({each.rows, each.vocabulary}, DType::kFloat32, false);
    const auto microseconds = [&] { return 1e6 * kernel_seconds(*bench.tape.kernels.last(), device, rates); };
    if (each.rows > 1) {
      (void)sort(x);
      EXPECT_NEAR(microseconds(), each.sort_us, 0.15 * each.sort_us);
      (void)cumulative_sum(x, 1, DType::kFloat32);
      EXPECT_NEAR(microseconds(), each.sum_us, 0.1 * each.sum_us);
    }
    (void)topk(x, 50);
    EXPECT_NEAR(microseconds(), each.topk_us, 0.3 * each.topk_us);  // of 128 rows; the others within 0.15
  }
}

/// What is asked for where scores pass these rules.
std::vector<Bytes> requests_of(const std::vector<std::string>& words) {
  TapeBench bench;
  Tensor scores = bench.input({4, 1024}, DType::kFloat32, false);
  bench.start();
  const Tensor result = warped(*sampling_of(words), std::move(scores));
  return bench.requests();
}

TEST(SampledScores, EachRuleMakesScoresOfItsOwn) {
  constexpr Bytes kScores = 4 * 1024 * 4, kMask = 4 * 1024;
  EXPECT_EQ(requests_of({"plain"}), std::vector<Bytes>{});
  EXPECT_EQ(requests_of({"temperature"}), std::vector<Bytes>{kScores});
  const std::vector<Bytes> top_k = requests_of({"top-k"});
  EXPECT_EQ(std::count(top_k.begin(), top_k.end(), kMask), 1);
  EXPECT_EQ(std::count(top_k.begin(), top_k.end(), kScores), 1) << "and nothing else that is as large";
  // Sorted scores and their places, both masks and what is made of the scores are there at its end.
  EXPECT_GE(peak_of(requests_of({"top-p"})), 3 * kScores + 2 * kScores + 2 * kMask);
}

TEST(SampledScores, WordsAreReadAndWritten) {
  EXPECT_FALSE(sampling_of({}));
  EXPECT_FALSE(sampling_of({"top-q"}));
  EXPECT_FALSE(sampling_of({"plain", "top-k"}));
  EXPECT_EQ(words_of(*sampling_of({"top-p", "temperature"})), (std::vector<std::string>{"temperature", "top-p"}));
  EXPECT_EQ(words_of(*sampling_of({"plain"})), std::vector<std::string>{"plain"});
}

}  // namespace
}  // namespace memcalc
