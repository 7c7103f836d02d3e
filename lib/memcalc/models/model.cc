#include "memcalc/models/model.h"

#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/models/packed_experts.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/peft_targets.h"
#include "memcalc/spec/program.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

std::unique_ptr<Model> build_architecture(const ModelSpec& spec, const RunSpec& run, ModuleBuilder& builder) {
  if (const auto* program = spec.architecture.get_if<ProgramSpec>()) return build_program(*program, run, builder);
  if (const auto* layers = spec.architecture.get_if<CustomSpec>()) return build_custom(*layers, run, builder);
  const Family* const family = family_of(spec);
  if (family == nullptr) throw Error(ErrorCode::kInternal, spec.model_type + " is no family");
  return family->build(spec.architecture, run, builder);
}

}  // namespace

double dropout_probability(const RunSpec& run, double configured) {
  return run.trains() ? run.dropout.value_or(configured) : 0;
}

Tensor Model::encode(const Batch&) { throw Error(ErrorCode::kInternal, "this model has no encoder of its own"); }

EncoderDecoderCache* cache_of(const RunSpec& run, const Batch& batch, ModelOutput& output) {
  if (batch.past_key_values != nullptr) return batch.past_key_values;
  return run.use_cache ? &output.past_key_values : nullptr;
}

KeyValueCache* self_attention_cache_of(const RunSpec& run, const Batch& batch, ModelOutput& output) {
  EncoderDecoderCache* cache = cache_of(run, batch, output);
  return cache != nullptr ? &cache->self_attention : nullptr;
}

Tensor kept_positions(const Tensor& hidden_states, const Batch& batch) {
  const std::int64_t tokens = hidden_states.size(1);
  if (batch.logits_to_keep == 0 || batch.logits_to_keep >= tokens) return open_slices(hidden_states, {0, 1, 2});
  const Tensor kept = slice(open_slices(hidden_states, {0}), 1, tokens - batch.logits_to_keep, batch.logits_to_keep);
  return open_slices(kept, {2});
}

std::optional<Tensor> run_compiled(Tape& tape, std::int64_t index, const KeptTensors& arguments,
                                   const Byproducts& byproducts,
                                   const std::function<Tensor(const KeptTensors&)>& layer) {
  const auto region = [&](const KeptTensors& traced) {
    // The model's own variables and caches wait while the trace sets them to its tensors.
    KeptTensors variables;
    std::vector<KeyValueCache> caches;
    for (Tensor* each : byproducts.shared) variables.push_back(std::move(*each));
    for (KeyValueCache* each : byproducts.caches) caches.push_back(each->take());
    RegionResults results;
    results.read.push_back(layer(traced));
    for (std::size_t i = 0; i < variables.size(); ++i) {
      results.read.push_back(std::exchange(*byproducts.shared[i], std::move(variables[i])));
    }
    for (std::size_t i = 0; i < caches.size(); ++i) {
      KeyValueCache& cache = *byproducts.caches[i];
      if (cache.layers() > 0) {
        Tensor values, keys;
        cache.take_layer(values, keys);
        results.kept.push_back(std::move(values));
        results.kept.push_back(std::move(keys));
      }
      cache = std::move(caches[i]);
    }
    return results;
  };
  std::optional<RegionResults> results = tape.modes.compiler->run(index, arguments, region, !byproducts.caches.empty());
  if (!results) return std::nullopt;
  for (std::size_t i = 0; i < byproducts.shared.size(); ++i) *byproducts.shared[i] = std::move(results->read[i + 1]);
  for (std::size_t i = 0; i + 1 < results->kept.size(); i += 2) {
    byproducts.caches[i / 2]->add_layer(std::move(results->kept[i]), std::move(results->kept[i + 1]));
  }
  return std::move(results->read.front());
}

std::optional<ModelOutput> compiled_head(const KeptTensors& arguments,
                                         const std::function<ModelOutput(const KeptTensors&)>& head) {
  const Modes& modes = arguments.front().tape().modes;
  const bool compiles =
      modes.compiler != nullptr && modes.capture == nullptr && modes.compiler->compiles(RegionCompiler::kHead);
  if (!compiles) return std::nullopt;
  const auto region = [&head](const KeptTensors& traced) {
    ModelOutput made = head(traced);
    return RegionResults{{std::move(made.loss)}, {std::move(made.logits)}};
  };
  std::optional<RegionResults> results = modes.compiler->run(RegionCompiler::kHead, arguments, region, true);
  ModelOutput output;
  output.loss = std::move(results->read.front());
  output.logits = std::move(results->kept.front());
  return output;
}

