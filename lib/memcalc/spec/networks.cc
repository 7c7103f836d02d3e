#include "memcalc/spec/networks.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "memcalc/spec/json_reader.h"

namespace memcalc {

void add_network(const std::string& path, const std::string& card, LinkRates& rates) {
  constexpr std::array<std::string_view, 3> kKeys = {"note", "date", "systems"};
  constexpr std::array<std::string_view, 4> kSystemKeys = {"cards", "bytes_per_second", "gpus_per_host", "source"};
  const JsonDocument document = JsonDocument::read_file(path);
  document.root().refuse_unknown_keys(kKeys);
  const std::string date = document.root().required_string("date");
  for (const JsonObject& system : document.root().optional_objects("systems")) {
    system.refuse_unknown_keys(kSystemKeys);
    const std::vector<std::string> cards = system.optional_strings("cards");
    if (std::find(cards.begin(), cards.end(), card) == cards.end()) continue;
    rates.network_bytes_per_second = system.required_double("bytes_per_second", {1, 1e15});
    rates.gpus_per_host = system.required_int("gpus_per_host", {1, 1024});
    rates.network_source = system.required_string("source") + " (" + date + ")";
  }
}

}  // namespace memcalc
