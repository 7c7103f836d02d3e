// What the collator of sentence-transformers 6 makes of a batch, whose columns of texts are each padded to their own
// longest, while of a cross-encoder the loss tokenizes the pairs; and transformers' of sources and labels. Covered by
// tests/unit/texts_test.cc.
// MIRRORS(sentence_transformers, "base/data_collator.py", "6.2.0")
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/run_spec.h"
#include "memcalc/train/data/collator.h"
#include "memcalc/train/data/sampler.h"

namespace memcalc {

/// Micro-batches of a data set whose samples begin again where there are more than the file has. Columns beyond the
/// positive have the rejected text's length. Pre: --lengths.
[[nodiscard]] std::vector<BatchShape> collated_texts(const Batches& batches, const RunSpec& run);

/// Encoder-decoders' micro-batches (DataCollatorForSeq2Seq): sources, and as AnswersShape::other_columns their labels,
/// each padded to their own longest.
[[nodiscard]] std::vector<BatchShape> collated_sources(const Batches& batches, const RunSpec& run);

/// Where every text has --seq tokens.
[[nodiscard]] BatchShape texts_shape_of(const RunSpec& run);

/// The order of an evaluation, which is shuffled there, too (base/trainer.py, get_batch_sampler).
[[nodiscard]] std::vector<std::uint32_t> evaluated_texts(const RunSpec& run);

/// The longest of a column's rows from `begin` on, and whether one of them is shorter.
struct ColumnWidth {
  std::int64_t longest = 0;
  bool padded = false;
};
[[nodiscard]] ColumnWidth width_of(const std::vector<std::int32_t>& column, std::int64_t begin, std::int64_t rows);

}  // namespace memcalc
