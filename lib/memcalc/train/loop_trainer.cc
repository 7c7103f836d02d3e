// transformers/trainer.py (_inner_training_loop, training_step, compute_loss) and accelerate/accelerator.py
// (prepare_model, backward, clip_grad_norm_): the order in which they take and drop memory.
// MIRRORS(accelerate, "accelerator.py", "1.15.0")
// MIRRORS(accelerate, "utils/deepspeed.py", "1.15.0")
// MIRRORS(transformers, "trainer.py", "5.17.0")
// MIRRORS(transformers, "trainer_callback.py", "5.17.0")
#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "memcalc/models/program_graphs.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/capture.h"
#include "memcalc/symbolic/first_calls.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/clip_grad.h"
#include "memcalc/train/compile/compiled_model.h"
#include "memcalc/train/compile/compiled_regions.h"
#include "memcalc/train/data/data_steps.h"
#include "memcalc/train/data/texts.h"
#include "memcalc/train/data_loop.h"
#include "memcalc/train/evaluated_generation.h"
#include "memcalc/train/float32_outputs.h"
#include "memcalc/train/gather.h"
#include "memcalc/train/grad_scaler.h"
#include "memcalc/train/label_smoother.h"
#include "memcalc/train/loading.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/module_walks.h"
#include "memcalc/train/optimizer.h"
#include "memcalc/train/parallel/deepspeed_engine.h"
#include "memcalc/train/repeat.h"
#include "memcalc/train/saving.h"
#include "memcalc/train/sentence_transformers.h"
#include "memcalc/train/trl/batch.h"
#include "memcalc/train/trl/float32_head.h"
#include "memcalc/train/trl/grpo.h"
#include "memcalc/train/trl/losses.h"
#include "memcalc/train/trl/online_dpo.h"
#include "memcalc/train/trl/reward.h"

