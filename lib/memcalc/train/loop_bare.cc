#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "memcalc/models/attention.h"
#include "memcalc/models/program_graphs.h"
#include "memcalc/models/program_model.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/train/clip_grad.h"
#include "memcalc/train/compile/compiled_model.h"
#include "memcalc/train/compile/compiled_regions.h"
#include "memcalc/train/grad_scaler.h"
#include "memcalc/train/loading.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/optimizer.h"
#include "memcalc/train/repeat.h"
#include "memcalc/train/saving.h"
#include "memcalc/train/sentence_transformers.h"
#include "memcalc/train/trl/batch.h"

namespace memcalc {

std::optional<DType> autocast_dtype(Precision precision) {
  if (precision == Precision::kAmpFp16) return DType::kFloat16;
  if (precision == Precision::kAmpBf16) return DType::kBFloat16;
  return std::nullopt;
}

namespace {

Shape with_batch(std::int64_t batch, const Shape& sample) {
  Shape shape{batch};
  for (int i = 0; i < sample.rank; ++i) shape.dims[static_cast<std::size_t>(shape.rank++)] = sample[i];
  return shape;
}

}  // namespace

std::vector<BatchTensor> batch_tensors(const Model& model, const RunSpec& run) {
  if (!model.inputs.empty()) {
    std::vector<BatchTensor> tensors;
    for (const ModelInput& input : model.inputs)
      tensors.push_back({input.member, input.shape, input.dtype, tensors.size()});
    return tensors;
  }
  if (run.trains_on_answers()) return answer_tensors(run, answers_shape_of(run));
  if (run.uses_sentence_transformers()) return sentence_transformers_batch(model, run);
  const Parallel& p = run.parallel;
  const std::int64_t parts =
      p.framework() == Framework::kDeepSpeed ? p.context : 1;  // Ulysses: a part of each sequence
  const Shape ids{run.rows(), run.sequence_length / parts};
  const bool images = run.task == Task::kImageClassification;
  const bool speech = run.task == Task::kSpeech;
  std::vector<BatchTensor> tensors;
  // A plain loop makes images and sounds in the type of the layer that takes them: a convolution takes no other, and
  // peft's prepare_model_for_kbit_training has made it float32.
  const DType dtype = run.fine_tuning.prepares_for_kbit ? DType::kFloat32 : weights_dtype_of(run);
  if (images) {
    const Shape pixels{run.batch_size, 3, run.image_size, run.image_size};
    tensors.push_back({&Batch::pixel_values, pixels, run.uses_trainer() ? DType::kFloat32 : dtype});  // as a dataset's
  } else if (model.input_features.rank > 0) {
    const Shape features = with_batch(run.batch_size, model.input_features);
    tensors.push_back({&Batch::input_features, features, dtype});
  } else {
    tensors.push_back({&Batch::input_ids, ids, DType::kInt64});
  }
  if (run.trains_on_pairs()) {  // TRL's RewardTrainer
    tensors.push_back({&Batch::attention_mask, ids, DType::kInt64});
    return tensors;
  }
  if (run.task == Task::kContrastive) {
    const Shape pixels{run.batch_size, 3, run.image_size, run.image_size};
    tensors.push_back({&Batch::pixel_values, pixels, dtype});
    if (run.passes_mask()) tensors.push_back({&Batch::attention_mask, ids, DType::kInt64});
    return tensors;
  }
  if (run.task == Task::kCustom) {
    tensors.push_back({&Batch::labels, with_batch(run.batch_size, model.sample_labels), DType::kInt64});
    return tensors;
  }
  const bool answers = run.task == Task::kQuestionAnswering;
  const bool classifies = images || answers || run.task == Task::kSequenceClassification;
  const Shape target{run.batch_size, run.task == Task::kSeq2Seq ? run.target_sequence_length : run.sequence_length};
  if (parts > 1) {
    tensors.push_back({&Batch::position_ids, ids, DType::kInt64});
    tensors.push_back({&Batch::labels, ids, DType::kInt64});  // shift_labels
    return tensors;
  }
  tensors.push_back({&Batch::labels, classifies ? Shape{run.batch_size} : target, DType::kInt64});
  if (answers) tensors.push_back({nullptr, {run.batch_size}, DType::kInt64, 0});
  if (run.passes_mask() && !speech) tensors.push_back({&Batch::attention_mask, ids, DType::kInt64});
  return tensors;
}

std::vector<compile::GraphInput> graph_inputs(const Model& model, const RunSpec& run) {
  std::vector<compile::GraphInput> inputs;
  for (const BatchTensor& each : batch_tensors(model, run)) {
    const Bytes bytes = checked_multiply(each.shape.elements(), size_of(each.dtype));
    inputs.push_back({bytes, !is_floating(each.dtype)});
  }
  return inputs;
}

void make_room_for_others(const std::vector<BatchTensor>& tensors, Batch& batch) {
  for (const BatchTensor& each : tensors) {
    if (each.member == nullptr && each.place >= batch.others.size()) batch.others.resize(each.place + 1);
  }
}

Batch make_batch(Tape& tape, const Model& model, const RunSpec& run, const Operator& op) {
  Batch batch;
  const std::vector<BatchTensor> tensors = batch_tensors(model, run);
  make_room_for_others(tensors, batch);
  for (const BatchTensor& each : tensors) {
    const auto& [member, shape, dtype, place] = each;
    each.in(batch) = tape.empty(shape, dtype, op, Category::kInputs);
    const bool labels = member == &Batch::labels && shape.rank == 1;
    if (labels && !run.uses_trainer() && run.task != Task::kCustom && run.task != Task::kQuestionAnswering &&
        !model.random_labels) {  // labels = randint(...) * 0
      const Tensor random = std::exchange(batch.labels, tape.empty(shape, dtype, op, Category::kInputs));
    }
  }
  return batch;
}

std::vector<ExecutedMicroBatch> executed_micro_batches(std::int64_t accumulation_steps) {
  constexpr std::int64_t kMost = 4;
  std::vector<ExecutedMicroBatch> executed;
  for (std::int64_t i = 0; i < std::min(accumulation_steps, kMost - 1); ++i) executed.push_back({i, 1});
  if (accumulation_steps >= kMost) {
    executed.back().stands_for = accumulation_steps - (kMost - 1);
    executed.push_back({accumulation_steps - 1, 1});
  }
  return executed;
}

void backward_from(const Tensor& loss) {
  Tape& tape = loss.tape();
  tape.autograd.backward(loss, no_grad::ones_like(loss));
}

namespace {

std::vector<ParameterGroup> groups_of(const Model& model, const RunSpec& run, const ParallelWrapper* wrapper) {
  if (run.training().optimizer_in_backward) return {};
  return {updated_parameters(model, wrapper)};
}

/// The variables of a plain loop and the step that it repeats.
class BareLoop {
 public:
  BareLoop(Tape& tape, Model& model, const RunSpec& run, ParallelWrapper* wrapper, const Batch& batch)
      : tape_(tape),
        model_(model),
        run_(run),
        wrapper_(wrapper),
        batch_(batch),
        optimizer_(tape, run, groups_of(model, run, wrapper)),
        scaler_(tape, run.precision == Precision::kAmpFp16, run.training().skipped_steps) {
    if (auto* program = dynamic_cast<ProgramModel*>(&model); program != nullptr && program->step_variables() > 0) {
      variables_.resize(program->step_variables() + 1);
      program->replace_in_forward(variables_);
    }
    if (run.training().optimizer_in_backward) step_in_backward();
    if (!run.compiles()) return;
    if (run.training().compiled_parts == CompiledParts::kModel && !breaks_graph(model)) {
      compiled_.emplace(tape, compile::Autocast::kAround, compile::compiles_again(run, model),
                        [this] { return call_model(); });
      if (run.records_graphs()) compiled_->record_graphs(graph_inputs(model, run));
    } else {
      if (run.records_graphs()) throw refusal(rules::kBrokenGraphRecorded);
      tape.modes.float8 = run.training().float8;
      regions_.emplace(tape, run.training().compiled_parts, model.breaks_at_layers);
    }
  }

