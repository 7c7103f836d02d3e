// Requests of a formula, compared where its temporaries may come and go in another order.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "memcalc/base/bytes.h"

namespace memcalc::test {

using Requests = std::vector<Bytes>;  // negative: a free

/// Sizes of what is asked for, sorted; the most that is held; what is left.
struct RequestSum {
  Requests asked;
  Bytes most = 0, left = 0;

  explicit RequestSum(const Requests& requests) {
    for (const Bytes bytes : requests) {
      if (bytes > 0) asked.push_back(bytes);
      left += bytes;
      most = std::max(most, left);
    }
    std::sort(asked.begin(), asked.end());
  }

  friend bool operator==(const RequestSum&, const RequestSum&) = default;
};

inline void expect_same(const Requests& mine, const Requests& torch, const std::string& what) {
  const RequestSum a(mine), b(torch);
  EXPECT_EQ(a.most, b.most) << what;
  EXPECT_EQ(a.left, b.left) << what;
  EXPECT_EQ(a.asked, b.asked) << what;
}

}  // namespace memcalc::test
