// Bytes: every size in memcalc is a signed 64-bit count of bytes, computed with overflow detection.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "memcalc/base/error.h"

namespace memcalc {

using Bytes = std::int64_t;

inline constexpr Bytes kKiB = Bytes{1} << 10;
inline constexpr Bytes kMiB = Bytes{1} << 20;
inline constexpr Bytes kGiB = Bytes{1} << 30;

[[nodiscard]] inline double in_gib(Bytes bytes) { return static_cast<double>(bytes) / static_cast<double>(kGiB); }
/// Rounded to the nearest byte. Pre: below 2^33 GiB.
[[nodiscard]] inline Bytes bytes_of_gib(double gib) {
  return static_cast<Bytes>(std::llround(gib * static_cast<double>(kGiB)));
}

/// a + b; throws Error(kOverflow) where the sum leaves 63 bits.
[[nodiscard]] inline std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) throw overflow_error();
  return sum;
}

/// a * b; throws Error(kOverflow) where the product leaves 63 bits.
[[nodiscard]] inline std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw overflow_error();
  return product;
}

/// Smallest multiple of `step` (> 0) that is >= value (>= 0).
[[nodiscard]] inline std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return checked_add(value, step - 1) / step * step;
}

[[nodiscard]] inline std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

/// The smallest power of two that is not below `bytes` (>= 0); 0 for 0. Throws Error(kOverflow) beyond 2^62.
[[nodiscard]] inline Bytes power_of_two_from(Bytes bytes) {
  if (bytes > (Bytes{1} << 62)) throw overflow_error();
  return bytes == 0 ? 0 : static_cast<Bytes>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
}

/// A double's bits, as an integer: std::bit_cast, which the C++ library of emscripten 3.1.6 does not have.
[[nodiscard]] constexpr std::uint64_t bits_of(double value) { return __builtin_bit_cast(std::uint64_t, value); }

}  // namespace memcalc
