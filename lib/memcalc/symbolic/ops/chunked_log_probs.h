// TRL's language-model head that never holds the logits (trl 1.16, kernels/chunked_logprob.py, ChunkedLogProbFunction):
// log-probabilities of the labels and what is measured of the distribution, tile by tile of the vocabulary. Covered by
// tests/unit/chunked_log_probs_test.cc.
// MIRRORS(trl, "kernels/chunked_logprob.py", "1.16.0")
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// Which further numbers of a token are computed. They are made in any case; only those asked for are returned.
struct LogProbOutputs {
  bool entropy = false;
  bool log_sum_sq_probs = false;
  bool mean_logits = false;
  bool is_top1 = false;
};

/// [tokens] each, float32; is_top1 bool. Undefined where it was not asked for. They die in this order.
struct ChunkedLogProbs {
  Tensor log_probs, entropy, log_sum_sq_probs, mean_logits, is_top1;
};

/// hidden [tokens, width], weight [vocabulary, width], bias [vocabulary] or undefined, targets [tokens] int64. Under
/// autocast the products are made in its type.
[[nodiscard]] ChunkedLogProbs chunked_log_probs(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                                                const Tensor& targets, LogProbOutputs outputs);

}  // namespace memcalc
