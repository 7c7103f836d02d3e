#include "memcalc/cost/remembered.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace memcalc {
namespace {

struct Key {
  std::uint64_t place = 0;
  int more = 0;

  [[nodiscard]] bool operator==(const Key&) const = default;
  [[nodiscard]] std::uint64_t hash() const { return place << 62U; }
};

TEST(Remembered, AsksOnceForAKeyAndAgainWhereAnotherTookItsPlace) {
  Remembered<Key, 2> remembered;
  int asked = 0;
  const auto value_of = [&](const Key& key) {
    return remembered.of(key, [&] {
      ++asked;
      return 10.0 * static_cast<double>(key.place) + key.more;
    });
  };
  EXPECT_EQ(value_of({0, 1}), 1);
  EXPECT_EQ(value_of({1, 1}), 11);
  EXPECT_EQ(value_of({0, 1}), 1);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(value_of({0, 2}), 2);
  EXPECT_EQ(value_of({0, 1}), 1);
  EXPECT_EQ(asked, 4);
}

}  // namespace
}  // namespace memcalc
