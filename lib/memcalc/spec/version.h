// Version: of a piece of software, as three numbers. "2.11.0+cu130" is 2.11.0.
// Covered by tests/unit/profiles_test.cc.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace memcalc {

struct Version {
  std::int16_t major = 0, minor = 0, patch = 0;

  friend constexpr auto operator<=>(const Version&, const Version&) = default;
  [[nodiscard]] constexpr bool known() const { return *this != Version{}; }
};

/// "5.17", "5.17.0", "2.11.0+cu130", "5.18.0.dev0"; nothing for a text that is no version.
[[nodiscard]] std::optional<Version> version_of(std::string_view text);

/// Whether a version is said to its last number: "5.17.0", not "5.17".
[[nodiscard]] bool names_patch(std::string_view text);

/// "5.17.0"
[[nodiscard]] std::string text_of(const Version& version);

}  // namespace memcalc
