// What a collator makes of a batch of samples: its shape, and how much of it is padding.
// Covered by tests/unit/collator_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memcalc/train/data/packing.h"
#include "memcalc/train/data/sampler.h"

namespace memcalc {

enum class Labels : std::uint8_t {
  kEachToken,   // language modelling: every token that is not padding (prompts are not told from answers)
  kEachSample,  // classification, regression
};

struct CollatorOptions {
  /// padding="max_length": every batch has so many columns, and what is longer is cut. Absent: as many as the longest
  /// sample of the batch has. Not for padding_free.
  std::optional<std::int64_t> fixed_columns{};
  std::int64_t pad_to_multiple_of = 1;  // columns are rounded up to it
  bool padding_free = false;            // TRL: all sequences of a batch in one row
  Labels labels = Labels::kEachToken;
};

/// A micro-batch on the card.
struct BatchShape {
  std::int64_t rows = 0, columns = 0;
  std::int64_t tokens = 0;        // that are no padding
  std::int64_t valid_labels = 0;  // labels != -100; padding_free masks the first one of each sequence
  std::int64_t sequences = 0;     // as attention sees them: rows; padding_free: of cu_seq_lens, each padding one more
  std::int64_t longest = 0;       // of these sequences, without padding; padding_free: max_length_q
  bool padded = false;            // there is padding, so that the attention mask is not all ones

  bool operator==(const BatchShape&) const = default;
};

/// DataCollatorWithPadding of transformers 5.17 and DataCollatorForLanguageModeling of TRL 1.16.
/// `lengths`: tokens of each sample of the data set.
[[nodiscard]] std::vector<BatchShape> collated(const Batches& batches, std::span<const std::int32_t> lengths,
                                               const CollatorOptions& options);
/// The same of packed rows. Rows that are not padding_free count as one sequence each.
[[nodiscard]] std::vector<BatchShape> collated(const Batches& batches, const PackedRows& rows,
                                               const CollatorOptions& options);

}  // namespace memcalc
