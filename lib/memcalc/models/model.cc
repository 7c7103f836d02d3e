#include "memcalc/models/model.h"

#include "memcalc/base/error.h"
#include "memcalc/models/litgpt.h"
#include "memcalc/spec/lit_config.h"
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
Built build(const CustomSpec& spec, const RunSpec& run, Builder& b) { return build_custom(spec, run, b); }

}  // namespace

double dropout_probability(const RunSpec& run, double configured) {
  return run.inference ? 0 : run.dropout.value_or(configured);
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
  if (batch.logits_to_keep == 0 || batch.logits_to_keep >= tokens) return hidden_states;
  return slice(hidden_states, 1, tokens - batch.logits_to_keep, batch.logits_to_keep);
}

std::unique_ptr<Model> build_model(const ModelSpec& spec, const RunSpec& run, Tape& tape, DType dtype) {
  ModuleBuilder builder(tape, dtype, run.fine_tuning);
  builder.keeps_linear_layers = run.parallel.tensor > 1;
  builder.first_embedding_requires_grad = run.fine_tuning.lora && run.checkpointing != Checkpointing::kNone;
  const bool offloads_weights = run.inference && run.parallel.offload_parameters == OffloadTo::kHost;
  tape.on_meta_device = offloads_weights || run.fine_tuning.quantization != Quantization::kNone;  // as from_pretrained
  std::unique_ptr<Model> model =
      spec.model_type == kLitGptType
          ? build_litgpt(spec, run, builder)
          : std::visit([&](const auto& architecture) { return build(architecture, run, builder); }, spec.architecture);
  tape.on_meta_device = false;
  model->parameters = std::move(builder.parameters);
  model->inactive_parameters = builder.inactive_parameters;
  model->buffers = std::move(builder.buffers);
  model->linear_layers = std::move(builder.linear_layers);
  return model;
}

}  // namespace memcalc
