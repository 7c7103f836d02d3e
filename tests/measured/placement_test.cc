// The allocator's tests take the measured placement of the H100 from support/h100_placement.h, so that they do not
// depend on reading specs. It is the one that users get.
#include <gtest/gtest.h>

#include <cstddef>

#include "support/h100_placement.h"
#include "support/measured_row.h"

namespace memcalc::measured {
namespace {

TEST(H100Placement, IsThatOfTheSpec) {
  const SegmentPlacement in_tests = h100_placement();
  ASSERT_TRUE(measured_device().placement.has_value());
  const SegmentPlacement& in_spec = *measured_device().placement;
  EXPECT_EQ(in_tests.chunk_granularity, in_spec.chunk_granularity);
  ASSERT_EQ(in_tests.initial_fragments.size(), in_spec.initial_fragments.size());
  for (std::size_t i = 0; i < in_spec.initial_fragments.size(); ++i) {
    EXPECT_EQ(in_tests.initial_fragments[i].offset, in_spec.initial_fragments[i].offset) << i;
    EXPECT_EQ(in_tests.initial_fragments[i].size, in_spec.initial_fragments[i].size) << i;
  }
  ASSERT_TRUE(in_tests.reserved_span.has_value());
  ASSERT_TRUE(in_spec.reserved_span.has_value());
  EXPECT_EQ(in_tests.reserved_span->offset, in_spec.reserved_span->offset);
  EXPECT_EQ(in_tests.reserved_span->size, in_spec.reserved_span->size);
}

}  // namespace
}  // namespace memcalc::measured
