// What a keyword's value must be: each function reads one, or throws the OptionError that names the keyword, says what
// is accepted and what was found.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "errors.h"

namespace memcalc::python {

[[noreturn]] void refuse(const std::string& keyword, const std::string& expected, pybind11::handle found);

/// Anything with __index__ but a bool: NumPy's integers, too.
[[nodiscard]] std::int64_t whole_from(const std::string& keyword, pybind11::handle value, std::int64_t least);

/// Finite, 0 or more: whatever is a numbers.Real and no bool.
[[nodiscard]] double number_from(const std::string& keyword, pybind11::handle value);

/// A bool, or NumPy's.
[[nodiscard]] bool truth_from(const std::string& keyword, pybind11::handle value);

[[nodiscard]] std::string text_from(const std::string& keyword, const std::string& expected, pybind11::handle value);

/// A sequence of str, which a str itself is not.
[[nodiscard]] std::vector<std::string> texts_from(const std::string& keyword, pybind11::handle value);

/// One of an option's names; the nearest is offered for another word.
template <typename Enum, std::size_t kSize>
[[nodiscard]] Enum choice_from(const std::string& keyword, pybind11::handle value,
                               const std::array<std::string_view, kSize>& names) {
  const std::vector<std::string> accepted(names.begin(), names.end());
  const std::string text = text_from(keyword, "one of " + join(accepted), value);
  if (const std::optional<Enum> chosen = enum_from<Enum>(names, text)) return *chosen;
  throw OptionError(keyword, keyword + ": expected one of " + join(accepted) + ", found '" + one_line(text) + "'" +
                                 did_you_mean(text, accepted));
}

}  // namespace memcalc::python
