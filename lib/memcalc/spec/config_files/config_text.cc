#include "memcalc/spec/config_files/config_text.h"

#include <fmt/core.h>

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/base/number_text.h"
#include "memcalc/spec/config_files/yaml_text.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {
namespace {

constexpr int kMostDepth = 64;

[[noreturn]] void refuse(const std::string& file, const std::string& message) {
  throw Error(ErrorCode::kInput, shown_path(file) + ": " + message, file);
}

JsonNode text_node(std::string text) {
  JsonNode node;
  node.kind = JsonNode::Kind::kString;
  node.text = std::move(text);
  return node;
}

JsonNode whole_node(std::int64_t value, std::string text) {
  JsonNode node;
  node.kind = JsonNode::Kind::kInteger;
  node.integer = value;
  node.number = static_cast<double>(value);
  node.text = std::move(text);
  return node;
}

JsonNode number_node(double value, std::string text) {
  JsonNode node;
  node.kind = JsonNode::Kind::kNumber;
  node.number = value;
  node.text = std::move(text);
  return node;
}

JsonNode bool_node(bool value) {
  JsonNode node;
  node.kind = JsonNode::Kind::kBool;
  node.boolean = value;
  node.text = value ? "true" : "false";
  return node;
}

JsonNode node_of(const toml::node& value, int depth, const std::string& file) {
  if (depth > kMostDepth) refuse(file, "nested too deeply");
  JsonNode node;
  if (const toml::table* table = value.as_table()) {
    node.kind = JsonNode::Kind::kObject;
    std::vector<std::pair<toml::source_position, JsonNode>> children;
    for (const auto& [key, each] : *table) {
      JsonNode child = node_of(each, depth + 1, file);
      child.key = std::string(key.str());
      children.emplace_back(key.source().begin, std::move(child));
    }
    // toml++ sorts by name; the account is in the order of the file.
    std::stable_sort(children.begin(), children.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first.line, a.first.column) < std::pair(b.first.line, b.first.column);
    });
    for (auto& [position, child] : children) node.children.push_back(std::move(child));
    return node;
  }
  if (const toml::array* array = value.as_array()) {
    node.kind = JsonNode::Kind::kArray;
    for (const toml::node& each : *array) {
      node.children.push_back(node_of(each, depth + 1, file));
      node.children.back().key = std::to_string(node.children.size() - 1);
    }
    return node;
  }
  if (const auto* text = value.as_string()) return text_node(text->get());
  if (const auto* flag = value.as_boolean()) return bool_node(flag->get());
  if (const auto* whole = value.as_integer()) return whole_node(whole->get(), std::to_string(whole->get()));
  if (const auto* number = value.as_floating_point())
    return number_node(number->get(), fmt::format("{}", number->get()));
  refuse(file, fmt::format("line {}: a date or time is no value of such a file", value.source().begin.line));
}

JsonNode parse_toml(std::string_view text, const std::string& file) {
  const toml::parse_result result = toml::parse(text);
  if (!result) {
    refuse(file, fmt::format("line {}: not TOML: {}", result.error().source().begin.line,
                             one_line(result.error().description(), 200)));
  }
  return node_of(result.table(), 0, file);
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

std::string_view kind_in_words(JsonNode::Kind kind) {
  switch (kind) {
    case JsonNode::Kind::kArray: return "a list";
    case JsonNode::Kind::kNull: return "nothing";
    default: return "a single value";
  }
}

}  // namespace

JsonNode plain_scalar(std::string_view text) {
  if (text.empty() || is_one_of(text, {"~", "null", "Null", "NULL"})) return {};
  // YAML 1.1, which PyYAML reads.
  if (is_one_of(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return bool_node(true);
  if (is_one_of(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) return bool_node(false);
  std::string digits(text);
  if (std::isdigit(static_cast<unsigned char>(text.back())) != 0) std::erase(digits, '_');  // 1_000
  const char* begin = digits.data() + (digits.front() == '+' ? 1 : 0);
  const char* const end = digits.data() + digits.size();
  std::int64_t whole = 0;
  if (const auto [rest, error] = std::from_chars(begin, end, whole); rest == end && begin != end) {
    if (error == std::errc{}) return whole_node(whole, std::string(text));
  }
  double number = 0;
  const bool numeric =
      begin != end && (std::isdigit(static_cast<unsigned char>(*begin)) != 0 || *begin == '.' || *begin == '-');
  if (const auto [rest, error] = parse_number(begin, end, number); numeric && rest == end && error == std::errc{}) {
    return number_node(number, std::string(text));
  }
  return text_node(std::string(text));
}

ConfigSyntax config_syntax_of(std::string_view path) {
  const std::string lower = ascii_lower(path);
  if (lower.ends_with(".toml")) return ConfigSyntax::kToml;
  if (lower.ends_with(".json")) return ConfigSyntax::kJson;
  return ConfigSyntax::kYaml;
}

JsonNode parse_config_text(std::string_view text, ConfigSyntax syntax, const std::string& file) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) refuse(file, "the file is empty");
  JsonNode root;
  switch (syntax) {
    case ConfigSyntax::kYaml: root = parse_yaml(text, file); break;
    case ConfigSyntax::kToml: root = parse_toml(text, file); break;
    case ConfigSyntax::kJson: root = parse_json_text(text, file); break;
  }
  if (root.kind != JsonNode::Kind::kObject) {
    refuse(file, fmt::format("found {} at the top; accepted: keys with values", kind_in_words(root.kind)));
  }
  if (root.children.empty()) refuse(file, "the file has no keys");
  return root;
}

}  // namespace memcalc
