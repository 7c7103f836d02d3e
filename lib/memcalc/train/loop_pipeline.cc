// torch/distributed/pipelining/schedules.py (_step_microbatches) and stage.py (forward_one_chunk, backward_one_chunk).
#include "memcalc/train/loop_pipeline.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "memcalc/base/error.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/clip_grad.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/optimizer.h"
#include "memcalc/train/parallel/pipeline_schedule.h"
#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

namespace {

constexpr Operator kReceiveBuffer{"pipelining::recv_buffer"}, kZerosLike{"aten::zeros_like"};
constexpr Operator kRandint{"aten::randint"}, kOnesLike{"aten::ones_like"}, kSend{"c10d::send"}, kMerge{"aten::cat"},
    kDivide{"aten::div_"};

/// One _PipelineStage of a rank.
class Stage {
 public:
  /// `wrapper`: what shards or shares the stage's module; null where it is called itself.
  Stage(Tape& tape, PipelineStages& model, const std::vector<Parameter>& parameters, const RunSpec& run,
        ParallelWrapper* wrapper, const ModelStage& modules, std::int64_t hidden_size)
      : tape_(tape),
        model_(model),
        parameters_(parameters),
        run_(run),
        wrapper_(wrapper),
        modules_(modules),
        hidden_size_(hidden_size) {}

  /// _prepare_forward_infra, _prepare_backward_infra: the shapes are found by running the stage once; then a buffer is
  /// made for each micro-batch's input and for its output's gradient.
  void initialize(std::int64_t micro_batches) {
    if (initialized_) return;
    initialized_ = true;
    {
      const NoGrad no_grad(tape_);
      const Tensor sample = modules_.embeds
                                ? tape_.empty({run_.batch_size, run_.sequence_length}, DType::kInt64, kZerosLike)
                                : boundary(kZerosLike);
      const ForwardPass pass(tape_, run_);
      const Tensor output = call(sample);
    }
    for (std::int64_t m = 0; m < micro_batches && !modules_.embeds; ++m) {
      inputs_.push_back(boundary(kReceiveBuffer));
    }
    for (std::int64_t m = 0; m < micro_batches && !modules_.predicts; ++m) {
      output_gradients_.push_back(boundary(kReceiveBuffer));
    }
    outputs_.resize(static_cast<std::size_t>(micro_batches));
    losses_.resize(static_cast<std::size_t>(micro_batches));
    deferred_.resize(static_cast<std::size_t>(micro_batches));
    waiting_outputs_.resize(static_cast<std::size_t>(micro_batches));
  }

  /// clear_runtime_states
  void clear() {
    while (!output_chunks_.empty()) output_chunks_.pop_back();
    for (Tensor& input : inputs_) input.impl()->grad.reset();
  }

  void forward(std::size_t m, const Tensor& ids, const Tensor& labels) {
    tape_.phase = Phase::kForward;
    const ForwardPass pass(tape_, run_);
    tape_.autocast = autocast_dtype(run_.precision);
    if (!modules_.embeds) tape_.require_gradient(inputs_[m]);
    Tensor output = call(modules_.embeds ? micro_batch(ids, m) : inputs_[m]);
    if (modules_.predicts) {
      losses_[m] = cross_entropy(view(output, {-1, output.size(-1)}), view(micro_batch(labels, m), {-1}));
      output_chunks_.push_back(tape_.detach(output));  // detach_(), once its backward has run
    } else {
      tape_.collective(kSend, Collective::kSend, output.dtype(), output.bytes(), 2);
    }
    tape_.autocast.reset();
    tape_.clear_cast_cache();
    outputs_[m] = std::move(output);
  }

  void backward(std::size_t m) {
    tape_.phase = Phase::kBackward;
    if (wrapper_ != nullptr && m + 1 == outputs_.size()) wrapper_->before_last_backward();
    Tensor output = std::move(outputs_[m]);
    if (modules_.predicts) {
      backward_from(losses_[m]);
    } else {
      tape_.backward(output, output_gradients_[m]);
    }
    if (modules_.embeds) return;
    Tensor gradient = std::move(inputs_[m].impl()->grad);
    tape_.collective(kSend, Collective::kSend, gradient.dtype(), gradient.bytes(), 2);
    if (waits_for_sends_) {
      sent_.push_back(std::move(gradient));
    } else {
      sent_gradient_ = std::move(gradient);  // bwd_sends holds it until the next
    }
  }

