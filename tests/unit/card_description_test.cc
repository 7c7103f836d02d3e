// spec/card_description: a card in one line.
#include "memcalc/spec/card_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memcalc/memcalc.h"
#include "support/error_text.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using ::testing::HasSubstr;

using test::registry;

Report gpt2_on(const std::string& card) {
  const ModelSpec model = registry().model("gpt2");
  return estimate(model, resolve(model, {.batch_size = 2, .precision = Precision::kAmpBf16}).run,
                  registry().device(card));
}

TEST(CardDescription, SaysMemoryCapabilityAndRates) {
  const DeviceSpec card = registry().device("mine, 23.5GiB, sm89, 1.008TB/s, 165.2TFLOPS");
  EXPECT_EQ(card.name, "mine");
  EXPECT_EQ(card.memory_bytes, static_cast<Bytes>(23.5 * double{kGiB}));
  EXPECT_EQ(card.compute_capability_major * 10 + card.compute_capability_minor, 89);
  EXPECT_DOUBLE_EQ(card.memory_bandwidth_bytes_per_second, 1.008e12);
  EXPECT_DOUBLE_EQ(card.bf16_flops_per_second, 165.2e12);
  EXPECT_FALSE(card.validated);
}

// But for its products, which others timed on that card; a described one has the median of its kind.
TEST(CardDescription, TheLineOfAKnownCardPredictsWhatThatCardDoes) {
  const Report mine = gpt2_on("mine,23.5GiB,sm89,1008GB/s,165.2TFLOPS"), known = gpt2_on("rtx-4090");
  EXPECT_EQ(mine.memory.peak_reserved, known.memory.peak_reserved);
  ASSERT_TRUE(mine.time && known.time);
  EXPECT_NEAR(mine.time->step.step_seconds / known.time->step.step_seconds, 1, 0.02);
}

TEST(CardDescription, OfNominalGigabytesTorchReportsLess) {
  const DeviceSpec card = registry().device("mine,24GB,sm89");
  EXPECT_LT(card.memory_bytes, 24 * kGiB);
  EXPECT_GT(card.memory_bytes, 23 * kGiB);
  EXPECT_THAT(card.assumptions, ::testing::Contains(HasSubstr("of 24 GB torch reports 23.6 GiB")));
}

TEST(CardDescription, WithoutRatesThereIsNoTime) {
  EXPECT_FALSE(gpt2_on("mine,24GB,sm89").time);
  EXPECT_FALSE(gpt2_on("mine,24GB,sm89,165TFLOPS").time);
  EXPECT_FALSE(gpt2_on("mine,24GB,sm89,1008GB/s").time);
}

TEST(CardDescription, ACapabilityThatNobodyKnowsIsTheNearestBelow) {
  const DeviceSpec card = registry().device("mine,32GB,sm88,900GB/s,100TFLOPS");
  EXPECT_EQ(card.compute_capability_minor, 8);
  EXPECT_GT(card.multiprocessors, 0);
}

TEST(CardDescription, SaysWhatIsWrong) {
  const auto wrong = [](const std::string& text) { return error_text([&] { (void)registry().device(text); }); };
  for (const char* text :
       {"mine,sm89", "mine,24GB", "24GB,sm89", ",24GB,sm89", "mine,24GB,sm89,", "mine,24GB,24GB,sm89", "mine,-1GB,sm89",
        "mine,24GB,sm9000", "mine,24GB,sm89,fast", "mine,nanGB,sm89", "mine,1e300GB,sm89", "mine,24GB,sm50"}) {
    EXPECT_THAT(wrong(text), HasSubstr("--card: expected a name, memory and compute capability")) << text;
  }
  EXPECT_THAT(wrong("mine,24GB,sm89,fast"), HasSubstr("found 'fast'"));
}

}  // namespace
}  // namespace memcalc
