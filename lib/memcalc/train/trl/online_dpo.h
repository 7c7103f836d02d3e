// OnlineDPOTrainer (trl 1.16, experimental/online_dpo/online_dpo_trainer.py): each micro-batch begins with the
// generation of two completions to each prompt, of which the one that a function rewards more is the chosen one.
// Covered by tests/unit/trl_test.cc.
// MIRRORS(trl, "experimental/online_dpo/online_dpo_trainer.py", "1.16.0")
#pragma once

#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/trl/losses.h"

namespace memcalc {

/// training_step(), which calls backward() itself: its variables live as long.
class OnlineDpoStep {
 public:
  /// loss_type "sigmoid". `padded`: the prompts differ in length.
  [[nodiscard]] Tensor loss(Tape& tape, Model& model, const RunSpec& run, bool padded, const TrlModels& models);
  /// The step returns.
  void clear();

 private:
  Tensor prompt_ids_, prompt_mask_, completion_ids_, completion_mask_;
  std::vector<Tensor> variables_;  // the others, in the order of their assignments
};

}  // namespace memcalc
