// models/token_shares: how a router without training shares tokens out.
#include "memcalc/models/token_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace memcalc {
namespace {

TEST(TokenShares, EveryChoiceIsOfSomeExpertAndNoneHasAllTokensTwice) {
  for (const std::int64_t tokens : {1, 2, 7, 128, 8192}) {
    for (const auto& [top_k, experts] :
         {std::pair<std::int64_t, std::int64_t>{2, 8}, {4, 32}, {8, 128}, {4, 60}, {2, 2}}) {
      const std::vector<std::int64_t> counts = tokens_of_experts(tokens, top_k, experts, 3);
      ASSERT_EQ(static_cast<std::int64_t>(counts.size()), experts);
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), tokens * top_k);
      EXPECT_GE(*std::min_element(counts.begin(), counts.end()), 0);
      EXPECT_LE(*std::max_element(counts.begin(), counts.end()), tokens);
    }
  }
}

// Of a Mixtral of random weights the fullest expert of a layer had 1.4 to 3.6 times the mean, the emptiest 0.02 to 0.6.
TEST(TokenShares, SomeExpertsArePreferred) {
  const std::vector<std::int64_t> counts = tokens_of_experts(8192, 2, 8, 0);
  const std::int64_t mean = 8192 * 2 / 8;
  EXPECT_NEAR(static_cast<double>(*std::max_element(counts.begin(), counts.end())) / mean, 2.2, 0.1);
  EXPECT_NEAR(static_cast<double>(*std::min_element(counts.begin(), counts.end())) / mean, 0.2, 0.05);
}

TEST(TokenShares, WhichAreDiffersBetweenLayersAndIsTheSameAgain) {
  EXPECT_NE(tokens_of_experts(1024, 2, 8, 0), tokens_of_experts(1024, 2, 8, 1));
  EXPECT_EQ(tokens_of_experts(1024, 2, 8, 5), tokens_of_experts(1024, 2, 8, 5));
}

}  // namespace
}  // namespace memcalc
