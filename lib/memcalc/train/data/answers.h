// What TRL's collators make of samples that are prompts with one or two answers (trl 1.16, trainer/dpo_trainer.py,
// kto_trainer.py, reward_trainer.py, sft_trainer.py, experimental/utils.py). Covered by tests/unit/answers_test.cc.
// MIRRORS(trl, "experimental/orpo/orpo_trainer.py", "1.16.0")
// MIRRORS(trl, "experimental/utils.py", "1.16.0")
// MIRRORS(trl, "trainer/dpo_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/kto_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/reward_trainer.py", "1.16.0")
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/spec/run_spec.h"
#include "memcalc/train/data/collator.h"
#include "memcalc/train/data/sampler.h"

namespace memcalc {

/// Micro-batches of samples with answers, of a data set of so many: where it has more than the file, they begin again.
/// Pre: has_answers(run).
[[nodiscard]] std::vector<BatchShape> collated_answers(const Batches& batches, const RunSpec& run,
                                                       std::int64_t samples);

/// Whether samples are prompts with answers, or pairs of sequences.
[[nodiscard]] bool has_answers(const RunSpec& run);

}  // namespace memcalc
