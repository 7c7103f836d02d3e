#include "memcalc/spec/names.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <utility>

namespace memcalc {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// What is the same letter when names are compared: case does not count, and people mix dashes with underscores.
char folded(char c) { return c == '_' ? '-' : lower(c); }

// Names and keys are short; a longer one is a mistake of another kind and is not compared.
constexpr std::size_t kLongestCompared = 96;

// How many edits a typing mistake makes, by the length of the shorter name: one in "lama", two in "familie". Three in
// ten letters make another name: llava-1.5-7b is no llama-1-7b.
std::size_t most_edits(std::size_t shorter) {
  if (shorter < 3) return 0;
  if (shorter < 6) return 1;
  return shorter < 12 ? 2 : 3;
}

bool begins_with(std::string_view name, std::string_view start) {
  return name.size() >= start.size() &&
         std::equal(start.begin(), start.end(), name.begin(), [](char a, char b) { return folded(a) == folded(b); });
}

// "--optim" for "--optimizer": the candidates that begin so, where they are few.
std::vector<std::string> continuations_of(std::string_view name, std::span<const std::string> candidates,
                                          std::size_t limit) {
  constexpr std::size_t kShortest = 3;
  std::vector<std::string> result;
  if (name.size() < kShortest) return result;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(result),
               [&](const std::string& candidate) { return begins_with(candidate, name); });
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  if (result.size() > limit) result.clear();
  return result;
}

}  // namespace

std::string ascii_lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), lower);
  return result;
}

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string folded_name(std::string_view name) {
  std::string text(name);
  std::transform(text.begin(), text.end(), text.begin(), [](char c) { return c == ' ' ? '-' : folded(c); });
  return text;
}

std::string folded_option(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  return folded_name(name);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  if (a.size() > kLongestCompared || b.size() > kLongestCompared) return std::max(a.size(), b.size());
  // Optimal string alignment: three rows of the dynamic programme (the exchange looks two rows back).
  std::array<std::array<std::size_t, kLongestCompared + 1>, 3> rows;
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& above = rows[(i - 1) % 3];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = folded(a[i - 1]) == folded(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) && folded(a[i - 2]) == folded(b[j - 1])) {
        row[j] = std::min(row[j], rows[(i - 2) % 3][j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> candidates,
                                       std::size_t limit) {
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance <= most_edits(std::min(name.size(), candidate.size()))) near.emplace_back(distance, candidate);
  }
  if (near.empty()) return continuations_of(name, candidates, limit);
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  std::vector<std::string> result;
  for (auto& [distance, candidate] : near) {
    // Names farther away than the best one are noise beside it.
    if (result.size() == limit || distance > near.front().first) break;
    result.push_back(std::move(candidate));
  }
  return result;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  return did_you_mean(nearest_names(name, candidates));
}

std::string did_you_mean(std::span<const std::string> near) {
  if (near.empty()) return "";
  std::string text = "; did you mean ";
  for (std::size_t i = 0; i < near.size(); ++i) {
    if (i > 0) text += i + 1 == near.size() ? " or " : ", ";
    text += "'" + one_line(near[i]) + "'";
  }
  return text + "?";
}

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  // Longer than needed, a surrogate, or beyond the last code point.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) return 0;
  if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

std::string one_line(std::string_view text, std::size_t limit) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text.substr(at));
    if (at + std::max<std::size_t>(length, 1) > limit) return result + "…";
    const auto byte = static_cast<std::uint8_t>(text[at]);
    if (byte == '\n') {
      result += "\\n";
    } else if (byte == '\t') {
      result += "\\t";
    } else if (length == 0 || byte < 0x20 || byte == 0x7F) {
      result += "\\x";
      result += digits[byte >> 4U];
      result += digits[byte & 15U];
    } else {
      result += text.substr(at, length);
    }
    at += std::max<std::size_t>(length, 1);
  }
  return result;
}

std::string join(std::span<const std::string> names, std::string_view separator) {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += separator;
    text += name;
  }
  return text;
}

}  // namespace memcalc
