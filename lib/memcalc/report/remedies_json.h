// Remedies as JSON, the same in a report and in an answer. `Json` is the renderers' own type, which no header names.
#pragma once

#include <utility>
#include <vector>

#include "memcalc/report/remedy.h"

namespace memcalc {

template <typename Json>
[[nodiscard]] Json remedies_json(const std::vector<Remedy>& remedies) {
  Json json = Json::array();
  for (const Remedy& each : remedies) {
    Json object = {{"techniques", each.techniques},
                   {"price", each.price},
                   {"needed_bytes", each.needed},
                   {"needed_error_bytes", each.error},
                   {"verdict", name_of(each.verdict)}};
    if (each.step_seconds) object["step_seconds"] = *each.step_seconds;
    object["command"] = each.command;
    json.push_back(std::move(object));
  }
  return json;
}

}  // namespace memcalc
