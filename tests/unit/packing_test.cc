// train/data/packing.h against what TRL's pack_dataset made of drawn lengths (unit/recorded_batches.py).
#include "memcalc/train/data/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memcalc/base/error.h"
#include "memcalc/base/torch_generator.h"
#include "unit/recorded_batches.h"

namespace memcalc {
namespace {

using testing::ElementsAre;

std::vector<std::vector<std::int32_t>> rows_of(const PackedRows& rows) {
  std::vector<std::vector<std::int32_t>> result;
  for (std::size_t row = 0; row < rows.size(); ++row) result.emplace_back(rows[row].begin(), rows[row].end());
  return result;
}

TEST(Packing, TheExampleOfTrlsOwnDocumentation) {
  const std::vector<std::int32_t> lengths{5, 2, 3, 1};
  using Row = std::vector<std::int32_t>;
  EXPECT_THAT(rows_of(packed(lengths, 4, PackingStrategy::kBfd)), ElementsAre(Row{4}, Row{3, 1}, Row{2}));
  EXPECT_THAT(rows_of(packed(lengths, 4, PackingStrategy::kBfdSplit)), ElementsAre(Row{4}, Row{3, 1}, Row{2, 1}));
  EXPECT_THAT(rows_of(packed(lengths, 4, PackingStrategy::kWrapped)), ElementsAre(Row{4}, Row{4}, Row{3}));
}

TEST(Packing, DrawnDataSetsArePackedAsTrlPacksThem) {
  for (const auto& recorded : test::kPackings) {
    SCOPED_TRACE(testing::Message() << recorded.n << " samples, strategy " << recorded.strategy);
    std::vector<std::int32_t> lengths;
    TorchGenerator generator(recorded.seed);
    for (const std::int64_t i : generator.randperm(recorded.n)) {
      lengths.push_back(static_cast<std::int32_t>(7 * i % recorded.top + 1));
    }
    const PackedRows rows = packed(lengths, recorded.size, static_cast<PackingStrategy>(recorded.strategy));
    EXPECT_EQ(rows.size(), recorded.rows);
    std::vector<std::uint64_t> values;
    for (const auto& row : rows_of(rows)) {
      values.push_back(row.size());
      values.insert(values.end(), row.begin(), row.end());
    }
    EXPECT_EQ(test::hash_of(values), recorded.hash);
  }
}

TEST(Packing, ARowIsAsLongAsItsSequencesTogether) {
  const std::vector<std::int32_t> lengths{5, 2, 3, 1};
  EXPECT_THAT(row_lengths(packed(lengths, 4, PackingStrategy::kBfdSplit)), ElementsAre(4, 4, 3));
}

TEST(Packing, TruncationCutsWhatIsLonger) {
  EXPECT_THAT(truncated(std::vector<std::int32_t>{5, 2, 4}, 4), ElementsAre(4, 2, 4));
  EXPECT_THROW((void)truncated(std::vector<std::int32_t>{5}, 0), Error);
}

}  // namespace
}  // namespace memcalc
