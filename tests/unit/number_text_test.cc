// base/number_text: numbers as text and back. What stands here is what std::from_chars and std::to_chars do; the page's
// tests (tests/web) compare what is made without them.
#include "memcalc/base/number_text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <system_error>

namespace memcalc {
namespace {

TEST(NumberText, Written) {
  EXPECT_EQ(shortest_text(0.1), "0.1");
  EXPECT_EQ(shortest_text(1e20), "1e+20");
  EXPECT_EQ(shortest_text(-2.5), "-2.5");
  EXPECT_EQ(shortest_text(0), "0");
  EXPECT_EQ(shortest_fixed_text(1e20), "100000000000000000000");
  EXPECT_EQ(shortest_fixed_text(0.000001), "0.000001");
  EXPECT_EQ(fixed_text(2.345, 1), "2.3");
  EXPECT_EQ(fixed_text(1e300, 0).size(), 301U);
  EXPECT_EQ(scientific_text(12345, 2), "1.23e+04");
  EXPECT_EQ(general_text(0.00012345678, 4), "0.0001235");
}

TEST(NumberText, Read) {
  const struct {
    std::string_view text;
    double value;
    std::size_t read;
  } cases[] = {{"0.5", 0.5, 3}, {"-1e3x", -1000, 4}, {"1008GB/s", 1008, 4}, {".5", 0.5, 2}, {"0x10", 0, 1}};
  for (const auto& each : cases) {
    double value = -1;
    const auto [rest, error] = parse_number(each.text.data(), each.text.data() + each.text.size(), value);
    EXPECT_EQ(error, std::errc{}) << each.text;
    EXPECT_EQ(value, each.value) << each.text;
    EXPECT_EQ(static_cast<std::size_t>(rest - each.text.data()), each.read) << each.text;
  }
}

TEST(NumberText, NotRead) {
  for (const std::string_view text : {"", "+1", " 1", "x", "-"}) {
    double value = 7;
    const auto [rest, error] = parse_number(text.data(), text.data() + text.size(), value);
    EXPECT_EQ(error, std::errc::invalid_argument) << text;
    EXPECT_EQ(rest, text.data()) << text;
    EXPECT_EQ(value, 7) << text;
  }
  const std::string_view huge = "1e999";
  double value = 7;
  EXPECT_EQ(parse_number(huge.data(), huge.data() + huge.size(), value).ec, std::errc::result_out_of_range);
}

}  // namespace
}  // namespace memcalc
