// The nearest rows of a table of measured operators, and what they say together. Covered by
// tests/unit/kernel_time_test.cc and tests/unit/product_times_test.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>
#include <span>

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

/// Outward from `start`, a place in rows that are sorted by one of their sizes, each way until all that follow are too
/// far by it alone. distance_of(row): by that size; consider(row, distance) may add it to `nearest`.
template <typename Row, std::size_t kCount, typename DistanceOf, typename Consider>
void search_outward(std::span<const Row> rows, typename std::span<const Row>::iterator start,
                    const Nearest<Row, kCount>& nearest, DistanceOf distance_of, Consider consider) {
  const auto is_near = [&](const Row& row) {
    const double distance = distance_of(row);
    if (distance >= nearest.farthest()) return false;
    consider(row, distance);
    return true;
  };
  for (auto above = start; above != rows.end() && is_near(*above);) ++above;
  for (auto below = start; below != rows.begin() && is_near(*std::prev(below));) --below;
}

}  // namespace memcalc
