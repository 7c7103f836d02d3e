// Every kind of wrong JSON gives exactly one expected line; right JSON is read exactly.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>

#include "memcalc/base/error.h"
#include "memcalc/spec/json_reader.h"
#include "support/error_text.h"

namespace memcalc {
namespace {

JsonDocument parse(const std::string& text) { return JsonDocument::parse(text, "a.json"); }

struct BadText {
  const char* name;
  std::string text;
  const char* message;
};

class NotJson : public testing::TestWithParam<BadText> {};

TEST_P(NotJson, GivesOneClearLine) {
  EXPECT_EQ(error_text([] { static_cast<void>(parse(GetParam().text)); }), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, NotJson,
    testing::Values(
        BadText{"empty", "", "a.json: the file is empty; accepted: a JSON object"},
        BadText{"blank", " \n\n", "a.json: the file is empty; accepted: a JSON object"},
        BadText{"array", "[1, 2]", "a.json: found an array of 2; accepted: an object"},
        BadText{"number", "12", "a.json: found 12; accepted: an object"},
        BadText{"truncated_in_a_number", "{\n  \"n_layer\": 1",
                "a.json: line 2, column 15: the file ends within a value: it is truncated"},
        BadText{"truncated_in_a_string", "{\"model_type\": \"be",
                "a.json: line 1, column 19: the file ends within a value: it is truncated"},
        BadText{"truncated_in_an_object", "{\"a\": {\"b\": 1}",
                "a.json: line 1, column 15: the file ends within a value: it is truncated"},
        BadText{"two_values", "{} {}", "a.json: line 1, column 4: not JSON at \"{}\""},
        BadText{"closed_twice", "{}}", "a.json: line 1, column 3: not JSON at \"}\""},
        BadText{"single_quotes", "{'a': 1}", "a.json: line 1, column 2: not JSON at \"'a': 1}\""},
        BadText{"trailing_comma", "{\"a\": 1,\n}", "a.json: line 2, column 1: not JSON at \"}\""},
        BadText{"comment", "{\n// hidden\n\"a\": 1}",
                "a.json: line 2, column 1: not JSON at \"// hidden\\n\"a\": 1}\""},
        BadText{"nan", "{\"a\": NaN}",
                "a.json: line 1, column 7: /a: found NaN or Infinity; accepted: a finite number (JSON has no other)"},
        BadText{"small_nan", "{\"a\": nan}",
                "a.json: line 1, column 8: /a: found NaN or Infinity; accepted: a finite number (JSON has no other)"},
        BadText{
            "infinity", "{\"a\": {\"b\": Infinity}}",
            "a.json: line 1, column 13: /a/b: found NaN or Infinity; accepted: a finite number (JSON has no other)"},
        BadText{"minus_infinity", "{\"a\": -Infinity}",
                "a.json: line 1, column 8: /a: found NaN or Infinity; accepted: a finite number (JSON has no other)"},
        BadText{"beyond_a_double", "{\"a\": 1e999}",
                "a.json: line 1, column 11: found 1e999; accepted: a number that a double can hold"},
        BadText{"not_utf8", "{\"a\": \"\xff\xfe\"}", "a.json: line 1, column 8: /a: the file is not UTF-8"},
        BadText{"utf16", std::string("\xff\xfe{\0}\0", 6), "a.json: line 1, column 1: the file is not UTF-8"},
        BadText{"not_utf8_within_a_character", "{\"a\": \"\xc3(\"}",
                "a.json: line 1, column 9: /a: the file is not UTF-8"},
        BadText{"bare_key", "{info: 1}", "a.json: line 1, column 2: not JSON at \"info: 1}\""},
        BadText{"zero_byte", std::string("{\"a\": \0}", 8), "a.json: line 1, column 7: /a: not JSON at \"\\x00}\""},
        BadText{"repeated_key", R"({"a": 1, "b": 2, "a": 3})", "a.json: key \"a\" occurs more than once"},
        BadText{"repeated_key_inside", R"({"c": [{"x": 1, "x": 1}]})", "a.json: /c/0: key \"x\" occurs more than once"},
        BadText{"deep", std::string(10'000'000, '['), "a.json: nested deeper than 64 levels"},
        BadText{"deep_objects",
                [] {
                  std::string text;
                  for (int i = 0; i < 1'000'000; ++i) text += "{\"a\":";
                  return text;
                }(),
                "a.json: nested deeper than 64 levels"},
        BadText{"many_values",
                [] {
                  std::string text = "{\"a\": [0";
                  for (int i = 0; i < 1'000'001; ++i) text += ",0";
                  return text + "]}";
                }(),
                "a.json: more than 1000000 values; accepted: a config of a few hundred"}),
    [](const auto& test) { return test.param.name; });

struct BadValue {
  const char* name;
  const char* text;
  std::function<void(const JsonObject&)> read;
  const char* message;
};

class WrongValue : public testing::TestWithParam<BadValue> {};

// As fuzzing found: 60 levels of keys of 60 bytes.
TEST(JsonMessages, NameALongPlaceByItsEnd) {
  std::string text, end;
  for (int i = 0; i < 60; ++i) text += "{\"" + std::string(60, 'k') + "\": ";
  for (int i = 0; i < 60; ++i) end += "}";
  const std::string unreadable = error_text([&] { (void)parse(text + "nonsense" + end); });
  EXPECT_LT(unreadable.size(), 300U);
  EXPECT_TRUE(unreadable.starts_with("a.json: line 1, column 3902: …k")) << unreadable;
  const std::string repeated = error_text([&] { (void)parse(text + R"({"a": 1, "a": 2})" + end); });
  EXPECT_LT(repeated.size(), 300U);
  const JsonDocument document = parse(text + R"({"a": 1.5})" + end);
  JsonObject inner = document.root();
  for (int i = 0; i < 60; ++i) inner = inner.required_object(std::string(60, 'k'));
  const std::string wrong = error_text([&] { (void)inner.required_int("a"); });
  EXPECT_TRUE(wrong.ends_with("kkkk/a: found 1.5; accepted: an integer")) << wrong;
  EXPECT_LT(wrong.size(), 300U);
}

TEST_P(WrongValue, GivesOneClearLine) {
  const JsonDocument document = parse(GetParam().text);
  EXPECT_EQ(error_text([&] { GetParam().read(document.root()); }), GetParam().message);
}

void read_size(const JsonObject& json) { static_cast<void>(json.required_int("n_layer", {1, 1000})); }
void read_any_int(const JsonObject& json) { static_cast<void>(json.required_int("n_layer")); }
void read_probability(const JsonObject& json) { static_cast<void>(json.required_double("p", {0, 1})); }
void read_flag(const JsonObject& json) { static_cast<void>(json.required_bool("tie")); }
void read_name(const JsonObject& json) {
  constexpr std::string_view names[] = {"gelu", "relu"};
  static_cast<void>(json.required_choice("act", names));
}
void read_names(const JsonObject& json) { static_cast<void>(json.optional_strings("names")); }
void read_objects(const JsonObject& json) { static_cast<void>(json.optional_objects("list")); }
void read_inner(const JsonObject& json) { static_cast<void>(json.required_object("in/ner").required_int("a~b")); }
void read_strictly(const JsonObject& json) {
  constexpr std::string_view known[] = {"name", "source"};
  json.refuse_unknown_keys(known);
}

INSTANTIATE_TEST_SUITE_P(
    Values, WrongValue,
    testing::Values(
        BadValue{"missing", R"({"n_head": 1})", read_size, "a.json: missing key \"n_layer\""},
        BadValue{"mistyped_key", R"({"n_layers": 1})", read_size,
                 "a.json: missing key \"n_layer\"; did you mean 'n_layers'?"},
        BadValue{"zero", R"({"n_layer": 0})", read_size,
                 "a.json: /n_layer: found 0; accepted: an integer from 1 to 1000"},
        BadValue{"negative", R"({"n_layer": -12})", read_size,
                 "a.json: /n_layer: found -12; accepted: an integer from 1 to 1000"},
        BadValue{"fraction", R"({"n_layer": 2.5})", read_size,
                 "a.json: /n_layer: found 2.5; accepted: an integer from 1 to 1000"},
        BadValue{"whole_fraction", R"({"n_layer": 12.0})", read_size,
                 "a.json: /n_layer: found 12.0; accepted: an integer from 1 to 1000, written in digits only"},
        BadValue{"exponent", R"({"n_layer": 1e3})", read_size,
                 "a.json: /n_layer: found 1e3; accepted: an integer from 1 to 1000, written in digits only"},
        BadValue{"too_large", R"({"n_layer": 3000000000})", read_size,
                 "a.json: /n_layer: found 3000000000; accepted: an integer from 1 to 1000"},
        BadValue{"two_to_63", R"({"n_layer": 9223372036854775808})", read_any_int,
                 "a.json: /n_layer: found 9223372036854775808; accepted: an integer"},
        BadValue{"two_to_64_and_1", R"({"n_layer": 18446744073709551617})", read_any_int,
                 "a.json: /n_layer: found 18446744073709551617; accepted: an integer"},
        BadValue{"below_minus_2_to_63", R"({"n_layer": -9223372036854775809})", read_any_int,
                 "a.json: /n_layer: found -9223372036854775809; accepted: an integer"},
        BadValue{"string_for_integer", R"({"n_layer": "12"})", read_size,
                 "a.json: /n_layer: found the string \"12\"; accepted: an integer from 1 to 1000"},
        BadValue{"true_for_integer", R"({"n_layer": true})", read_size,
                 "a.json: /n_layer: found true; accepted: an integer from 1 to 1000"},
        BadValue{"null_for_integer", R"({"n_layer": null})", read_size,
                 "a.json: /n_layer: found null; accepted: an integer from 1 to 1000"},
        BadValue{"array_for_integer", R"({"n_layer": [1]})", read_size,
                 "a.json: /n_layer: found an array of 1; accepted: an integer from 1 to 1000"},
        BadValue{"probability", R"({"p": 1.5})", read_probability,
                 "a.json: /p: found 1.5; accepted: a number from 0 to 1"},
        BadValue{"string_for_number", R"({"p": "0.1"})", read_probability,
                 "a.json: /p: found the string \"0.1\"; accepted: a number from 0 to 1"},
        BadValue{"number_for_bool", R"({"tie": 1})", read_flag, "a.json: /tie: found 1; accepted: true or false"},
        BadValue{"number_for_string", R"({"act": 1})", read_name, "a.json: /act: found 1; accepted: a string"},
        BadValue{"unknown_choice", R"({"act": "gelo"})", read_name,
                 "a.json: /act: found the string \"gelo\"; accepted: one of gelu, relu; did you mean 'gelu'?"},
        BadValue{"control_characters", "{\"act\": \"a\\n\\u0007b\"}", read_name,
                 "a.json: /act: found the string \"a\\n\\x07b\"; accepted: one of gelu, relu"},
        BadValue{"string_for_array", R"({"names": "x"})", read_names,
                 "a.json: /names: found the string \"x\"; accepted: an array of strings"},
        BadValue{"number_in_array", R"({"names": ["x", 3]})", read_names,
                 "a.json: /names/1: found 3; accepted: a string"},
        BadValue{"string_in_objects", R"({"list": [{}, "x"]})", read_objects,
                 "a.json: /list/1: found the string \"x\"; accepted: an object"},
        BadValue{"escaped_pointer", R"({"in/ner": {"a~b": "1"}})", read_inner,
                 "a.json: /in~1ner/a~0b: found the string \"1\"; accepted: an integer"},
        BadValue{"unknown_key", R"({"name": 1, "sorce": 2})", read_strictly,
                 "a.json: unknown key \"sorce\"; did you mean 'source'?"},
        BadValue{"quite_unknown_key", R"({"zzz": 2})", read_strictly,
                 "a.json: unknown key \"zzz\"; accepted: name, source"}),
    [](const auto& test) { return test.param.name; });

TEST(JsonReader, ReadsIntegersExactly) {
  const JsonDocument document = parse(R"({"a": 3000000000, "b": 9007199254740993, "c": 9223372036854775807,
                                          "d": -9223372036854775808, "e": 0})");
  const JsonObject json = document.root();
  EXPECT_EQ(json.required_int("a"), 3'000'000'000);
  EXPECT_EQ(json.required_int("b"), 9'007'199'254'740'993);  // 2^53 + 1: a double cannot hold it
  EXPECT_EQ(json.required_int("c"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(json.required_int("d"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(json.required_int("e"), 0);
}

TEST(JsonReader, AbsentAndNullAreDifferentThings) {
  const JsonDocument document = parse(R"({"a": null, "b": 1, "c": 0.5})");
  const JsonObject json = document.root();
  EXPECT_FALSE(json.optional_int("z").has_value());
  EXPECT_FALSE(json.nullable_int("a").has_value());
  EXPECT_EQ(error_text([&] { static_cast<void>(json.optional_int("a")); }),
            "a.json: /a: found null; accepted: an integer");
  EXPECT_TRUE(json.is_null("a"));
  EXPECT_FALSE(json.is_null("z"));
  EXPECT_EQ(json.required_double("b"), 1.0);
  EXPECT_EQ(json.required_double("c"), 0.5);
}

TEST(JsonReader, FilesThatAreNoFiles) {
  const std::string directory = testing::TempDir();
  EXPECT_EQ(error_text([&] { static_cast<void>(JsonDocument::read_file(directory)); }),
            directory + ": found a directory; accepted: a JSON file");
  EXPECT_EQ(error_text([] { static_cast<void>(JsonDocument::read_file("/nowhere/x.json")); }),
            "/nowhere/x.json: cannot be read: No such file or directory");
  EXPECT_EQ(error_text([] { static_cast<void>(JsonDocument::read_file("/dev/zero")); }),
            "/dev/zero: found a device; accepted: a JSON file");
}

TEST(JsonReader, TakesAByteOrderMark) { EXPECT_EQ(parse("\xEF\xBB\xBF{\"a\": 1}").root().required_int("a"), 1); }

}  // namespace
}  // namespace memcalc
