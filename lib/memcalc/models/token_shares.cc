#include "memcalc/models/token_shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace memcalc {
namespace {

/// Of the tokens' squared length, what lies in their common direction: 0.17 to 0.31 from the first to the twelfth layer
/// of a Mixtral of random weights on random tokens (transformers 5.17, run on a processor: docs/versions.md).
constexpr double kCommon = 0.25;
constexpr int kHalvings = 40;

double below(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

/// The x below which a share of a normal distribution lies.
double quantile(double share) {
  double low = -8, high = 8;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (below(middle) < share ? low : high) = middle;
  }
  return low;
}

/// The chance that a token chooses the expert of each rank: that its score, common preference and the token's own,
/// is beyond a threshold that `top_k` experts pass on average.
std::vector<double> chances_of(std::int64_t top_k, std::int64_t experts) {
  const double own = std::sqrt(1 - kCommon);
  std::vector<double> preferences, chances(static_cast<std::size_t>(experts));
  for (std::int64_t rank = 0; rank < experts; ++rank) {
    const double share = (static_cast<double>(rank) + 0.5) / static_cast<double>(experts);
    preferences.push_back(std::sqrt(kCommon) * quantile(share));
  }
  double low = -8, high = 8;
  for (int i = 0; i < kHalvings; ++i) {
    const double threshold = (low + high) / 2;
    std::transform(preferences.begin(), preferences.end(), chances.begin(),
                   [&](double preference) { return below((preference - threshold) / own); });
    const double sum = std::accumulate(chances.begin(), chances.end(), 0.0);
    (sum > static_cast<double>(top_k) ? low : high) = threshold;
  }
  return chances;
}

}  // namespace

std::vector<std::int64_t> tokens_of_experts(std::int64_t tokens, std::int64_t top_k, std::int64_t experts,
                                            std::int64_t layer) {
  const std::vector<double> chances = chances_of(top_k, experts);
  std::int64_t stride = experts / 2 - 1;  // the order of ranks among experts
  while (stride > 1 && std::gcd(stride, experts) != 1) --stride;
  stride = std::max<std::int64_t>(stride, 1);
  std::vector<std::int64_t> counts;
  std::int64_t left = tokens * top_k;
  for (std::int64_t i = 0; i < experts; ++i) {
    const auto rank = static_cast<std::size_t>((i * stride + layer * 3) % experts);
    counts.push_back(std::min(tokens, static_cast<std::int64_t>(chances[rank] * static_cast<double>(tokens))));
    left -= counts.back();
  }
  // What rounding left, one each, to those with most room first by their order.
  for (std::int64_t i = 0; left > 0; i = (i + 1) % experts) {
    std::int64_t& count = counts[static_cast<std::size_t>(i)];
    if (count >= tokens) continue;
    ++count;
    --left;
  }
  return counts;
}

}  // namespace memcalc