namespace memcalc {

namespace {

/// _get_num_items_in_batch: sum((batch["labels"].ne(-100)).sum() for batch in batch_samples); where the loss shifts
/// the labels, without the first of each row.
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

/// The Trainer shuffles. Where half of the sequences are padded, a batch of B has none with probability 2^-B: of three
/// steps about two at B = 1, one at B = 2, and none beyond. Such a step builds no mask and leaves other blocks behind.
int steps_without_padding(const RunSpec& run) {
  if (!run.padding || run.batch_size > 2) return 0;
  return run.batch_size == 1 ? 2 : 1;
}

bool is_deepspeed(const RunSpec& run) { return run.parallel.framework() == Framework::kDeepSpeed; }

/// _prepare_inputs: accelerate's loader has moved them, so that they are copied in DeepSpeed's type on the card.
Batch prepared_inputs(const Batch& batch, const RunSpec& run) {
  Batch prepared = batch;
  if (!is_deepspeed(run)) return prepared;
  for (Tensor* each : {&prepared.pixel_values, &prepared.input_features}) {
    if (each->defined()) *each = no_grad::to(*each, deepspeed_dtype(run));
  }
  return prepared;
}

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

/// What compute_loss calls: the model in its autocast wrapper, whose outputs accelerate turns into float32. `wrapper`:
/// around that.
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

/// Of GRPOTrainer and RLOOTrainer: in the step that begins with this micro-batch, counted from the first of all.
std::int64_t generations_of(const RunSpec& run, std::int64_t first_of_step) {
  const std::int64_t every = run.training().generate_every(), count = run.training().accumulation_steps;
  return ceil_div(first_of_step + count, every) - ceil_div(first_of_step, every);
}
/// Of an average step.
double mean_generations(const RunSpec& run) {
  const Training& training = run.training();
  return static_cast<double>(training.accumulation_steps) / static_cast<double>(training.generate_every());
}

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

/// A micro-batch of --bs samples of --seq tokens.
BatchShape shape_of(const RunSpec& run) {
  return run.uses_sentence_transformers() ? texts_shape_of(run) : answers_shape_of(run);
}

/// Of training_step in walks over the modules: model.train() takes as long as three, and floating_point_ops()'s
/// num_parameters(exclude_embeddings=True), too, which is asked where a batch has the model's main input.
std::int64_t walks_of_batch(const RunSpec& run) {
  const bool has_main_input =
      !run.generates() && !run.uses_sentence_transformers() && run.training().loop != Loop::kTrlOrpo;
  return has_main_input ? 6 : 3;
}

/// The variables of _inner_training_loop and the step that it repeats.
class TrainerLoop {
 public:
  TrainerLoop(Tape& tape, Model& model, const RunSpec& run, ParallelWrapper* wrapper, ComparedModel reference,
              const SpecialTokens& tokens)
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
      compiled_.emplace(tape, compile::Autocast::kInside, [this] { return call_on_any_batch(); });
      if (run.records_graphs()) compiled_->record_graphs(graph_inputs(model, run));
    }
  }

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

/// GRPOTrainer and RLOOTrainer: a generation lasts for whole steps, more than one.
bool generates_between(const RunSpec& run) {
  if (!run.generates() || run.training().loop == Loop::kTrlOnlineDpo) return false;
  const std::int64_t every = run.training().generate_every(), count = run.training().accumulation_steps;
  return every > count && every % count == 0;
}

/// Steps that are made: where generations and steps come out of step, until the second generation beside the
/// optimizer's states. Where a generation lasts for several steps, those between the second and the last are left out.
int steps_of(const RunSpec& run) {
  if (!run.generates() || run.training().loop == Loop::kTrlOnlineDpo || generates_between(run)) return kSteps;
  const std::int64_t every = run.training().generate_every(), count = run.training().accumulation_steps;
  if (every <= count) return kSteps;
  return static_cast<int>(std::min<std::int64_t>(kSteps + ceil_div(every, count), 4 * kSteps));
}

/// Whose kernels are listed: the last step with fewest generations, but one at least.
int listed_step(const RunSpec& run, int steps) {
  if (!run.generates() || run.training().loop == Loop::kTrlOnlineDpo || generates_between(run)) return steps - 1;
  const std::int64_t count = run.training().accumulation_steps;
  const std::int64_t fewest = std::max<std::int64_t>(1, count / run.training().generate_every());
  for (int step = steps - 1; step > 0; --step) {
    if (generations_of(run, step * count) == fewest) return step;
  }
  return steps - 1;
}

/// _precompute_ref_logps of DPOTrainer and KTOTrainer, which runs the model over the data when the trainer is made: one
/// batch of it. What it frees does not last (accelerator.free_memory()), its products' workspaces do.
void precompute_reference(Tape& tape, Model& model, const RunSpec& run, ParallelWrapper* wrapper) {
  const Training& training = run.training();
  const bool passes = run.uses_trl() && training.reference == Reference::kPrecomputed && wrapper == nullptr;
  if (!passes || training.whole_logits) return;
  const NoGrad no_grad(tape.modes);
  const Scoped without_adapters(tape.modes.adapters_disabled, true);
  Batch batch = make_batch(tape, model, run, aten::kToCopy);
  const FusedHeadCall head{.outputs = {.entropy = true, .mean_logits = true}, .targets = shape_of(run).valid_labels};
  batch.fused_head = &head;
  batch.labels = no_grad::masked_fill(batch.input_ids, no_grad::equal(batch.completion_mask));
  const ModelOutput outputs = call_model(tape, model, run, nullptr, batch, true);
}

}  // namespace