  /// backward_one_chunk(full_backward=False): the first stage sends no gradient, so it computes none yet.
  void backward_input(std::size_t m) {
    if (modules_.embeds) return;
    tape_.phase = Phase::kBackward;
    Tensor output = std::move(outputs_[m]);
    const Tensor& root = modules_.predicts ? losses_[m] : output;
    Tensor gradient = modules_.predicts ? tape_.empty(root.shape(), root.dtype(), kOnesLike) : output_gradients_[m];
    const std::vector<Tensor> weights = own_weights();
    deferred_[m] = tape_.backward_input(root, std::move(gradient), inputs_[m], weights);
    tape_.forget_history(root);
    if (!modules_.predicts) waiting_outputs_[m] = std::move(output);  // backward_state
    const Tensor& sent = inputs_[m].impl()->grad;                     // it stays there until the step is over
    tape_.collective(kSend, Collective::kSend, sent.dtype(), sent.bytes(), 2);
  }

  /// backward_weight_one_chunk
  void backward_weight(std::size_t m) {
    if (modules_.embeds) return backward(m);
    tape_.phase = Phase::kBackward;
    tape_.backward_weights(deferred_[m]);
    waiting_outputs_[m].reset();
  }

  /// The gradient that was sent has arrived.
  void let_go_of_sent() { sent_gradient_.reset(); }

  /// GPipe waits for what it sent when all is done.
  void wait_for_sends_at_the_end() { waits_for_sends_ = true; }

  /// The locals of the schedule's step die; return_outputs: the micro-batches' outputs, put together.
  void finish() {
    tape_.phase = Phase::kDelete;
    sent_gradient_.reset();
    sent_.clear();
    for (Tensor& loss : losses_) loss.reset();
    if (!modules_.predicts || output_chunks_.empty()) return;
    Shape shape = output_chunks_.front().shape();
    shape[0] *= static_cast<std::int64_t>(output_chunks_.size());
    const Tensor merged = tape_.empty(shape, output_chunks_.front().dtype(), kMerge);
  }

 private:
  /// submod(x): all micro-batches in no_sync(), whose gradients are exchanged after the last backward.
  [[nodiscard]] Tensor call(const Tensor& x) const {
    if (wrapper_ == nullptr) return model_.forward_stage(modules_, x);
    Batch batch;
    batch.input_ids = x;
    ModelOutput output = wrapper_->forward(
        [this](const Batch& inputs) {
          ModelOutput of_stage;
          of_stage.logits = model_.forward_stage(modules_, inputs.input_ids);
          return of_stage;
        },
        batch, false);
    return std::move(output.logits);
  }
  /// What passes from stage to stage.
  [[nodiscard]] Tensor boundary(const Operator& op) const {
    const DType computed = run_.parallel.fsdp_param_dtype.value_or(weights_dtype_of(run_));
    const DType dtype = autocast_dtype(run_.precision).has_value() ? DType::kFloat32 : computed;
    return tape_.empty({run_.batch_size, run_.sequence_length, hidden_size_}, dtype, op, Category::kCommunication);
  }
  /// submod.parameters()
  [[nodiscard]] std::vector<Tensor> own_weights() const {
    std::vector<Tensor> weights;
    for (const Parameter& each : parameters_) {
      if (modules_.holds(each.name)) weights.push_back(each.tensor);
    }
    return weights;
  }
  /// tensor_split of the whole batch: a view.
  [[nodiscard]] Tensor micro_batch(const Tensor& whole, std::size_t m) const {
    return slice(whole, 0, static_cast<std::int64_t>(m) * run_.batch_size, run_.batch_size);
  }

