#include "memcalc/spec/json_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "memcalc/spec/json_node.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {
namespace {

std::string in_quotes(std::string_view text) { return "\"" + one_line(text) + "\""; }

// What a message shows as found.
std::string shown(const JsonNode& node) {
  switch (node.kind) {
    case JsonNode::Kind::kNull: return "null";
    case JsonNode::Kind::kBool: return node.boolean ? "true" : "false";
    case JsonNode::Kind::kInteger:
    case JsonNode::Kind::kNumber: return one_line(node.text, 40);
    case JsonNode::Kind::kString: return "the string " + in_quotes(node.text);
    case JsonNode::Kind::kArray: return "an array of " + std::to_string(node.children.size());
    case JsonNode::Kind::kObject: return "an object of " + std::to_string(node.children.size());
  }
  return "";
}

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string accepted_text(IntRange range) {
  constexpr IntRange all;
  if (range.min == all.min && range.max == all.max) return "an integer";
  if (range.max == all.max) return "an integer of at least " + std::to_string(range.min);
  return "an integer from " + std::to_string(range.min) + " to " + std::to_string(range.max);
}

std::string accepted_text(DoubleRange range) {
  if (range.max == DoubleRange{}.max) return "a number of at least " + shown(range.min);
  return "a number from " + shown(range.min) + " to " + shown(range.max);
}

std::vector<std::string> strings_of(std::span<const std::string_view> names) { return {names.begin(), names.end()}; }

// One step of a JSON pointer (RFC 6901).
std::string pointer_step(std::string_view key) {
  std::string step = "/";
  for (const char c : one_line(key)) {
    if (c == '~') {
      step += "~0";
    } else if (c == '/') {
      step += "~1";
    } else {
      step += c;
    }
  }
  return step;
}

}  // namespace

const JsonNode* JsonObject::find(std::string_view key) const {
  for (const JsonNode& child : node_->children) {
    if (child.key == key) return &child;
  }
  return nullptr;
}

bool JsonObject::has(std::string_view key) const { return find(key) != nullptr; }

bool JsonObject::is_null(std::string_view key) const {
  const JsonNode* value = find(key);
  return value != nullptr && value->kind == JsonNode::Kind::kNull;
}

bool JsonObject::is_string(std::string_view key) const {
  const JsonNode* value = find(key);
  return value != nullptr && value->kind == JsonNode::Kind::kString;
}

std::size_t JsonObject::size() const { return node_->children.size(); }

std::vector<std::string> JsonObject::keys() const {
  std::vector<std::string> result;
  for (const JsonNode& child : node_->children) result.push_back(child.key);
  return result;
}

Error JsonObject::error(std::string_view key, const std::string& message, ErrorCode code) const {
  const std::string pointer = pointer_ + (key.empty() ? "" : pointer_step(key));
  return {code, shown_path(*file_) + ": " + (pointer.empty() ? "" : shown_path(pointer) + ": ") + message};
}

std::string JsonObject::where() const {
  return shown_path(*file_) + (pointer_.empty() ? "" : ": " + shown_path(pointer_));
}

Error JsonObject::error_found(std::string_view key, const std::string& accepted) const {
  const JsonNode* value = key.empty() ? node_ : find(key);
  return error(key, "found " + (value == nullptr ? "nothing" : shown(*value)) + "; accepted: " + accepted);
}

const JsonNode& JsonObject::require(std::string_view key) const {
  const JsonNode* value = find(key);
  if (value == nullptr) throw error("", "missing key " + in_quotes(key) + did_you_mean(key, keys()));
  return *value;
}

std::int64_t JsonObject::int_of(const JsonNode& value, std::string_view key, IntRange range) const {
  if (value.kind == JsonNode::Kind::kInteger && value.integer >= range.min && value.integer <= range.max) {
    return value.integer;
  }
  std::string accepted = accepted_text(range);
  // 1e3 or 4.0: whole, but a file that writes a size so was made by hand or by a wrong tool. Refused, and said why.
  if (value.kind == JsonNode::Kind::kNumber && value.text.find_first_of(".eE") != std::string::npos &&
      std::trunc(value.number) == value.number) {
    accepted += ", written in digits only";
  }
  throw error_found(key, accepted);
}

