// The losses of TRL's trainers (trl 1.16), which run in transformers' Trainer. Covered by tests/measured/jobs_test.py.
#pragma once

#include <functional>

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// Calls the model as compute_loss finds it: in its autocast wrapper and the parallel wrapper.
using CallModel = std::function<ModelOutput(const Batch& batch)>;

/// SFTTrainer.compute_loss (trainer/sft_trainer.py), loss_type "nll": the loss, and the metrics of the step.
[[nodiscard]] Tensor sft_loss(Tape& tape, const Batch& inputs, const CallModel& call_model);

/// DPOTrainer._compute_loss (trainer/dpo_trainer.py), loss_type "sigmoid" of the reverse KL divergence, whose reference
/// is the model without its adapters.
[[nodiscard]] Tensor dpo_loss(Tape& tape, const RunSpec& run, const Batch& inputs, const CallModel& call_model);

/// The loss of the run's trainer.
[[nodiscard]] Tensor trl_loss(Tape& tape, const RunSpec& run, const Batch& inputs, const CallModel& call_model);

}  // namespace memcalc
