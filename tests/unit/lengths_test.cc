// spec/lengths.h: files, histograms, distributions, and what is wrong in them.
#include "memcalc/spec/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "memcalc/base/error.h"
#include "unit/recorded_batches.h"

namespace memcalc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// The message of the error that `call` throws.
template <typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string parse_error(std::string_view text) {
  return message_of([&] { (void)parse_lengths(text, "lengths.txt"); });
}

TEST(Lengths, AFileOfOneLengthALineIsTheDataSetInItsOrder) {
  const SampleLengths lengths = parse_lengths("# tokens\n128\n\n  7\r\n512\t\n7", "lengths.txt");
  EXPECT_THAT(lengths.tokens, ElementsAre(128, 7, 512, 7));
  EXPECT_EQ(lengths.assumption, "");
}

TEST(Lengths, AHistogramIsAsManySamplesAsItCountsInAnOrderThatIsSaid) {
  const SampleLengths lengths = parse_lengths("16 2\n32\t4\n64  1\n", "lengths.txt");
  // torch.randperm(7) of seed 0 is 4, 0, 5, 3, 2, 6, 1.
  EXPECT_THAT(lengths.tokens, ElementsAre(32, 16, 32, 32, 32, 64, 16));
  EXPECT_THAT(lengths.assumption, HasSubstr("torch.randperm of seed 0"));
}

TEST(Lengths, AWrongLineIsNamedWithWhatIsAccepted) {
  EXPECT_EQ(parse_error("12\nabc\n"),
            "lengths.txt:2: found 'abc'; accepted: a length from 1 to 16777216 tokens, or such a length and how many "
            "samples have it, from 1 to 10000000");
  for (const char* text :
       {"0", "-3", "1.5", "16777217", "99999999999999999999", "12,", "1 0", "1 2 3", "5 x", "[1, 2]"}) {
    EXPECT_THAT(parse_error(text), HasSubstr(std::string("lengths.txt:1: found '") + text + "'")) << text;
  }
  EXPECT_EQ(parse_error("12\n12 4"), "lengths.txt:2: found '12 4'; accepted: one length, as on line 1");
  EXPECT_EQ(parse_error("#\n12 4\n7"), "lengths.txt:3: found '7'; accepted: a length and a count, as on line 2");
  EXPECT_EQ(
      parse_error("# nothing\n\n"),
      "lengths.txt: found no lengths; accepted: a text file with a length in tokens on each line, or a length and "
      "how many samples have it; a length is 257, or 200/57 (prompt/answer), or 200/57/80 (prompt/chosen/rejected)");
}

TEST(Lengths, PromptsAndAnswersAreToldApart) {
  const SampleLengths answers = parse_lengths("200/57\n3/4\n", "lengths.txt");
  EXPECT_THAT(answers.tokens, ElementsAre(257, 7));
  EXPECT_THAT(answers.prompts, ElementsAre(200, 3));
  EXPECT_TRUE(answers.rejected.empty());
  const SampleLengths pairs = parse_lengths("200/57/80\n3/4/1\n", "lengths.txt");
  EXPECT_THAT(pairs.tokens, ElementsAre(257, 7));
  EXPECT_THAT(pairs.rejected, ElementsAre(280, 4));
  const SampleLengths histogram = parse_lengths("1/1 2\n2/2 4\n4/4 1\n", "lengths.txt");
  EXPECT_THAT(histogram.tokens, ElementsAre(4, 2, 4, 4, 4, 8, 2));
  EXPECT_THAT(histogram.prompts, ElementsAre(2, 1, 2, 2, 2, 4, 1));
  for (const char* text : {"1/", "/1", "1//2", "1/2/3/4", "0/3", "16777216/1", "1/x"}) {
    EXPECT_THAT(parse_error(text), HasSubstr(std::string("lengths.txt:1: found '") + text + "'")) << text;
  }
  EXPECT_EQ(parse_error("12/4\n7"),
            "lengths.txt:2: found '7'; accepted: a prompt's and an answer's length (200/57), as on line 1");
}

TEST(Lengths, SamplesBeyondTheMostAreRefused) {
  EXPECT_EQ(parse_lengths("8 9999999\n9 1", "lengths.txt").tokens.size(), 10'000'000U);
  EXPECT_THAT(parse_error("8 9999999\n9 2"),
              HasSubstr("lengths.txt:2: found '9 2'; accepted: at most 10000000 samples"));
}

TEST(Lengths, ADistributionIsDrawnAsNumpyDraws) {
  const SampleLengths lengths = read_lengths("lognormal:200,0.6,1024");
  ASSERT_EQ(lengths.tokens.size(), 10'000U);
  for (std::size_t i = 0; i < std::size(test::kLognormal); ++i) EXPECT_EQ(lengths.tokens[i], test::kLognormal[i]);
  EXPECT_EQ(test::hash_of(lengths.tokens), test::kLognormalHash);
  EXPECT_EQ(
      lengths.assumption,
      "10000 lengths are drawn from a log-normal distribution, median 200 tokens, sigma 0.6, at most 1024 tokens, "
      "by a fixed seed (numpy.random.RandomState(0))");
}

TEST(Lengths, ADistributionHasTheMedianAndTheMaximumThatItNames) {
  auto tokens = read_lengths("lognormal: 350.5, 0.4, 900, 20001").tokens;
  ASSERT_EQ(tokens.size(), 20'001U);
  std::sort(tokens.begin(), tokens.end());
  EXPECT_NEAR(tokens[10'000], 350, 5);
  EXPECT_EQ(tokens.back(), 900);
  EXPECT_THAT(read_lengths("lognormal:64,0,64,3").tokens, ElementsAre(64, 64, 64));
  EXPECT_GE(read_lengths("lognormal:1,5,1000").tokens.front(), 1);
}

TEST(Lengths, AWrongDistributionIsRefused) {
  for (const char* text : {"", "200", "200,0.6", "0,0.6,1024", "200,-1,1024", "200,11,1024", "200,0.6,0",
                           "200,0.6,10.5", "200,0.6,1024,0", "200,0.6,1024,20000000", "200,0.6,1024,5,6", "a,b,c",
                           "200,nan,1024", "200,0.6,1024x", "200,0.6,", "1000,0.5,100"}) {
    const std::string argument = std::string("lognormal:") + text;
    const std::string message = message_of([&] { (void)read_lengths(argument); });
    EXPECT_THAT(message, HasSubstr("--lengths: found '" + argument + "'; accepted: lognormal:MEDIAN,SIGMA,MAX"))
        << text;
  }
}

TEST(Lengths, AFileIsReadAndAMissingOneNamed) {
  const auto path = std::filesystem::path(testing::TempDir()) / "lengths_test.txt";
  std::ofstream(path) << "3\n4\n";
  EXPECT_THAT(read_lengths(path.string()).tokens, ElementsAre(3, 4));
  std::filesystem::remove(path);
  EXPECT_THAT(message_of([&] { (void)read_lengths(path.string()); }), HasSubstr("lengths_test.txt"));
}

}  // namespace
}  // namespace memcalc
