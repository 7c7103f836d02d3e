#include "memcalc/spec/hosts.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "memcalc/spec/json_reader.h"

namespace memcalc {

std::optional<UsualHost> usual_host_of(const std::string& directory, const std::string& card) {
  const std::filesystem::path path = std::filesystem::path(directory) / "hosts.json";
  std::error_code status;
  if (!std::filesystem::exists(path, status)) return std::nullopt;
  constexpr std::array<std::string_view, 3> kKeys = {"note", "date", "systems"};
  constexpr std::array<std::string_view, 4> kSystemKeys = {"cards", "memory_gib", "gpus_per_host", "source"};
  constexpr IntRange kGib = {1, 1 << 20};
  const JsonDocument document = JsonDocument::read_file(path.string());
  document.root().refuse_unknown_keys(kKeys);
  const std::string date = document.root().required_string("date");
  std::optional<UsualHost> found;
  for (const JsonObject& system : document.root().optional_objects("systems")) {
    system.refuse_unknown_keys(kSystemKeys);
    UsualHost host{system.required_int("memory_gib", kGib) * kGiB, system.required_int("gpus_per_host", {1, 1024}),
                   fmt::format("{} ({})", system.required_string("source"), date)};
    const std::vector<std::string> cards = system.optional_strings("cards");
    if (std::find(cards.begin(), cards.end(), card) != cards.end()) found = std::move(host);
  }
  return found;
}

}  // namespace memcalc