  Tape& tape_;
  PipelineStages& model_;
  const std::vector<Parameter>& parameters_;
  const RunSpec& run_;
  ParallelWrapper* wrapper_;
  ModelStage modules_;
  std::int64_t hidden_size_;
  bool initialized_ = false;
  bool waits_for_sends_ = false;
  std::vector<Tensor> inputs_, output_gradients_;  // args_recv_info, grad_recv_info: a buffer each, for good
  std::vector<Tensor> outputs_;                    // fwd_cache
  std::vector<Tensor> output_chunks_;              // the last stage's, until the next step begins
  std::vector<Tensor> losses_;
  std::vector<std::vector<DeferredNode>> deferred_;  // zero bubble: param_groups of a micro-batch
  std::vector<Tensor> waiting_outputs_;
  Tensor sent_gradient_;
  std::vector<Tensor> sent_;
};

std::int64_t hidden_size_of(const ModelSpec& model) {
  return std::visit(
      [](const auto& spec) -> std::int64_t {
        if constexpr (requires { spec.hidden_size; }) return spec.hidden_size;
        return 0;
      },
      model.architecture);
}

std::string holds(const std::vector<ModelStage>& stages, std::int64_t in_flight) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  for (const ModelStage& each : stages) {
    if (each.embeds) add("embedding");
    const std::int64_t last = each.first_layer + each.layers - 1;
    if (each.layers == 1) add("layer " + std::to_string(last));
    if (each.layers > 1) add("layers " + std::to_string(each.first_layer) + " to " + std::to_string(last));
    if (each.predicts) add("head and the logits of every micro-batch");
  }
  return text + "; " + std::to_string(in_flight) + (stages.size() > 1 ? " chunk" : "") +
         (in_flight == 1 ? " micro-batch" : " micro-batches") + " in flight";
}

bool alike(const std::vector<ModelStage>& a, const std::vector<ModelStage>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ModelStage& x, const ModelStage& y) {
    return x.layers == y.layers && x.embeds == y.embeds && x.predicts == y.predicts;
  });
}

}  // namespace

std::int64_t layers_of(const ModelSpec& model) {
  return std::visit(
      [&](const auto& spec) -> std::int64_t {
        if constexpr (requires { spec.num_hidden_layers; }) return spec.num_hidden_layers;
        throw Error(ErrorCode::kUnsupported, "pp: the layers of " + model.name + " cannot be cut into stages");
      },
      model.architecture);
}

ModelSpec untied(ModelSpec model) {
  std::visit(
      [](auto& spec) {
        if constexpr (requires { spec.tie_word_embeddings; }) spec.tie_word_embeddings = false;
      },
      model.architecture);
  return model;
}

std::vector<ModelStage> stages_of_rank(const Parallel& p, std::int64_t layers, std::int64_t rank) {
  const std::vector<ModelStage> all = model_stages(layers, p.pipeline * p.virtual_stages);
  std::vector<ModelStage> own;
  for (std::int64_t chunk = 0; chunk < p.virtual_stages; ++chunk) {
    own.push_back(all[static_cast<std::size_t>(rank / (p.gpus / p.pipeline) + chunk * p.pipeline)]);
  }
  return own;
}

std::vector<RankGroup> pipeline_ranks(const ModelSpec& model, const RunSpec& run) {
  constexpr std::int64_t kMostListed = 8;
  const Parallel& p = run.parallel;
  const Pipeline pipeline = pipeline_of(p, run.accumulation_steps);
  const std::int64_t layers = layers_of(model);
  std::vector<RankGroup> groups;
  std::vector<ModelStage> before;
  std::int64_t first = 0;
  const std::int64_t of_stage = p.gpus / p.pipeline;  // ranks; the first of those that shard it holds most
  for (std::int64_t stage = 0; stage < p.pipeline; ++stage) {
    const std::vector<ModelStage> stages = stages_of_rank(p, layers, stage * of_stage);
    if (p.pipeline > kMostListed && stage > 0 && alike(before, stages)) {
      groups.back().count += of_stage;
      groups.back().name = "stages " + std::to_string(first) + " to " + std::to_string(stage);
      continue;
    }
    before = stages;
    first = stage;
    groups.push_back({.first = stage * of_stage,
                      .count = of_stage,
                      .name = "stage " + std::to_string(stage),
                      .holds = holds(stages, most_in_flight(pipeline, stage))});
  }
  return groups;
}

