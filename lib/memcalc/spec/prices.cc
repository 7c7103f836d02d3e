#include "memcalc/spec/prices.h"

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "memcalc/spec/json_reader.h"

namespace memcalc {

std::optional<double> Prices::of(const std::string& gpu) const {
  if (given) return given;
  const auto found = dollars_per_gpu_hour.find(gpu);
  if (found == dollars_per_gpu_hour.end()) return std::nullopt;
  return found->second;
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
  for (const std::string& gpu : table.keys()) prices.dollars_per_gpu_hour[gpu] = table.required_double(gpu);
  return prices;
}

}  // namespace memcalc
