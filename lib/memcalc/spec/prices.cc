#include "memcalc/spec/prices.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "memcalc/base/error.h"
#include "memcalc/spec/json_reader.h"

namespace memcalc {
namespace {

constexpr double kMostDollars = 1e6;  // no card costs as much for an hour

}  // namespace

std::optional<double> Prices::of(const std::string& gpu) const {
  if (given) return given;
  const auto found = dollars_per_gpu_hour.find(gpu);
  if (found == dollars_per_gpu_hour.end()) return std::nullopt;
  return found->second;
}

double checked_price(double dollars_per_gpu_hour) {
  if (dollars_per_gpu_hour >= 0 && dollars_per_gpu_hour <= kMostDollars) return dollars_per_gpu_hour;  // NaN is not
  throw Error(ErrorCode::kUsage, fmt::format("--price: found {:g}; accepted: 0 to {:g} dollars per GPU and hour",
                                             dollars_per_gpu_hour, kMostDollars));
}

Prices read_prices(const std::string& directory) {
  const std::filesystem::path path = std::filesystem::path(directory) / "prices.json";
  std::error_code status;
  Prices prices;
  if (!std::filesystem::exists(path, status)) return prices;
  const JsonDocument document = JsonDocument::read_file(path.string());
  constexpr std::array<std::string_view, 4> kKeys = {"note", "source", "date", "dollars_per_gpu_hour"};
  document.root().refuse_unknown_keys(kKeys);
  prices.note = document.root().required_string("note");
  (void)document.root().required_string("source");
  (void)document.root().required_string("date");
  const JsonObject table = document.root().required_object("dollars_per_gpu_hour");
  for (const std::string& gpu : table.keys())
    prices.dollars_per_gpu_hour[gpu] = table.required_double(gpu, {0, kMostDollars});
  return prices;
}

}  // namespace memcalc
