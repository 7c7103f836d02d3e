// The one checked reader of JSON. Whatever is wrong in a file throws Error(kInput) with one line that names the
// file, the JSON pointer, what was found and what is accepted. No other file of memcalc takes numbers out of JSON.
// Covered by tests/unit/spec_json_reader_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"

namespace memcalc {

struct JsonNode;  // a parsed value (json_node.h): known to json_reader.cc, text_part.cc and the reader of programs

/// Values a number may have, both ends included.
struct IntRange {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};
struct DoubleRange {
  double min = 0;
  double max = std::numeric_limits<double>::max();
};

/// View of one JSON object within a JsonDocument; valid while the document lives.
///
/// required_X throws where the key is absent. optional_X: an absent key gives nothing, a null is wrong.
/// nullable_X: absent and null both give nothing.
class JsonObject {
 public:
  [[nodiscard]] bool has(std::string_view key) const;      // present, possibly null
  [[nodiscard]] bool is_null(std::string_view key) const;  // present and null
  [[nodiscard]] bool is_string(std::string_view key) const;
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] std::size_t size() const;

  // Integers are read exactly; 4.0 and 4e0 are no integers.
  [[nodiscard]] std::int64_t required_int(std::string_view key, IntRange range = {}) const;
  [[nodiscard]] std::optional<std::int64_t> optional_int(std::string_view key, IntRange range = {}) const;
  [[nodiscard]] std::optional<std::int64_t> nullable_int(std::string_view key, IntRange range = {}) const;

  [[nodiscard]] double required_double(std::string_view key, DoubleRange range = {}) const;
  [[nodiscard]] std::optional<double> optional_double(std::string_view key, DoubleRange range = {}) const;
  [[nodiscard]] std::optional<double> nullable_double(std::string_view key, DoubleRange range = {}) const;

  [[nodiscard]] bool required_bool(std::string_view key) const;
  [[nodiscard]] std::optional<bool> optional_bool(std::string_view key) const;
  [[nodiscard]] std::optional<bool> nullable_bool(std::string_view key) const;

  [[nodiscard]] std::string required_string(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> optional_string(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> nullable_string(std::string_view key) const;

  /// One of `names`; another string is refused with the nearest of them.
  [[nodiscard]] std::string required_choice(std::string_view key, std::span<const std::string_view> names) const;
  [[nodiscard]] std::optional<std::string> optional_choice(std::string_view key,
                                                           std::span<const std::string_view> names) const;

  [[nodiscard]] JsonObject required_object(std::string_view key) const;
  [[nodiscard]] std::optional<JsonObject> nullable_object(std::string_view key) const;
  [[nodiscard]] std::vector<JsonObject> optional_objects(std::string_view key) const;   // array of objects
  [[nodiscard]] std::vector<std::string> optional_strings(std::string_view key) const;  // array of strings
  [[nodiscard]] std::vector<std::int64_t> required_ints(std::string_view key, IntRange range = {}) const;  // array

  /// Every key with its value, which must be an object (or a string), in the order of the file. Of an object with
  /// very many keys: a key that is asked for by name is searched for from the front.
  [[nodiscard]] std::vector<std::pair<std::string, JsonObject>> object_members() const;
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> string_members() const;

  /// Throws at the first key that is not among `known`, with the nearest known one.
  void refuse_unknown_keys(std::span<const std::string_view> known) const;

  /// "FILE: /pointer/key: message", for checks that involve more than one value. An empty key means the object.
  [[nodiscard]] Error error(std::string_view key, const std::string& message, ErrorCode code = ErrorCode::kInput) const;
  /// "FILE: /pointer/key: found VALUE; accepted: WHAT"
  [[nodiscard]] Error error_found(std::string_view key, const std::string& accepted) const;

  [[nodiscard]] const std::string& file() const { return *file_; }
  [[nodiscard]] const JsonNode& node() const { return *node_; }
  /// "FILE: /pointer", for messages about this object after the document is gone.
  [[nodiscard]] std::string where() const;

 private:
  friend class JsonDocument;
  JsonObject(const JsonNode* node, const std::string* file, std::string pointer)
      : node_(node), file_(file), pointer_(std::move(pointer)) {}

  [[nodiscard]] const JsonNode* find(std::string_view key) const;
  [[nodiscard]] const JsonNode& require(std::string_view key) const;
  [[nodiscard]] std::int64_t int_of(const JsonNode& value, std::string_view key, IntRange range) const;
  [[nodiscard]] double double_of(const JsonNode& value, std::string_view key, DoubleRange range) const;
  [[nodiscard]] bool bool_of(const JsonNode& value, std::string_view key) const;
  [[nodiscard]] const std::string& string_of(const JsonNode& value, std::string_view key) const;
  [[nodiscard]] JsonObject object_of(const JsonNode& value, std::string_view key) const;

  const JsonNode* node_;
  const std::string* file_;
  std::string pointer_;
};

/// A key's new value, or its removal.
struct JsonChange {
  std::string key;
  std::optional<std::int64_t> value{};  // absent: the key goes
  bool boolean = false;                 // the value stands for true or false
};

/// A whole JSON text whose top level is an object, parsed and checked for well-formedness, duplicate keys,
/// depth and size.
class JsonDocument {
 public:
  [[nodiscard]] static JsonDocument read_file(const std::string& path);
  /// `name` stands for the file in messages.
  [[nodiscard]] static JsonDocument parse(std::string_view text, std::string name);
  /// Of an object that was parsed, or made of parts of such.
  [[nodiscard]] static JsonDocument of(JsonNode root, std::string name);

  [[nodiscard]] JsonObject root() const;

  /// A copy in which keys of the top level, or of the object at its key `within`, are other ones. `name` stands for the
  /// file in messages.
  [[nodiscard]] JsonDocument changed(std::span<const JsonChange> changes, std::string_view within,
                                     std::string name) const;

 private:
  struct Content;
  explicit JsonDocument(std::shared_ptr<const Content> content) : content_(std::move(content)) {}

  std::shared_ptr<const Content> content_;
};

}  // namespace memcalc
