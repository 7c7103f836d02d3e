// What the collators of TRL's trainers on answers hand over (trl 1.16), in the order of their keys.
// MIRRORS(trl, "experimental/utils.py", "1.16.0")
#pragma once

#include <cstddef>
#include <vector>

#include "memcalc/spec/run_spec.h"
#include "memcalc/train/data/collator.h"
#include "memcalc/train/loop.h"

namespace memcalc {

/// Places in Batch::others. DataCollatorForPreference, where the reference was computed before the first step.
enum PreferencePlace : std::size_t { kRefChosenLogps, kRefRejectedLogps };
/// DataCollatorForUnpairedPreference: a second answer to each prompt, of another sample, and whether the first is
/// desirable.
enum UnpairedPlace : std::size_t { kKlInputIds, kKlAttentionMask, kKlCompletionMask, kLabel, kRefLogps, kRefKlLogps };

/// DPODataCollatorWithPadding (experimental/utils.py) of ORPOTrainer: each answer behind its prompt, and the prompt
/// alone.
enum AnswersPlace : std::size_t {
  kChosenIds,
  kChosenMask,
  kChosenLabels,
  kRejectedIds,
  kRejectedMask,
  kRejectedLabels,
  kPromptIds,
  kPromptMask
};

/// --bs samples of --seq tokens, of which --completion answer.
[[nodiscard]] BatchShape answers_shape_of(const RunSpec& run);

/// Of trainers that train on answers which the data set has.
[[nodiscard]] std::vector<BatchTensor> answer_tensors(const RunSpec& run, const BatchShape& shape);

}  // namespace memcalc
