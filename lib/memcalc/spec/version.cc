#include "memcalc/spec/version.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <system_error>

namespace memcalc {

std::optional<Version> version_of(std::string_view text) {
  if (text.starts_with('v')) text.remove_prefix(1);
  Version version;
  const char* at = text.data();
  const char* const end = at + text.size();
  int parts = 0;
  for (std::int16_t* part : {&version.major, &version.minor, &version.patch}) {
    const auto [rest, error] = std::from_chars(at, end, *part);
    if (error != std::errc{} || *part < 0) break;
    ++parts;
    at = rest;
    if (rest == end || *rest != '.') break;
    at = rest + 1;
  }
  // What may follow says how it was built: +cu130, rc1, .dev0, .post1.
  const bool is_whole = at == end || *at == '+' || (*at >= 'a' && *at <= 'z') || parts == 3;
  if (parts < 2 || !is_whole) return std::nullopt;
  return version;
}

bool names_patch(std::string_view text) {
  text = text.substr(0, text.find('+'));
  return std::count(text.begin(), text.end(), '.') >= 2;
}

std::string text_of(const Version& version) {
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

}  // namespace memcalc
