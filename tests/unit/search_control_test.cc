// plan/search_control.h
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "memcalc/plan/search_control.h"

namespace memcalc {
namespace {

TEST(ForEachIndex, GivesEveryIndexItsTurnOnce) {
  for (const unsigned threads : {1U, 2U, 7U}) {
    std::vector<int> turns(1000, 0);
    EXPECT_TRUE(for_each_index(turns.size(), {.threads = threads}, [&](std::size_t i) { ++turns[i]; }));
    EXPECT_EQ(turns, std::vector<int>(1000, 1));
  }
}

TEST(ForEachIndex, ReportsProgressOneByOne) {
  std::vector<std::size_t> seen;
  const SearchControl control{.threads = 3, .progress = [&](std::size_t done, std::size_t total) {
                                EXPECT_EQ(total, 50U);
                                seen.push_back(done);
                              }};
  EXPECT_TRUE(for_each_index(50, control, [](std::size_t) {}));
  ASSERT_EQ(seen.size(), 50U);
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i + 1);
}

TEST(ForEachIndex, StopsWhenAsked) {
  std::atomic<bool> stop{false};
  std::atomic<int> turns{0};
  EXPECT_FALSE(for_each_index(1000, {.threads = 2, .stop = &stop}, [&](std::size_t i) {
    ++turns;
    if (i == 10) stop = true;
  }));
  EXPECT_LT(turns, 20);
}

TEST(ForEachIndex, ThrowsTheFirstError) {
  for (const unsigned threads : {1U, 4U}) {
    try {
      for_each_index(100, {.threads = threads}, [](std::size_t i) {
        if (i % 30 == 20) throw std::runtime_error(std::to_string(i));
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "20");
    }
  }
}

// A container or a user may have a limit of threads: std::thread throws. Here each asks for a stack of 64 TiB.
TEST(ForEachIndex, IsDoneByTheThreadsThatStart) {
  pthread_attr_t before, huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_getattr_default_np(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 46U), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  std::vector<int> turns(1000, 0);
  EXPECT_TRUE(for_each_index(turns.size(), {.threads = 4}, [&](std::size_t i) { ++turns[i]; }));
  EXPECT_EQ(turns, std::vector<int>(1000, 1));
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
}

TEST(ForEachIndex, OfNothingIsDone) {
  EXPECT_TRUE(for_each_index(0, {}, [](std::size_t) { FAIL(); }));
}

}  // namespace
}  // namespace memcalc
