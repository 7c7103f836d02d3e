// Losses.
#pragma once

#include <cstdint>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// Eager mode needs the same memory for both.
enum class LossReduction : std::uint8_t { kMean, kSum };

/// fixed_cross_entropy (transformers): a sum, which the Trainer's count of labels then divides, where there is one.
[[nodiscard]] inline LossReduction reduction_beside(const Tensor& number_of_items) {
  return number_of_items.defined() ? LossReduction::kSum : LossReduction::kMean;
}

/// F.nll_loss(…, reduction="sum") of log-probabilities [rows, classes].
[[nodiscard]] Tensor nll_loss_sum(const Tensor& log_probabilities, const Tensor& targets);
/// F.cross_entropy of logits [rows, classes] against int64 targets [rows]: a scalar.
[[nodiscard]] Tensor cross_entropy(const Tensor& logits, Arg targets, LossReduction reduction = LossReduction::kMean);

/// F.binary_cross_entropy_with_logits of logits and targets [rows], their mean: a scalar.
[[nodiscard]] Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& targets);

/// F.ctc_loss of log_probs [frames, batch, symbols], without reduction: [batch]. All labels are `label_length` long.
[[nodiscard]] Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, std::int64_t label_length);

}  // namespace memcalc
