// transformers/trainer.py (_inner_training_loop, training_step, compute_loss) and accelerate/accelerator.py
// (prepare_model, backward, clip_grad_norm_): the order in which they take and drop memory.
// MIRRORS(accelerate, "accelerator.py", "1.15.0")
// MIRRORS(accelerate, "utils/deepspeed.py", "1.15.0")
// MIRRORS(transformers, "trainer.py", "5.17.0")
#include "memcalc/train/trainer_loop.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "memcalc/models/program_graphs.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/capture.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/clip_grad.h"
#include "memcalc/train/data/data_steps.h"
#include "memcalc/train/data/texts.h"
#include "memcalc/train/float32_outputs.h"
#include "memcalc/train/gather.h"
#include "memcalc/train/label_smoother.h"
#include "memcalc/train/parallel/deepspeed_engine.h"
#include "memcalc/train/trl/batch.h"
#include "memcalc/train/trl/reward.h"

namespace memcalc {

namespace {

bool is_deepspeed(const RunSpec& run) { return run.parallel.framework() == Framework::kDeepSpeed; }

/// Of accelerate's wrapper around forward. _prepare_fsdp2 leaves forward alone: its policy casts the parameters.
/// DeepSpeed has cast them itself.
std::optional<DType> wrapped_autocast(const RunSpec& run) {
  const bool autocasts = run.parallel.data_parallel != DataParallel::kFsdp2 && !is_deepspeed(run);
  return autocasts ? autocast_dtype(run.precision) : std::nullopt;
}

/// Of a graph that breaks within the model, accelerate's autocast and convert_outputs_to_fp32 are no part: Dynamo gives
/// up the frame that calls the model and compiles each frame below it (GPT-2 on an H100: three graphs, of which the
/// last is the conversion).
bool breaks_within(const Tape& tape) { return tape.modes.capture != nullptr && !tape.modes.capture->breaks.empty(); }

/// The Trainer's logging filter: isnan(loss) or isinf(loss).
void look_for_infinities(const Tensor& loss) {
  Tape& tape = loss.tape();
  no_grad::isnan(loss).reset();
  no_grad::isinf(loss).reset();
  read_on_host(tape, aten::kIsinf);  // `if torch.isnan(...) or torch.isinf(...)`: Python waits for the answer
}

/// Weights first, then biases and norms, which are not decayed.
std::vector<ParameterGroup> parameter_groups(const Model& model, const ParallelWrapper* wrapper) {
  std::vector<ParameterGroup> groups(2);
  for (const Parameter* parameter : updated_parameters(model, wrapper)) {
    groups[parameter->decays ? 0 : 1].push_back(parameter);
  }
  return groups;
}

/// Of an average step.
double mean_generations(const RunSpec& run) {
  const Training& training = run.training();
  return static_cast<double>(training.accumulation_steps) / static_cast<double>(training.generate_every());
}

/// Of training_step in walks over the modules: model.train() takes as long as three, and floating_point_ops()'s
/// num_parameters(exclude_embeddings=True), too, which is asked where a batch has the model's main input.
std::int64_t walks_of_batch(const RunSpec& run) {
  const bool has_main_input =
      !run.generates() && !run.uses_sentence_transformers() && run.training().loop != Loop::kTrlOrpo;
  return has_main_input ? 6 : 3;
}

}  // namespace

Batch prepared_inputs(const Batch& batch, const RunSpec& run) {
  Batch prepared = batch;
  if (!is_deepspeed(run)) return prepared;
  for (Tensor* each : {&prepared.pixel_values, &prepared.input_features}) {
    if (each->defined()) *each = no_grad::to(*each, deepspeed_dtype(run));
  }
  return prepared;
}

Tensor number_of_items(const std::vector<Batch>& batches, bool shifted) {
  Tensor total;
  shifted = shifted && batches.front().labels.tape().behaviors.counts_shifted_labels;
  for (const Batch& batch : batches) {
    const int last = batch.labels.rank() - 1;
    const Tensor labels = shifted ? no_grad::slice(batch.labels, last, 1, batch.labels.size(last) - 1) : batch.labels;
    const Tensor items = no_grad::sum(no_grad::not_equal(labels));
    total = total.defined() ? no_grad::add(total, items) : no_grad::add(items);
  }
  // average_tokens_across_devices
  return total.tape().processes > 1 ? no_grad::sum(gathered(total)) : total;
}

ModelOutput call_model(Tape& tape, Model& model, const RunSpec& run, ParallelWrapper* wrapper, const Batch& inputs,
                       bool sync) {
  const auto module = [&](const Batch& batch) {
    const std::optional<DType> dtype = wrapped_autocast(run);
    ModelOutput outputs = [&] {
      const Autocasting autocasting(tape.modes.autocast, dtype);
      const ForwardPass pass(tape, run);
      if (run.uses_sentence_transformers()) return sentence_transformers_forward(model, run, batch);
      return model.forward(batch);
    }();
    if (dtype && !breaks_within(tape)) convert_to_float32(outputs);
    return outputs;
  };
  return wrapper != nullptr ? wrapper->forward(module, inputs, sync) : module(inputs);
}

std::int64_t generations_of(const RunSpec& run, std::int64_t first_of_step) {
  const std::int64_t every = run.training().generate_every(), count = run.training().accumulation_steps;
  return ceil_div(first_of_step + count, every) - ceil_div(first_of_step, every);
}

BatchShape shape_of(const RunSpec& run) {
  return run.uses_sentence_transformers() ? texts_shape_of(run) : answers_shape_of(run);
}

TrainerLoop::TrainerLoop(Tape& tape, Model& model, const RunSpec& run, ParallelWrapper* wrapper,
                         ComparedModel reference, const SpecialTokens& tokens)
    : tape_(tape),
      model_(model),
      run_(run),
      wrapper_(wrapper),
      reference_(reference),
      tokens_(tokens),
      optimizer_(tape, run, parameter_groups(model, wrapper)),
      scaler_(tape, run.precision == Precision::kAmpFp16 && !is_deepspeed(run), run.training().skipped_steps),
      sentence_loss_(model),
      modules_(count_modules(model.parameters)) {
  tape.moment.phase = Phase::kForward;
  total_loss_ = tape.empty({}, DType::kFloat32, aten::kToCopy);
  if (!run.compiles()) return;
  if (breaks_graph(model)) {  // its graphs begin within autocast, which Dynamo does not trace then
    if (run.records_graphs()) throw refusal(rules::kBrokenGraphRecorded);
    graphs_.emplace(tape, run.training().compiled_parts, model.breaks_at_layers);
  } else {  // accelerate compiles what it has wrapped in autocast (accelerator.py, prepare_model)
    compiled_.emplace(tape, compile::Autocast::kInside, compile::compiles_again(run, model),
                      [this] { return call_on_any_batch(); });
    if (run.records_graphs()) compiled_->record_graphs(graph_inputs(model, run));
  }
}

/// What the compiler traces: it does not look at the values of a batch.
ModelOutput TrainerLoop::call_on_any_batch() {
  Batch batch = make_batch(tape_, model_, run_, aten::kToCopy);
  batch.number_of_items = no_grad::scalar(tape_, DType::kInt64);
  ModelOutput output = call_model(tape_, model_, run_, nullptr, batch, true);
  if (wrapped_autocast(run_) && breaks_within(tape_)) {
    converted_ = checked_multiply(output.logits.elements(), size_of(DType::kFloat32));
  }
  return output;
}

Tensor TrainerLoop::compute_loss(bool sync) {
  if (run_.uses_sentence_transformers()) {
    return sentence_loss_.compute(tape_, run_, inputs_, shapes_[micro_batch_], trl_models(sync).policy);
  }
  if (run_.uses_trl()) return trl_loss(inputs_, shapes_[micro_batch_], sync);
  if (compiled_) {
    const Tensor loss = compiled_->forward();
    if (converted_ > 0) tape_.memory.scratch(converted_, aten::kToCopy);
    return multiply_in_place(loss);
  }
  if (run_.training().smooths_labels) {
    const bool is_causal = run_.task == Task::kCausalLm;
    const ModelOutput outputs = call_without_labels(sync);
    const Tensor loss = smoothed_loss(outputs.logits, inputs_.labels, inputs_.number_of_items, is_causal);
    return model_.accepts_loss_kwargs ? multiply_in_place(loss) : loss;
  }
  ModelOutput outputs = call_model(tape_, model_, run_, wrapper_, inputs_, sync);
  if (!model_.accepts_loss_kwargs) return std::move(outputs.loss);
  return multiply_in_place(outputs.loss);  // loss *= num_processes
}

ModelOutput TrainerLoop::call_without_labels(bool sync) {
  Batch unlabelled = inputs_;
  unlabelled.labels.reset();
  return call_model(tape_, model_, run_, wrapper_, unlabelled, sync);
}

TrlModels TrainerLoop::trl_models(bool sync) {
  TrlModels models;
  models.around = wrapper_;
  models.modules = modules_;
  models.trainer_model = [this, sync](const Batch& batch) {
    return call_model(tape_, model_, run_, wrapper_of_model(), batch, sync);
  };
  models.policy = [this, sync](const Batch& batch) { return call_model(tape_, model_, run_, wrapper_, batch, sync); };
  if (!tape_.modes.training) models.policy = models.trainer_model;
  if (reference_.model != nullptr) {
    models.reference = [this, sync](const Batch& batch) {
      const Scoped eval(tape_.modes.training, false);  // prepare_model(evaluation_mode=True): no dropout
      return call_model(tape_, *reference_.model, run_, reference_.wrapper, batch, sync);
    };
  }
  return models;
}

Tensor TrainerLoop::trl_loss(const Batch& inputs, const BatchShape& shape, bool sync) {
  const TrlModels models = trl_models(sync);
  if (run_.training().loop == Loop::kTrlReward) return reward_loss(tape_, inputs, models.policy);
  if (run_.training().loop == Loop::kTrlOnlineDpo) {
    const RunSpec run = of_columns(shape);
    return online_dpo_.loss(tape_, model_, run, shape.padded, models);
  }
  if (run_.generates()) return completion_loss(tape_, run_, *completion_, models);
  if (run_.training().loop == Loop::kTrlOrpo) return orpo_loss(tape_, inputs, models);
  if (run_.training().whole_logits) {
    return (run_.trains_on_pairs() ? whole_logits_dpo_loss : whole_logits_kto_loss)(tape_, run_, inputs, shape, models);
  }
  if (run_.trains_on_pairs()) return dpo_loss(tape_, run_, inputs, shape, models);
  if (run_.trains_on_answers()) return kto_loss(tape_, run_, inputs, shape, models);
  return sft_loss(tape_, run_, inputs, models);
}

void TrainerLoop::step(bool padded, std::span<const BatchShape> shapes) {
  // accelerate 1.15, data_loader.py: moved with non_blocking=False, a batch waits for the step before.
  tape_.moment.phase = Phase::kZero;
  if (!run_.generates()) read_on_host(tape_, aten::kToCopy);
  tape_.moment.phase = Phase::kForward;
  record_host_work(tape_, HostWork::kTrainerStep);
  // get_batch_samples moves all micro-batches of a step before the last step's are dropped.
  std::vector<Batch> next;
  for (std::int64_t i = 0; i < run_.training().accumulation_steps && shapes.empty(); ++i) {
    next.push_back(run_.generates() ? Batch() : make_batch(tape_, model_, run_, aten::kToCopy));
    next.back().padded = padded && run_.padding;
  }
  for (const BatchShape& shape : shapes) next.push_back(run_.generates() ? Batch() : make_batch_of(shape));
  const auto count = static_cast<std::int64_t>(next.size());
  Tensor next_items;
  const bool has_labels = !next.empty() && next.front().labels.defined();
  if (model_.accepts_loss_kwargs && has_labels) next_items = number_of_items(next, model_.loss_shifts_labels);
  batches_ = std::move(next);
  items_ = std::move(next_items);
  shapes_.assign(shapes.begin(), shapes.end());
  if (shapes.empty()) shapes_.assign(batches_.size(), shape_of(run_));
  if (run_.dataloader_workers == 0) record_loading();
  if (shapes.empty()) {
    for (const ExecutedMicroBatch& executed : executed_in_step(count)) {
      tape_.kernels.repeats = executed.stands_for;
      micro_batch(executed.index, executed.index == count - 1);
    }
  } else {  // no two are alike
    for (std::int64_t i = 0; i < count; ++i) micro_batch(i, i == count - 1);
  }
  tape_.kernels.repeats = 1;
  first_of_step_ += count;
  if (is_deepspeed(run_)) return;  // its engine has stepped in backward(); zero_grad() finds nothing
  tape_.moment.phase = Phase::kOptimizer;
  // max_grad_norm = 0 clips nothing, but _get_grad_norm still computes the norm by clipping at infinity.
  grad_norm_.reset();
  scaler_.unscale(optimizer_);
  // fully_sharded_data_parallel.py (torch 2.11), clip_grad_norm_: the root of FSDP1 keeps a zero for ranks without
  // gradients.
  if (run_.parallel.data_parallel == DataParallel::kFsdp1 && !zero_.defined()) {
    zero_ = tape_.empty({}, DType::kFloat32, aten::kScalarTensor);
  }
  grad_norm_ = clip_grad_norm(tape_, model_.parameters);
  scaler_.step(optimizer_);
  scaler_.update();
  if (wrapper_ != nullptr) wrapper_->after_step();
  tape_.moment.phase = Phase::kZero;
  zero_grad(model_);
  record_host_work(tape_, HostWork::kZeroedTensor, static_cast<std::int64_t>(model_.parameters.size()));
  // model.zero_grad(), and clip_grad_norm_(model.parameters()): what clip_grad_norm() takes has its walk over a base
  // model.
  record_host_work(tape_, HostWork::kWalkedModule, modules_.all + modules_.of_adapters);
}

std::vector<ExecutedMicroBatch> TrainerLoop::executed_in_step(std::int64_t count) const {
  const bool begins_with_generation = run_.training().generate_every() % count == 0;
  if (!run_.generates() || run_.training().loop == Loop::kTrlOnlineDpo || begins_with_generation) {
    return executed_micro_batches(count);
  }
  std::vector<ExecutedMicroBatch> executed;
  for (std::int64_t i = 0; i < count; ++i) executed.push_back({i, 1});
  return executed;
}

/// The loader makes batches in this process, between two steps. TRL's data sets, and samples of real lengths, hold
/// lists of numbers; of batches of one length the Trainer's are taken to be tensors.
void TrainerLoop::record_loading() {
  const bool of_lists = run_.uses_trl() || run_.training().lengths;
  for (const BatchShape& shape : shapes_) {
    if (run_.training().loop == Loop::kSentenceTransformer) {
      record_host_work(tape_, HostWork::kTextToken, shape.tokens);
    } else if (of_lists && !run_.generates() && !run_.uses_sentence_transformers()) {
      const bool has_others = run_.training().loop == Loop::kTrlKto && run_.training().kto_loss == KtoLoss::kKto;
      const std::int64_t others = has_others ? shape.rows * shape.answers.other_columns : 0;
      record_host_work(tape_, HostWork::kCollatedToken, given_tokens(run_, shape) + others);
    }
  }
}

/// DeepSpeedEngineWrapper.backward (accelerate/utils/deepspeed.py): the engine's backward and, at a boundary of
/// accumulation, its step.
void TrainerLoop::call_engine(const Tensor& loss, bool sync) {
  {
    const Tensor scaled = wrapper_->averaged_loss(loss);
    backward_from(scaled);
    wrapper_->after_backward(sync);
  }
  if (!sync) return;
  tape_.moment.phase = Phase::kOptimizer;
  (void)wrapper_->step();
}

void TrainerLoop::micro_batch(std::int64_t index, bool sync) {
  micro_batch_ = static_cast<std::size_t>(index);
  tape_.moment.phase = Phase::kForward;
  inputs_ = prepared_inputs(batches_[micro_batch_], run_);
  inputs_.number_of_items = items_;
  record_host_work(tape_, HostWork::kTrainerBatch);
  record_host_work(tape_, HostWork::kWalkedModule, walks_of_batch(run_) * modules_.all);
  const bool is_online_dpo = run_.training().loop == Loop::kTrlOnlineDpo;
  if (run_.generates() && !is_online_dpo) {
    const Training& training = run_.training();
    const std::int64_t since_first = first_of_step_ + index;
    if (const std::int64_t number = since_first / training.generate_every(); number != generation_) {
      generation_ = number;
      const double generations = static_cast<double>(std::max<std::int64_t>(1, generations_of(run_, first_of_step_)));
      const Scoped share(tape_.kernels.share, mean_generations(run_) / generations);
      const BatchShape& shape = shapes_[micro_batch_];
      std::vector<ScoredCompletions> next =
          generate_and_score(tape_, model_, of_columns(shape), shape.padded, trl_models(sync));
      // The last ones are there until these are.
      for (ScoredCompletions& each : completions_) each.clear();
      completions_ = std::move(next);
    }
    completion_ = &completions_[static_cast<std::size_t>(since_first % training.generated_micro_batches())];
  }
  Tensor loss = compute_loss(sync);
  // training_step: del inputs. Under DeepSpeed _prepare_input has cast what is a float into a tensor of its own, which
  // dies here; elsewhere these are the batch's own tensors, which the loader's list holds until the step is over.
  if (is_deepspeed(run_)) drop(inputs_.pixel_values, inputs_.input_features);
  // torch_empty_cache_steps, which Unsloth sets to 250 (models/rl.py): in every 250th step, the first among them.
  if (run_.fine_tuning.unsloth && tape_.moment.step == 0) tape_.memory.empty_cache();
  tape_.moment.phase = Phase::kBackward;
  {
    // training_step: by the accumulation steps; GRPO's loss is (loss_is_scaled_for_ga), online DPO leaves it
    const bool scaled_by_itself = run_.training().loop == Loop::kTrlGrpo || is_online_dpo;
    if (!scaled_by_itself && (!model_.accepts_loss_kwargs || !items_.defined())) loss = divide_scalar(loss);
    if (is_deepspeed(run_)) {
      call_engine(loss, sync);
    } else {
      Tensor averaged = divide_scalar(loss);  // accelerate: by its own, which are 1
      Tensor scaled = scaler_.scale(averaged);
      backward_from(scaled);
      drop(scaled, averaged);
    }
  }
  inputs_.number_of_items.reset();
  tape_.moment.phase = Phase::kDelete;
  loss_of_step_ = tape_.detach(loss);
  if (is_online_dpo) loss_of_step_ = no_grad::divide(loss_of_step_);
  loss.reset();
  sentence_loss_.clear();
  online_dpo_.clear();
  look_for_infinities(loss_of_step_);
}

void TrainerLoop::end() {
  batches_.clear();
  inputs_ = {};
  drop(items_, loss_of_step_, grad_norm_);
}

Batch TrainerLoop::make_batch_of(const BatchShape& shape) {
  Batch batch;
  const bool has_texts = run_.uses_sentence_transformers();
  if (run_.trains_on_answers() || has_texts) {
    const std::vector<BatchTensor> tensors =
        has_texts ? sentence_transformers_batch(model_, run_, shape) : answer_tensors(run_, shape);
    make_room_for_others(tensors, batch);
    for (const BatchTensor& each : tensors) {
      each.in(batch) = tape_.empty(each.shape, each.dtype, aten::kToCopy, Category::kInputs);
    }
  } else {
    RunSpec of_batch = run_;
    of_batch.batch_size = shape.rows;
    of_batch.sequence_length = shape.columns;
    if (run_.task == Task::kSeq2Seq) of_batch.target_sequence_length = shape.answers.other_columns;
    batch = make_batch(tape_, model_, of_batch, aten::kToCopy);
  }
  batch.padded = shape.padded;
  batch.valid_labels = shape.valid_labels;
  if (!run_.is_padding_free()) return batch;
  // What trl's DataCollatorForLanguageModeling hands over in the mask's place; cu_seq_lens_k is moved by itself.
  const auto moved = [&](const Shape& size, DType dtype) { return moved_to_card(tape_, size, dtype); };
  batch.sequences = shape.sequences;
  batch.position_ids = moved({1, shape.columns}, DType::kInt64);
  const Tensor cu_seq_lens_q = moved({shape.sequences + 1}, DType::kInt32);
  const Tensor cu_seq_lens_k = moved({shape.sequences + 1}, DType::kInt32);
  const Tensor seq_idx = moved({1, shape.columns}, DType::kInt32);
  batch.others = {cu_seq_lens_q, cu_seq_lens_k, seq_idx};
  return batch;
}

}  // namespace memcalc
