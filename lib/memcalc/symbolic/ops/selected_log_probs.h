// TRL's log-probability of one class a row (trl 1.16, kernels/logprob_entropy.py, _LogProbEntropyFunction): what
// selective_log_softmax calls on a card. Covered by tests/unit/selected_log_probs_test.cc.
// MIRRORS(trl, "kernels/logprob_entropy.py", "1.16.0")
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// logits [batch, tokens, classes], which are read where they lie, index [batch, tokens] int64: [batch, tokens]
/// float32. The gradient of the logits is made row-major. The entropy, which the kernel makes as well, is dropped.
[[nodiscard]] Tensor selected_log_probs(const Tensor& logits, const Tensor& index);

}  // namespace memcalc