namespace {

/// gradient_checkpointing_enable() hooks the input embeddings of every model in the model under peft, and else of
/// classes whose main_input_name is input_ids. (4.57.6, whose checkpoints are reentrant, did under peft alone.) What
/// requires a gradient as it is shows nothing of it; a frozen tower has a backward pass then.
bool checkpoints_hook_inputs(const ModelSpec& spec, const RunSpec& run, const Tape& tape) {
  if (run.fine_tuning.lora) return run.checkpointing() != Checkpointing::kNone || run.fine_tuning.unsloth;
  if (run.fine_tuning.frozen.empty() || run.checkpointing() != Checkpointing::kFull) return false;
  if (tape.behaviors.reentrant_checkpoints) return false;
  const Family* const family = family_of(spec);
  return family != nullptr && (family->kind == FamilyKind::kEncoder || family->kind == FamilyKind::kDecoder ||
                               family->kind == FamilyKind::kEncoderDecoder);
}

std::unique_ptr<Model> build_as_said(const ModelSpec& spec, const RunSpec& run, Tape& tape, DType dtype) {
  ModuleBuilder builder(tape, dtype, run.fine_tuning);
  builder.keeps_linear_layers = run.parallel.tensor > 1;
  builder.first_embedding_requires_grad = checkpoints_hook_inputs(spec, run, tape);
  const bool offloads_weights = !run.trains() && run.parallel.offload_parameters == OffloadTo::kHost;
  std::optional<OnMetaDevice> on_meta;  // as from_pretrained
  const bool is_read = run.fine_tuning.quantization != Quantization::kNone || is_denoiser(spec);
  const bool loads_later = run.trains() && run.training().loading != ModelLoading::kConfig;
  on_meta.emplace(tape.memory, offloads_weights || loads_later || is_read);
  std::unique_ptr<Model> model = build_architecture(spec, run, builder);
  on_meta.reset();
  model->parameters = std::move(builder.parameters);
  model->inactive_parameters = builder.inactive_parameters;
  model->buffers = std::move(builder.buffers);
  model->linear_layers = std::move(builder.linear_layers);
  model->experts = std::move(builder.experts);
  for (const auto& module : model->experts) module->converted = converted_targets(spec);
  if (is_of_torchvision(spec)) model->layer_paths.emplace();  // calls none as a layer
  const Family* const family = family_of(spec);
  model->breaks_at_layers = family != nullptr && family->skips_layers_at_random;
  return model;
}

}  // namespace

namespace {

/// Whether forward() of transformers 4.57.6 takes further keywords, so that the Trainer counts labels for its loss:
/// decoders' language models do, and of their classifiers those that GenericForSequenceClassification makes; so does
/// ViT.
bool took_loss_kwargs(const ModelSpec& spec, const RunSpec& run) {
  if (is_vision(spec)) return true;
  if (!is_decoder(spec)) return false;
  return run.task != Task::kSequenceClassification || !family_of(spec)->has_own_classifier;
}

}  // namespace

std::unique_ptr<Model> build_model(const ModelSpec& spec, const RunSpec& run, Tape& tape, DType dtype) {
  std::unique_ptr<Model> model;
  if (run.gives_one_score()) {
    ModelSpec scoring = spec;
    set_labels(scoring, 1);
    model = build_as_said(scoring, run, tape, dtype);
  } else {
    model = build_as_said(spec, run, tape, dtype);
  }
  // The Trainer counts what is called "labels", and has none here.
  if (run.task == Task::kQuestionAnswering) model->accepts_loss_kwargs = false;
  if (is_of_transformers(spec) && !took_loss_kwargs(spec, run) && tape.behaviors.decoders_alone_take_counts) {
    model->accepts_loss_kwargs = false;
  }
  return model;
}

}  // namespace memcalc
