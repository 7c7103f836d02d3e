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

/// What else TRL's trainers on answers make of a micro-batch: some sequences stand in tensors of their own.
struct AnswersShape {
  std::int64_t first_labels = 0;    // of valid_labels those of the chosen (KTO: the desirable) answers
  std::int64_t first_samples = 0;   // KTO: desirable ones
  std::int64_t prompt_columns = 0;  // ORPO: of the prompts
  std::int64_t other_columns = 0;   // ORPO: of the rejected answers; KTO: of prompts with another sample's answer
  std::int64_t other_labels = 0;    // KTO: of these
  bool other_padded = false;        // KTO: there is padding among these

  bool operator==(const AnswersShape&) const = default;
};

/// A micro-batch on the card.
struct BatchShape {
  std::int64_t rows = 0, columns = 0;
  std::int64_t tokens = 0;        // that are no padding
  std::int64_t valid_labels = 0;  // labels != -100; padding_free masks the first one of each sequence
  std::int64_t sequences = 0;     // as attention sees them: rows; padding_free: of cu_seq_lens, each padding one more
  std::int64_t longest = 0;       // of these sequences, without padding; padding_free: max_length_q
  bool padded = false;            // there is padding, so that the attention mask is not all ones
  AnswersShape answers{};         // of trainers on answers; rows are samples there, though each may be two sequences
  /// Of sentence-transformers: tokens of each row's text, column by column; of a cross-encoder's pairs. Rows are
  /// samples.
  std::vector<std::vector<std::int32_t>> texts{};

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
