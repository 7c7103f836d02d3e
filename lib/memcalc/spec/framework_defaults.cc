// MIRRORS(trl, "trainer/base_config.py", "1.16.0")
// MIRRORS(trl, "trainer/utils.py", "1.16.0")
#include "memcalc/spec/framework_defaults.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "memcalc/spec/family.h"
#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/parallel.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

/// Megatron-LM has its own loop and optimizer. A trainer that is another job stays as asked, and the rules refuse it.
RunOptions with_megatron_defaults(const ModelSpec& model, RunOptions options) {
  if (framework_asked(options) != Framework::kMegatron) return options;
  if (!options.loop || !(is_trl(*options.loop) || is_sentence_transformers(*options.loop))) options.loop = Loop::kBare;
  options.task = options.task.value_or(megatron_task(model));
  options.optimizer = options.optimizer.value_or(Optimizer::kAdamWFused);
  options.attention = options.attention.value_or(Attention::kSdpa);
  options.max_grad_norm = options.max_grad_norm.value_or(1.0);
  return options;
}

/// Whether the model's dropout is of nn.Dropout, which TRL's disable_dropout_in_model (trainer/utils.py) looks for.
/// OPT, and the attention of decoders with rotary positions, call F.dropout with a number of the config: it stays.
bool has_dropout_modules(const ModelSpec& model) {
  const Family* const family = family_of(model);
  return family != nullptr && family->dropout_is_module;
}

/// trl 1.16, trainer/base_config.py (_BaseConfig) and trainer/utils.py (create_model_from_path).
RunOptions with_trl_defaults(const ModelSpec& model, RunOptions options, std::vector<std::string>& assumptions) {
  if (!options.loop || !is_trl(*options.loop) || framework_asked(options) == Framework::kMegatron) return options;
  const bool scores = *options.loop == Loop::kTrlReward;
  options.task = options.task.value_or(scores ? Task::kSequenceClassification : Task::kCausalLm);
  if (!options.checkpointing) {
    options.checkpointing = Checkpointing::kFull;
    assumptions.emplace_back("layers are checkpointed, TRL's default (--checkpointing none)");
  }
  // disable_dropout of their configurations.
  const bool disables_dropout =
      trains_on_pairs(*options.loop) || *options.loop == Loop::kTrlKto || *options.loop == Loop::kTrlOnlineDpo;
  if (disables_dropout && !options.dropout && has_dropout_modules(model)) {
    options.dropout = 0;
    assumptions.emplace_back("no dropout: the trainer switches it off (--dropout)");
  }
  const bool says_precision = options.precision || options.mixed_precision;
  if (!says_precision) {
    options.precision = Precision::kAmpBf16;
    assumptions.emplace_back("bf16=True, TRL's default: autocast to bfloat16 (--precision)");
  }
  if (!options.weights_dtype && !options.lora_rank.has_value() && !options.quantization) {
    options.weights_dtype = DType::kFloat32;
    // experimental/orpo and online_dpo leave the type to from_pretrained, which takes the checkpoint's.
    const bool takes_checkpoints = *options.loop == Loop::kTrlOrpo || *options.loop == Loop::kTrlOnlineDpo;
    assumptions.emplace_back(
        takes_checkpoints ? "weights are in float32; the trainer loads a model that is named in its checkpoint's "
                            "type (--weights-dtype bf16)"
                          : "weights are loaded in float32, as TRL loads a model that is named (--weights-dtype)");
  }
  return options;
}

std::int64_t elements_of(const Program& program) {
  std::int64_t sum = 0;
  for (const ProgramTensor& each : program.parameters) {
    std::int64_t elements = 1;
    for (const ProgramArgument& size : each.shape) elements *= size.integer;
    sum += elements;
  }
  return sum;
}

/// diffusers 0.42, examples/dreambooth/train_dreambooth_lora_flux.py and the scripts like it: the frozen network is
/// cast to the type of mixed precision, checkpoints are not reentrant, gradients are clipped at 1.
RunOptions with_diffusers_defaults(const ModelSpec& model, RunOptions options, std::vector<std::string>& assumptions) {
  if (!is_denoiser(model) || options.inference) return options;
  const Program& program = *model.architecture.as<ProgramSpec>().program;
  assumptions.emplace_back(
      "the step is that of diffusers' LoRA scripts, from latents and encoded prompts to the loss (mean squared error "
      "in float32), in accelerate's autocast; its variables live until the next step");
  for (const PipelinePart& part : program.parts) {
    assumptions.push_back(fmt::format("{} ({:.2f} billion parameters) {}", part.program->name,
                                      1e-9 * static_cast<double>(elements_of(*part.program)),
                                      part.is_resident ? "is on the card, too, and encodes each batch"
                                                       : "is not on the card: what it encodes was computed before"));
  }
  if (!options.precision && !options.mixed_precision) {
    options.precision = Precision::kAmpBf16;
    assumptions.emplace_back("mixed_precision=bf16, as the scripts are started: autocast to bfloat16 (--precision)");
  }
  const std::optional<DType> half = options.mixed_precision                    ? options.mixed_precision
                                    : options.precision == Precision::kAmpBf16 ? std::optional(DType::kBFloat16)
                                    : options.precision == Precision::kAmpFp16 ? std::optional(DType::kFloat16)
                                                                               : std::nullopt;
  options.max_grad_norm = options.max_grad_norm.value_or(1.0);
  options.reentrant = false;  // ModelMixin.enable_gradient_checkpointing
  if (!options.lora_rank) return options;
  if (half && !options.weights_dtype) {
    options.weights_dtype = half;
    assumptions.push_back(
        fmt::format("the frozen network is in {}, as the scripts cast it (--weights-dtype)", name_of(*half)));
  }
  assumptions.emplace_back(options.lora_in_base_dtype
                               ? "adapters are in the network's type, as add_adapter makes them (--lora-dtype fp32)"
                               : "adapters are in float32 (--lora-dtype)");
  if (!options.lora_targets.empty() && options.lora_targets == program.lora_targets) {
    assumptions.push_back(
        fmt::format("adapters on the script's layers: {} (--lora-targets)", fmt::join(options.lora_targets, ", ")));
  }
  return options;
}

/// sentence-transformers 6.0: AutoModel for a bi-encoder, AutoModelForSequenceClassification for a cross-encoder.
RunOptions with_sentence_transformers_defaults(RunOptions options) {
  if (!options.loop || !is_sentence_transformers(*options.loop)) return options;
  const bool is_bi_encoder = *options.loop == Loop::kSentenceTransformer;
  options.task = options.task.value_or(is_bi_encoder ? Task::kFeatures : Task::kSequenceClassification);
  return options;
}

}  // namespace

RunOptions with_framework_defaults(const ModelSpec& model, const RunOptions& asked,
                                   std::vector<std::string>& assumptions) {
  const RunOptions told = with_megatron_defaults(model, with_diffusers_defaults(model, asked, assumptions));
  return with_sentence_transformers_defaults(with_trl_defaults(model, with_litgpt_defaults(model, told), assumptions));
}

}  // namespace memcalc
