// The loss of SFTTrainer in TRL 1.7 to 1.14 (loss_type "chunked_nll"): 256 tokens at a time, each part under a
// checkpoint. Covered by tests/unit/chunked_cross_entropy_test.cc and tests/measured/jobs_test.py.
// MIRRORS(trl, "trainer/sft_trainer.py", "1.14.2")
#pragma once

#include "memcalc/models/causal_lm_head.h"
#include "memcalc/models/model.h"

namespace memcalc {

/// _chunked_ce_forward behind the backbone: the loss, and what the trainer looks at (FusedHead): the count of labels as
/// label_mask, the sums over all tokens as entropy and is_top1.
void chunked_forward(const Linear& lm_head, const Tensor& hidden_states, const Batch& batch, ModelOutput& output,
                     LogitsChange change);

}  // namespace memcalc
