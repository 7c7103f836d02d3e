#include "arguments.h"

#include <charconv>
#include <cmath>
#include <system_error>
#include <vector>

namespace memcalc::cli {
namespace {

[[noreturn]] void refuse(std::string_view option, const std::string& expected, std::string_view text) {
  throw UsageError(std::string(option) + ": expected " + expected + ", found " +
                   (text.empty() ? "nothing" : "'" + one_line(text) + "'"));
}

}  // namespace

std::int64_t parse_whole(std::string_view option, std::string_view text, std::int64_t least) {
  const std::string expected = "a whole number of " + std::to_string(least) + " or more";
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end == text.data() + text.size() && !text.empty();
  if (whole && code == std::errc::result_out_of_range && text.front() != '-') {
    refuse(option, expected + " and below 2^63", text);
  }
  if (!whole || code != std::errc{} || value < least) refuse(option, expected, text);
  return value;
}

double parse_number(std::string_view option, std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end == text.data() + text.size() && !text.empty() && code == std::errc{};
  if (!whole || !std::isfinite(value) || value < 0) refuse(option, "a number of 0 or more", text);
  return value;
}

std::int64_t parse_count(std::string_view option, std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit = ascii_lower({end, static_cast<std::size_t>(text.data() + text.size() - end)});
  const double scale = unit.empty() ? 1 : unit == "k" ? 1e3 : unit == "m" ? 1e6 : unit == "b" ? 1e9 : 0;
  const double count = std::floor(value * scale);
  if (code != std::errc{} || !(count >= 1 && count < 0x1p63)) {
    refuse(option, "a number of parameters such as 350m or 7b", text);
  }
  return static_cast<std::int64_t>(count);
}

void refuse_choice(std::string_view option, std::string_view text, std::span<const std::string_view> accepted) {
  const std::vector<std::string> names(accepted.begin(), accepted.end());
  throw UsageError(std::string(option) + ": expected one of " + join(names) + ", found " +
                   (text.empty() ? "nothing" : "'" + one_line(text) + "'") + did_you_mean(text, names));
}

Format parse_format(std::string_view text) {
  constexpr std::array<std::string_view, 4> kNames = {"text", "json", "csv", "md"};
  return parse_choice<Format>("--format", text, kNames);
}

}  // namespace memcalc::cli
