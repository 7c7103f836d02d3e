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
#include "memcalc/spec/plain_json.h"

namespace memcalc {

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
