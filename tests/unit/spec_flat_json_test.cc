// A text read straight into a list is what its tree would be as one, and what is wrong in it is said in the same words.
#include "memcalc/spec/flat_json.h"

#include <gtest/gtest.h>

#include <string>

#include "memcalc/base/error.h"
#include "support/error_text.h"

namespace memcalc {
namespace {

constexpr const char* kFile = "a.json";

std::string text_of(const FlatValue& value) {
  return std::to_string(static_cast<int>(value.kind)) + " " + std::to_string(value.integer) + " " +
         std::to_string(value.number) + " " + std::to_string(value.end) + " " + std::string(value.text);
}

TEST(FlatJson, IsWhatTheTreeIs) {
  for (const char* text : {
           "null", " [ ] ", "{}",
           R"([true, false, null, "", "a b", 0, -0, -12, 9223372036854775807, 1.5, -2e3, 4.0, 1E+2, 1e-7])",
           "{\"a\": {\"b\": [1, [2, [3, {}]], {\"c\": 4}]},\n\t\"d\": \"e\", \"\": 5}",
           R"(["a \"word\" and \u00e4 and ä", {"k\n": "\\"}])",            // as parse_any_json() reads them
           "[9223372036854775808, 18446744073709551615, 1e400000000000]",  // beyond int64
       }) {
    SCOPED_TRACE(text);
    JsonNode tree;
    try {
      tree = parse_any_json(text, kFile);
    } catch (const Error& error) {
      EXPECT_EQ(error_text([&] { (void)FlatJson::parse(text, kFile); }), error.what());
      continue;
    }
    const FlatJson read = FlatJson::parse(text, kFile), expected(tree);
    ASSERT_EQ(read.at(0).end, expected.at(0).end);
    for (std::uint32_t i = 0; i < expected.at(0).end; ++i) {
      EXPECT_EQ(text_of(read.at(i)), text_of(expected.at(i))) << i;
    }
  }
}

TEST(FlatJson, HoldsItsStringsWhereverItGoes) {
  FlatJson moved = FlatJson::parse("[\"x\"]", kFile);
  const FlatJson read = std::move(moved);
  EXPECT_EQ(read.at(1).text, "x");
}

TEST(FlatJson, IsRefusedAsATreeIs) {
  for (const std::string& text : {std::string(),
                                  std::string(" "),
                                  std::string("[1, 2"),
                                  std::string("[1,]"),
                                  std::string("{\"a\": 1, \"a\": 2}"),
                                  std::string("{\"a\" 1}"),
                                  std::string("[01]"),
                                  std::string("[1.]"),
                                  std::string("[-]"),
                                  std::string("[+1]"),
                                  std::string("[.5]"),
                                  std::string("[1e]"),
                                  std::string("[NaN]"),
                                  std::string("[nul]"),
                                  std::string("[\"a]"),
                                  std::string("[1] 2"),
                                  std::string("[\"a\tb\"]"),
                                  std::string("[1e999]"),
                                  std::string("{1: 2}"),
                                  std::string(100, '['),
                                  std::string("\"\xff\"")}) {
    SCOPED_TRACE(text);
    const std::string said = error_text([&] { (void)parse_any_json(text, kFile); });
    EXPECT_FALSE(said.empty());
    EXPECT_EQ(error_text([&] { (void)FlatJson::parse(text, kFile); }), said);
  }
}

// Items of the one array that may stay unread are the same once they are read.
TEST(FlatJson, ReadsItemsLater) {
  const std::string text = R"({"a": [1], "later": [{"b": ["]", {"c": 1}]}, [2, "}"], 3], "z": {"later": [{}]}})";
  const FlatJson all = FlatJson::parse(text, kFile), read = FlatJson::parse(text, kFile, "later");
  const std::uint32_t items = 6;  // behind the object, "a" and its array of one, "later" and its array
  ASSERT_EQ(all.at(items).kind, JsonNode::Kind::kObject);
  EXPECT_TRUE(read.at(items).is_unread);
  EXPECT_EQ(read.at(items).text, R"({"b": ["]", {"c": 1}]})");
  EXPECT_TRUE(read.at(items + 1).is_unread);
  EXPECT_FALSE(read.at(items + 2).is_unread);
  EXPECT_EQ(read.at(items + 2).integer, 3);
  EXPECT_EQ(read.at(items - 1).end, items + 3);
  const FlatJson item = read.read_later(items, 0, kFile);
  ASSERT_EQ(item.at(0).end, all.at(items).end - items);
  for (std::uint32_t i = 0; i < item.at(0).end; ++i) {
    EXPECT_EQ(item.at(i).text, all.at(items + i).text);
    EXPECT_EQ(item.at(i).integer, all.at(items + i).integer);
    EXPECT_EQ(item.at(i).end + items, all.at(items + i).end);
  }
  EXPECT_FALSE(read.at(items + 6).is_unread) << "that of an object inside";
}

// What is wrong in an item is said when it is read, with the line of the whole text; what is only unusual is read.
TEST(FlatJson, RefusesItemsAsTheyAreRead) {
  const std::string wrong = "{\"later\":\n[{}, [1,, 2]]}";
  const FlatJson read = FlatJson::parse(wrong, kFile, "later");
  const std::string said = error_text([&] { (void)parse_any_json(wrong, kFile); });
  EXPECT_FALSE(said.empty());
  EXPECT_EQ(error_text([&] { (void)read.read_later(4, 1, kFile); }), said);
  const FlatJson unusual = FlatJson::parse(R"({"later": [[], ["ä"]]})", kFile, "later");
  ASSERT_TRUE(unusual.at(4).is_unread);
  EXPECT_EQ(unusual.read_later(4, 1, kFile).at(1).text, "ä");
  for (const char* text : {R"({"later": [{"a": 1]})", R"({"later": [["a]]})", R"({"later": [}]})",
                           R"({"later": [[]] 1})", R"({"later": [{}], "later": []})", R"({"later": ["\"]", [)"}) {
    SCOPED_TRACE(text);
    EXPECT_EQ(error_text([&] { (void)FlatJson::parse(text, kFile, "later"); }),
              error_text([&] { (void)parse_any_json(text, kFile); }));
  }
}

}  // namespace
}  // namespace memcalc
