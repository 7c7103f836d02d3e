// report/answer.h: one answer in each format, whole.
#include <gtest/gtest.h>

#include <string>

#include "memcalc/report/answer.h"

namespace memcalc {
namespace {

Answer sample() {
  Answer answer;
  answer.command = "sample";
  answer.headline = "Two cards.";
  answer.facts = {{"model", "model", Unit::kText, "gpt2"}, {"price", "price", Unit::kDollars, std::monostate{}}};
  answer.columns = {{"gpu", "card", Unit::kText},
                    {"needed_bytes", "needed", Unit::kBytes},
                    {"step_seconds", "step", Unit::kSeconds, true},
                    {"mfu", "MFU", Unit::kShare, true},
                    {"fits", "fits", Unit::kYesNo}};
  answer.rows = {{"a", 3 * kGiB, 0.25, 0.5, true}, {"b, the second", 1536 * kMiB, std::monostate{}, 0.125, false}};
  answer.notes = {"a note"};
  answer.assumptions = {"an assumption"};
  return answer;
}

TEST(Answer, AsText) {
  EXPECT_EQ(render(sample(), Format::kText),
            "Two cards.\n"
            "\n"
            "model  gpt2\n"
            "\n"
            "card             needed    step     MFU  fits\n"
            "a              3.00 GiB  250 ms  50.0 %  yes\n"
            "b, the second  1.50 GiB       -  12.5 %  no\n"
            "\n"
            "Notes\n"
            "  - a note\n");
}

TEST(Answer, InANarrowTerminalLosesDispensableColumnsFromTheRight) {
  const std::string text = render(sample(), Format::kText, {.columns = 42});
  EXPECT_NE(text.find("card             needed    step  fits\n"), std::string::npos) << text;
  EXPECT_NE(text.find("(1 column more in a wider terminal"), std::string::npos) << text;
  const std::string narrow = render(sample(), Format::kText, {.columns = 33});
  EXPECT_NE(narrow.find("card             needed  fits\n"), std::string::npos) << narrow;
}

TEST(Answer, AsCsv) {
  EXPECT_EQ(render(sample(), Format::kCsv),
            "gpu,needed_bytes,step_seconds,mfu,fits\n"
            "a,3221225472,0.25,0.5,true\n"
            "\"b, the second\",1610612736,,0.125,false\n");
}

TEST(Answer, AsMarkdown) {
  EXPECT_EQ(render(sample(), Format::kMarkdown, {.explain = true}),
            "### Two cards.\n\n- model: gpt2\n\n"
            "| card | needed | step | MFU | fits |\n| --- | ---: | ---: | ---: | --- |\n"
            "| a | 3.00 GiB | 250 ms | 50.0 % | yes |\n| b, the second | 1.50 GiB | - | 12.5 % | no |\n"
            "\n**Notes**\n\n- a note\n\n**Assumed**\n\n- an assumption\n");
}

TEST(Answer, AsJsonLeavesOutWhatIsNotKnown) {
  const std::string json = render(sample(), Format::kJson);
  EXPECT_NE(json.find("\"needed_bytes\": 3221225472"), std::string::npos) << json;
  EXPECT_EQ(json.find("null"), std::string::npos) << json;
  EXPECT_EQ(json.find("price"), std::string::npos) << json;
}

struct Shown {
  Value value;
  Unit unit;
  const char* text;
};

TEST(Answer, ShowsValuesAsPeopleReadThem) {
  const Shown cases[] = {{std::monostate{}, Unit::kBytes, "-"},
                         {std::int64_t{1234567}, Unit::kCount, "1,234,567"},
                         {std::int64_t{-512}, Unit::kBytes, "-512 B"},
                         {0.0, Unit::kSeconds, "0 us"},
                         {0.00126, Unit::kSeconds, "1.3 ms"},
                         {12.345, Unit::kSeconds, "12.35 s"},
                         {1234.4, Unit::kSeconds, "1,234 s"},
                         {12.5, Unit::kDollars, "$12.50"},
                         {123456.7, Unit::kDollars, "$123,457"},
                         {true, Unit::kYesNo, "yes"},
                         {1e15, Unit::kFlops, "1.00 PFLOP"}};
  for (const Shown& each : cases) EXPECT_EQ(shown(each.value, each.unit), each.text);
}

}  // namespace
}  // namespace memcalc
