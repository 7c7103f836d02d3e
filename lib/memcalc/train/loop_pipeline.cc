// torch/distributed/pipelining/schedules.py (_step_microbatches) and stage.py (forward_one_chunk, backward_one_chunk).
// MIRRORS(torch, "distributed/pipelining/schedules.py", "2.11.0")
// MIRRORS(torch, "distributed/pipelining/stage.py", "2.11.0")
#include "memcalc/train/loop_pipeline.h"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "memcalc/base/error.h"
#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/train/clip_grad.h"
#include "memcalc/train/fine_tuning.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/optimizer.h"
#include "memcalc/train/parallel/context_parallel.h"
#include "memcalc/train/parallel/pipeline_schedule.h"
#include "memcalc/train/parallel/pipeline_stage.h"

namespace memcalc {

namespace {

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

/// _initialize_stages
void initialize(std::deque<PipelineStageRun>& stages, std::int64_t micro_batches) {
  std::vector<std::array<Tensor, 2>> greetings;
  for (const PipelineStageRun& each : stages) greetings.push_back(each.greet_neighbours());
  for (PipelineStageRun& each : stages) each.prepare_forward(micro_batches);
  for (PipelineStageRun& each : stages) each.prepare_backward();
}

/// with context_parallel(…), torch.autocast(…): schedule.step(). Backward passes run under autocast, too, and its cache
/// of weights lasts until the step is over.
void run_schedule(std::deque<PipelineStageRun>& stages, const std::vector<PipelineStep>& steps,
                  const Pipeline& pipeline, std::optional<ContextParallelism>& context, const Batch& whole, Tape& tape,
                  Precision precision) {
  PipelineBatch batch{whole.input_ids, whole.labels};
  if (context) {
    const Batch local = context->enter(whole);
    batch = {local.input_ids, local.labels};
  }
  std::optional<Autocasting> autocasting(std::in_place, tape.modes.autocast, autocast_dtype(precision));
  for (PipelineStageRun& each : stages) each.clear();
  if (!stages.front().is_prepared()) initialize(stages, pipeline.micro_batches);
  for (const PipelineStep& step : steps) {
    PipelineStageRun& stage = stages[static_cast<std::size_t>(step.chunk)];
    const auto m = static_cast<std::size_t>(step.micro_batch);
    // _PipelineScheduleRuntime sends between steps; GPipe's variable is given another value first.
    if (runs_in_actions(pipeline) || pipeline.schedule == PipelineSchedule::kGpipe) {
      for (PipelineStageRun& each : stages) each.let_go_of_sent();
    }
    switch (step.action) {
      case PipelineAction::kForward: stage.forward(m, batch); break;
      case PipelineAction::kBackward: stage.backward(m); break;
      case PipelineAction::kInputBackward: stage.backward_input(m); break;
      case PipelineAction::kWeightBackward: stage.backward_weight(m); break;
      case PipelineAction::kUnshard: stage.unshard(); break;
      case PipelineAction::kReshard: stage.reshard(); break;
      case PipelineAction::kReduceGradients: stage.reduce_gradients(); break;
    }
  }
  if (!runs_in_actions(pipeline)) stages.front().reduce_gradients();
  for (PipelineStageRun& each : stages) each.finish();
  autocasting.reset();
  if (context) context->leave();
}

bool alike(const std::vector<ModelStage>& a, const std::vector<ModelStage>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ModelStage& x, const ModelStage& y) {
    return x.layers == y.layers && x.embeds == y.embeds && x.predicts == y.predicts;
  });
}

}  // namespace

std::int64_t layers_of(const ModelSpec& model) {
  const std::optional<std::int64_t> layers = model.architecture.dimensions().layers;
  if (!layers) throw refusal(rules::kStages, {model.name});
  return *layers;
}

ModelSpec untied(ModelSpec model) {
  model.architecture.untie();
  return model;
}

std::vector<ModelStage> stages_of_rank(const Parallel& p, std::int64_t layers, std::int64_t rank) {
  const std::int64_t count = p.pipeline * p.virtual_stages;
  const std::vector<ModelStage> all =
      model_stages(p.stage_layers.empty() ? even_layers(layers, count) : p.stage_layers);
  const std::int64_t place = rank / (p.gpus / p.pipeline);
  std::vector<ModelStage> own;
  for (std::int64_t chunk = 0; chunk < p.virtual_stages; ++chunk) {
    const bool turns = p.schedule == PipelineSchedule::kZeroBubbleV && chunk == 1;
    own.push_back(all[static_cast<std::size_t>(turns ? count - 1 - place : place + chunk * p.pipeline)]);
  }
  return own;
}