DataSteps run_trainer_loop(Tape& tape, Model& model, const RunSpec& run, ParallelWrapper* wrapper,
                           ComparedModel reference, const SpecialTokens& tokens, const FewLayers* few_layers) {
  begin_stage(tape, run, Phase::kPrepare);
  if (!reference.model_is_prepared) prepare_model(tape, model, run);
  if (run.training().float32_head) {
    cast_head_to_float32(tape, model, run);
    if (reference.model != nullptr) cast_head_to_float32(tape, *reference.model, run);
  }
  precompute_reference(tape, model, run, wrapper);
  begin_stage(tape, run, Phase::kForward);
  tape.memory.empty_cache();  // accelerator.free_memory(), when training begins
  if (wrapper != nullptr) {
    begin_stage(tape, run, Phase::kPrepare);
    wrapper->wrap(model);
  }
  TrainerLoop loop(tape, model, run, wrapper, reference, tokens);
  tape.kernels.recording = true;
  tape.moment.step = 0;
  const int without_padding = steps_without_padding(run);
  if (run.training().lengths) {
    DataSteps steps = data_steps(run, tape.processes, tape.process_index);
    const bool evaluates = run.training().evaluation.has_value();
    DataLoop whole(tape, loop, steps);
    whole.evaluates = evaluates;
    std::optional<TellingLoop<TrainerLoop>> few;
    if (few_layers != nullptr && !evaluates && steps.simulated.size() >= kFewestTold) {
      prepare_model(few_layers->tape, few_layers->model, run);
      precompute_reference(few_layers->tape, few_layers->model, run, wrapper);
      few.emplace(*few_layers, run, tokens, steps);
    }
    CountedFirstCalls first_calls;
    // A generation that is one of many alike is not made where kernels are not recorded.
    if (!run.generates() && !run.compiles()) (few ? few->data_loop() : whole).first_calls = &first_calls;
    if (few) {
      few->run(tape.memory.trace, whole);
    } else {
      for (std::size_t i = 0; i < steps.simulated.size(); ++i) (void)whole.step(i);
    }
    if (evaluates && saves(run)) loop.evaluate();
    save_trained(tape, model, run, wrapper, [&] { loop.end(); });
    tape.memory.stop();
    if (few) tape.memory.trace = few->composed();
    if (run.generates()) first_calls = generated_first_calls(run, steps);
    set_first_calls(steps, first_calls);
    return steps;
  }
  const bool evaluates = run.training().evaluation.has_value();
  const bool steps_are_alike = without_padding == 0 && run.training().skipped_steps == 0 && wrapper == nullptr &&
                               !evaluates && !run.generates() && !run.records_graphs() &&
                               !run.fine_tuning.unsloth;  // whose first pass makes what it keeps
  if (steps_are_alike && !saves(run)) {
    CarriedVariables carried;
    const auto variables = [&](auto visit) { loop.visit_carried(visit); };
    carried.place(tape, variables);
    const std::size_t first_event = tape.memory.trace.events.size();
    const std::size_t first_block = tape.memory.trace.blocks.size();
    loop.step(true);
    carried.collect(variables);
    repeat_step(tape, first_event, first_block, carried, kSteps - 1);
  } else {
    const int steps = steps_of(run), listed = listed_step(run, steps);
    for (; tape.moment.step < steps; ++tape.moment.step) {
      const bool is_last = tape.moment.step == steps - 1;
      if (is_last && generates_between(run)) loop.skip_to_generation();
      tape.kernels.recording = false;
      if (evaluates && is_last) loop.evaluate();
      tape.kernels.recording = tape.moment.step == (steps_are_alike ? 0 : listed);
      if (tape.kernels.recording) tape.kernels.forget_host_calls();  // of the steps and evaluations before
      loop.step(tape.moment.step >= without_padding);
    }
    // With the last step comes an evaluation, too (trainer_callback.py, DefaultFlowCallback.on_step_end).
    tape.kernels.recording = false;
    if (evaluates && saves(run)) loop.evaluate();
    save_trained(tape, model, run, wrapper, [&] { loop.end(); });
  }
  tape.memory.stop();
  return {};
}

}  // namespace memcalc
