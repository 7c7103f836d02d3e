#include "memcalc/spec/inference.h"

#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/spec/validate.h"

namespace memcalc {
namespace {

void refuse_training_options(const RunOptions& options) {
  const std::pair<bool, const char*> given[] = {
      {options.loop.has_value(), "loop"},
      {options.optimizer.has_value(), "optimizer"},
      {options.checkpointing.has_value(), "checkpointing"},
      {options.accumulation_steps.has_value(), "accumulation"},
      {options.max_grad_norm.has_value(), "gradient clipping"},
      {options.dropout.has_value(), "dropout"},
      {options.offload_activations, "activation offload"},
      {options.lora_rank.has_value(), "LoRA"},
      {!options.frozen.empty(), "freezing"},
      {options.prepares_for_kbit.has_value(), "prepare_model_for_kbit_training"},
      {options.use_cache, "use_cache"},
      {options.compile, "compile"},
      {options.offload_optimizer, "optimizer offload"},
  };
  for (const auto& [is_given, name] : given) {
    if (is_given) {
      throw Error(ErrorCode::kUsage,
                  std::string(name) + ": belongs to training; with --infer there is none, so leave it out");
    }
  }
}

/// config.use_cache is on, so a forward pass of a decoder keeps keys and values that nobody reads.
bool keeps_cache(const ModelSpec& model) {
  return is_decoder(model) || std::holds_alternative<BartSpec>(model.architecture);
}

bool has_experts(const ModelSpec& model) {
  return std::visit(
      [](const auto& architecture) {
        return requires { architecture.experts; };
      },
      model.architecture);
}

}  // namespace

void resolve_inference(const ModelSpec& model, const RunOptions& options, RunSpec& run,
                       std::vector<std::string>& assumptions) {
  refuse_training_options(options);
  run.inference = options.inference;
  run.loop = Loop::kBare;
  run.use_cache = keeps_cache(model);
  if (run.inference->new_tokens > 0) {
    assumptions.emplace_back(
        "every sequence gets all new tokens (generate with min_new_tokens = max_new_tokens), greedily");
    assumptions.emplace_back("special tokens as the configuration class of " + model.model_type +
                             " has them, and a pad token");
  } else if (run.use_cache) {
    assumptions.emplace_back("one forward pass, whose KV cache lives as long as its output (config.use_cache)");
  }
  if (is_autocast(run.precision)) {
    assumptions.emplace_back(
        "one autocast region around all calls: the 16-bit copies of the weights stay between them");
  }
}

void check_inference(const ModelSpec& model, const RunSpec& run) {
  if (!run.inference) return;
  const Inference& inference = *run.inference;
  const auto refuse = [](const std::string& message) { throw Error(ErrorCode::kUsage, message); };
  if (inference.new_tokens < 0 || inference.beams < 1)
    refuse("inference: expected new tokens of 0 or more, beams of 1 or more");
  if (is_contrastive(model)) {
    refuse("infer: " + model.model_type +
           " is modelled with its contrastive loss alone, which inference does not take");
  }
  const bool generates = (is_decoder(model) && run.task == Task::kCausalLm) || is_encoder_decoder(model);
  if (inference.new_tokens > 0 && !generates) {
    refuse("new tokens: " + model.model_type + " has no language-model head that generates; accepted: --infer alone");
  }
  if (inference.beams > 1 && inference.new_tokens == 0)
    refuse("beams: beam search needs tokens to choose: --new-tokens N");
  if (inference.new_tokens == 0 && is_encoder_decoder(model) && !std::holds_alternative<BartSpec>(model.architecture)) {
    refuse("infer: a forward pass of " + model.model_type + " needs the decoder's ids; accepted: --new-tokens N");
  }
  const auto limit = position_limit(model);
  const std::int64_t prompt = is_encoder_decoder(model) ? 1 : run.sequence_length;
  if (limit && inference.new_tokens > *limit - prompt) {
    refuse("new tokens: " + std::to_string(prompt) + " + " + std::to_string(inference.new_tokens) + " is beyond the " +
           std::to_string(*limit) + " positions of " + model.name);
  }
  if (run.parallel.is_parallel()) {
    throw Error(ErrorCode::kUnsupported, "gpus: inference is modelled on one GPU");
  }
  if (inference.beams > 1 && has_experts(model)) {
    throw Error(ErrorCode::kUnsupported,
                "beams: beam search leaves mixtures of experts at grouped products while greedy decoding switches to "
                "batched ones; only the latter is modelled; accepted: --beams 1");
  }
  if (inference.key_value_cache_dtype && *inference.key_value_cache_dtype != weights_dtype_of(run)) {
    throw Error(ErrorCode::kUnsupported, "KV cache dtype " + std::string(name_of(*inference.key_value_cache_dtype)) +
                                             ": transformers' DynamicCache keeps keys and values in the type of the "
                                             "activations, " +
                                             std::string(name_of(weights_dtype_of(run))));
  }
  if (run.fine_tuning.liger) refuse("liger: belongs to training; with --infer there is none, so leave it out");
}

}  // namespace memcalc
