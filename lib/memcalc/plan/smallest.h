// The smallest batch and the shortest sequence that the rules take: a search begins with them. Covered by
// tests/unit/largest_test.cc.
#pragma once

#include <cstdint>

#include "memcalc/base/error.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// The least multiple that breaks no rule about --bs, all else as in the run: KTO wants two samples. Where none of some
/// thousand does, or another rule is broken first, the first of them: what it is asked says why.
[[nodiscard]] std::int64_t smallest_batch(const ModelSpec& model, RunSpec run, std::int64_t multiple_of = 1);

/// The same of rules about --seq: an answer of --completion tokens stands behind a prompt. `halves_completions`: the
/// answer is half of any sequence.
[[nodiscard]] std::int64_t shortest_sequence(const ModelSpec& model, RunSpec run, bool halves_completions,
                                             std::int64_t multiple_of = 1);

/// Whether twice as many samples may be answered where this was refused: a batch norm had one value of each channel,
/// which only the built model knows.
[[nodiscard]] bool wants_more_samples(const Error& error);

/// The run with sequences of another length. `halves_completions` as above.
void set_sequence(RunSpec& run, std::int64_t tokens, bool halves_completions);

}  // namespace memcalc
