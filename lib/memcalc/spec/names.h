// Names: which of the known names a mistyped one was probably meant to be.
// Covered by tests/unit/spec_registry_test.cc.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace memcalc {

/// Edit distance with insertion, deletion, substitution and exchange of neighbours; ASCII case is ignored, and dashes
/// and underscores are the same.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidates nearest to `name`, in alphabetical order, at most `limit` of them; none where even the nearest is
/// too far away to be worth proposing: three edits, two below 12 letters, one below 6. Where none is near, those
/// that begin with `name`, if there are at most `limit`.
[[nodiscard]] std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> candidates,
                                                     std::size_t limit = 3);

/// "; did you mean 'bert-large'?" or, with several, "; did you mean 'a', 'b' or 'c'?"; empty without candidates.
[[nodiscard]] std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

/// The same for names that were chosen already.
[[nodiscard]] std::string did_you_mean(std::span<const std::string> near);

/// Lower-cased copy; only ASCII letters change, whatever the locale.
[[nodiscard]] std::string ascii_lower(std::string_view text);

/// Whether there are digits, and nothing else.
[[nodiscard]] bool is_digits(std::string_view text);

/// ascii_lower(), with '-' between words where `name` has '_', '-' or a space: names that differ in that are the same.
[[nodiscard]] std::string folded_name(std::string_view name);

/// folded_name() of an option, with or without the dashes before it.
[[nodiscard]] std::string folded_option(std::string_view name);

/// Bytes of the UTF-8 character that `text` begins with; 0 where it begins with none (or is empty).
[[nodiscard]] std::size_t utf8_length(std::string_view text);

/// `text` fit for one line of a message: control characters and what is not UTF-8 escaped, cut after `limit` bytes.
[[nodiscard]] std::string one_line(std::string_view text, std::size_t limit = 60);

/// "a, b, c"
[[nodiscard]] std::string join(std::span<const std::string> names, std::string_view separator = ", ");

}  // namespace memcalc
