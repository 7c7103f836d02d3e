// Plain JSON, as every file of specs/ is and most others are: ASCII without escapes, no key twice, integers of 64 bits.
// It is read in an eighth of the time that nlohmann/json takes; all else is left to that, which also says what is
// wrong. Covered by tests/unit/spec_flat_json_test.cc.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "memcalc/spec/json_node.h"

namespace memcalc {

/// A value in a list of all values of a text: an array is followed by its items, an object by its keys, each a string
/// before its value.
struct FlatValue {
  std::string_view text{};   // of a string; a number as it is written
  std::int64_t integer = 0;  // of kInteger; of a bool 0 or 1; of an array or object how many items or keys it has
  double number = 0;         // of kInteger and kNumber
  std::uint32_t end = 0;     // the place behind the value and all that is in it
  JsonNode::Kind kind = JsonNode::Kind::kNull;
  bool is_unread = false;  // FlatJson::read_later() reads it; `text` is all of it, and nothing is known of it
};

/// Adds the values of `text`, whose parts they hold. False: it is not plain, or no JSON; `values` are of no use then.
/// `later`: of the whole text's object, the key of an array whose items may stay unread; empty: none.
[[nodiscard]] bool read_plain_json(std::string_view text, std::string_view later, std::vector<FlatValue>& values);

}  // namespace memcalc
