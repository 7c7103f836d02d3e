// Measured rows of one kind, and what is reached for them: how many are right to the byte, how far off the worst is.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>

namespace memcalc::measured {

struct RowGroup {
  const char* name;
  std::size_t rows, exact_allocated, exact_reserved;
  double max_allocated_error, max_reserved_error;
  std::size_t seen = 0, allocated = 0, reserved = 0;

  /// A row's errors (error_of); 0 only where all bytes are equal.
  void add(double allocated_error, double reserved_error) {
    ++seen;
    allocated += allocated_error == 0 ? 1U : 0U;
    reserved += reserved_error == 0 ? 1U : 0U;
    EXPECT_LE(allocated_error, max_allocated_error);
    EXPECT_LE(reserved_error, max_reserved_error);
  }

  void expect_what_was_reached() const {
    EXPECT_EQ(seen, rows) << name;
    EXPECT_GE(allocated, exact_allocated) << name;
    EXPECT_GE(reserved, exact_reserved) << name;
  }
};

}  // namespace memcalc::measured
