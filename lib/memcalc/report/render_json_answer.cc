// An Answer as JSON: docs/answer.schema.json.
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <nlohmann/json.hpp>

#include "memcalc/report/answer.h"
#include "memcalc/report/remedies_json.h"

namespace memcalc {
namespace {

using Json = nlohmann::ordered_json;

void put(Json& object, const std::string& key, const Value& value) {
  std::visit(
      [&](const auto& each) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(each)>, std::monostate>) object[key] = each;
      },
      value);
}

}  // namespace

std::string render_json(const Answer& answer) {
  Json facts = Json::object();
  for (const Fact& fact : answer.facts) put(facts, fact.key, fact.value);
  Json rows = Json::array();
  for (const auto& row : answer.rows) {
    Json object = Json::object();
    for (std::size_t i = 0; i < row.size(); ++i) put(object, answer.columns[i].key, row[i]);
    rows.push_back(std::move(object));
  }
  Json json = {{"schema_version", kJsonSchemaVersion}, {"command", answer.command}, {"answer", answer.headline},
               {"complete", answer.complete},          {"facts", std::move(facts)}, {"rows", std::move(rows)}};
  if (!answer.remedies.empty()) json["remedies"] = remedies_json<Json>(answer.remedies);
  if (!answer.appendix.empty()) json["settings"] = answer.appendix;
  json["notes"] = answer.notes;
  json["assumptions"] = answer.assumptions;
  json["not_modelled"] = answer.not_modelled;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace memcalc