  void step();

  /// What the next step drops when it assigns its own.
  template <typename Visit>
  void visit_carried(Visit visit) {
    const bool keeps_gradients = in_backward_.empty();
    for (const Parameter& parameter : model_.parameters) {
      if (keeps_gradients && parameter.tensor.requires_grad()) visit(parameter.tensor.impl()->grad);
    }
    optimizer_.visit_carried(visit);
    for (OptimizerSteps& each : in_backward_) each.visit_carried(visit);
    for (Tensor& variable : variables_) visit(variable);
  }

 private:
  [[nodiscard]] ModelOutput call_model();
  [[nodiscard]] Tensor forward();
  void step_in_backward();
  [[nodiscard]] Tensor averaged_loss(const Tensor& loss);

  Tape& tape_;
  Model& model_;
  const RunSpec& run_;
  ParallelWrapper* wrapper_;
  const Batch& batch_;
  OptimizerSteps optimizer_;
  std::deque<OptimizerSteps> in_backward_;  // one for each parameter; `optimizer_` has none then
  GradScaler scaler_;
  std::optional<compile::CompiledModel> compiled_;
  std::optional<compile::CompiledRegions> regions_;
  BlockId first_block_ = 0;        // of the step
  std::vector<Tensor> variables_;  // of a program that is a step, which main() of a script keeps; the loss is the last
};

/// torchtune/training/memory.py, register_optim_in_bwd_hooks: an optimizer for each parameter, whose gradient dies as
/// soon as it has stepped.
void BareLoop::step_in_backward() {
  for (const Parameter* each : updated_parameters(model_, wrapper_)) {
    OptimizerSteps& optimizer = in_backward_.emplace_back(tape_, run_, std::vector<ParameterGroup>{{each}});
    tape_.autograd.after_gradient_of(each->tensor, [this, &optimizer] {
      const Operator* const node = tape_.moment.node;
      optimizer.step();
      optimizer.zero_grad();
      tape_.moment.node = node;
    });
  }
}

ModelOutput BareLoop::call_model() {
  const Autocasting autocasting(tape_.modes.autocast, autocast_dtype(run_.precision));
  const ForwardPass pass(tape_, run_);
  const auto module = [this](const Batch& batch) { return model_.forward(batch); };
  const auto run_module = [&](const Batch& batch) {
    return wrapper_ != nullptr ? wrapper_->forward(module, batch, true) : module(batch);
  };
  ModelOutput output;
  if (run_.training().loss_in_loop) {
    Batch inputs = batch_;
    inputs.labels.reset();
    output = run_module(inputs);
    output.loss = shifted_causal_lm_loss(output.logits, batch_.labels);
  } else {
    output = run_module(batch_);
  }
  return output;
}

Tensor BareLoop::averaged_loss(const Tensor& loss) {
  if (wrapper_ != nullptr) return wrapper_->averaged_loss(loss);
  // accelerate's backward() of a script's step divides by one, too.
  return run_.training().accumulation_steps > 1 || !variables_.empty() ? divide_scalar(loss) : loss;
}

Tensor BareLoop::forward() {
  if (compiled_) return compiled_->forward();
  ModelOutput output = call_model();
  if (!variables_.empty()) {
    variables_.front() = std::move(output.logits);
    for (std::size_t i = 0; i < output.others.size(); ++i) variables_[i + 1] = std::move(output.others[i]);
    variables_.back() = output.loss;
    // A view of the batch, or of what another variable holds, keeps nothing alive by itself.
    std::set<BlockId> held;
    for (auto each = variables_.rbegin(); each != variables_.rend(); ++each) {  // the last is given another value last
      if (each->defined() && (each->block() < first_block_ || !held.insert(each->block()).second)) each->reset();
    }
  }
  return std::move(output.loss);  // the rest of the output dies here
}

void BareLoop::step() {
  first_block_ = static_cast<BlockId>(tape_.memory.trace.blocks.size());
  tape_.moment.phase = Phase::kZero;
  if (wrapper_ != nullptr) {
    zero_grad(model_);
    record_host_work(tape_, HostWork::kZeroedTensor, static_cast<std::int64_t>(model_.parameters.size()));
  } else {
    optimizer_.zero_grad();
  }
  const std::vector<ExecutedMicroBatch> micro_batches = executed_micro_batches(run_.training().accumulation_steps);
  for (const ExecutedMicroBatch& micro_batch : micro_batches) {
    tape_.kernels.repeats = micro_batch.stands_for;
    tape_.moment.phase = Phase::kForward;
    Tensor loss = forward();
    tape_.moment.phase = Phase::kBackward;
    {
      Tensor averaged = averaged_loss(loss);
      const Tensor scaled = scaler_.scale(averaged);
      averaged.reset();
      backward_from(scaled);
      if (wrapper_ != nullptr) wrapper_->after_backward(&micro_batch == &micro_batches.back());
    }
    tape_.moment.phase = Phase::kDelete;
    loss.reset();
  }
  tape_.kernels.repeats = 1;
  tape_.moment.phase = Phase::kOptimizer;
  if (wrapper_ != nullptr && wrapper_->step()) return;
  if (run_.training().max_grad_norm) {
    scaler_.unscale(optimizer_);
    clip_grad_norm(tape_, model_.parameters);
  }
  scaler_.step(optimizer_);
  scaler_.update();
  if (wrapper_ != nullptr) wrapper_->after_step();
}

}  // namespace

ParameterGroup updated_parameters(const Model& model, const ParallelWrapper* wrapper) {
  if (wrapper != nullptr) return wrapper->optimizer_parameters(model);
  ParameterGroup all;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.tensor.requires_grad()) all.push_back(&parameter);
  }
  return all;
}

