// GRPOTrainer and RLOOTrainer (trl 1.16, trainer/grpo_trainer.py, rloo_trainer.py): a step begins with the generation
// of its completions, which are scored and then trained on micro-batch by micro-batch. Covered by
// tests/measured/jobs_test.py.
// MIRRORS(trl, "trainer/grpo_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/rloo_trainer.py", "1.16.0")
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/trl/losses.h"

namespace memcalc {

/// The dictionary that _generate_and_score_completions returns, of `rows` completions. Members die in this order.
struct ScoredCompletions {
  Tensor prompt_ids, prompt_mask;          // [rows, prompt] int64
  Tensor completion_ids, completion_mask;  // [rows, completion] int64
  Tensor advantages;                       // [rows] float32
  Tensor number_of_items;                  // GRPO: one int64
  Tensor old_per_token_logps;              // GRPO with vLLM: [rows, completion] float32
  Tensor importance_sampling_ratio;        // likewise: [rows, 1] float32
  Tensor sampling_per_token_logps;         // likewise: [rows, completion] float32
  Tensor ref_per_token_logps;              // GRPO with a reference: [rows, completion] float32
  Tensor old_logps;                        // RLOO: [rows] float32
  bool padded = false;                     // there is padding before prompts
  void clear() {
    drop(prompt_ids, prompt_mask, completion_ids, completion_mask, advantages, number_of_items, old_per_token_logps,
         importance_sampling_ratio, sampling_per_token_logps, ref_per_token_logps, old_logps);
  }
};

/// _prepare_inputs where it generates: --bs times --accum completions by transformers or vLLM, scored by functions on
/// the host, shuffled, and cut into micro-batches.
[[nodiscard]] std::vector<ScoredCompletions> generate_and_score(Tape& tape, Model& model, const RunSpec& run,
                                                                bool padded, const TrlModels& models);

/// prediction_step: `rows` completions are generated, of which only the loss is left.
[[nodiscard]] Tensor evaluated_loss(Tape& tape, Model& model, const RunSpec& run, std::int64_t rows, bool padded,
                                    const TrlModels& models);

/// _compute_loss of the run's trainer. GRPO: loss_type "dapo", with clipped ratios of tokens.
[[nodiscard]] Tensor completion_loss(Tape& tape, const RunSpec& run, const ScoredCompletions& inputs,
                                     const TrlModels& models);

}  // namespace memcalc
