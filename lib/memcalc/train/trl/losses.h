// The losses of TRL's trainers (trl 1.16), which run in transformers' Trainer. Covered by tests/measured/jobs_test.py.
// MIRRORS(trl, "experimental/orpo/orpo_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/dpo_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/kto_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/sft_trainer.py", "1.16.0")
#pragma once

#include <cstdint>
#include <functional>

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/modes.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/data/collator.h"
#include "memcalc/train/module_walks.h"

namespace memcalc {

class ParallelWrapper;

/// Calls a model as compute_loss finds it: in its autocast wrapper and the parallel wrapper.
using CallModel = std::function<ModelOutput(const Batch& batch)>;

/// The model that trains, and the one beside it with which it is compared: none where --ref-model says something else.
struct TrlModels {
  CallModel policy;
  CallModel trainer_model;  // Trainer.model: the policy without DDP or DeepSpeed's engine around it
  CallModel reference;
  ParallelWrapper* around = nullptr;  // what is around Trainer.model_wrapped; null: nothing
  ModuleCount modules;                // that a walk over the model meets
};

/// Python of DPO's and KTO's _compute_loss around a reference that was not computed before, in each micro-batch:
/// disable_gradient_checkpointing() (models/utils.py) asks every module whether it is on, which takes as long as two
/// walks, or switches it off and on, six; is_peft_model() unwraps the model, and with adapters unwrap_model() again.
inline void record_reference_questions(Tape& tape, const RunSpec& run, const TrlModels& models) {
  const bool checkpoints = run.checkpointing() != Checkpointing::kNone;
  const std::int64_t walks = (checkpoints ? 6 : 2) + (models.reference ? 1 : 2);
  record_host_work(tape, HostWork::kPeftQuestion);
  record_host_work(tape, HostWork::kWalkedModule, walks * models.modules.all);
}

/// Where there is no model beside the one that trains: `with model.disable_adapter()`, in which peft walks over all
/// modules (tuners/tuners_utils.py: disable_adapter_layers, enable_adapter_layers).
class WithoutAdapters : public Scoped<bool> {
 public:
  WithoutAdapters(Tape& tape, const TrlModels& models) : Scoped(tape.modes.adapters_disabled, !models.reference) {
    if (!models.reference) record_host_work(tape, HostWork::kToggledModule, models.modules.adapted);
  }
};

/// SFTTrainer.compute_loss (trainer/sft_trainer.py): the loss, and the metrics of the step.
[[nodiscard]] Tensor sft_loss(Tape& tape, const RunSpec& run, const Batch& inputs, const TrlModels& models);

/// trl before 1.14, of DPO and KTO: [sequences, tokens - 1] log-probabilities, 0 where a token is no part of an answer.
/// `logits` becomes what is known of each token but the last.
[[nodiscard]] Tensor log_probs_of_logits(Tensor& logits, const Tensor& input_ids, const Tensor& completion_mask);

/// DPOTrainer._compute_loss (trainer/dpo_trainer.py), loss_type "sigmoid" of the reverse KL divergence.
[[nodiscard]] Tensor dpo_loss(Tape& tape, const RunSpec& run, const Batch& inputs, const BatchShape& shape,
                              const TrlModels& models);

/// ORPOTrainer.get_batch_loss_metrics (experimental/orpo/orpo_trainer.py).
[[nodiscard]] Tensor orpo_loss(Tape& tape, const Batch& inputs, const TrlModels& models);

/// KTOTrainer._compute_loss (trainer/kto_trainer.py).
[[nodiscard]] Tensor kto_loss(Tape& tape, const RunSpec& run, const Batch& inputs, const BatchShape& shape,
                              const TrlModels& models);

/// LLaMA-Factory's own trainers of both (train/dpo/trainer.py, train/kto/trainer.py), which hold the logits of every
/// token in float32, and their logarithmic softmax (whole_logits.cc).
[[nodiscard]] Tensor whole_logits_dpo_loss(Tape& tape, const RunSpec& run, const Batch& inputs, const BatchShape& shape,
                                           const TrlModels& models);
[[nodiscard]] Tensor whole_logits_kto_loss(Tape& tape, const RunSpec& run, const Batch& inputs, const BatchShape& shape,
                                           const TrlModels& models);

}  // namespace memcalc
