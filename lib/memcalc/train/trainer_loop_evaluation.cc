// transformers/trainer.py and trainer_seq2seq.py: evaluation_loop and prediction_step.
// MIRRORS(transformers, "trainer.py", "5.17.0")
// MIRRORS(transformers, "trainer_seq2seq.py", "5.17.0")
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/data/data_steps.h"
#include "memcalc/train/evaluated_generation.h"
#include "memcalc/train/gather.h"
#include "memcalc/train/label_smoother.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/trainer_loop.h"
#include "memcalc/train/trl/grpo.h"

namespace memcalc {

namespace {

/// trainer_pt_utils.py, torch_pad_and_concatenate
Tensor padded_and_concatenated(const Tensor& a, const Tensor& b) {
  if (a.rank() == 1 || a.size(1) == b.size(1)) return no_grad::cat(a, b, 0);
  Shape shape = a.shape();
  shape[0] = a.size(0) + b.size(0);
  shape[1] = std::max(a.size(1), b.size(1));
  return no_grad::full(a.tape(), shape, a.dtype());  // new_full(); rows are copied into it
}

/// Batches of an evaluation that are executed before the last one.
constexpr std::int64_t kMostEvaluated = 6;

}  // namespace

TrainerLoop::Prediction TrainerLoop::prediction_step(Batch& inputs, const BatchShape& shape) {
  const bool keeps_logits = run_.training().evaluation->keeps_logits;
  Prediction result;
  if (run_.generates()) {
    const RunSpec run = of_columns(shape);
    result.loss = tape_.detach(evaluated_loss(tape_, model_, run, shape.rows, shape.padded, trl_models(true)));
    return result;
  }
  if (run_.uses_trl()) {
    result.loss = tape_.detach(trl_loss(inputs, shape, true));
    return result;
  }
  if (run_.uses_sentence_transformers()) {
    const Tensor loss = sentence_loss_.compute(tape_, run_, inputs, shape, trl_models(true).policy);
    result.loss = mean(loss, 0, false);  // loss.detach().mean()
    return result;
  }
  if (run_.training().evaluation->new_tokens > 0) return generated_prediction(inputs);
  Tensor items;
  if (inputs.labels.defined() && run_.task != Task::kQuestionAnswering) {
    items = number_of_items({inputs}, model_.loss_shifts_labels);
  }
  inputs.number_of_items = items;
  Batch passed = inputs;
  if (run_.training().smooths_labels) passed.labels.reset();
  ModelOutput outputs = call_model(tape_, model_, run_, wrapper_of_model(), passed, true);
  if (run_.training().smooths_labels) {
    outputs.loss = smoothed_loss(outputs.logits, inputs.labels, items, run_.task == Task::kCausalLm);
  }
  if (outputs.loss.defined()) {
    if (model_.accepts_loss_kwargs) outputs.loss = multiply_in_place(outputs.loss);
    result.loss = mean(outputs.loss, 0, false);  // loss.detach().mean()
  }
  if (keeps_logits) {
    result.logits = outputs.logits;
    result.labels = inputs.labels;
    if (run_.task == Task::kQuestionAnswering) {
      result.end_positions = inputs.others.front();
      result.end_logits = outputs.others.front();
    }
  }
  inputs.number_of_items.reset();
  return result;
}

/// trainer_seq2seq.py, prediction_step with predict_with_generate: the tokens, and then the loss of the labels, where
/// these are not taken away before (Evaluation::has_labels).
TrainerLoop::Prediction TrainerLoop::generated_prediction(const Batch& inputs) {
  Prediction result;
  result.logits = generated_in_evaluation(tape_, model_, run_, inputs, tokens_, trl_models(true).policy);
  if (!run_.training().evaluation->has_labels) return result;
  const ModelOutput outputs = call_model(tape_, model_, run_, wrapper_of_model(), inputs, true);
  result.loss = mean(outputs.loss, 0, false);
  result.labels = padded_prediction(inputs.labels);
  return result;
}

void TrainerLoop::evaluate() {
  const Evaluation& evaluation = *run_.training().evaluation;
  const NoGrad no_grad(tape_.modes);
  const Scoped eval(tape_.modes.training, false);
  tape_.moment.phase = Phase::kEvaluation;
  Batch inputs;
  BatchShape shape;
  Prediction prediction, all;
  Tensor losses;
  const auto add = [](Tensor& kept, const Tensor& more) {  // EvalLoopContainer
    if (more.defined()) kept = kept.defined() ? padded_and_concatenated(kept, more) : more;
  };
  // On several processes each has every n-th batch, the last filled up from the beginning of the set;
  // gather_for_metrics takes off what was filled up.
  const std::int64_t of_all = evaluation.batch_size * tape_.processes;
  const std::int64_t batches = ceil_div(evaluation.samples, of_all);
  const bool has_lengths = run_.training().lengths.has_value();
  std::vector<DataStep> of_lengths;
  if (has_lengths) of_lengths = evaluation_batches(run_, tape_.processes, tape_.process_index);
  auto next = of_lengths.begin();
  for (std::int64_t i = 0; i < batches; ++i) {
    // Where batches are alike but the last one, of many the first and the last are executed.
    const bool executed =
        has_lengths ? next != of_lengths.end() && next->number == i : i < kMostEvaluated || i == batches - 1;
    const std::int64_t rows_of_all = std::min(of_all, evaluation.samples - i * of_all);
    const auto for_metrics = [&](const Tensor& x) {
      const Tensor all = gathered(x);
      return all.size(0) > rows_of_all ? no_grad::slice(all, 0, 0, rows_of_all) : all;
    };
    if (executed) {
      const bool is_filled = tape_.processes > 1;
      if (has_lengths) {
        shape = (next++)->micro_batches.front();
        if (!run_.generates()) inputs = make_batch_of(shape);
      } else {
        RunSpec of_batch = run_;
        of_batch.batch_size = is_filled ? evaluation.batch_size : rows_of_all;
        shape = shape_of(of_batch);
        if (!run_.generates()) inputs = make_batch(tape_, model_, of_batch, aten::kToCopy);
        inputs.padded = run_.padding;
      }
      if (!evaluation.has_labels) inputs.labels.reset();
      Batch prepared = prepared_inputs(inputs, run_);
      prediction = prediction_step(prepared, shape);
      prepared = {};
      losses = std::exchange(prediction.loss, {});  // one variable in Python
      if (losses.defined()) {
        losses = no_grad::repeat(view(losses, {1}), {evaluation.batch_size});
        losses = for_metrics(losses);
      }
      for (Tensor* each : {&prediction.labels, &prediction.end_positions, &prediction.logits, &prediction.end_logits}) {
        if (each->defined()) compare_sizes(*each);
      }
      for (Tensor* each : {&prediction.logits, &prediction.end_logits, &prediction.labels, &prediction.end_positions}) {
        if (each->defined()) *each = for_metrics(*each);
      }
    } else if (evaluation.has_labels) {
      losses = no_grad::zeros(tape_, {of_all}, DType::kFloat32);  // what repeat() asks for
    }
    add(all.loss, losses);
    add(all.logits, prediction.logits);
    add(all.end_logits, prediction.end_logits);
    add(all.labels, prediction.labels);
    add(all.end_positions, prediction.end_positions);
    if (evaluation.move_to_host > 0 && (i + 1) % evaluation.move_to_host == 0) {
      all = {};
      losses.reset();
      if (executed && (has_lengths || i + 1 < kMostEvaluated)) prediction = {};
      tape_.memory.empty_cache();
    }
  }
}

}  // namespace memcalc
