// What a candidate of a search needs and how long it takes, from two runs of the same model with few layers. In each
// phase of a step every layer adds as much as the one before it, so two lengths tell of all others: of Llama-3-70B
// under FSDP2, ZeRO-3 and Megatron's tensor parallelism, 4 and 6 layers (2 and 4) give what 80 allocate within 0.1 %,
// and the step within 1 %, for an eighth of the work; in a pipeline within 15 %, too little. What the allocator's
// fragments add is not in it: a candidate is simulated whole before it is recommended. Covered by
// tests/measured/plan_test.cc.
#pragma once

#include <cstdint>
#include <optional>

#include "memcalc/plan/outcome.h"

namespace memcalc {

/// The lengths that stand for a model's.
struct ShortLengths {
  std::int64_t few = 0;
  std::int64_t more = 0;
};

/// Nothing: the model's layers are not all alike in turns, or the lengths would be no shorter than the model.
[[nodiscard]] std::optional<ShortLengths> short_lengths_of(const ModelSpec& model, const RunSpec& run);

struct Survey {
  Outcome outcome;
  bool whole = false;  // it is what simulated() says
};

/// outcome_of() by the short models, on the ranks that may need most, without the slack of the allocator: `reserved` is
/// what is allocated. Without short models: simulated().
[[nodiscard]] Survey surveyed(const Candidate& candidate);

/// outcome_of() on a card of endless memory, with the verdict of the real one: what happens on a full card is not
/// asked, but of paged optimizers.
[[nodiscard]] Outcome simulated(const Candidate& candidate);

/// The same without the ranks that are known not to need most (estimate_heaviest_ranks()).
[[nodiscard]] Survey simulated_on_heaviest_ranks(const Candidate& candidate);

}  // namespace memcalc
