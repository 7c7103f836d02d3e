// The nearest rows of a table of measured operators, and what they say together. Covered by
// tests/unit/kernel_time_test.cc and tests/unit/product_times_test.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>

namespace memcalc {

template <typename Row, std::size_t kCount>
class Nearest {
 public:
  /// A row that is not nearer than this one is none of them.
  [[nodiscard]] double farthest() const { return found_.back().distance; }
  /// Pre: there is one.
  [[nodiscard]] double least() const { return found_.front().distance; }

  void add(const Row& row, double distance) {
    if (!(distance < farthest())) return;
    std::size_t place = kCount - 1;
    for (; place > 0 && found_[place - 1].distance > distance; --place) found_[place] = found_[place - 1];
    found_[place] = {.distance = distance, .row = &row};
  }

  /// The median of ratio_of(row), each weighted by weight_of(distance): one that got another kernel does not move it.
  /// Nothing without rows.
  template <typename RatioOf, typename WeightOf>
  [[nodiscard]] std::optional<double> median(RatioOf ratio_of, WeightOf weight_of) const {
    struct Vote {
      double ratio = 0, weight = 0;
    };
    std::array<Vote, kCount> votes;
    std::size_t count = 0;
    double weights = 0;
    for (const Neighbour& each : found_) {
      if (each.row == nullptr) break;
      votes[count] = {.ratio = ratio_of(*each.row), .weight = weight_of(each.distance)};
      weights += votes[count++].weight;
    }
    std::sort(votes.begin(), votes.begin() + static_cast<std::ptrdiff_t>(count),
              [](const Vote& a, const Vote& b) { return a.ratio < b.ratio; });
    double passed = 0;
    for (std::size_t i = 0; i < count; ++i) {
      passed += votes[i].weight;
      if (passed >= weights / 2) return votes[i].ratio;
    }
    return std::nullopt;
  }

 private:
  struct Neighbour {
    double distance = std::numeric_limits<double>::max();
    const Row* row = nullptr;
  };
  std::array<Neighbour, kCount> found_;
};

}  // namespace memcalc
