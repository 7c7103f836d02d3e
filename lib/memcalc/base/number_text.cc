#include "memcalc/base/number_text.h"

#include <array>
#include <cstddef>
#include <string_view>

#ifdef __EMSCRIPTEN__
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#endif

namespace memcalc {
namespace {

constexpr std::size_t kLongest = 1200;  // the smallest double has 1,074 decimals, the largest 309 digits before them

using Buffer = std::array<char, kLongest>;

}  // namespace

#ifdef __EMSCRIPTEN__

// Its C library (musl) knows no locale but "C", and rounds correctly both ways.
namespace {

std::string printed(const char* format, int digits, double value) {
  Buffer buffer;
  const int length = std::snprintf(buffer.data(), buffer.size(), format, digits, value);
  return {buffer.data(), static_cast<std::size_t>(length)};
}

/// "1.5e+03" with as few digits as read back as `value`.
std::string shortest_scientific(double value) {
  std::string text;
  for (int digits = 0; digits < std::numeric_limits<double>::max_digits10; ++digits) {
    text = scientific_text(value, digits);
    if (std::strtod(text.c_str(), nullptr) == value) break;
  }
  return text;
}

}  // namespace

std::from_chars_result parse_number(const char* first, const char* last, double& value) {
  // from_chars takes neither a "+" nor white space nor hexadecimal digits, and reads "inf" and "nan", as strtod does.
  const char* const digits = first != last && *first == '-' ? first + 1 : first;
  const bool begins = digits != last && (std::strchr(".0123456789iInN", *digits) != nullptr) && *digits != '\0';
  if (!begins) return {first, std::errc::invalid_argument};
  std::string text(first, last);
  const std::size_t hexadecimal = static_cast<std::size_t>(digits - first) + 1;
  if (*digits == '0' && text.size() > hexadecimal && (text[hexadecimal] | 0x20) == 'x') text.resize(hexadecimal);
  char* end = nullptr;
  errno = 0;
  const double read = std::strtod(text.c_str(), &end);
  const char* const rest = first + (end - text.c_str());
  if (rest == first) return {first, std::errc::invalid_argument};
  if (errno == ERANGE) return {rest, std::errc::result_out_of_range};
  value = read;
  return {rest, std::errc{}};
}

std::string fixed_text(double value, int decimals) { return printed("%.*f", decimals, value); }
std::string scientific_text(double value, int decimals) { return printed("%.*e", decimals, value); }
std::string general_text(double value, int digits) { return printed("%.*g", digits, value); }

std::string shortest_fixed_text(double value) {
  if (!std::isfinite(value)) return fixed_text(value, 0);
  const std::string scientific = shortest_scientific(value);
  const std::size_t exponent_at = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + exponent_at + 1);
  const std::size_t point = scientific.find('.');
  const int decimals = point == std::string::npos ? 0 : static_cast<int>(exponent_at - point - 1);
  return fixed_text(value, std::max(0, decimals - exponent));
}

std::string shortest_text(double value) {
  const std::string fixed = shortest_fixed_text(value);
  if (!std::isfinite(value)) return fixed;
  const std::string scientific = shortest_scientific(value);
  return fixed.size() <= scientific.size() ? fixed : scientific;
}

#else

namespace {

template <typename... How>
std::string written(double value, How... how) {
  Buffer buffer;
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, how...).ptr};
}

}  // namespace

std::from_chars_result parse_number(const char* first, const char* last, double& value) {
  return std::from_chars(first, last, value);
}

std::string shortest_text(double value) { return written(value); }
std::string shortest_fixed_text(double value) { return written(value, std::chars_format::fixed); }
std::string fixed_text(double value, int decimals) { return written(value, std::chars_format::fixed, decimals); }
std::string scientific_text(double value, int decimals) {
  return written(value, std::chars_format::scientific, decimals);
}
std::string general_text(double value, int digits) { return written(value, std::chars_format::general, digits); }

#endif

}  // namespace memcalc
