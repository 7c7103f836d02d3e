#include "memcalc/models/model.h"

#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/models/litgpt.h"
#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

using Builder = ModuleBuilder;
using Built = std::unique_ptr<Model>;

Built build(const BertSpec& spec, const RunSpec& run, Builder& b) { return build_bert(spec, run, b); }
Built build(const Gpt2Spec& spec, const RunSpec& run, Builder& b) { return build_gpt2(spec, run, b); }
Built build(const LlamaSpec& spec, const RunSpec& run, Builder& b) { return build_llama(spec, run, b); }
Built build(const Qwen2Spec& spec, const RunSpec& run, Builder& b) { return build_qwen2(spec, run, b); }
Built build(const Qwen3Spec& spec, const RunSpec& run, Builder& b) { return build_qwen3(spec, run, b); }
Built build(const GemmaSpec& spec, const RunSpec& run, Builder& b) { return build_gemma(spec, run, b); }
Built build(const Gemma2Spec& spec, const RunSpec& run, Builder& b) { return build_gemma2(spec, run, b); }
Built build(const Gemma3Spec& spec, const RunSpec& run, Builder& b) { return build_gemma3(spec, run, b); }
Built build(const Phi3Spec& spec, const RunSpec& run, Builder& b) { return build_phi3(spec, run, b); }
Built build(const Olmo2Spec& spec, const RunSpec& run, Builder& b) { return build_olmo2(spec, run, b); }
Built build(const PhiSpec& spec, const RunSpec& run, Builder& b) { return build_phi(spec, run, b); }
Built build(const GptNeoxSpec& spec, const RunSpec& run, Builder& b) { return build_gpt_neox(spec, run, b); }
Built build(const OptSpec& spec, const RunSpec& run, Builder& b) { return build_opt(spec, run, b); }
Built build(const ClipSpec& spec, const RunSpec& run, Builder& b) { return build_clip(spec, run, b); }
Built build(const VitSpec& spec, const RunSpec& run, Builder& b) { return build_vit(spec, run, b); }
Built build(const TorchvisionSpec& spec, const RunSpec& run, Builder& b) { return build_torchvision(spec, run, b); }
Built build(const DistilBertSpec& spec, const RunSpec& run, Builder& b) { return build_distilbert(spec, run, b); }
Built build(const T5Spec& spec, const RunSpec& run, Builder& b) { return build_t5(spec, run, b); }
Built build(const BartSpec& spec, const RunSpec& run, Builder& b) { return build_bart(spec, run, b); }
Built build(const WhisperSpec& spec, const RunSpec& run, Builder& b) { return build_whisper(spec, run, b); }
Built build(const MixtralSpec& spec, const RunSpec& run, Builder& b) { return build_mixtral(spec, run, b); }
Built build(const Qwen3MoeSpec& spec, const RunSpec& run, Builder& b) { return build_qwen3_moe(spec, run, b); }
Built build(const GptOssSpec& spec, const RunSpec& run, Builder& b) { return build_gpt_oss(spec, run, b); }
Built build(const DeepseekV2Spec& spec, const RunSpec& run, Builder& b) { return build_deepseek_v2(spec, run, b); }
Built build(const DeepseekV3Spec& spec, const RunSpec& run, Builder& b) { return build_deepseek_v3(spec, run, b); }
Built build(const ProgramSpec& spec, const RunSpec& run, Builder& b) { return build_program(spec, run, b); }
Built build(const CustomSpec& spec, const RunSpec& run, Builder& b) { return build_custom(spec, run, b); }

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

namespace {

std::unique_ptr<Model> build_as_said(const ModelSpec& spec, const RunSpec& run, Tape& tape, DType dtype) {
  ModuleBuilder builder(tape, dtype, run.fine_tuning);
  builder.keeps_linear_layers = run.parallel.tensor > 1;
  builder.first_embedding_requires_grad = run.fine_tuning.lora && run.checkpointing() != Checkpointing::kNone;
  const bool offloads_weights = !run.trains() && run.parallel.offload_parameters == OffloadTo::kHost;
  std::optional<OnMetaDevice> on_meta;  // as from_pretrained
  const bool loads_later = run.trains() && run.training().loading != ModelLoading::kConfig;
  on_meta.emplace(tape.memory, offloads_weights || loads_later || run.fine_tuning.quantization != Quantization::kNone);
  std::unique_ptr<Model> model =
      spec.model_type == kLitGptType
          ? build_litgpt(spec, run, builder)
          : std::visit([&](const auto& architecture) { return build(architecture, run, builder); }, spec.architecture);
  on_meta.reset();
  model->parameters = std::move(builder.parameters);
  model->inactive_parameters = builder.inactive_parameters;
  model->buffers = std::move(builder.buffers);
  model->linear_layers = std::move(builder.linear_layers);
  model->experts = std::move(builder.experts);
  if (std::holds_alternative<TorchvisionSpec>(spec.architecture))
    model->layer_paths.emplace();  // calls none as a layer
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
  const bool has_own_classifier =
      std::holds_alternative<Gpt2Spec>(spec.architecture) || std::holds_alternative<OptSpec>(spec.architecture);
  return run.task != Task::kSequenceClassification || !has_own_classifier;
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
  const bool counts_less = tape.behaviors.decoders_alone_take_counts && is_of_transformers(spec);
  if (counts_less && !took_loss_kwargs(spec, run)) model->accepts_loss_kwargs = false;
  return model;
}

}  // namespace memcalc
