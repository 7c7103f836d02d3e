// TRL's log-probability of one class a row, selective_log_softmax: by its own kernel on a card (trl 1.16,
// kernels/logprob_entropy.py, _LogProbEntropyFunction), before 1.14 sequence by sequence; and the entropy of each row.
// Covered by tests/unit/selected_log_probs_test.cc.
// MIRRORS(trl, "kernels/logprob_entropy.py", "1.16.0")
// MIRRORS(trl, "trainer/utils.py", "1.13.0")
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// logits [batch, tokens, classes], which are read where they lie, index [batch, tokens] int64: [batch, tokens]
/// float32. The gradient of the logits is made row-major. The entropy, which the kernel makes as well, is dropped.
[[nodiscard]] Tensor selected_log_probs(const Tensor& logits, const Tensor& index);

/// The same of float32 logits without that kernel: logits.gather(index) - stack([logsumexp(each sequence)]).
[[nodiscard]] Tensor selected_log_probs_by_sequence(const Tensor& logits, const Tensor& index);

/// log_probs[mask] = 0.0 of what that gives, a squeezed view: `log_probs` with its new history.
[[nodiscard]] Tensor zeros_at(const Tensor& log_probs, const Tensor& mask);

/// entropy_from_logits: of logits without a gradient, 128 rows at a time: [batch, tokens].
[[nodiscard]] Tensor entropy_from_logits(const Tensor& logits);

}  // namespace memcalc