std::vector<RankGroup> pipeline_ranks(const ModelSpec& model, const RunSpec& run) {
  constexpr std::int64_t kMostListed = 8;
  const Parallel& p = run.parallel;
  const Pipeline pipeline = pipeline_of(p, run.training().accumulation_steps);
  const std::int64_t layers = layers_of(model);
  std::vector<RankGroup> groups;
  std::vector<ModelStage> before;
  std::size_t same = 0;  // groups of the stage before
  std::int64_t first = 0;
  const std::int64_t of_stage = p.gpus / p.pipeline;  // ranks; the first of those that shard it holds most
  for (std::int64_t stage = 0; stage < p.pipeline; ++stage) {
    const std::vector<ModelStage> stages = stages_of_rank(p, layers, stage * of_stage);
    const bool joins = p.pipeline > kMostListed && stage > 0 && alike(before, stages);
    if (!joins) first = stage;
    const std::string name =
        joins ? "stages " + std::to_string(first) + " to " + std::to_string(stage) : "stage " + std::to_string(stage);
    const std::vector<RankGroup> parts = context_ranks(p);
    if (joins) groups.resize(groups.size() - same);
    for (RankGroup part : parts) {
      part.first += first * of_stage;
      part.count = part.count / p.pipeline * (stage - first + 1);
      part.name = name + (part.name.empty() ? "" : ", " + part.name);
      const std::string attends = part.holds.empty() ? "" : "; " + part.holds;
      part.holds = holds(stages, most_in_flight(pipeline, first)) + attends;
      groups.push_back(std::move(part));
    }
    same = parts.size();
    before = stages;
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
  if (run.parallel.virtual_stages > 1) {
    said.emplace_back("several stages of a rank send and receive between steps of the schedule, as it orders them");
  }
  if (run.parallel.context > 1) {
    said.emplace_back("context_parallel() is around schedule.step(), of the whole batch's ids and labels");
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

WrappedStages run_pipeline_loop(Tape& tape, Model& model, const ModelSpec& spec, const RunSpec& run,
                                std::int64_t rank) {
  auto* const stages_of_model = dynamic_cast<PipelineStages*>(&model);
  if (stages_of_model == nullptr) throw refusal(rules::kStages, {spec.model_type});
  const Pipeline pipeline = pipeline_of(run.parallel, run.training().accumulation_steps);
  const Shape whole_batch{run.batch_size * pipeline.micro_batches, run.sequence_length};
  Batch batch;
  batch.input_ids = tape.empty(whole_batch, DType::kInt64, aten::kRandint, Category::kInputs);
  batch.labels = tape.empty(whole_batch, DType::kInt64, aten::kRandint, Category::kInputs);
  tape.memory.empty_cache();
  apply_fine_tuning(tape, model, run);
  WrappedStages wrapped;
  for (const Parameter& each : model.parameters) {
    wrapped.parameters_of_model += each.tensor.elements();
    if (each.tensor.requires_grad()) wrapped.trainable_of_model += each.tensor.elements();
  }
  const std::vector<ModelStage> own = stages_of_rank(run.parallel, layers_of(spec), rank);
  std::shared_ptr<void> rest = stages_of_model->keep_stages(own);
  std::erase_if(model.linear_layers, [&](const auto& layer) {
    return std::none_of(own.begin(), own.end(), [&](const ModelStage& each) { return each.holds(layer->name); });
  });
  std::deque<PipelineStageRun> stages;
  std::vector<Parameter> parameters;
  for (const ModelStage& each : own) {
    std::unique_ptr<ParallelWrapper> wrapper =
        make_stage_wrapper(tape, run, rank, static_cast<std::int64_t>(stages.size()));
    const PipelineStageRun& stage = stages.emplace_back(tape, model, run, std::move(wrapper), each,
                                                        spec.architecture.dimensions().hidden_size.value_or(0));
    parameters.insert(parameters.end(), stage.parameters().begin(), stage.parameters().end());
    if (stage.wrapper() == nullptr) continue;
    const std::vector<Shape>& shapes = stage.wrapper()->whole_shapes;
    wrapped.whole_shapes.insert(wrapped.whole_shapes.end(), shapes.begin(), shapes.end());
    wrapped.assumptions = stage.wrapper()->assumptions;
  }
  model.parameters.swap(parameters);
  parameters.clear();
  rest.reset();
  std::optional<ContextParallelism> context;
  if (run.parallel.context > 1) context.emplace(tape, run, rank, nullptr);
  tape.memory.empty_cache();
  for (std::size_t i = 0; i + 1 < stages.size(); ++i) {
    if (own[i].first_layer + own[i].layers == own[i + 1].first_layer) stages[i].next_is_here(stages[i + 1]);
  }
  OptimizerSteps optimizer(tape, run, {updated_parameters(model, nullptr)});
  const std::int64_t stage = rank / (run.parallel.gpus / run.parallel.pipeline);
  const std::vector<PipelineStep> steps =
      runs_in_actions(pipeline) ? pipeline_actions(pipeline, stage) : pipeline_steps(pipeline, stage);
  for (tape.moment.step = 0; tape.moment.step < kSteps; ++tape.moment.step) {
    tape.kernels.recording = tape.moment.step == kSteps - 1;
    if (tape.kernels.recording) tape.kernels.forget_host_calls();  // of the steps before
    tape.moment.phase = Phase::kZero;
    optimizer.zero_grad();
    tape.moment.phase = Phase::kForward;
    run_schedule(stages, steps, pipeline, context, batch, tape, run.precision);
    tape.moment.phase = Phase::kOptimizer;
    if (run.training().max_grad_norm) clip_grad_norm(tape, model.parameters);
    optimizer.step();
    for (PipelineStageRun& each : stages) each.after_step();
  }
  tape.memory.stop();
  return wrapped;
}

}  // namespace memcalc
