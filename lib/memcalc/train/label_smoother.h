// TrainingArguments.label_smoothing_factor (transformers 5.17): the loss of logits that the model gave without labels.
// Covered by tests/measured/jobs_test.py.
// MIRRORS(transformers, "trainer_pt_utils.py", "5.17.0")
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// LabelSmoother.__call__. `items`: num_items_in_batch; undefined: the labels that are not -100 are counted. `shifts`:
/// each token's label is the next one's.
[[nodiscard]] Tensor smoothed_loss(const Tensor& logits, const Tensor& labels, const Tensor& items, bool shifts);

}  // namespace memcalc
