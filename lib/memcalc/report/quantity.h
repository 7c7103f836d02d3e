// Numbers as people read them. Locale-proof: only to_chars, never iostreams or printf.
// Covered by tests/unit/quantity_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/base/bytes.h"

namespace memcalc {

/// 1.5 -> "1.50" with two decimals; never an exponent. What rounds to zero has no sign.
[[nodiscard]] std::string format_fixed(double value, int decimals);

/// The shortest text that reads back as the same double ("18", "0.1"): for CSV.
[[nodiscard]] std::string format_exact(double value);

/// Three significant digits in the largest binary unit: "7.37 GiB", "79.2 GiB", "512 MiB", "16.0 KiB", "504 B".
[[nodiscard]] std::string format_bytes(Bytes bytes);

/// The same of what may exceed 63 bits, as bytes that a step moves.
[[nodiscard]] std::string format_bytes_moved(double bytes);

/// The nearest whole number; the largest that there is where a value exceeds 63 bits.
[[nodiscard]] std::int64_t whole_number(double value);

/// 335143938 -> "335,143,938".
[[nodiscard]] std::string format_count(std::int64_t count);

/// The nearest whole number as format_count writes it; from 10^15 on three digits and an exponent, "1.00e+30".
[[nodiscard]] std::string format_amount(double amount);

/// "0.06", "29.45", "1,525": samples or tokens a second.
[[nodiscard]] std::string format_rate(double rate);

/// "step" of one, else "steps".
[[nodiscard]] std::string plural(std::int64_t count, std::string_view noun);

/// "1 step", "2 steps", "1,024 steps".
[[nodiscard]] std::string format_counted(std::int64_t count, std::string_view noun);

/// Three significant digits in the largest decimal unit: "4.07 TFLOP", "0 FLOP".
[[nodiscard]] std::string format_flops(double flops);

/// Three significant digits: "111 ms", "1.31 s", "63.0 us", "2.5 h"; days beyond two of them.
[[nodiscard]] std::string format_seconds(double seconds);

/// part / whole as "39.9 %"; "0.0 %" of nothing.
[[nodiscard]] std::string format_percent(double part, double whole);

/// Columns that a text takes: code points, since no text of ours is wide or combining.
[[nodiscard]] std::size_t columns_of(std::string_view text);

[[nodiscard]] std::string pad_right(std::string_view text, std::size_t columns);
[[nodiscard]] std::string pad_left(std::string_view text, std::size_t columns);

/// Lines of at most `columns`, broken at spaces; a longer word keeps its own line.
[[nodiscard]] std::vector<std::string> wrap(std::string_view text, std::size_t columns);

/// A bar of fraction * columns cells: eighth blocks of Unicode, or '#'. At least a trace of ink for any fraction > 0.
[[nodiscard]] std::string bar(double fraction, std::size_t columns, bool unicode);

}  // namespace memcalc
