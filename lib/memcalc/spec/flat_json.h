// FlatJson: a JSON text as one list of values in the order in which they stand there, for files of many thousand values
// (programs), where a tree of nodes costs more time than all that is done with it. Covered by
// tests/unit/spec_flat_json_test.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/json_node.h"

namespace memcalc {

/// An array is followed by its items, an object by its keys, each a string before its value.
struct FlatValue {
  std::string_view text{};   // of a string
  std::int64_t integer = 0;  // of kInteger; of a bool 0 or 1; of an array or object how many items or keys it has
  double number = 0;         // of kInteger and kNumber
  std::uint32_t end = 0;     // the place behind the value and all that is in it
  JsonNode::Kind kind = JsonNode::Kind::kNull;
  bool is_unread = false;  // FlatJson::read_later() reads it; `text` is all of it, and nothing is known of it
};

class FlatJson {
 public:
  /// Throws Error(kInput) as parse_json_text() does. `file_name`: for messages.
  /// `later`: of the whole text's object, the key of an array whose items may stay unread.
  [[nodiscard]] static FlatJson parse(std::string text, const std::string& file_name, std::string_view later = {});
  explicit FlatJson(const JsonNode& root);

  [[nodiscard]] const FlatValue& at(std::uint32_t place) const { return values_[place]; }
  /// The value at `place`, which is unread and the item `i` of its array. Throws as parse() does.
  [[nodiscard]] FlatJson read_later(std::uint32_t place, std::size_t i, const std::string& file_name) const;

 private:
  FlatJson() = default;
  void add(const JsonNode& node);

  std::vector<FlatValue> values_;          // the whole text's value first
  std::string later_;                      // the key
  std::shared_ptr<const std::string> of_;  // the text that strings are parts of
  std::deque<std::string> own_;            // strings that no text has as they are
};

}  // namespace memcalc
