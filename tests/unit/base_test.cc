// base/: checked byte arithmetic and the element types.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string_view>

#include "memcalc/base/bytes.h"
#include "memcalc/base/dtype.h"
#include "memcalc/base/error.h"

namespace memcalc {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

template <typename Function>
ErrorCode code_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kInternal;
}

TEST(Bytes, AddsAndMultipliesUpTo63Bits) {
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_multiply(std::int64_t{1} << 31, std::int64_t{1} << 31), std::int64_t{1} << 62);
  EXPECT_EQ(checked_multiply(kMax, 1), kMax);
}

TEST(Bytes, RefusesWhatDoesNotFit) {
  EXPECT_EQ(code_of([] { (void)checked_add(kMax, 1); }), ErrorCode::kOverflow);
  EXPECT_EQ(code_of([] { (void)checked_multiply(std::int64_t{1} << 32, std::int64_t{1} << 31); }),
            ErrorCode::kOverflow);
  EXPECT_EQ(code_of([] { (void)round_up(kMax, 512); }), ErrorCode::kOverflow);
}

TEST(Bytes, RoundsUpToAStep) {
  struct Case {
    std::int64_t value, step, expected;
  };
  for (const Case& c : {Case{0, 512, 0}, Case{1, 512, 512}, Case{512, 512, 512}, Case{513, 512, 1024}, Case{7, 3, 9}}) {
    EXPECT_EQ(round_up(c.value, c.step), c.expected) << c.value << " to a multiple of " << c.step;
  }
  EXPECT_EQ(ceil_div(0, 4), 0);
  EXPECT_EQ(ceil_div(8, 4), 2);
  EXPECT_EQ(ceil_div(9, 4), 3);
}

TEST(DTypes, HaveTorchsNamesAndSizes) {
  struct Case {
    DType dtype;
    std::string_view name;
    std::int64_t bytes;
    bool floating, half;
  };
  for (const Case& c : {
           Case{DType::kFloat64, "float64", 8, true, false},
           Case{DType::kFloat32, "float32", 4, true, false},
           Case{DType::kFloat16, "float16", 2, true, true},
           Case{DType::kBFloat16, "bfloat16", 2, true, true},
           Case{DType::kInt64, "int64", 8, false, false},
           Case{DType::kInt32, "int32", 4, false, false},
           Case{DType::kUInt8, "uint8", 1, false, false},
           Case{DType::kBool, "bool", 1, false, false},
       }) {
    EXPECT_EQ(name_of(c.dtype), c.name);
    EXPECT_EQ(size_of(c.dtype), c.bytes) << c.name;
    EXPECT_EQ(is_floating(c.dtype), c.floating) << c.name;
    EXPECT_EQ(is_half(c.dtype), c.half) << c.name;
  }
}

}  // namespace
}  // namespace memcalc
