// Text of a JSON file in, JsonNode out. What is not plain nlohmann/json reads through its SAX interface; the tree is
// built here, because its own one rounds large integers, drops the text of numbers, lets the last of two equal keys win
// and has no depth limit.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/json_node.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/limits.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/plain_json.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {
namespace {

// "line 3, column 7": position is the number of bytes read, so that the offending byte is the last of them.
std::string line_and_column(std::string_view text, std::size_t position) {
  const std::string_view before = text.substr(0, position > 0 ? position - 1 : 0);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 == 0
  return "line " + std::to_string(line) + ", column " + std::to_string(before.size() - line_start + 1);
}

Error input_error(const std::string& file, const std::string& message) {
  return {ErrorCode::kInput, shown_path(file) + ": " + message};
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TreeBuilder(std::string_view text) : text_(text) {}

  [[nodiscard]] JsonNode take_root() { return std::move(root_); }
  [[nodiscard]] const std::string& problem() const { return problem_; }

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add({.kind = JsonNode::Kind::kBool, .boolean = value}); }
  bool number_integer(number_integer_t value) override {
    return add({.kind = JsonNode::Kind::kInteger,
                .integer = value,
                .number = static_cast<double>(value),
                .text = std::to_string(value)});
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return number_integer(static_cast<std::int64_t>(value));
    }
    return number_float(static_cast<double>(value), std::to_string(value));  // 2^63 and more: no int64
  }
  bool number_float(number_float_t value, const string_t& written) override {
    return add({.kind = JsonNode::Kind::kNumber, .number = value, .text = written});
  }
  bool string(string_t& value) override { return add({.kind = JsonNode::Kind::kString, .text = std::move(value)}); }
  bool binary(binary_t&) override { return false; }  // not in JSON text

  bool start_object(std::size_t) override { return open(JsonNode::Kind::kObject); }
  bool start_array(std::size_t) override { return open(JsonNode::Kind::kArray); }
  bool end_object() override {
    const std::optional<std::string> repeated = repeated_key(open_.back());
    if (repeated) {
      problem_ = where() + "key \"" + one_line(*repeated) + "\" occurs more than once";
      return false;
    }
    return close();
  }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception& error) override {
    const std::string place = line_and_column(text_, position) + ": ";
    const std::size_t token_start = position > 0 ? std::min(position, text_.size()) - 1 : 0;
    if (text_.find_first_not_of(" \t\r\n") == std::string_view::npos) {
      problem_ = "the file is empty; accepted: a JSON object";
    } else if (error.id == 406) {
      problem_ = place + "found " + one_line(token, 40) + "; accepted: a number that a double can hold";
    } else if (names_no_number(token_start)) {
      problem_ = place + pointer() + "found NaN or Infinity; accepted: a finite number (JSON has no other)";
    } else if (position > text_.size()) {  // the parser has read the end of the text as if it were a byte
      problem_ = place + "the file ends within a value: it is truncated";
    } else if (utf8_length(text_.substr(token_start)) == 0 ||
               std::string_view(error.what()).find("UTF-8") != std::string_view::npos) {
      problem_ = place + pointer() + "the file is not UTF-8";
    } else {
      problem_ = place + pointer() + "not JSON at \"" + one_line(text_.substr(token_start, 20)) + "\"";
    }
    return false;
  }

 private:
  bool count() {
    if (++values_ <= kMostJsonValues) return true;
    problem_ = "more than " + std::to_string(kMostJsonValues) + " values; accepted: a config of a few hundred";
    return false;
  }
  // A value within the innermost open array or object, or the whole text.
  bool add(JsonNode node) {
    if (!count()) return false;
    if (open_.empty()) {
      root_ = std::move(node);
      return true;
    }
    JsonNode& parent = open_.back();
    node.key = parent.kind == JsonNode::Kind::kArray ? std::to_string(parent.children.size()) : std::exchange(key_, {});
    parent.children.push_back(std::move(node));
    return true;
  }
  bool open(JsonNode::Kind kind) {
    if (!count()) return false;
    if (open_.size() == kMostJsonDepth) {
      problem_ = "nested deeper than " + std::to_string(kMostJsonDepth) + " levels";
      return false;
    }
    JsonNode node{.kind = kind};
    if (!open_.empty()) {
      const JsonNode& parent = open_.back();
      node.key =
          parent.kind == JsonNode::Kind::kArray ? std::to_string(parent.children.size()) : std::exchange(key_, {});
    }
    open_.push_back(std::move(node));
    return true;
  }
  bool close() {
    JsonNode node = std::move(open_.back());
    open_.pop_back();
    if (open_.empty()) {
      root_ = std::move(node);
    } else {
      open_.back().children.push_back(std::move(node));
    }
    return true;
  }

  static std::optional<std::string> repeated_key(const JsonNode& object) {
    std::vector<std::string_view> keys;
    for (const JsonNode& child : object.children) keys.push_back(child.key);
    std::sort(keys.begin(), keys.end());  // not pairwise: a hostile file may hold a million keys
    const auto twin = std::adjacent_find(keys.begin(), keys.end());
    if (twin == keys.end()) return std::nullopt;
    return std::string(*twin);
  }

  // Where the parser stands: the open containers and the key whose value it reads.
  [[nodiscard]] std::string pointer() const {
    std::string text;
    for (std::size_t i = 1; i < open_.size(); ++i) text += "/" + one_line(open_[i].key);
    if (!open_.empty() && open_.back().kind == JsonNode::Kind::kObject && !key_.empty()) text += "/" + one_line(key_);
    return text.empty() ? "" : shown_path(text) + ": ";
  }
  [[nodiscard]] std::string where() const {
    std::string text;
    for (std::size_t i = 1; i < open_.size(); ++i) text += "/" + one_line(open_[i].key);
    return text.empty() ? "" : shown_path(text) + ": ";
  }
  [[nodiscard]] bool names_no_number(std::size_t at) const {
    // The lexer stops at the byte that breaks the token: look at the whole word around it.
    std::size_t start = at;
    while (start > 0 && is_letter(text_[start - 1])) --start;
    std::size_t end = start;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    const std::string word = ascii_lower(text_.substr(start, std::min<std::size_t>(end - start, 16)));
    return word == "nan" || word == "inf" || word == "infinity";
  }

  std::string_view text_;
  JsonNode root_;
  std::size_t values_ = 0;
  std::vector<JsonNode> open_;  // containers that are not closed yet; at most kMostJsonDepth
  std::string key_;
  std::string problem_;
};

