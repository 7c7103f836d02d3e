#include "memcalc/spec/run_record.h"

#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/run_fields.h"

namespace memcalc {
namespace {

constexpr std::string_view kMegatron = "megatron";
constexpr std::string_view kDeepSpeed = "deepspeed";

std::string_view object_of(FieldGroup group) {
  if (group == FieldGroup::kMegatron) return kMegatron;
  if (group == FieldGroup::kDeepSpeed) return kDeepSpeed;
  return "";
}

FieldValue value_from(const JsonObject& json, const Field& field) {
  switch (field.type) {
    case FieldType::kWhole: return json.required_int(field.key);
    case FieldType::kNumber: return json.required_double(field.key);
    case FieldType::kFlag: return json.required_bool(field.key);
    case FieldType::kName:
    case FieldType::kText: return json.required_string(field.key);
    case FieldType::kTexts: return json.optional_strings(field.key);
    case FieldType::kWholes: return json.required_ints(field.key);
  }
  return false;
}

/// The fields that stand in one object: those of the run itself, or of a list.
void read(const JsonObject& json, std::string_view object, RunRequest& request) {
  std::vector<std::string_view> keys;
  if (object.empty()) keys = {kMegatron, kDeepSpeed};
  for (const Field& field : run_fields()) {
    if (object_of(field.group) == object) keys.push_back(field.key);
  }
  json.refuse_unknown_keys(keys);
  for (const Field& field : run_fields()) {
    if (object_of(field.group) != object || !json.has(field.key)) continue;
    set_field(request, field, value_from(json, field));
  }
}

}  // namespace

RunRequest request_from(const JsonObject& run) {
  RunRequest request;
  read(run, "", request);
  for (const std::string_view object : {kMegatron, kDeepSpeed}) {
    if (run.has(object)) read(run.required_object(object), object, request);
  }
  return request;
}

}  // namespace memcalc
