// Rows that hold several samples: pack_dataset of TRL 1.16 (data_utils.py), and truncation.
// Covered by tests/unit/packing_test.cc.
// MIRRORS(trl, "data_utils.py", "1.16.0")
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memcalc/spec/training_spec.h"

namespace memcalc {

/// Samples of datasets.Dataset.map(batched=True) that are packed together. With dataset_num_proc, which is not
/// modelled, each process has incomplete ones at the end of its share.
inline constexpr std::size_t kPackedTogether = 1000;

/// Rows of a packed data set, each of one or several sequences.
struct PackedRows {
  std::vector<std::int32_t> sequences;  // tokens of each, row after row
  std::vector<std::size_t> ends;        // behind the last sequence of each row

  [[nodiscard]] std::size_t size() const { return ends.size(); }
  [[nodiscard]] std::span<const std::int32_t> operator[](std::size_t row) const {
    const std::size_t begin = row == 0 ? 0 : ends[row - 1];
    return std::span(sequences).subspan(begin, ends[row] - begin);
  }
};

/// `most_tokens`: SFTConfig.max_length, at least 1. The samples are packed in the order of the data set.
[[nodiscard]] PackedRows packed(std::span<const std::int32_t> lengths, std::int64_t most_tokens,
                                PackingStrategy strategy);

/// Tokens of each row, which is what a sampler sees of it.
[[nodiscard]] std::vector<std::int32_t> row_lengths(const PackedRows& rows);

/// max_length without packing: what is longer is cut. (TRL drops samples of which no label is left; without knowing
/// prompts from answers there are none.)
[[nodiscard]] std::vector<std::int32_t> truncated(std::span<const std::int32_t> lengths, std::int64_t most_tokens);

}  // namespace memcalc
