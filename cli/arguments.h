// Values of options, read strictly and refused in our own words. CLI11 only splits the command line: its validators
// accept "1e3" for a whole number and print limits of 309 digits.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "memcalc/memcalc.h"

namespace memcalc::cli {

/// Thrown for a wrong command line; main() prints it and exits with 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Digits only, `least` or more, below 2^63; otherwise a UsageError that names the option.
[[nodiscard]] std::int64_t parse_whole(std::string_view option, std::string_view text, std::int64_t least);

/// A finite decimal number of 0 or more ("0.1", "1e-2").
[[nodiscard]] double parse_number(std::string_view option, std::string_view text);

/// A number of parameters, at least 1, below 2^63: "7000000000", "7b", "1.5B", "350m", "22k".
[[nodiscard]] std::int64_t parse_count(std::string_view option, std::string_view text);

[[noreturn]] void refuse_choice(std::string_view option, std::string_view text,
                                std::span<const std::string_view> accepted);

/// One of `names`, as the enumerator at its position.
template <typename Enum, std::size_t kSize>
[[nodiscard]] Enum parse_choice(std::string_view option, std::string_view text,
                                const std::array<std::string_view, kSize>& names) {
  const std::optional<Enum> value = enum_from<Enum>(names, text);
  if (!value) refuse_choice(option, text, names);
  return *value;
}

/// The value of --format of every command that renders an answer.
[[nodiscard]] Format parse_format(std::string_view text);

}  // namespace memcalc::cli
