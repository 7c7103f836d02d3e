#include "memcalc/report/quantity.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "memcalc/base/number_text.h"

namespace memcalc {
namespace {

constexpr double kThousand = 999.5;  // from here on a whole number has a separator

// Three significant digits; a number of four digits before the point keeps them all: 1,234.
std::string three_digits(double value) {
  const double size = std::fabs(value);
  if (size < 9.995) return format_fixed(value, 2);
  if (size < 99.95) return format_fixed(value, 1);
  return size < kThousand ? format_fixed(value, 0) : format_amount(value);
}

}  // namespace

std::string format_fixed(double value, int decimals) {
  std::string text = fixed_text(value, decimals);
  if (text.front() == '-' && text.find_first_not_of("-0.") == std::string::npos) text.erase(0, 1);
  return text;
}

std::string format_exact(double value) {
  return shortest_fixed_text(value == 0 ? 0 : value);  // no "-0"
}

std::string format_bytes(Bytes bytes) { return format_bytes_moved(static_cast<double>(bytes)); }

std::string format_bytes_moved(double bytes) {
  struct Unit {
    Bytes size;
    const char* name;
  };
  constexpr std::array<Unit, 3> units = {{{kGiB, " GiB"}, {kMiB, " MiB"}, {kKiB, " KiB"}}};
  for (const Unit& unit : units) {
    const auto size = static_cast<double>(unit.size);
    if (std::fabs(bytes) >= size) return three_digits(bytes / size) + unit.name;
  }
  return format_amount(std::trunc(bytes)) + " B";
}

std::int64_t whole_number(double value) {
  constexpr double kMost = 9223372036854774784.0;  // the largest double below 2^63
  return static_cast<std::int64_t>(std::clamp(std::round(value), -kMost, kMost));
}

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string format_amount(double amount) {
  constexpr double kExponentFrom = 1e15;
  if (std::fabs(amount) < kExponentFrom) return format_count(whole_number(amount));
  return scientific_text(amount, 2);
}

std::string format_rate(double rate) {
  if (rate >= 100) return format_amount(rate);
  constexpr double kFew = 0.095;  // below, two decimals say less than two digits: 0.0011
  int decimals = 2;
  for (double rest = rate; rest > 0 && rest < kFew && decimals < 8; rest *= 10) ++decimals;
  return format_fixed(rate, decimals);
}

std::string plural(std::int64_t count, std::string_view noun) {
  return std::string(noun).append(count == 1 ? "" : "s");
}

std::string format_counted(std::int64_t count, std::string_view noun) {
  return format_count(count) + " " + plural(count, noun);
}

std::string format_flops(double flops) {
  struct Unit {
    double size;
    const char* name;
  };
  constexpr std::array<Unit, 6> units = {
      {{1e18, " EFLOP"}, {1e15, " PFLOP"}, {1e12, " TFLOP"}, {1e9, " GFLOP"}, {1e6, " MFLOP"}, {1e3, " kFLOP"}}};
  for (const Unit& unit : units) {
    if (flops >= unit.size) return three_digits(flops / unit.size) + unit.name;
  }
  return format_fixed(flops, 0) + " FLOP";
}

std::string format_seconds(double seconds) {
  constexpr double kHour = 3600, kDay = 24 * kHour;
  if (seconds >= 2 * kDay) return three_digits(seconds / kDay) + " days";
  if (seconds >= kHour) return three_digits(seconds / kHour) + " h";
  if (seconds >= 1) return three_digits(seconds) + " s";
  if (seconds >= 1e-3) return three_digits(seconds * 1e3) + " ms";
  return three_digits(seconds * 1e6) + " us";
}

std::string format_percent(double part, double whole) {
  return format_fixed(whole > 0 ? 100 * part / whole : 0, 1) + " %";
}

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string pad_right(std::string_view text, std::size_t columns) {
  std::string padded(text);
  const std::size_t used = columns_of(text);
  if (used < columns) padded.append(columns - used, ' ');
  return padded;
}

std::string pad_left(std::string_view text, std::size_t columns) {
  const std::size_t used = columns_of(text);
  std::string padded(used < columns ? columns - used : 0, ' ');
  padded += text;
  return padded;
}

std::vector<std::string> wrap(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines;
  std::string line;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    begin = end + 1;
    if (word.empty()) continue;
    if (!line.empty() && columns_of(line) + 1 + columns_of(word) > columns) {
      lines.push_back(std::move(line));
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string bar(double fraction, std::size_t columns, bool unicode) {
  if (!(fraction > 0)) return {};
  const double cells = std::min(fraction, 1.0) * static_cast<double>(columns);
  if (!unicode) return std::string(std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(cells))), '#');
  constexpr std::array<const char*, 8> eighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto ink = static_cast<std::size_t>(std::max(1L, std::lround(cells * 8)));
  std::string drawn;
  for (std::size_t i = 0; i < ink / 8; ++i) drawn += "█";
  drawn += eighths.at(ink % 8);
  return drawn;
}

}  // namespace memcalc
