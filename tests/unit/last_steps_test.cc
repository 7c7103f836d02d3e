// last_steps and what replay() makes of it: a last step that repeats the one before is left out, and nothing of the
// result may show it. replay() with a timeline executes every event, so the two are compared.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "memcalc/alloc/last_steps.h"
#include "memcalc/alloc/replay.h"
#include "support/h100_placement.h"

namespace memcalc {
namespace {

// What the last step does otherwise than the one before.
enum class Change { kNone, kLargerRequest, kOtherOrderOfFrees, kKeepsABlock, kOneEventMore, kEmptyCache, kOtherStream };

class Steps {
 public:
  explicit Steps(std::uint32_t seed) {
    std::mt19937 random(seed);
    // Mostly of the large pool, whose blocks keep remainders: where a block lies decides how much it takes.
    for (int i = 0; i < 60; ++i) sizes_.push_back(static_cast<Bytes>(random() % (1U << (16 + random() % 8))) + 1);
    for (int i = 0; i < 60; ++i) lives_.push_back(5 + static_cast<int>(random() % 40));
  }

  /// A weight, then `count` steps. Each asks for 60 blocks, leaves every tenth, and meanwhile frees what the one before
  /// left: until then their addresses matter.
  [[nodiscard]] Trace trace(int count, Change change) {
    trace_ = {};
    event(allocate(kMiB), EventKind::kAllocate, -1);
    std::vector<std::int32_t> left;
    for (int step = 0; step < count; ++step) left = add_step(step, left, step == count - 1 ? change : Change::kNone);
    return std::move(trace_);
  }

 private:
  std::vector<std::int32_t> add_step(int step, const std::vector<std::int32_t>& left, Change change) {
    std::vector<std::int32_t> kept;
    std::vector<std::pair<int, std::int32_t>> deaths;  // after which request, block
    for (int i = 0; i < 60; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (i % 10 == 4 && at / 10 < left.size()) event(left[at / 10], EventKind::kFree, step);
      const std::int32_t block = allocate(sizes_[at] + (change == Change::kLargerRequest && i == 30 ? 4096 : 0));
      if (change == Change::kOtherStream && i == 30) trace_.blocks.back().stream = CudaStream::kAllGather;
      event(block, EventKind::kAllocate, step);
      if (i % 10 == 9) {
        kept.push_back(block);
      } else {
        deaths.emplace_back(i + lives_[at], block);
      }
      free_the_dead(i, step, deaths, change);
    }
    if (change == Change::kKeepsABlock) deaths.pop_back();
    free_the_dead(1000, step, deaths, change);
    if (change == Change::kEmptyCache) event(-1, EventKind::kEmptyCache, step);
    if (change == Change::kOneEventMore) event(allocate(7), EventKind::kAllocate, step);
    return kept;
  }

  void free_the_dead(int now, int step, std::vector<std::pair<int, std::int32_t>>& deaths, Change change) {
    std::vector<std::int32_t> dead;
    std::erase_if(deaths, [&](const auto& death) {
      if (death.first > now) return false;
      dead.push_back(death.second);
      return true;
    });
    if (change == Change::kOtherOrderOfFrees && !dead.empty()) std::swap(dead.front(), dead.back());
    for (const std::int32_t block : dead) event(block, EventKind::kFree, step);
  }

  std::int32_t allocate(Bytes bytes) {
    trace_.blocks.push_back({bytes});
    return static_cast<std::int32_t>(trace_.blocks.size()) - 1;
  }

  void event(std::int32_t block, EventKind kind, int step) {
    trace_.events.push_back(
        {nullptr, nullptr, block, kind, step < 0 ? Phase::kBuild : Phase::kForward, static_cast<std::int16_t>(step)});
  }

  std::vector<Bytes> sizes_;
  std::vector<int> lives_;
  Trace trace_;
};

void expect_equal(const ReplayResult& a, const ReplayResult& b) {
  EXPECT_EQ(a.peak_allocated, b.peak_allocated);
  EXPECT_EQ(a.peak_reserved, b.peak_reserved);
  EXPECT_EQ(a.exact_peak, b.exact_peak);
  EXPECT_EQ(a.peak_event, b.peak_event);
  EXPECT_EQ(a.exact_peak_event, b.exact_peak_event);
  EXPECT_EQ(a.reserved_at_peak, b.reserved_at_peak);
  EXPECT_EQ(a.categories_at_peak, b.categories_at_peak);
  EXPECT_EQ(a.phase_peaks, b.phase_peaks);
  EXPECT_EQ(a.allocated_at_end, b.allocated_at_end);
  EXPECT_EQ(a.reserved_at_end, b.reserved_at_end);
  EXPECT_EQ(a.segments_at_peak, b.segments_at_peak);
}

class RandomSteps : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(RandomSteps, NothingOfTheResultShowsThatOneIsLeftOut) {
  const SegmentPlacement placement = measured::h100_placement();
  for (const Change change : {Change::kNone, Change::kLargerRequest, Change::kOtherOrderOfFrees, Change::kKeepsABlock,
                              Change::kOneEventMore, Change::kEmptyCache, Change::kOtherStream}) {
    for (const int count : {2, 3, 5}) {
      SCOPED_TRACE(testing::Message() << "change " << static_cast<int>(change) << ", " << count << " steps");
      const Trace trace = Steps(GetParam()).trace(count, change);
      expect_equal(replay(trace, {.placement = &placement}),
                   replay(trace, {.placement = &placement, .record_timeline = true}));
    }
  }
}

TEST_P(RandomSteps, AskAlikeOnlyIfNothingChanges) {
  for (const Change change : {Change::kLargerRequest, Change::kKeepsABlock, Change::kOneEventMore, Change::kEmptyCache,
                              Change::kOtherStream}) {
    SCOPED_TRACE(static_cast<int>(change));
    const Trace trace = Steps(GetParam()).trace(3, change);
    const auto steps = last_steps(trace);
    EXPECT_TRUE(!steps || !ask_alike(trace, *steps));
  }
  const Trace trace = Steps(GetParam()).trace(3, Change::kNone);
  const auto steps = last_steps(trace);
  ASSERT_TRUE(steps.has_value());
  EXPECT_TRUE(ask_alike(trace, *steps));
  EXPECT_EQ(steps->block_shift, 60);
  EXPECT_EQ(steps->carried, (std::vector<std::int32_t>{10, 20, 30, 40, 50, 60}));  // every tenth, after the weight
  EXPECT_EQ(steps->last - steps->before_last, 120U);
}

TEST(LastStepsOf, NeedThree) {
  EXPECT_FALSE(last_steps(Trace{}).has_value());
  EXPECT_FALSE(last_steps(Steps(1).trace(2, Change::kNone)).has_value());
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomSteps, ::testing::Range(std::uint32_t{0}, std::uint32_t{20}));

}  // namespace
}  // namespace memcalc
