#include "memcalc/spec/flat_json.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace memcalc {

FlatJson FlatJson::parse(std::string text, const std::string& file_name, std::string_view later) {
  FlatJson json;
  json.of_ = std::make_shared<const std::string>(std::move(text));
  json.later_ = later;
  if (read_plain_json(*json.of_, later, json.values_)) return json;
  return FlatJson(parse_any_json(*json.of_, file_name));
}

FlatJson FlatJson::read_later(std::uint32_t place, std::size_t i, const std::string& file_name) const {
  FlatJson json;
  json.of_ = of_;
  if (read_plain_json(at(place).text, {}, json.values_)) return json;
  // Something in it is not as the recorder writes it. All is read, so that a message has the text's own lines.
  const JsonNode root = parse_any_json(*of_, file_name);
  const auto array = std::find_if(root.children.begin(), root.children.end(),
                                  [&](const JsonNode& member) { return member.key == later_; });
  return FlatJson(array->children.at(i));
}

FlatJson::FlatJson(const JsonNode& root) { add(root); }

void FlatJson::add(const JsonNode& node) {
  using Kind = JsonNode::Kind;
  const std::size_t place = values_.size();
  FlatValue& made = values_.emplace_back();
  made.kind = node.kind;
  made.integer = node.kind == Kind::kBool ? (node.boolean ? 1 : 0) : node.integer;
  made.number = node.number;
  if (!node.text.empty()) made.text = own_.emplace_back(node.text);
  if (node.kind == Kind::kArray || node.kind == Kind::kObject) made.integer = std::ssize(node.children);
  for (const JsonNode& child : node.children) {
    if (node.kind == Kind::kObject) {
      FlatValue& key = values_.emplace_back();
      key.kind = Kind::kString;
      key.text = own_.emplace_back(child.key);
      key.end = static_cast<std::uint32_t>(values_.size());
    }
    add(child);
  }
  values_[place].end = static_cast<std::uint32_t>(values_.size());
}

}  // namespace memcalc
