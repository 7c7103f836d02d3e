// MIRRORS(trl, "trainer/sft_trainer.py", "1.16.0")
#include "memcalc/train/data/collator.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "memcalc/base/bytes.h"
#include "memcalc/base/error.h"

namespace memcalc {
namespace {

BatchShape padded_batch(std::span<const std::int32_t> lengths, const CollatorOptions& options) {
  BatchShape batch{.rows = static_cast<std::int64_t>(lengths.size())};
  for (const std::int64_t tokens : lengths) {
    const std::int64_t kept = std::min(tokens, options.fixed_columns.value_or(tokens));
    batch.tokens += kept;
    batch.longest = std::max(batch.longest, kept);
  }
  // A fixed length is rounded up, too (PreTrainedTokenizerBase._pad).
  batch.columns = round_up(options.fixed_columns.value_or(batch.longest), options.pad_to_multiple_of);
  batch.valid_labels = options.labels == Labels::kEachToken ? batch.tokens : batch.rows;
  batch.sequences = batch.rows;
  batch.padded = batch.tokens < batch.rows * batch.columns;
  return batch;
}

/// DataCollatorForLanguageModeling.torch_call (trl/trainer/sft_trainer.py): padding has the position 0, and where the
/// position is 0 a sequence begins.
BatchShape one_row(std::span<const std::int32_t> sequences, const CollatorOptions& options) {
  BatchShape batch{.rows = 1};
  for (const std::int64_t tokens : sequences) {
    batch.tokens += tokens;
    batch.longest = std::max(batch.longest, tokens);
  }
  const auto count = static_cast<std::int64_t>(sequences.size());
  batch.columns = round_up(batch.tokens, options.pad_to_multiple_of);
  batch.valid_labels = options.labels == Labels::kEachToken ? batch.tokens - count : count;
  batch.sequences = count + batch.columns - batch.tokens;
  batch.padded = batch.tokens < batch.columns;
  return batch;
}

/// `add(sample, sequences)` appends what the collator sees of a sample.
template <typename Add>
std::vector<BatchShape> collate(const Batches& batches, const CollatorOptions& options, const Add& add) {
  if (options.pad_to_multiple_of < 1 || options.fixed_columns.value_or(1) < 1 ||
      (options.padding_free && options.fixed_columns)) {
    throw Error(ErrorCode::kInternal, "collator: sizes below 1, or a fixed length without padding");
  }
  std::vector<BatchShape> shapes;
  shapes.reserve(batches.size());
  std::vector<std::int32_t> sequences;
  for (std::size_t batch = 0; batch < batches.size(); ++batch) {
    sequences.clear();
    for (const std::uint32_t sample : batches[batch]) add(sample, sequences);
    shapes.push_back(options.padding_free ? one_row(sequences, options) : padded_batch(sequences, options));
  }
  return shapes;
}

}  // namespace

std::vector<BatchShape> collated(const Batches& batches, std::span<const std::int32_t> lengths,
                                 const CollatorOptions& options) {
  return collate(batches, options, [&](std::uint32_t sample, std::vector<std::int32_t>& sequences) {
    sequences.push_back(lengths[sample]);
  });
}

std::vector<BatchShape> collated(const Batches& batches, const PackedRows& rows, const CollatorOptions& options) {
  return collate(batches, options, [&](std::uint32_t sample, std::vector<std::int32_t>& sequences) {
    const auto row = rows[sample];
    if (options.padding_free) {
      sequences.insert(sequences.end(), row.begin(), row.end());
    } else {
      sequences.push_back(std::accumulate(row.begin(), row.end(), 0));
    }
  });
}

}  // namespace memcalc
