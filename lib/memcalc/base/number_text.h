// Numbers from text and as text, the same on every system and in every locale: std::from_chars and std::to_chars of
// double, which the C++ library of emscripten 3.1.6 does not have. Covered by tests/unit/number_text_test.cc.
#pragma once

#include <charconv>
#include <string>

namespace memcalc {

/// As std::from_chars(first, last, value).
[[nodiscard]] std::from_chars_result parse_number(const char* first, const char* last, double& value);

/// The shortest text that reads back as the same number: "0.1", "1e+20".
[[nodiscard]] std::string shortest_text(double value);

/// The same without an exponent: "100000000000000000000".
[[nodiscard]] std::string shortest_fixed_text(double value);

/// As printf's %.*f, %.*e and %.*g.
[[nodiscard]] std::string fixed_text(double value, int decimals);
[[nodiscard]] std::string scientific_text(double value, int decimals);
[[nodiscard]] std::string general_text(double value, int digits);

}  // namespace memcalc
