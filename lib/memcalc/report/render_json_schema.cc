// The JSON Schema of a run's record, from the table of a run: what docs/run.schema.json holds.
#include <nlohmann/json.hpp>

#include <string>

#include "memcalc/report/render_json_schema.h"
#include "memcalc/spec/run_fields.h"

namespace memcalc {
namespace {

using Json = nlohmann::ordered_json;

const char* type_of(FieldType type) {
  switch (type) {
    case FieldType::kWhole: return "integer";
    case FieldType::kNumber: return "number";
    case FieldType::kFlag: return "boolean";
    case FieldType::kName:
    case FieldType::kText: return "string";
    case FieldType::kTexts:
    case FieldType::kWholes: return "array";
  }
  return "string";
}

void add_bounds(const Field& field, Json& json) {
  json["minimum"] = field.least;
  if (field.most < 9e18) json["maximum"] = field.most;
}

Json property_of(const Field& field) {
  Json json = {{"type", type_of(field.type)}};
  std::string help(field.help);
  for (char& c : help) c = c == '\n' ? ' ' : c;
  json["description"] = help;
  if (field.type == FieldType::kName) json["enum"] = std::vector<std::string>(field.names.begin(), field.names.end());
  if (field.type == FieldType::kText && !field.names.empty()) {
    json["examples"] = std::vector<std::string>(field.names.begin(), field.names.end());
  }
  if (field.type == FieldType::kWhole || field.type == FieldType::kNumber) add_bounds(field, json);
  if (field.type == FieldType::kTexts) json["items"] = {{"type", "string"}};
  if (field.type == FieldType::kWholes) {
    json["items"] = {{"type", "integer"}};
    add_bounds(field, json["items"]);
  }
  // What a schema does not know: how the command line calls it.
  json["x-flag"] = std::string(field.flag);
  if (!field.negative.empty()) json["x-negative-flag"] = std::string(field.negative);
  if (!field.value.empty()) json["x-value"] = std::string(field.value);
  if (!field.negative_help.empty()) json["x-negative-description"] = std::string(field.negative_help);
  if (!field.unit.empty()) json["x-unit"] = std::string(field.unit);
  if (!field.belongs_to.empty()) json["x-belongs-to"] = std::string(field.belongs_to);
  json["x-group"] = std::string(title_of(field.group));
  return json;
}

}  // namespace

std::string render_run_schema() {
  const auto object = [] {
    return Json{{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
  };
  Json megatron = object(), deepspeed = object();
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "The record of a run"},
                 {"description",
                  "What ran, by the options of the command line; an option that does not exist in a run has no key. "
                  "Written by `memcalc completion schema` from the table of a run: do not edit."}};
  schema.update(object());
  for (const Field& field : run_fields()) {
    Json& place = field.group == FieldGroup::kMegatron    ? megatron
                  : field.group == FieldGroup::kDeepSpeed ? deepspeed
                                                          : schema;
    place["properties"][std::string(field.key)] = property_of(field);
  }
  schema["properties"]["megatron"] = std::move(megatron);
  schema["properties"]["deepspeed"] = std::move(deepspeed);
  return schema.dump(1) + "\n";
}

}  // namespace memcalc
