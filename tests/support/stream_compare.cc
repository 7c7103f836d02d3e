// Alignment of two streams, and the text that shows where they part.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "support/stream.h"

namespace memcalc::measured {
namespace {

constexpr std::size_t kBefore = 5;
constexpr std::size_t kAfter = 8;

// Length of a longest common subsequence: Myers' greedy algorithm, O((N + M) D) for D differences, which are few.
std::size_t common_length(const Stream& a, const Stream& b) {
  std::size_t prefix = 0;
  while (prefix < a.size() && prefix < b.size() && same(a[prefix], b[prefix])) ++prefix;
  std::size_t suffix = 0;
  while (prefix + suffix < std::min(a.size(), b.size()) && same(a[a.size() - 1 - suffix], b[b.size() - 1 - suffix])) {
    ++suffix;
  }
  const auto n = static_cast<std::ptrdiff_t>(a.size() - prefix - suffix);
  const auto m = static_cast<std::ptrdiff_t>(b.size() - prefix - suffix);
  const std::ptrdiff_t middle = n + m + 1;
  // reach[k + middle]: how far into `a` the furthest path on diagonal k = x - y has come.
  std::vector<std::ptrdiff_t> reach(static_cast<std::size_t>(2 * middle + 1), 0);
  const auto at = [&](std::ptrdiff_t k) -> std::ptrdiff_t& { return reach[static_cast<std::size_t>(k + middle)]; };
  for (std::ptrdiff_t d = 0; d <= n + m; ++d) {
    for (std::ptrdiff_t k = -d; k <= d; k += 2) {
      const bool down = k == -d || (k != d && at(k - 1) < at(k + 1));
      std::ptrdiff_t x = down ? at(k + 1) : at(k - 1) + 1;
      while (x < n && x - k < m &&
             same(a[prefix + static_cast<std::size_t>(x)], b[prefix + static_cast<std::size_t>(x - k)])) {
        ++x;
      }
      at(k) = x;
      if (x >= n && x - k >= m) return prefix + suffix + static_cast<std::size_t>((n + m - d) / 2);
    }
  }
  return prefix + suffix;
}

std::string describe(const Stream& events, std::size_t i) {
  if (i >= events.size()) return "(end)";
  const StreamEvent& event = events[i];
  std::string label = event.label;
  if (label.size() > 100) label = label.substr(0, 100) + "...";
  return std::to_string(event.step) + " " + std::string(name_of(event.phase)) + " " + (event.is_free ? "-" : "+") +
         std::to_string(event.bytes) + " " + label;
}

std::string difference_at(const Stream& recorded, const Stream& predicted, std::size_t first) {
  std::string text = "event " + std::to_string(first) + " of " + std::to_string(recorded.size()) + " recorded, " +
                     std::to_string(predicted.size()) + " predicted\n  recorded:  " + describe(recorded, first) +
                     "\n  predicted: " + describe(predicted, first) + "\n";
  const std::size_t begin = first - std::min(first, kBefore);
  for (std::size_t i = begin; i < first + kAfter; ++i) {
    const bool equal = i < recorded.size() && i < predicted.size() && same(recorded[i], predicted[i]);
    char line[320];
    std::snprintf(line, sizeof line, "  %s %-60.60s | %s\n", equal ? "  " : "**", describe(predicted, i).c_str(),
                  describe(recorded, i).c_str());
    text += line;
  }
  return text;
}

}  // namespace

double Comparison::share() const {
  return events == 0 ? 1.0 : static_cast<double>(matching) / static_cast<double>(events);
}

Comparison compare(const Stream& recorded, const Stream& predicted) {
  Comparison result;
  result.events = std::max(recorded.size(), predicted.size());
  result.matching = common_length(recorded, predicted);
  if (result.matching == result.events) return result;
  std::size_t first = 0;
  while (first < recorded.size() && first < predicted.size() && same(recorded[first], predicted[first])) ++first;
  result.first_difference = difference_at(recorded, predicted, first);
  return result;
}

}  // namespace memcalc::measured
