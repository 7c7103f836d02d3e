// What generate() does to the scores of all tokens before it draws one: transformers 5.17,
// generation/logits_process.py. Each temporary lives as long as the Python variable it stands for.
// Covered by tests/unit/sampled_scores_test.cc.
// MIRRORS(transformers, "generation/logits_process.py", "5.17.0")
#pragma once

#include "memcalc/spec/sampling.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// RepetitionPenaltyLogitsProcessor, the first of all: scores [rows, vocabulary] of `input_ids`, all tokens so far.
[[nodiscard]] Tensor penalised(const Tensor& scores, const Tensor& input_ids);

/// The warpers, the last of all, in the order of _get_logits_processor: temperature, top-k, top-p, min-p.
[[nodiscard]] Tensor warped(const Sampling& sampling, Tensor scores);

}  // namespace memcalc
