// transformers/trainer.py (_inner_training_loop, training_step, compute_loss) and accelerate/accelerator.py
// (prepare_model, backward, clip_grad_norm_): the order in which they take and drop memory.
#include <utility>

#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/grad_scaler.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/optimizer.h"
#include "memcalc/train/repeat.h"

namespace memcalc {

namespace {

constexpr Operator kSendToDevice{"aten::_to_copy"}, kNe{"aten::ne"}, kAdd{"aten::add"};
constexpr Operator kIsNan{"aten::isnan"}, kAbs{"aten::abs"}, kIsInf{"aten::isinf"};

/// _get_num_items_in_batch: sum((batch["labels"].ne(-100)).sum() for batch in batch_samples); where the loss shifts
/// the labels, without the first of each row.
Tensor number_of_items(Tape& tape, const std::vector<Batch>& batches, bool shifted) {
  Tensor total;
  for (const Batch& batch : batches) {
    Shape counted = batch.labels.shape();
    if (shifted) --counted[-1];
    Tensor present = tape.empty(counted, DType::kBool, kNe);
    Tensor items = count(present);
    present.reset();
    Tensor sum = tape.empty({}, DType::kInt64, kAdd);
    total = std::move(sum);
    items.reset();
  }
  return total;
}

/// The Trainer shuffles. Where half of the sequences are padded, a batch of B has none with probability 2^-B: of three
/// steps about two at B = 1, one at B = 2, and none beyond. Such a step builds no mask and leaves other blocks behind.
int batches_without_padding(const RunSpec& run) {
  if (!run.padding || run.batch_size > 2) return 0;
  return run.batch_size == 1 ? 2 : 1;
}

/// compute_loss: the model in its autocast wrapper, whose outputs accelerate turns into float32.
Tensor compute_loss(Tape& tape, Model& model, const RunSpec& run, const Batch& inputs) {
  tape.autocast = autocast_dtype(run.precision);
  ModelOutput outputs = model.forward(inputs);
  const bool mixed = tape.autocast.has_value();
  tape.autocast.reset();
  tape.clear_cast_cache();
  if (mixed) outputs.logits = to_dtype(outputs.logits, DType::kFloat32);
  return multiply_in_place(outputs.loss);  // loss *= num_processes
}

/// The Trainer's logging filter: isnan(loss) or isinf(loss).
void look_for_infinities(const Tensor& loss) {
  Tape& tape = loss.tape();
  tape.scratch(1, kIsNan);
  Tensor magnitude = tape.empty({}, loss.dtype(), kAbs);
  Tensor infinite = tape.empty({}, DType::kBool, kIsInf);
  drop(magnitude, infinite);
}

/// Weights first, then biases and norms, which are not decayed.
std::vector<ParameterGroup> parameter_groups(const Model& model) {
  std::vector<ParameterGroup> groups(2);
  for (const Parameter& parameter : model.parameters) groups[parameter.decays ? 0 : 1].push_back(parameter.tensor);
  return groups;
}

}  // namespace

void run_trainer_loop(Tape& tape, Model& model, const RunSpec& run) {
  tape.empty_cache();
  OptimizerSteps optimizer(run.optimizer, parameter_groups(model));
  const bool fused = run.optimizer == Optimizer::kAdamWFused;
  GradScaler scaler(tape, run.precision == Precision::kAmpFp16);
  tape.phase = Phase::kForward;
  const Tensor total_loss = tape.empty({}, DType::kFloat32, kSendToDevice);
  std::vector<Batch> batches;
  Batch inputs;
  Tensor items, loss_of_step, grad_norm;
  StepMark mark;
  for (int step = 0; step < kSteps; ++step) {
    const bool steady = batches_without_padding(run) < kSteps - 1;
    if (step == kSteps - 1 && steady && repeat_step(tape.trace, mark)) break;
    mark = mark_step(tape.trace);
    tape.step = step;
    tape.record_kernels = step == kSteadyStep;
    tape.phase = Phase::kForward;
    // get_batch_samples moves all micro-batches of a step before the last step's are dropped.
    std::vector<Batch> next;
    for (std::int64_t i = 0; i < run.accumulation_steps; ++i) {
      next.push_back(make_batch(tape, run, kSendToDevice));
      next.back().padded = step >= batches_without_padding(run);
    }
    Tensor next_items = number_of_items(tape, next, model.loss_shifts_labels);
    batches = std::move(next);
    items = std::move(next_items);
    for (Batch& micro_batch : batches) {
      inputs = micro_batch;
      inputs.number_of_items = items;
      tape.phase = Phase::kForward;
      Tensor loss = compute_loss(tape, model, run, inputs);
      tape.phase = Phase::kBackward;
      {
        Tensor averaged = divide_scalar(loss);  // by the accumulation steps, even where that is 1
        Tensor scaled = scaler.scale(averaged);
        backward_from(scaled);
        drop(scaled, averaged);
      }
      inputs.number_of_items.reset();
      tape.phase = Phase::kDelete;
      loss_of_step = tape.detach(loss);
      loss.reset();
      look_for_infinities(loss_of_step);
    }
    tape.phase = Phase::kOptimizer;
    if (run.max_grad_norm) {
      grad_norm.reset();
      scaler.unscale(fused);
      grad_norm = clip_grad_norm(tape, model.parameters);
    }
    scaler.step(optimizer, fused);
    scaler.update();
    tape.phase = Phase::kZero;
    for (const Parameter& parameter : model.parameters) parameter.tensor.impl()->grad.reset();
  }
  tape.stop();
}

}  // namespace memcalc