void zero_grad(const Model& model) {
  for (const Parameter& parameter : model.parameters) parameter.tensor.impl()->grad.reset();
}

void run_bare_loop(Tape& tape, Model& model, const RunSpec& run, ParallelWrapper* wrapper) {
  begin_stage(tape, run, Phase::kPrepare);
  const bool moves = run.training().loading == ModelLoading::kHost;  // model.to("cuda") comes before the first batch
  if (moves) prepare_model(tape, model, run);
  const Batch batch = make_batch(tape, model, run, aten::kRandint);
  tape.memory.empty_cache();
  if (!moves) prepare_model(tape, model, run);
  if (wrapper != nullptr) {
    wrapper->wrap(model);
    if (wrapper->empties_cache) tape.memory.empty_cache();
  }
  BareLoop loop(tape, model, run, wrapper, batch);
  tape.kernels.recording = true;
  tape.moment.step = 0;
  const bool steps_are_alike = run.training().skipped_steps == 0 && wrapper == nullptr && !run.records_graphs() &&
                               !compile::compiles_again(run, model);
  if (!steps_are_alike || saves(run)) {
    for (; tape.moment.step < kSteps; ++tape.moment.step) {
      tape.kernels.recording = tape.moment.step == (steps_are_alike ? 0 : kSteps - 1);
      if (tape.kernels.recording) tape.kernels.forget_host_calls();  // of the steps before
      loop.step();
    }
    save_trained(tape, model, run, wrapper, [] {});
    tape.memory.stop();
    return;
  }
  CarriedVariables carried;
  const auto variables = [&](auto visit) { loop.visit_carried(visit); };
  carried.place(tape, variables);
  const std::size_t first_event = tape.memory.trace.events.size();
  const std::size_t first_block = tape.memory.trace.blocks.size();
  loop.step();
  carried.collect(variables);
  repeat_step(tape, first_event, first_block, carried, kSteps - 1);
  tape.memory.stop();
}

}  // namespace memcalc
