// What a formula of few numbers leaves: which of its kernels cuBLAS takes. An operator that was timed is nearly its own
// neighbour.
#include "memcalc/cost/published_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include "memcalc/base/seconds.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/nearest.h"
#include "memcalc/spec/cuda_architecture.h"

namespace memcalc {

namespace {

struct TimedProduct {
  std::int32_t transposed, accumulated, m, n, k;
  double microseconds;
};
struct TimedAttention {
  std::int32_t backward, length, heads, width;
  double microseconds;
};

#include "memcalc/cost/operator_times.inc"

/// Of the cards whose operators were timed: the large ones.
constexpr CudaArchitecture kTimed = CudaArchitecture::kBlackwell;

// What was timed for moments ran before the card reached its power limit, at up to 1,470 TFLOP/s; a step reaches it.
// Each product stood in a loop of 100. Of the 193 loops that kept the card busy for 0.13 to 1.6 s 80 % ran at 1,006 to
// 1,145 TFLOP/s, by layout and shape; the 21 of 1.6 to 7 s all at 1,003 to 1,133 (median 1,052), also those whose
// shorter loops, of the same matrices with fewer rows, had run at 1,150 (the products of gradients of an input: 10 %
// less after 6 s than after 1.2). Steps follow one another without a pause, so that a product of a shorter loop takes
// no less than the median of the longest, by layout. No step is fitted, but 1.6 s was chosen while SimuMax's steps were
// known, and it matters: of an input's gradients the median is 1,077 from 1.0 s on, 1,073 from 1.3, 1,046 from 1.6 (six
// rows). Attention was timed some 25 times, each call alone: the same of calls of more than 10 ms, as shares of the
// datasheet's rate, of the whole square's FLOPs.
constexpr double kPeak = 2.25e15;
constexpr double kLongLoopMicroseconds = 16000;
constexpr double kPlainFlops = 1.046e15, kSecondFlops = 1.076e15, kAccumulatedFlops = 1.028e15;
constexpr double kFirstFlops = 1.052e15;  // no loop was as long: the median of all
constexpr double kLongCallMicroseconds = 10000;
constexpr double kForwardShare = 0.996, kBackwardShare = 0.827;         // heads of 128
constexpr double kWideForwardShare = 0.75, kWideBackwardShare = 0.654;  // of 192 beside values of 128

double sustained_seconds(const TimedProduct& row) {
  const double published = row.microseconds * kMicrosecond;
  if (row.microseconds >= kLongLoopMicroseconds) return published;
  const double flops = 2.0 * row.m * row.n * row.k;
  constexpr auto kFirst = static_cast<std::int32_t>(Transposed::kFirst);
  constexpr auto kSecond = static_cast<std::int32_t>(Transposed::kSecond);
  const double rate = row.transposed == kSecond  ? kSecondFlops
                      : row.transposed != kFirst ? kPlainFlops
                      : row.accumulated != 0     ? kAccumulatedFlops
                                                 : kFirstFlops;
  return std::max(published, flops / rate);
}

double sustained_seconds(const TimedAttention& row) {
  if (row.microseconds >= kLongCallMicroseconds) return row.microseconds * kMicrosecond;
  constexpr int kWidth = 128;  // of values
  const bool wide = row.width > kWidth, backward = row.backward != 0;
  const double share =
      backward ? (wide ? kWideBackwardShare : kBackwardShare) : (wide ? kWideForwardShare : kForwardShare);
  const double products = backward ? 5 : 2;
  const double flops = products * row.length * row.length * row.heads * (row.width + kWidth);
  return std::max(row.microseconds * kMicrosecond, flops / (share * kPeak));
}

bool were_timed(const Kernel& kernel, const DeviceSpec& device, const DeviceRates& rates) {
  return is_of(device, kTimed) && !rates.published_source.empty() && kernel.dtype == DType::kBFloat16;
}

/// The median over the nearest rows of sustained over formula, each weighted by the inverse square of its distance.
template <typename Timed, typename DistanceOf, typename FormulaOf>
double median_over_formula(std::span<const Timed> rows, DistanceOf distance_of, FormulaOf formula_of) {
  constexpr std::size_t kNeighbours = 8;
  constexpr double kBlur = 0.15;  // in factors of two
  Nearest<Timed, kNeighbours> nearest;
  for (const Timed& row : rows) nearest.add(row, distance_of(row));
  return nearest
      .median([&](const Timed& row) { return sustained_seconds(row) / formula_of(row); },
              [](double distance) { return 1 / ((distance + kBlur) * (distance + kBlur)); })
      .value_or(1);
}

double doublings_between(std::int64_t one, std::int64_t other) {
  return std::log2(static_cast<double>(std::max<std::int64_t>(one, 1)) /
                   static_cast<double>(std::max<std::int64_t>(other, 1)));
}

constexpr double kOtherKernels = std::numeric_limits<double>::infinity();

}  // namespace

double published_ratio(const Kernel& kernel, const work::Product& product, const DeviceSpec& device,
                       const DeviceRates& rates) {
  if (!were_timed(kernel, device, rates) || product.batch > 1) return 1;
  const bool accumulates = product.accumulated_bytes > 0;
  const auto distance_of = [&](const TimedProduct& row) {
    if (row.transposed != static_cast<std::int32_t>(product.transposed)) return kOtherKernels;
    if ((row.accumulated != 0) != accumulates) return kOtherKernels;
    return std::hypot(doublings_between(product.m, row.m), doublings_between(product.n, row.n),
                      doublings_between(product.k, row.k));
  };
  const auto formula_of = [&](const TimedProduct& row) {
    Kernel timed = kernel;
    const work::Product of_row{.batch = 1, .m = row.m, .n = row.n, .k = row.k, .transposed = product.transposed};
    const double m = row.m, n = row.n, k = row.k;
    constexpr double kHalf = 2, kFloat = 4;
    timed.bytes = kHalf * (n * k + k * m) + (accumulates ? 2 * kFloat : kHalf) * m * n;
    return product_seconds(timed, of_row, device, rates.half);
  };
  return median_over_formula<TimedProduct>(kProducts, distance_of, formula_of);
}

double published_ratio(const Kernel& kernel, const work::Attention& attention, const DeviceSpec& device,
                       const DeviceRates& rates) {
  if (!were_timed(kernel, device, rates) || !attention.causal || attention.queries != attention.keys) return 1;
  const auto distance_of = [&](const TimedAttention& row) {
    if ((row.backward != 0) != attention.backward) return kOtherKernels;
    // Other kernels for each width of heads
    return std::hypot(doublings_between(attention.queries, row.length), doublings_between(attention.heads, row.heads),
                      4 * doublings_between(attention.width, row.width));
  };
  const auto formula_of = [&](const TimedAttention& row) {
    const work::Attention of_row{.heads = row.heads,
                                 .queries = row.length,
                                 .keys = row.length,
                                 .width = row.width,
                                 .causal = true,
                                 .backward = attention.backward};
    return attention_seconds(kernel, of_row, device, attention_rates(kernel, rates));
  };
  return median_over_formula<TimedAttention>(kAttentions, distance_of, formula_of);
}

}  // namespace memcalc
