// spec/config_files/config_text.h: YAML, TOML and JSON as one tree, and what is wrong in them.
#include "memcalc/spec/config_files/config_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "memcalc/base/error.h"

namespace memcalc {
namespace {

using testing::HasSubstr;
using Kind = JsonNode::Kind;

std::string refusal_of(std::string_view text, ConfigSyntax syntax) {
  try {
    (void)parse_config_text(text, syntax, "run.yml");
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(ConfigText, YamlIsReadAsPyYamlReadsIt) {
  const JsonNode root = parse_config_text("a: yes\nb: 1e-5\nc: '4'\nd: ~\ne: 1_000\nf: [q, v]\ng:\n  h: Off\n",
                                          ConfigSyntax::kYaml, "run.yml");
  ASSERT_EQ(root.children.size(), 7U);
  EXPECT_EQ(root.children[0].kind, Kind::kBool);
  EXPECT_TRUE(root.children[0].boolean);
  EXPECT_DOUBLE_EQ(root.children[1].number, 1e-5);
  EXPECT_EQ(root.children[2].kind, Kind::kString);  // in quotes
  EXPECT_EQ(root.children[3].kind, Kind::kNull);
  EXPECT_EQ(root.children[4].integer, 1000);
  EXPECT_EQ(root.children[5].children[1].text, "v");
  EXPECT_FALSE(root.children[6].children[0].boolean);
}

TEST(ConfigText, TomlHasItsTablesInTheOrderOfTheFile) {
  const JsonNode root = parse_config_text("[z]\nb = 1\na = 2.5\n[c.d]\ne = [\"f\"]\n", ConfigSyntax::kToml, "run.toml");
  ASSERT_EQ(root.children.size(), 2U);
  EXPECT_EQ(root.children[0].key, "z");
  EXPECT_EQ(root.children[0].children[0].key, "b");
  EXPECT_DOUBLE_EQ(root.children[0].children[1].number, 2.5);
  EXPECT_EQ(root.children[1].children[0].children[0].children[0].text, "f");
}

TEST(ConfigText, AnAliasIsWhatItStandsFor) {
  const JsonNode root = parse_config_text("a: &x [1, 2]\nb: *x\n", ConfigSyntax::kYaml, "run.yml");
  EXPECT_EQ(root.children[1].children.size(), 2U);
}

TEST(ConfigText, AliasesOfAliasesAreRefusedBeforeTheyFillTheMemory) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int k = 1; k < 10; ++k) text += ", " + before;
    text += "]\n";
  }
  EXPECT_THAT(refusal_of(text, ConfigSyntax::kYaml), HasSubstr("too many values"));
}

TEST(ConfigText, WhatIsNoMappingIsRefusedInOneLine) {
  EXPECT_THAT(refusal_of("", ConfigSyntax::kYaml), HasSubstr("the file is empty"));
  EXPECT_THAT(refusal_of(" \n", ConfigSyntax::kToml), HasSubstr("the file is empty"));
  EXPECT_THAT(refusal_of("# nothing\n", ConfigSyntax::kYaml), HasSubstr("found nothing at the top"));
  EXPECT_THAT(refusal_of("- a\n- b\n", ConfigSyntax::kYaml), HasSubstr("found a list at the top"));
  EXPECT_THAT(refusal_of("hello", ConfigSyntax::kYaml), HasSubstr("found a single value at the top"));
  EXPECT_THAT(refusal_of("{}", ConfigSyntax::kYaml), HasSubstr("the file has no keys"));
  EXPECT_THAT(refusal_of("a: 1\n---\nb: 2\n", ConfigSyntax::kYaml), HasSubstr("2 YAML documents"));
  EXPECT_THAT(refusal_of("a: [1\nb: 2\n", ConfigSyntax::kYaml), HasSubstr("not YAML"));
  EXPECT_THAT(refusal_of("\x01\x02", ConfigSyntax::kYaml), HasSubstr("found a single value at the top"));
  EXPECT_THAT(refusal_of("a: 1\n? [b, c]\n: 2\n", ConfigSyntax::kYaml), HasSubstr("a key is a name"));
  EXPECT_THAT(refusal_of("a = \n", ConfigSyntax::kToml), HasSubstr("line 1: not TOML"));
  EXPECT_THAT(refusal_of("a = 2026-11-23\n", ConfigSyntax::kToml), HasSubstr("a date or time"));
  EXPECT_THAT(refusal_of("{\"a\": 1,}", ConfigSyntax::kJson), HasSubstr("run.yml"));
}

TEST(ConfigText, AKeyThatStandsTwiceIsRefusedWithItsLine) {
  EXPECT_THAT(refusal_of("a: 1\nb: 2\na: 3\n", ConfigSyntax::kYaml), HasSubstr("line 3: the key 'a'"));
  EXPECT_THAT(refusal_of("a = 1\na = 2\n", ConfigSyntax::kToml), HasSubstr("not TOML"));
  EXPECT_THAT(refusal_of("{\"a\": 1, \"a\": 2}", ConfigSyntax::kJson), HasSubstr("a"));
}

TEST(ConfigText, AFileThatNestsWithoutEndIsRefused) {
  EXPECT_THAT(refusal_of("a: " + std::string(100'000, '[') + "\n", ConfigSyntax::kYaml), HasSubstr("run.yml"));
  EXPECT_THAT(refusal_of("a: " + std::string(100, '[') + "1" + std::string(100, ']'), ConfigSyntax::kYaml),
              HasSubstr("nested too deeply"));
}

TEST(ConfigText, WholeNumbersBeyond64BitsAreNotWrapped) {
  EXPECT_EQ(plain_scalar("9223372036854775807").integer, 9223372036854775807);
  EXPECT_EQ(plain_scalar("9223372036854775808").kind, Kind::kNumber);
  EXPECT_EQ(plain_scalar("-1").integer, -1);
  EXPECT_EQ(plain_scalar("nan").kind, Kind::kString);
  EXPECT_EQ(plain_scalar("1.2.3").kind, Kind::kString);
}

}  // namespace
}  // namespace memcalc
