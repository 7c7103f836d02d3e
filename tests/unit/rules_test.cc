// spec/rules: what holds of every row, and how a broken one is told.
#include "memcalc/spec/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/run_fields.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::vector<Rule> all_rules() {
  std::vector<Rule> rules;
  for (const RuleGroup& group : rule_groups()) rules.insert(rules.end(), group.rules.begin(), group.rules.end());
  return rules;
}

/// A flag of the table, the flag that denies one, or an option that takes a list of names.
bool is_option(std::string_view flag) {
  if (flag == "--megatron" || flag == "--deepspeed") return true;
  const Field* field = find_field(flag);
  return field != nullptr && (field->flag == flag || field->negative == flag);
}

/// "--tp" and "--cp" of "without --tp, --cp".
std::vector<std::string> flags_in(std::string_view text) {
  std::vector<std::string> flags;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (!word.starts_with("--")) continue;
    flags.push_back(word.substr(0, word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-")));
  }
  return flags;
}

/// "--tp", "" and "heads" of "{--tp} ranks, {}, {heads}".
std::vector<std::string_view> placeholders_in(std::string_view text) {
  std::vector<std::string_view> names;
  for (std::size_t open = text.find('{'); open != std::string_view::npos; open = text.find('{', open + 1)) {
    names.push_back(text.substr(open + 1, text.find('}', open) - open - 1));
  }
  return names;
}

TEST(Rules, EachHasANameOfItsOwn) {
  std::set<std::string_view> seen;
  for (const Rule& rule : all_rules()) {
    EXPECT_THAT(std::string(rule.id), MatchesRegex("[a-z][a-z0-9]*(-[a-z0-9]+)+"));
    EXPECT_TRUE(seen.insert(rule.id).second) << rule.id << " stands twice";
  }
}

TEST(Rules, EveryGroupHasATitleAndRules) {
  EXPECT_FALSE(rule_groups().empty());
  std::set<std::string_view> titles;
  for (const RuleGroup& group : rule_groups()) {
    EXPECT_FALSE(group.title.empty());
    EXPECT_TRUE(titles.insert(group.title).second) << group.title << " stands twice";
    EXPECT_FALSE(group.rules.empty()) << group.title;
    for (const Rule& rule : group.rules) EXPECT_NE(rule.broken, nullptr) << rule.id;
  }
}

TEST(Rules, NameOptionsOfTheTable) {
  for (const Rule& rule : all_rules()) {
    const std::vector<std::string> options = flags_in(rule.options);
    EXPECT_FALSE(options.empty()) << rule.id;
    EXPECT_EQ(options.size(), std::set(options.begin(), options.end()).size()) << rule.id << " names one twice";
    for (const std::string_view text : {rule.options, rule.message, rule.accepted}) {
      for (const std::string& flag : flags_in(text)) EXPECT_TRUE(is_option(flag)) << rule.id << ": " << flag;
    }
  }
}

TEST(Rules, FillInWhatThereIs) {
  const std::vector<std::string_view> of_the_model = {"model", "family", "layers", "heads", "kv_heads", "experts"};
  for (const Rule& rule : all_rules()) {
    bool asks_for_detail = false;
    for (const std::string_view text : {rule.message, rule.accepted}) {
      for (const std::string_view name : placeholders_in(text)) {
        SCOPED_TRACE(std::string(rule.id) + ": {" + std::string(name) + "}");
        if (name.empty()) {
          asks_for_detail = true;
        } else if (name.starts_with("--")) {
          ASSERT_NE(find_field(name), nullptr);
          EXPECT_NE(find_field(name)->type, FieldType::kFlag) << "has no text";
        } else {
          EXPECT_THAT(of_the_model, Contains(name));
        }
      }
    }
    EXPECT_EQ(asks_for_detail, rule.detail != nullptr) << rule.id;
  }
}

TEST(Rules, AreOneShortSentence) {
  for (const Rule& rule : all_rules()) {
    for (const std::string_view text : {rule.message, rule.accepted}) {
      EXPECT_FALSE(text.ends_with('.') || text.ends_with(' ') || text.starts_with(' ')) << rule.id;
      EXPECT_THAT(std::string(text), Not(HasSubstr("\n"))) << rule.id;
      EXPECT_THAT(std::string(text), Not(HasSubstr("  "))) << rule.id;
    }
    EXPECT_GE(rule.message.size(), 20U) << rule.id;
    EXPECT_LE(rule.message.size() + rule.accepted.size(), 300U) << rule.id;
    EXPECT_THAT(std::string(rule.message), Not(HasSubstr("accepted"))) << rule.id << ": that is the next member";
  }
}

TEST(Rules, TheFirstBrokenOneIsTold) {
  const ModelSpec bert = test::model_of("bert-base");
  RunSpec run = resolve(bert, RunOptions{}).run;
  run.sequence_length = 513;
  run.use_cache = true;
  const Error error = test::first_broken(bert, run);
  EXPECT_EQ(error.code(), ErrorCode::kUsage);
  EXPECT_EQ(error.rule(), "sequence-within-positions");
  EXPECT_EQ(error.part(), "--seq");
  EXPECT_STREQ(error.what(),
               "sequence length 513 is beyond the 512 positions of bert-base; accepted: --seq of 512 or less");
}

TEST(Rules, WhatIsNotModelledHasACodeOfItsOwn) {
  const ModelSpec gpt2 = test::model_of("gpt2");
  RunSpec run = resolve(gpt2, RunOptions{.inference = Inference{}}).run;
  run.inference()->key_value_cache_dtype = DType::kFloat16;
  EXPECT_EQ(test::first_broken(gpt2, run).code(), ErrorCode::kUnsupported);
}

TEST(Rules, AGroupIsLookedAtWhereItConcernsTheRun) {
  const ModelSpec llama = test::model_of("llama-3.2-1b");
  const RunSpec run = resolve(llama, RunOptions{}).run;
  const RuleQuestion question{llama, run, run.parallel, shared_sizes(llama)};
  for (const RuleGroup& group : rule_groups()) {
    if (group.title == "LoRA" || group.title == "Float8" || group.title == "Beam search") {
      EXPECT_FALSE(group.concerns(question)) << group.title;
    }
  }
}

}  // namespace
}  // namespace memcalc