double JsonObject::double_of(const JsonNode& value, std::string_view key, DoubleRange range) const {
  if (value.kind == JsonNode::Kind::kInteger || value.kind == JsonNode::Kind::kNumber) {
    if (value.number >= range.min && value.number <= range.max) return value.number;
  }
  throw error_found(key, accepted_text(range));
}

bool JsonObject::bool_of(const JsonNode& value, std::string_view key) const {
  if (value.kind != JsonNode::Kind::kBool) throw error_found(key, "true or false");
  return value.boolean;
}

const std::string& JsonObject::string_of(const JsonNode& value, std::string_view key) const {
  if (value.kind != JsonNode::Kind::kString) throw error_found(key, "a string");
  return value.text;
}

JsonObject JsonObject::object_of(const JsonNode& value, std::string_view key) const {
  if (value.kind != JsonNode::Kind::kObject) throw error_found(key, "an object");
  return {&value, file_, pointer_ + pointer_step(key)};
}

std::int64_t JsonObject::required_int(std::string_view key, IntRange range) const {
  return int_of(require(key), key, range);
}

std::optional<std::int64_t> JsonObject::optional_int(std::string_view key, IntRange range) const {
  const JsonNode* value = find(key);
  if (value == nullptr) return std::nullopt;
  return int_of(*value, key, range);
}

std::optional<std::int64_t> JsonObject::nullable_int(std::string_view key, IntRange range) const {
  return is_null(key) ? std::nullopt : optional_int(key, range);
}

double JsonObject::required_double(std::string_view key, DoubleRange range) const {
  return double_of(require(key), key, range);
}

std::optional<double> JsonObject::optional_double(std::string_view key, DoubleRange range) const {
  const JsonNode* value = find(key);
  if (value == nullptr) return std::nullopt;
  return double_of(*value, key, range);
}

std::optional<double> JsonObject::nullable_double(std::string_view key, DoubleRange range) const {
  return is_null(key) ? std::nullopt : optional_double(key, range);
}

bool JsonObject::required_bool(std::string_view key) const { return bool_of(require(key), key); }

std::optional<bool> JsonObject::optional_bool(std::string_view key) const {
  const JsonNode* value = find(key);
  if (value == nullptr) return std::nullopt;
  return bool_of(*value, key);
}

std::optional<bool> JsonObject::nullable_bool(std::string_view key) const {
  return is_null(key) ? std::nullopt : optional_bool(key);
}

std::string JsonObject::required_string(std::string_view key) const { return string_of(require(key), key); }

std::optional<std::string> JsonObject::optional_string(std::string_view key) const {
  const JsonNode* value = find(key);
  if (value == nullptr) return std::nullopt;
  return string_of(*value, key);
}

std::optional<std::string> JsonObject::nullable_string(std::string_view key) const {
  return is_null(key) ? std::nullopt : optional_string(key);
}

std::string JsonObject::required_choice(std::string_view key, std::span<const std::string_view> names) const {
  std::string value = string_of(require(key), key);
  if (std::find(names.begin(), names.end(), value) != names.end()) return value;
  const std::vector<std::string> known = strings_of(names);
  throw error_found(key, "one of " + join(known) + did_you_mean(value, known));
}

std::optional<std::string> JsonObject::optional_choice(std::string_view key,
                                                       std::span<const std::string_view> names) const {
  if (!has(key)) return std::nullopt;
  return required_choice(key, names);
}

JsonObject JsonObject::required_object(std::string_view key) const { return object_of(require(key), key); }

std::optional<JsonObject> JsonObject::nullable_object(std::string_view key) const {
  if (!has(key) || is_null(key)) return std::nullopt;
  return required_object(key);
}

std::vector<JsonObject> JsonObject::optional_objects(std::string_view key) const {
  std::vector<JsonObject> result;
  const JsonNode* value = find(key);
  if (value == nullptr) return result;
  if (value->kind != JsonNode::Kind::kArray) throw error_found(key, "an array of objects");
  const JsonObject items(value, file_, pointer_ + pointer_step(key));
  for (const JsonNode& child : value->children) result.push_back(items.object_of(child, child.key));
  return result;
}

