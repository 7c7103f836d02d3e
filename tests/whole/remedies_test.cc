// plan/ladder.h: what is suggested to drawn runs that do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "memcalc/planning.h"
#include "support/drawn_run.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

using ::testing::SizeIs;

/// What is behind "memcalc": no word of these commands has a blank in it.
std::vector<std::string> words_behind_name(const std::string& command) {
  std::vector<std::string> words = test::words_in(command);
  words.erase(words.begin());
  return words;
}

Report report_of(const std::string& line) { return estimate(test::question_of(test::words_in(line))); }

// Every command that is suggested is read by the same parser and asked again. "Fits" is what it was suggested for.
TEST(Remedies, OfAHundredDrawnRunsFitWhenTheyAreAskedFor) {
  std::mt19937 random(17);
  int answered = 0, suggested = 0;
  for (int tries = 0; answered < 100 && tries < 1000; ++tries) {
    const std::string line = test::drawn_run(random);
    SCOPED_TRACE(line);
    std::optional<Report> report;
    try {
      report = report_of(line);
    } catch (const Error&) {
      continue;  // what is drawn is not always possible
    }
    if (report->fits()) continue;
    ++answered;
    const std::vector<Remedy> remedies = remedies_for(*report);
    EXPECT_LE(remedies.size(), 3U);
    std::set<std::string> commands;
    for (const Remedy& each : remedies) commands.insert(each.command);
    EXPECT_EQ(commands.size(), remedies.size());
    for (const Remedy& each : remedies) {
      SCOPED_TRACE(each.command);
      const Report again = estimate(test::question_of(words_behind_name(each.command)));
      EXPECT_EQ(again.needed(), each.needed);
      EXPECT_EQ(again.verdict, each.verdict);
      EXPECT_EQ(again.run.trains(), report->run.trains());
      if (again.fits()) {
        ++suggested;
      } else {
        EXPECT_THAT(remedies, SizeIs(1));  // the least that was found
        EXPECT_LT(again.needed(), report->needed());
      }
    }
  }
  EXPECT_EQ(answered, 100);
  EXPECT_GT(suggested, 150);
}

}  // namespace
}  // namespace memcalc
