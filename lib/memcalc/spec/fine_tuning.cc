#include "memcalc/spec/fine_tuning.h"

#include <array>
#include <charconv>
#include <cstddef>

namespace memcalc {
namespace {

using Version = std::array<int, 3>;

/// "0.43.2", "0.50"; nothing for a text that is no version.
std::optional<Version> version_of(std::string_view text) {
  Version version{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::size_t part = 0; part < version.size(); ++part) {
    const auto [rest, error] = std::from_chars(at, end, version[part]);
    if (error != std::errc{}) return std::nullopt;
    if (rest == end) return part > 0 ? std::optional(version) : std::nullopt;
    if (*rest != '.') return std::nullopt;
    at = rest + 1;
  }
  return std::nullopt;
}

}  // namespace

bool has_nf4(std::string_view bitsandbytes) {
  constexpr Version kBroughtNf4 = {0, 39, 0};
  const auto version = version_of(bitsandbytes);
  return version && *version >= kBroughtNf4;
}

bool keeps_packed_inputs(std::string_view bitsandbytes) {
  constexpr Version kKeepsNone = {0, 43, 2};
  return version_of(bitsandbytes).value_or(kKeepsNone) < kKeepsNone;
}

}  // namespace memcalc
