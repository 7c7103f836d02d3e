// base/kept_vector.h: a thread hands the same large buffers out again.
#include "memcalc/base/kept_vector.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

namespace memcalc {
namespace {

constexpr std::size_t kLarge = std::size_t{1} << 20;

TEST(KeptVector, TakesTheBufferOfTheLastOne) {
  const auto buffer_of = [] {
    KeptVector<std::byte> vector(kLarge);
    return vector.data();
  };
  const auto* first = buffer_of();
  EXPECT_EQ(buffer_of(), first);
}

TEST(KeptVector, HoldsItsElementsWhileItGrows) {
  KeptVector<std::size_t> vector;
  for (std::size_t i = 0; i < kLarge; ++i) vector.push_back(i);
  const KeptVector<std::size_t> copy = vector;
  vector.assign(vector.size(), 0);
  for (std::size_t i = 0; i < kLarge; ++i) ASSERT_EQ(copy[i], i);
}

TEST(KeptVector, ASmallerRequestOfTheSamePowerOfTwoMayUseABuffer) {
  void* buffer = take_buffer(kLarge);
  give_buffer(buffer, kLarge);
  void* again = take_buffer(kLarge / 2 + 1);
  EXPECT_EQ(again, buffer);
  std::memset(again, 1, kLarge / 2 + 1);
  void* other = take_buffer(kLarge);
  EXPECT_NE(other, buffer) << "handed out twice";
  give_buffer(other, kLarge);
  give_buffer(again, kLarge / 2 + 1);
}

TEST(KeptVector, GivesEverythingBackAtTheThreadsEnd) {
  // Under the address sanitizer a leak at the thread's end, or a double free, fails this test.
  std::thread([] {
    std::vector<void*> buffers;
    for (std::size_t i = 0; i < 2 * kMostKeptBytes / kLarge; ++i) buffers.push_back(take_buffer(kLarge));
    for (void* buffer : buffers) give_buffer(buffer, kLarge);
    void* huge = take_buffer(2 * kMostKeptBytes);
    give_buffer(huge, 2 * kMostKeptBytes);
  }).join();
}

}  // namespace
}  // namespace memcalc
