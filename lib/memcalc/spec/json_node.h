// Internal to spec/json_*.cc: the parsed value, and what makes it of a text (json_parse.cc, the one file here that sees
// nlohmann/json).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memcalc {

struct JsonNode {
  enum class Kind : std::uint8_t { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  std::int64_t integer = 0;  // of kInteger: exact
  double number = 0;         // of kInteger and kNumber
  std::string text{};        // the string, or a number as it is written in the file
  std::string key{};         // within an object; within an array its index
  std::vector<JsonNode> children{};

  [[nodiscard]] bool operator==(const JsonNode&) const = default;
};

/// Throws Error(kInput) with line and column where `text` is not JSON, nests too deeply or repeats a key.
[[nodiscard]] JsonNode parse_json_text(std::string_view text, const std::string& file_name);
/// The same of a text that is known not to be plain (plain_json.h).
[[nodiscard]] JsonNode parse_any_json(std::string_view text, const std::string& file_name);

/// Throws Error(kInput) where `path` is absent, a directory, unreadable or larger than kMostJsonBytes.
[[nodiscard]] std::string read_text_file(const std::string& path);

}  // namespace memcalc
