// report/quantity: numbers as people read them, whatever the locale.
#include "memcalc/report/quantity.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace memcalc {
namespace {

TEST(Quantity, Bytes) {
  const struct {
    Bytes bytes;
    const char* text;
  } cases[] = {
      {0, "0 B"},
      {504, "504 B"},
      {1023, "1,023 B"},
      {1024, "1.00 KiB"},
      {512 * kKiB, "512 KiB"},
      {kMiB, "1.00 MiB"},
      {kMiB - 1, "1,024 KiB"},
      {32 * kMiB, "32.0 MiB"},
      {7913523200, "7.37 GiB"},
      {85017493504, "79.2 GiB"},
      {1000 * kGiB, "1,000 GiB"},
      {-3 * kGiB / 2, "-1.50 GiB"},
      {std::numeric_limits<Bytes>::max(), "8,589,934,592 GiB"},
  };
  for (const auto& each : cases) EXPECT_EQ(format_bytes(each.bytes), each.text) << each.bytes;
}

TEST(Quantity, ThreeDigitsDoNotBecomeFour) {
  EXPECT_EQ(format_bytes(10 * kGiB - 1), "10.0 GiB");  // not "10.00 GiB"
  EXPECT_EQ(format_bytes(100 * kGiB - 1), "100 GiB");  // not "100.0 GiB"
}

TEST(Quantity, BeyondSixtyThreeBits) {
  EXPECT_EQ(format_bytes_moved(0x1p70), "1,099,511,627,776 GiB");  // 2^40 of 2^30
  EXPECT_EQ(format_bytes_moved(-1536), "-1.50 KiB");
  EXPECT_EQ(format_count(whole_number(1e300)), "9,223,372,036,854,774,784");
  EXPECT_EQ(whole_number(2.5), 3);
}

TEST(Quantity, ZeroHasNoSign) {
  EXPECT_EQ(format_fixed(-0.04, 1), "0.0");
  EXPECT_EQ(format_fixed(-0.0, 0), "0");
  EXPECT_EQ(format_fixed(-0.06, 1), "-0.1");
  EXPECT_EQ(format_percent(-0.0001, 1), "0.0 %");
  EXPECT_EQ(format_exact(-0.0), "0");
  EXPECT_EQ(format_exact(-0.5), "-0.5");
}

TEST(Quantity, AmountsBeyondWhatIsCounted) {
  EXPECT_EQ(format_amount(1234.4), "1,234");
  EXPECT_EQ(format_amount(999'999'999'999'999), "999,999,999,999,999");
  EXPECT_EQ(format_amount(1e15), "1.00e+15");
  EXPECT_EQ(format_amount(1e308), "1.00e+308");
  EXPECT_EQ(format_amount(-0.2), "0");
}

TEST(Quantity, RatesKeepTwoDigits) {
  EXPECT_EQ(format_rate(1234.4), "1,234");
  EXPECT_EQ(format_rate(12.3), "12.30");
  EXPECT_EQ(format_rate(0.12), "0.12");
  EXPECT_EQ(format_rate(0.0841), "0.084");
  EXPECT_EQ(format_rate(0.00107), "0.0011");
  EXPECT_EQ(format_rate(0), "0.00");
}

TEST(Quantity, OneIsNoPlural) {
  EXPECT_EQ(format_counted(0, "step"), "0 steps");
  EXPECT_EQ(format_counted(1, "step"), "1 step");
  EXPECT_EQ(format_counted(1024, "step"), "1,024 steps");
}

TEST(Quantity, Counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(335143938), "335,143,938");
  EXPECT_EQ(format_count(-123456), "-123,456");
  EXPECT_EQ(format_count(-123), "-123");
}

TEST(Quantity, Flops) {
  EXPECT_EQ(format_flops(0), "0 FLOP");
  EXPECT_EQ(format_flops(999), "999 FLOP");
  EXPECT_EQ(format_flops(4.07e12), "4.07 TFLOP");
  EXPECT_EQ(format_flops(1e20), "100 EFLOP");
}

TEST(Quantity, NumbersInFull) {
  EXPECT_EQ(format_exact(18), "18");
  EXPECT_EQ(format_exact(0.1), "0.1");
  EXPECT_EQ(format_exact(4.07e20), "407000000000000000000");
  EXPECT_EQ(format_fixed(1e300, 0).size(), 301U);
  EXPECT_EQ(format_percent(1, 3), "33.3 %");
  EXPECT_EQ(format_percent(1, 0), "0.0 %");
}

TEST(Quantity, PaddingCountsCharactersNotBytes) {
  EXPECT_EQ(columns_of("a·b"), 3U);
  EXPECT_EQ(pad_right("·", 3), "·  ");
  EXPECT_EQ(pad_left("█▏", 4), "  █▏");
  EXPECT_EQ(pad_left("longer", 3), "longer");
}

TEST(Quantity, Wrapping) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrap("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(wrap("a-word-too-long b", 5), (Lines{"a-word-too-long", "b"}));
  EXPECT_EQ(wrap("", 5), Lines{});
  EXPECT_EQ(wrap("  a   b ", 5), (Lines{"a b"}));
}

TEST(Quantity, Bars) {
  EXPECT_EQ(bar(0, 8, true), "");
  EXPECT_EQ(bar(1, 4, true), "████");
  EXPECT_EQ(bar(0.5, 1, true), "▌");
  EXPECT_EQ(bar(1e-9, 8, true), "▏") << "what is there leaves ink";
  EXPECT_EQ(bar(2, 4, false), "####") << "never longer than asked";
  EXPECT_EQ(bar(1e-9, 8, false), "#");
  EXPECT_EQ(bar(std::numeric_limits<double>::quiet_NaN(), 8, true), "");
}

}  // namespace
}  // namespace memcalc