/// The value at `place` and all that is in it.
JsonNode tree_of(const std::vector<FlatValue>& values, std::uint32_t place, std::string_view key) {
  const FlatValue& value = values[place];
  JsonNode node{.kind = value.kind, .number = value.number, .text = std::string(value.text), .key = std::string(key)};
  const bool is_object = value.kind == JsonNode::Kind::kObject;
  if (!is_object && value.kind != JsonNode::Kind::kArray) {
    node.boolean = value.kind == JsonNode::Kind::kBool && value.integer != 0;
    node.integer = value.kind == JsonNode::Kind::kInteger ? value.integer : 0;
    return node;
  }
  node.children.reserve(static_cast<std::size_t>(value.integer));
  for (std::uint32_t at = place + 1; at != value.end; at = values[at].end) {
    if (is_object) {
      const std::string_view name = values[at++].text;
      node.children.push_back(tree_of(values, at, name));
    } else {
      node.children.push_back(tree_of(values, at, std::to_string(node.children.size())));
    }
  }
  return node;
}

}  // namespace

JsonNode parse_json_text(std::string_view text, const std::string& file_name) {
  std::vector<FlatValue> values;
  return read_plain_json(text, {}, values) ? tree_of(values, 0, {}) : parse_any_json(text, file_name);
}

JsonNode parse_any_json(std::string_view text, const std::string& file_name) {
  TreeBuilder builder(text);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) throw input_error(file_name, builder.problem());
  return builder.take_root();
}

std::string read_text_file(const std::string& path) { return read_user_file(path, "a JSON file", kMostJsonBytes); }

}  // namespace memcalc
