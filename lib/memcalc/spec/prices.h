// What a GPU costs by the hour: specs/prices.json, or what the user says.
// Covered by tests/unit/sweep_test.cc.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace memcalc {

struct Prices {
  std::map<std::string, double> dollars_per_gpu_hour;  // by the card's name
  std::optional<double> given;                         // by the user, for every card
  std::string note;                                    // where they come from, for the answer

  [[nodiscard]] std::optional<double> of(const std::string& gpu) const;
};

/// A price that a user gives, as it is. Throws Error(kUsage) for one that cannot be.
[[nodiscard]] double checked_price(double dollars_per_gpu_hour);

/// `directory`: a folder of specs. No file there: no prices. Throws Error(kInput) for a file that is wrong.
[[nodiscard]] Prices read_prices(const std::string& directory);

}  // namespace memcalc
