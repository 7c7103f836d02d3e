// The variables of the Trainer's _inner_training_loop and the step that it repeats (transformers/trainer.py).
// Covered by tests/measured/jobs_test.py.
// MIRRORS(transformers, "trainer.py", "5.17.0")
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/compile/compiled_model.h"
#include "memcalc/train/compile/compiled_regions.h"
#include "memcalc/train/data/collator.h"
#include "memcalc/train/grad_scaler.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/module_walks.h"
#include "memcalc/train/optimizer.h"
#include "memcalc/train/sentence_transformers.h"
#include "memcalc/train/trl/grpo.h"
#include "memcalc/train/trl/losses.h"
#include "memcalc/train/trl/online_dpo.h"

namespace memcalc {

/// _get_num_items_in_batch: sum((batch["labels"].ne(-100)).sum() for batch in batch_samples); where the loss shifts
/// the labels, without the first of each row.
[[nodiscard]] Tensor number_of_items(const std::vector<Batch>& batches, bool shifted);

/// What compute_loss calls: the model in its autocast wrapper, whose outputs accelerate turns into float32. `wrapper`:
/// around that.
[[nodiscard]] ModelOutput call_model(Tape& tape, Model& model, const RunSpec& run, ParallelWrapper* wrapper,
                                     const Batch& inputs, bool sync);

/// _prepare_inputs: accelerate's loader has moved them, so that they are copied in DeepSpeed's type on the card.
[[nodiscard]] Batch prepared_inputs(const Batch& batch, const RunSpec& run);

/// A micro-batch of --bs samples of --seq tokens.
[[nodiscard]] BatchShape shape_of(const RunSpec& run);

/// Of GRPOTrainer and RLOOTrainer: in the step that begins with this micro-batch, counted from the first of all.
[[nodiscard]] std::int64_t generations_of(const RunSpec& run, std::int64_t first_of_step);

/// The variables of _inner_training_loop and the step that it repeats.
class TrainerLoop {
 public:
  TrainerLoop(Tape& tape, Model& model, const RunSpec& run, ParallelWrapper* wrapper, ComparedModel reference,
              const SpecialTokens& tokens);

  /// Of trainers that generate: as if the steps up to the next one that begins with a generation had been made.
  void skip_to_generation() {
    const std::int64_t every = run_.training().generate_every();
    first_of_step_ = ceil_div(first_of_step_, every) * every;
  }
  /// With --lengths not every step is executed: the next one's number.
  void begin_step(std::int64_t number) { first_of_step_ = number * run_.training().accumulation_steps; }
  void step(bool padded) { step(padded, {}); }
  /// With micro-batches of these shapes.
  void step(bool padded, std::span<const BatchShape> shapes);
  /// Trainer.evaluate(), evaluation_loop.
  void evaluate();
  /// train() returns: its variables die, what the Trainer holds does not.
  void end();

  /// What the next step drops when it assigns its own.
  template <typename Visit>
  void visit_carried(Visit visit) {
    batches_.resize(static_cast<std::size_t>(run_.training().accumulation_steps));
    for (Batch& batch : batches_) {
      const std::vector<BatchTensor> tensors = batch_tensors(model_, run_);
      make_room_for_others(tensors, batch);
      for (const BatchTensor& each : tensors) visit(each.in(batch));
    }
    inputs_ = batches_.back();
    visit(items_);
    visit(loss_of_step_);
    visit(grad_norm_);
    optimizer_.visit_carried(visit);
  }

 private:
  /// What prediction_step returns; logits and labels where they are kept.
  struct Prediction {
    Tensor loss, logits, labels;
    Tensor end_logits, end_positions;  // of answers in a text
  };
  [[nodiscard]] Prediction prediction_step(Batch& inputs, const BatchShape& shape);
  [[nodiscard]] Prediction generated_prediction(const Batch& inputs);
  /// Of trainers that generate: the run with so many columns.
  [[nodiscard]] RunSpec of_columns(const BatchShape& shape) const {
    RunSpec run = run_;
    run.sequence_length = shape.columns;
    if (run.training().loop == Loop::kTrlOnlineDpo) run.batch_size = shape.rows;
    return run;
  }
  /// A batch of other sizes than the run's.
  [[nodiscard]] Batch make_batch_of(const BatchShape& shape);
  void record_loading();
  void micro_batch(std::int64_t index, bool sync);
  /// Where a step generates in its middle, none stands for another.
  [[nodiscard]] std::vector<ExecutedMicroBatch> executed_in_step(std::int64_t count) const;
  void call_engine(const Tensor& loss, bool sync);
  [[nodiscard]] ModelOutput call_on_any_batch();
  [[nodiscard]] Tensor compute_loss(bool sync);
  /// Of TRL's trainers.
  [[nodiscard]] Tensor trl_loss(const Batch& inputs, const BatchShape& shape, bool sync);
  /// With label_smoothing_factor: the labels are taken away from the model.
  [[nodiscard]] ModelOutput call_without_labels(bool sync);
  [[nodiscard]] TrlModels trl_models(bool sync);
  /// What is around Trainer.model, with which it evaluates and generates.
  [[nodiscard]] ParallelWrapper* wrapper_of_model() const {
    return wrapper_ != nullptr && wrapper_->changes_module() ? wrapper_ : nullptr;
  }

  Tape& tape_;
  Model& model_;
  const RunSpec& run_;
  ParallelWrapper* wrapper_;
  ComparedModel reference_;
  SpecialTokens tokens_;
  OptimizerSteps optimizer_;
  GradScaler scaler_;
  Tensor total_loss_;
  SentenceLoss sentence_loss_;
  ModuleCount modules_;
  std::optional<compile::CompiledModel> compiled_;
  Bytes converted_ = 0;  // logits in float32, a graph of their own that nobody reads
  std::optional<compile::CompiledRegions> graphs_;
  std::vector<Batch> batches_;
  std::vector<BatchShape> shapes_;                 // likewise
  std::size_t micro_batch_ = 0;                    // of these
  std::vector<ScoredCompletions> completions_;     // of trainers that generate: one a micro-batch
  const ScoredCompletions* completion_ = nullptr;  // the micro-batch's
  std::int64_t first_of_step_ = 0;                 // the step's first micro-batch, counted from the first of all
  std::int64_t generation_ = -1;                   // the last one's number
  OnlineDpoStep online_dpo_;
  Batch inputs_;
  Tensor items_, loss_of_step_, grad_norm_, zero_;
};

}  // namespace memcalc