std::vector<std::string> pipeline_assumptions(const RunSpec& run) {
  std::vector<std::string> said = {
      "each rank builds the whole model and keeps its stages; the peaks are those of the steps",
      "stages are made of transformers' modules without masks and caches; an embedding that is tied to the head is "
      "held "
      "by both stages",
      "the loss is F.cross_entropy of a micro-batch's logits; schedule.step() returns them, so that the last stage "
      "keeps "
      "those of all micro-batches until the next step (return_outputs)"};
  if (run.parallel.schedule == PipelineSchedule::kInterleaved) {
    said.emplace_back("interleaved stages send and receive between steps of the schedule, as it orders them");
  }
  if (run.parallel.data_parallel == DataParallel::kFsdp2) {
    said.emplace_back(
        "gradients of a stage stay whole and in its ranks' memory until the step's last backward: PipelineStage "
        "reduces "
        "them then (perform_reduce_grad); where rows do not divide, a stage's first rank is shown, "
        "which holds most");
  }
  return said;
}

void run_pipeline_loop(Tape& tape, Model& model, const ModelSpec& spec, const RunSpec& run, ParallelWrapper* wrapper,
                       std::int64_t rank) {
  auto* const stages_of_model = dynamic_cast<PipelineStages*>(&model);
  if (stages_of_model == nullptr) {
    throw Error(ErrorCode::kUnsupported, "pp: " + spec.model_type +
                                             " cannot be cut into stages yet; accepted: llama, "
                                             "mistral, qwen2, qwen3 and other decoders with rotary positions");
  }
  const Pipeline pipeline = pipeline_of(run.parallel, run.accumulation_steps);
  const Shape whole_batch{run.batch_size * pipeline.micro_batches, run.sequence_length};
  const Tensor ids = tape.empty(whole_batch, DType::kInt64, kRandint, Category::kInputs);
  const Tensor labels = tape.empty(whole_batch, DType::kInt64, kRandint, Category::kInputs);
  tape.empty_cache();
  const std::vector<ModelStage> own = stages_of_rank(run.parallel, layers_of(spec), rank);
  stages_of_model->keep_stages(own);
  if (wrapper != nullptr) wrapper->wrap(model);
  tape.empty_cache();
  std::vector<Stage> stages;
  for (const ModelStage& each : own) {
    stages.emplace_back(tape, *stages_of_model, model.parameters, run, wrapper, each, hidden_size_of(spec));
  }
  if (pipeline.schedule == PipelineSchedule::kGpipe) {
    for (Stage& each : stages) each.wait_for_sends_at_the_end();
  }
  OptimizerSteps optimizer(tape, run, {updated_parameters(model, wrapper)});
  const std::vector<PipelineStep> steps = pipeline_steps(pipeline, rank / (run.parallel.gpus / run.parallel.pipeline));
  for (tape.step = 0; tape.step < kSteps; ++tape.step) {
    tape.record_kernels = tape.step == kSteps - 1;
    tape.phase = Phase::kZero;
    optimizer.zero_grad();
    tape.phase = Phase::kForward;
    for (Stage& each : stages) each.clear();
    for (Stage& each : stages) each.initialize(pipeline.micro_batches);
    for (const PipelineStep& step : steps) {
      Stage& stage = stages[static_cast<std::size_t>(step.chunk)];
      const auto m = static_cast<std::size_t>(step.micro_batch);
      // PipelineScheduleMulti waits for its messages after each step.
      if (pipeline.chunks > 1) std::for_each(stages.begin(), stages.end(), [](Stage& each) { each.let_go_of_sent(); });
      switch (step.action) {
        case PipelineAction::kForward: stage.forward(m, ids, labels); break;
        case PipelineAction::kBackward: stage.backward(m); break;
        case PipelineAction::kInputBackward: stage.backward_input(m); break;
        case PipelineAction::kWeightBackward: stage.backward_weight(m); break;
      }
    }
    if (wrapper != nullptr) wrapper->reduce_gradients();
    for (const Parameter& each : model.parameters) {  // scale_grads
      const Bytes bytes = each.tensor.bytes();
      tape.kernel(kDivide, OperatorClass::kElementwise, each.tensor.dtype(),
                  static_cast<double>(each.tensor.elements()), 2.0 * static_cast<double>(bytes));
    }
    for (Stage& each : stages) each.finish();
    tape.phase = Phase::kOptimizer;
    if (run.max_grad_norm) clip_grad_norm(tape, model.parameters);
    optimizer.step();
    if (wrapper != nullptr) wrapper->after_step();
  }
  tape.stop();
}

}  // namespace memcalc