std::vector<std::string> JsonObject::optional_strings(std::string_view key) const {
  std::vector<std::string> result;
  const JsonNode* value = find(key);
  if (value == nullptr) return result;
  if (value->kind != JsonNode::Kind::kArray) throw error_found(key, "an array of strings");
  const JsonObject items(value, file_, pointer_ + pointer_step(key));
  for (const JsonNode& child : value->children) result.push_back(items.string_of(child, child.key));
  return result;
}

std::vector<std::int64_t> JsonObject::required_ints(std::string_view key, IntRange range) const {
  const JsonNode& value = require(key);
  if (value.kind != JsonNode::Kind::kArray) throw error_found(key, "an array of integers");
  const JsonObject items(&value, file_, pointer_ + pointer_step(key));
  std::vector<std::int64_t> result;
  result.reserve(value.children.size());
  for (const JsonNode& child : value.children) result.push_back(items.int_of(child, child.key, range));
  return result;
}

std::vector<std::pair<std::string, JsonObject>> JsonObject::object_members() const {
  std::vector<std::pair<std::string, JsonObject>> result;
  result.reserve(node_->children.size());
  for (const JsonNode& child : node_->children) result.emplace_back(child.key, object_of(child, child.key));
  return result;
}

std::vector<std::pair<std::string, std::string>> JsonObject::string_members() const {
  std::vector<std::pair<std::string, std::string>> result;
  result.reserve(node_->children.size());
  for (const JsonNode& child : node_->children) result.emplace_back(child.key, string_of(child, child.key));
  return result;
}

void JsonObject::refuse_unknown_keys(std::span<const std::string_view> known) const {
  for (const JsonNode& child : node_->children) {
    if (std::find(known.begin(), known.end(), child.key) != known.end()) continue;
    const std::vector<std::string> names = strings_of(known);
    const std::string hint = did_you_mean(child.key, names);
    throw error("", "unknown key " + in_quotes(child.key) + (hint.empty() ? "; accepted: " + join(names) : hint));
  }
}

struct JsonDocument::Content {
  std::string name;
  JsonNode root;
};

JsonDocument JsonDocument::parse(std::string_view text, std::string name) {
  JsonNode root = parse_json_text(text, name);
  return of(std::move(root), std::move(name));
}

JsonDocument JsonDocument::of(JsonNode root, std::string name) {
  auto content = std::make_shared<Content>();
  content->root = std::move(root);
  content->name = std::move(name);
  JsonDocument document(std::move(content));
  if (document.content_->root.kind != JsonNode::Kind::kObject) throw document.root().error_found("", "an object");
  return document;
}

JsonDocument JsonDocument::changed(std::span<const JsonChange> changes, std::string_view within,
                                   std::string name) const {
  auto content = std::make_shared<Content>(*content_);
  content->name = std::move(name);
  JsonNode* object = &content->root;
  if (!within.empty()) {
    const auto inner = std::find_if(object->children.begin(), object->children.end(),
                                    [&](const JsonNode& child) { return child.key == within; });
    if (inner == object->children.end()) throw Error(ErrorCode::kInternal, "no object to change");
    object = &*inner;
  }
  for (const JsonChange& change : changes) {
    std::erase_if(object->children, [&](const JsonNode& child) { return child.key == change.key; });
    if (!change.value) continue;
    JsonNode node{.kind = change.boolean ? JsonNode::Kind::kBool : JsonNode::Kind::kInteger};
    node.boolean = *change.value != 0;
    node.integer = *change.value;
    node.number = static_cast<double>(*change.value);
    node.text = std::to_string(*change.value);
    node.key = change.key;
    object->children.push_back(std::move(node));
  }
  return JsonDocument(std::move(content));
}

JsonDocument JsonDocument::read_file(const std::string& path) { return parse(read_text_file(path), path); }

JsonObject JsonDocument::root() const { return {&content_->root, &content_->name, ""}; }

}  // namespace memcalc
