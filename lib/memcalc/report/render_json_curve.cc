// A StepCurve as JSON: columns, so that a page reads it at once.
#include <algorithm>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "memcalc/report/step_curve.h"

namespace memcalc {

std::string render_json(const StepCurve& curve) {
  using Json = nlohmann::ordered_json;
  Json phases = Json::array(), categories = Json::object(), reserved = Json::array();
  Json operators = Json::array(), places = Json::array();
  std::map<std::string, std::size_t> known;
  for (const CurvePhase& each : curve.phases) {
    phases.push_back({{"name", name_of(each.phase)}, {"first", each.first}, {"last", each.last}});
  }
  for (const CurvePoint& point : curve.points) {
    reserved.push_back(point.reserved);
    const auto [place, is_new] = known.emplace(point.operator_chain, known.size());
    if (is_new) operators.push_back(point.operator_chain);
    places.push_back(place->second);
  }
  for (std::size_t k = 0; k < kCategoryCount; ++k) {
    Json column = Json::array();
    Bytes most = 0;
    for (const CurvePoint& point : curve.points) {
      column.push_back(point.bytes[k]);
      most = std::max(most, point.bytes[k]);
    }
    if (most > 0) categories[std::string(name_of(static_cast<Category>(k)))] = std::move(column);
  }
  const Json json = {{"step", curve.step},
                     {"rank", curve.rank},
                     {"events", curve.events},
                     {"peak", curve.peak},
                     {"phases", std::move(phases)},
                     {"categories", std::move(categories)},
                     {"reserved_bytes", std::move(reserved)},
                     {"operators", std::move(operators)},
                     {"operator", std::move(places)}};
  return json.dump();
}

}  // namespace memcalc
