// MIRRORS(transformers, "training_args.py", "5.17.0")
// MIRRORS(trl, "experimental/online_dpo/online_dpo_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/grpo_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/kto_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/rloo_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/sft_config.py", "1.16.0")
// MIRRORS(trl, "trainer/sft_trainer.py", "1.16.0")
#include "memcalc/spec/run_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/data_lengths.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/framework_defaults.h"
#include "memcalc/spec/image_text_spec.h"
#include "memcalc/spec/inference.h"
#include "memcalc/spec/input_sizes.h"
#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/loaded_dtype.h"
#include "memcalc/spec/native_format.h"
#include "memcalc/spec/parallel.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/router_loss.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/spec/trl_adapters.h"
#include "memcalc/spec/validate.h"

namespace memcalc {
namespace {

Task resolve_task(const ModelSpec& model, const RunOptions& options, std::vector<std::string>& assumptions) {
  if (options.task) return *options.task;
  if (is_vision(model)) return Task::kImageClassification;
  if (is_custom(model) || is_program(model)) return usual_task(model);
  const Task task = usual_task(model);
  assumptions.push_back("task " + std::string(name_of(task)) + ": the usual one for " + model.model_type + " (--task)");
  return task;
}

Loop resolve_loop(const ModelSpec& model, Task task, const RunOptions& options, std::vector<std::string>& assumptions) {
  if (options.loop) return *options.loop;
  if (task == Task::kImageClassification && is_of_torchvision(model)) {
    assumptions.emplace_back(
        "the loop is a plain one, as torchvision's own (--loop trainer: in a module that returns loss and logits)");
    return Loop::kBare;
  }
  if (task == Task::kCustom || !takes_labels(model)) {
    if (is_denoiser(model)) return Loop::kBare;
    assumptions.emplace_back(is_program(model) ? "the loop is a plain one: model(**batch).loss.backward()"
                                               : "the loop is a plain one: a model of layers is a plain torch module");
    return Loop::kBare;
  }
  if (task == Task::kContrastive) {
    assumptions.emplace_back("the loop is a plain one: contrastive training is not modelled in the Trainer");
    return Loop::kBare;
  }
  const Family* const family = family_of(model);
  const bool caches = family != nullptr && family->decoder_config_is_copy &&
                      options.checkpointing.value_or(Checkpointing::kNone) == Checkpointing::kNone;
  const ImageTextSpec* const with_images = image_text_of(model);
  const bool text_caches = with_images != nullptr && with_images->images.has_value() &&
                           options.checkpointing.value_or(Checkpointing::kNone) == Checkpointing::kNone;
  assumptions.push_back(
      "the loop is transformers' Trainer with its defaults: " +
      std::string(text_caches ? "a KV cache (it is switched off in the model's configuration, of which the "
                                "text model reads text_config alone)"
                  : caches    ? "a KV cache (it is switched off in the model's configuration, of which T5's "
                                "decoder has an older copy)"
                              : "no KV cache") +
      ", outputs die before the backward pass (--loop bare for a plain loop)");
  return Loop::kTrainer;
}

Optimizer resolve_optimizer(Loop loop, const RunOptions& options, std::vector<std::string>& assumptions) {
  if (options.optimizer) {
    if (is_trainer(loop) && !has_trainer_name(*options.optimizer)) {
      assumptions.push_back("the Trainer has no name for " + std::string(name_of(*options.optimizer)) +
                            ": it is given by optim_args or optimizer_cls_and_kwargs");
    }
    return *options.optimizer;
  }
  if (options.unsloth) {  // models/rl.py
    assumptions.emplace_back("optimizer: adamw_8bit, Unsloth's default (--optimizer)");
    return Optimizer::kAdamW8bit;
  }
  // transformers 5 with torch >= 2.8: adamw_torch_fused (training_args.py default_optim); torch.optim.AdamW: foreach.
  assumptions.emplace_back(is_trainer(loop) ? "optimizer: fused AdamW, the Trainer's default (--optimizer)"
                                            : "optimizer: foreach AdamW, torch's default (--optimizer)");
  return is_trainer(loop) ? Optimizer::kAdamWFused : Optimizer::kAdamWForeach;
}

Attention resolve_attention(const ModelSpec& model, const RunOptions& options, std::vector<std::string>& assumptions) {
  if (options.attention) return *options.attention;
  if (!is_eager_in(model, options.profile.behaviors)) return Attention::kSdpa;
  if (!has_eager_attention_only(model)) {
    assumptions.push_back("attention is eager: transformers " +
                          text_of(options.profile.version(Software::kTransformers)) + " has no other for this model");
    return Attention::kEager;
  }
  assumptions.push_back("attention is eager: transformers has no other for " + model.model_type);
  return Attention::kEager;
}

std::optional<double> resolve_clipping(Loop loop, const RunOptions& options, std::vector<std::string>& assumptions) {
  if (options.max_grad_norm) {
    if (*options.max_grad_norm == 0) return std::nullopt;
    return options.max_grad_norm;
  }
  if (loop == Loop::kBare && framework_asked(options) == Framework::kDeepSpeed) {
    assumptions.emplace_back("gradients are clipped at norm 1.0, DeepSpeed's default (--clip-grad 0 for none)");
    return 1.0;  // GRADIENT_CLIPPING_DEFAULT (runtime/constants.py)
  }
  if (loop == Loop::kBare) return std::nullopt;
  if (options.offload_optimizer) {
    assumptions.emplace_back("gradients are not clipped: an offloaded optimizer takes them before (max_grad_norm=0)");
    return std::nullopt;
  }
  assumptions.emplace_back("gradients are clipped at norm 1.0, the Trainer's default (--clip-grad 0 for none)");
  return 1.0;
}

/// `may_have_one`: of a model without a cache the option is refused, whatever stands beside it.
bool resolve_cache(Checkpointing checkpointing, const RunOptions& options, bool may_have_one,
                   std::vector<std::string>& assumptions) {
  if (!options.use_cache) return false;
  if (checkpointing == Checkpointing::kNone || !may_have_one) return true;
  // checkpoint_wrapper does not tell the model, so the recomputation would append to the cache a second time.
  assumptions.emplace_back(checkpointing == Checkpointing::kSelective
                               ? "use_cache is switched off: recomputed layers would append to the cache again"
                               : "use_cache is switched off: transformers does so under gradient checkpointing");
  return false;
}

std::int64_t resolve_skipped_steps(const RunSpec& run, const RunOptions& options,
                                   std::vector<std::string>& assumptions) {
  const bool is_deepspeed = framework_asked(options) == Framework::kDeepSpeed;
  if (run.precision != Precision::kAmpFp16) return options.skipped_steps.value_or(0);
  if (run.training().optimizer == Optimizer::kAdamWFused && !is_deepspeed) {
    if (options.skipped_steps) {
      assumptions.emplace_back(
          "skipped steps change nothing: a fused optimizer skips inside its kernel, with its states made");
    }
  } else if (!options.skipped_steps) {
    assumptions.emplace_back(
        "the loss scaler skips no step; a new one often skips the first few, in which there are no optimizer states "
        "yet (--skipped-steps)");
  }
  return options.skipped_steps.value_or(0);
}

/// Where no targets were named.
std::string adapted_layers(const Lora& lora, Task task) {
  if (task == Task::kCustom) return "adapters on every linear layer (--lora-targets)";
  if (!has_classifier(task) && task != Task::kImageClassification) {
    return "adapters on every linear layer but the head (--lora-targets)";
  }
  if (!lora.trains_head) return "adapters on every linear layer, the classifier among them (--lora-targets)";
  std::string text = "adapters on every linear layer but the classifier, which is trained in full (--lora-targets)";
  // peft_model.py, 0.21.2: only of SEQ_CLS is the classifier among modules_to_save before adapters are made, and
  // ModulesToSaveWrapper takes no layer that has one.
  if (task != Task::kSequenceClassification) text += ": LoraConfig's exclude_modules names it";
  return text;
}

FineTuning resolve_fine_tuning(const ModelSpec& model, const RunOptions& options, const RunSpec& run,
                               std::vector<std::string>& assumptions) {
  const bool is_litgpt = model.model_type == kLitGptType;
  FineTuning tuning;
  tuning.frozen = options.frozen;
  tuning.liger = options.liger;
  tuning.cut_cross_entropy = options.cut_cross_entropy;
  tuning.unsloth = options.unsloth;
  tuning.quantization = resolve_quantization(model, options, run, assumptions);
  const bool quantized = tuning.quantization != Quantization::kNone;
  if (options.lora_rank) {
    tuning.lora = {.rank = *options.lora_rank,
                   .targets = options.lora_targets,
                   .saved = options.lora_saved,
                   .dropout = options.lora_dropout.value_or(0),
                   .dora = options.dora,
                   .in_base_dtype = options.lora_in_base_dtype,
                   .trains_head = options.lora_trains_head};
    if (options.lora_targets.empty()) {
      assumptions.push_back(adapted_layers(*tuning.lora, run.task));
    }
  }
  const bool packs_in_trl = quantized && !tuning.unsloth && prepares_adapters_itself(run);
  if (tuning.lora && packs_in_trl) {
    tuning.lora->in_bf16 = true;
    assumptions.emplace_back(
        "TRL casts the adapters of a packed base to bfloat16 and leaves what is not packed as it was loaded: it does "
        "not call prepare_model_for_kbit_training");
  }
  tuning.prepares_for_kbit = options.prepares_for_kbit.value_or(
      is_packed_by_bitsandbytes(tuning.quantization) && tuning.lora.has_value() && !tuning.unsloth && !packs_in_trl);
  if (tuning.prepares_for_kbit && !options.prepares_for_kbit) {
    assumptions.emplace_back(
        "prepare_model_for_kbit_training turns what is not quantised into float32 (--no-prepare-kbit)");
  }
  if (tuning.unsloth) {
    assumptions.emplace_back(
        "Unsloth 2026.10.9 with trl 1.15, the last that it takes, padding_free=False, neither xformers nor flash-attn, "
        "and the expandable segments that it switches on; with torch 2.11 and later it compiles each layer, which is "
        "taken to need what the layer needs as Python runs it (not validated beside checkpoints)");
  }
  tuning.group_size = options.group_size.value_or(tuning.group_size);
  tuning.packs_head = options.packs_head;
  tuning.packs_experts = options.packs_experts;
  tuning.blocks_to_swap = options.blocks_to_swap;
  tuning.quant_storage = options.quant_storage;
  if (is_marlin(tuning.quantization)) {
    assumptions.push_back("groups of " + std::to_string(tuning.group_size) +
                          ", without act-order, in gptqmodel's Marlin kernel (not validated)");
  } else if (is_fp8_base(tuning.quantization)) {
    assumptions.emplace_back(
        tuning.quantization == Quantization::kFp8Cast
            ? "linear layers' weights are in float8_e4m3fn, and autocast casts each for its product, as with "
              "sd-scripts' --fp8_base; biases and norms stay in 16 bits"
            : "linear layers of the blocks, but for modulations and norms, are in float8_e4m3fn with a scale for 64 "
              "numbers, and each product makes their 16-bit copy, as with musubi-tuner's --fp8_base --fp8_scaled");
  } else if (is_packed_by_bitsandbytes(tuning.quantization) && !is_litgpt) {
    assumptions.emplace_back(
        "the base is loaded by from_pretrained with a BitsAndBytesConfig that computes in bfloat16");
  }
  return tuning;
}

void resolve_data_loader(const RunOptions& options, RunSpec& run) {
  run.dataloader_workers = options.dataloader_workers.value_or(0);
  run.prefetch_factor = options.prefetch_factor.value_or(2);
  run.pin_memory = options.pin_memory || run.uses_trainer();  // training_args.py: dataloader_pin_memory
}

/// sentence-transformers 6.0, losses/multiple_negatives_ranking.py, cached_multiple_negatives_ranking.py.
void resolve_sentences(const RunOptions& options, Training& training, std::vector<std::string>& assumptions) {
  SentencePairs& sentences = training.sentences;
  sentences.hard_negatives = options.hard_negatives.value_or(sentences.hard_negatives);
  sentences.loss = options.contrastive_loss.value_or(sentences.loss);
  sentences.mini_batch_size = options.mini_batch_size.value_or(sentences.mini_batch_size);
  if (!options.contrastive_loss) {
    assumptions.emplace_back("the loss is MultipleNegativesRankingLoss (--contrastive-loss)");
  }
  if (sentences.loss == ContrastiveLoss::kCachedMnrl && !options.mini_batch_size) {
    assumptions.push_back(fmt::format("mini-batches of {} texts (--mini-batch)", sentences.mini_batch_size));
  }
  assumptions.push_back(
      fmt::format("a sample is an anchor, a positive and {} hard negatives, each of all tokens, pooled by their mean "
                  "(--hard-negatives)",
                  sentences.hard_negatives));
}

/// dpo_trainer.py, kto_trainer.py, rloo_trainer.py, online_dpo_trainer.py; grpo_trainer.py, whose beta is 0, has none.
Reference resolve_reference(Loop loop, const RunOptions& options, std::vector<std::string>& assumptions) {
  const bool compares =
      loop == Loop::kTrlDpo || loop == Loop::kTrlKto || loop == Loop::kTrlRloo || loop == Loop::kTrlOnlineDpo;
  if (options.reference || !compares) return options.reference.value_or(Reference::kNone);
  if (options.lora_rank) return Reference::kAdapters;
  assumptions.emplace_back("the reference is a second model beside the one that trains (--ref-model)");
  return Reference::kModel;
}

/// num_generations of grpo_config.py and rloo_config.py. It tells which prompts of --lengths stand in a batch; of
/// prompts that are all alike it only has to divide the batch, so that nothing is taken for granted there.
std::int32_t resolve_generations(const RunOptions& options, Loop loop) {
  if (options.generations || !options.lengths) return static_cast<std::int32_t>(options.generations.value_or(0));
  return loop == Loop::kTrlRloo ? 2 : 8;
}

/// grpo_config.py, rloo_config.py
void resolve_completions(const RunOptions& options, Training& training, std::vector<std::string>& assumptions) {
  const std::int64_t accumulation_steps = training.accumulation_steps;
  training.steps_per_generation = static_cast<std::int32_t>(options.steps_per_generation.value_or(0));
  training.iterations = static_cast<std::int32_t>(options.iterations.value_or(1));
  training.generations = resolve_generations(options, training.loop);
  training.grpo_loss = options.grpo_loss.value_or(GrpoLoss::kDapo);
  training.importance_level = options.importance_level.value_or(ImportanceLevel::kToken);
  if (training.generate_every() > accumulation_steps) {
    assumptions.push_back(
        fmt::format("a generation lasts for {} micro-batches of {} in a step; the time of a step is the mean of those "
                    "with and without it",
                    training.generate_every(), accumulation_steps));
  }
}

Vllm resolve_vllm(const RunOptions& options, std::vector<std::string>& assumptions) {
  Vllm vllm;
  vllm.mode = options.vllm.value_or(VllmMode::kNone);
  vllm.correction = options.vllm_correction.value_or(vllm.correction);
  if (vllm.mode != VllmMode::kColocate) return vllm;
  vllm.utilization = options.vllm_utilization.value_or(vllm.utilization);
  if (!options.vllm_utilization) {
    assumptions.push_back(
        fmt::format("vLLM asks for {} of the card, TRL's default (--vllm-utilization)", vllm.utilization));
  }
  vllm.sleeps = options.vllm_sleep;
  vllm.max_length = options.vllm_max_length.value_or(0);
  return vllm;
}

/// SFTTrainer and the others: the coefficient that nobody gave is the model's own, and above 0.
bool resolve_router_loss(const ModelSpec& model, const RunOptions& options, Loop loop,
                         std::vector<std::string>& assumptions) {
  if (loop == Loop::kTrainer) {
    if (options.router_loss) {
      assumptions.emplace_back(
          "the routers' auxiliary loss (output_router_logits) follows its source and was not validated on a card");
    }
    return options.router_loss;
  }
  // Of experimental/orpo and online_dpo the first asks the config alone, whose output_router_logits is false.
  const bool asks = is_trl(loop) && loop != Loop::kTrlOrpo && loop != Loop::kTrlOnlineDpo && loop != Loop::kTrlReward;
  if (!asks || options.no_router_loss || !returns_router_logits(model)) return false;
  const SftLossForm form = options.profile.behaviors.sft_loss;
  const bool holds_logits =
      form == SftLossForm::kLogits || form == SftLossForm::kShiftedCopies || form == SftLossForm::kShiftedViews;
  if (holds_logits) return false;  // TRL before 1.7 asks the config, too
  if (options.profile.behaviors.experts == ExpertForm::kLoop) {
    assumptions.emplace_back("the routers' auxiliary loss is not counted: of a transformers before 5.0");
    return false;
  }
  assumptions.emplace_back(
      "the routers' auxiliary loss is added, TRL's default for mixtures of experts (--no-router-loss); it follows its "
      "source and was not validated on a card");
  return true;
}

void resolve_training(const ModelSpec& model, const RunOptions& options, RunSpec& run,
                      std::vector<std::string>& assumptions) {
  Training& training = run.purpose.emplace<Training>();
  training.loop = resolve_loop(model, run.task, options, assumptions);
  training.optimizer = resolve_optimizer(training.loop, options, assumptions);
  training.checkpointing = options.checkpointing.value_or(Checkpointing::kNone);
  training.checkpoint_every = options.checkpoint_every.value_or(1);
  training.reentrant = options.reentrant;
  training.offload_activations = options.offload_activations;
  training.offload_optimizer = options.offload_optimizer;
  training.offload_gradients = options.offload_gradients;
  training.optimizer_in_backward = options.optimizer_in_backward;
  training.loss_in_loop = options.loss_in_loop;
  training.compile = options.compile;
  training.compile_mode = options.compile_mode.value_or(CompileMode::kDefault);
  training.float8 = options.float8.value_or(Float8::kNone);
  training.accumulation_steps = options.accumulation_steps.value_or(options.unsloth ? 2 : 1);  // UnslothSFTConfig's
  training.max_grad_norm = resolve_clipping(training.loop, options, assumptions);
  training.sft_loss = options.sft_loss.value_or(SftLoss::kNll);
  training.kto_loss = options.kto_loss.value_or(KtoLoss::kKto);
  training.whole_logits = options.whole_logits;
  training.smooths_labels = options.label_smoothing;
  training.balances_experts = resolve_router_loss(model, options, training.loop, assumptions);
  if (training.loop == Loop::kTrlSft) training.completion_length = options.completion_length.value_or(0);
  if (run.trains_on_answers()) {
    const bool has_prompts = options.lengths && run.generates();  // whose completions have a length of their own
    training.completion_length = options.completion_length.value_or(has_prompts ? 512 : run.sequence_length / 2);
    if (!options.completion_length) {
      assumptions.emplace_back(has_prompts ? "completions reach 512 tokens, TRL's default (--completion)"
                                           : "half of each sequence is the answer, the rest the prompt (--completion)");
    }
  }
  training.reference = resolve_reference(training.loop, options, assumptions);
  if (run.generates()) {
    resolve_completions(options, training, assumptions);
    training.float32_head = options.float32_head;
    training.vllm = resolve_vllm(options, assumptions);
    assumptions.emplace_back(std::string(options.lengths ? "" : "prompts are equally long and ") +
                             "completions reach --completion (max_completion_length): where all of a batch end before, "
                             "it needs less; step times of such trainers were 20 to 45 % too low on an H200 "
                             "(docs/jobs.md)");
  }
  if (training.loop == Loop::kSentenceTransformer) resolve_sentences(options, training, assumptions);
  training.stages = options.stages;
  training.loading = resolve_loading(model, options, run, assumptions);
  training.saving = options.saving;
  if (options.lengths) resolve_lengths(options, run, assumptions);
  if (options.eval_batch_size) {
    training.evaluation = {.batch_size = *options.eval_batch_size,
                           .samples = options.eval_samples.value_or(4 * *options.eval_batch_size),
                           .keeps_logits = options.eval_logits,
                           .move_to_host = options.eval_accumulation.value_or(0),
                           .new_tokens = options.eval_new_tokens.value_or(0),
                           .beams = options.eval_beams.value_or(1),
                           .has_labels = !options.no_eval_labels};
    if (training.lengths) {
      assumptions.push_back(fmt::format("the evaluation set is as long as the first {} samples of --lengths",
                                        training.evaluation->samples));
    }
    if (training.evaluation->new_tokens > 0) {
      assumptions.emplace_back(
          "the evaluation generates as Seq2SeqTrainer does with predict_with_generate, to the last token of "
          "--eval-generate (generation_max_length counts what a decoder begins with, too: the prompt, or one token)");
    }
  }
  const bool may_cache = is_decoder(model) || is_encoder_decoder(model);
  run.use_cache = resolve_cache(training.checkpointing, options, may_cache, assumptions);
  // Before transformers 5.0 the Trainer left config.use_cache as it is.
  if (training.loop == Loop::kTrainer && may_cache && model.use_cache &&
      training.checkpointing == Checkpointing::kNone && options.profile.behaviors.trainer_keeps_use_cache) {
    run.use_cache = true;
  }
}

void resolve_compiled_parts(const RunOptions& options, RunSpec& run, std::vector<std::string>& assumptions) {
  if (!run.trains()) return;
  if (options.compiled_parts) run.training().compiled_parts = *options.compiled_parts;
  if (!options.compile || options.compiled_parts || !run.parallel.is_parallel()) return;
  run.training().compiled_parts = CompiledParts::kLayers;
  assumptions.emplace_back("each layer is compiled by itself (--compile-parts layers), the loss is not");
}

void say_what_else_holds(const ModelSpec& model, const RunSpec& run, std::vector<std::string>& assumptions) {
  const auto* custom = model.architecture.get_if<CustomSpec>();
  const bool convolves =
      is_of_torchvision(model) || (custom != nullptr && custom::has_layer<custom::ConvolutionLayer>(custom->layers));
  if (convolves && run.precision == Precision::kFp32 && !run.uses_trainer()) {
    assumptions.emplace_back(
        "convolutions run in float32 (torch.backends.cudnn.allow_tf32 = False); torch's default lets them use TF32 "
        "(--precision tf32)");
  }
  if (run.fine_tuning.prepares_for_kbit && run.parallel.is_parallel()) {
    assumptions.emplace_back(
        "prepare_model_for_kbit_training on several GPUs follows its source; no run of it was compared (not "
        "validated)");
  }
  const bool masks = run.parallel.framework() == Framework::kMegatron && run.task != Task::kCausalLm;
  if (!run.padding && !masks && !is_vision(model) && !is_custom(model) && !is_program(model))
    assumptions.emplace_back("every sequence has the full length, so no mask is passed (--padding)");
  if (run.task == Task::kSequenceClassification && is_decoder(model)) {
    assumptions.push_back(
        fmt::format("a decoder classifies by each sequence's last token that is not padding, so config.pad_token_id is "
                    "set; {}",
                    run.gives_one_score() ? "one label" : "as many labels as config.json says, else 2"));
  }
}

}  // namespace

ResolvedRun resolve(const ModelSpec& model, const RunOptions& asked) {
  ResolvedRun resolved;
  RunSpec& run = resolved.run;
  auto& assumptions = resolved.assumptions;
  const RunOptions options = with_framework_defaults(model, asked, assumptions);
  run.profile = options.profile;
  run.task = resolve_task(model, options, assumptions);
  resolve_input_sizes(model, options, run, assumptions);
  if (!options.inference) resolve_training(model, options, run, assumptions);
  resolve_loaded_dtype(model, options, run, assumptions);
  if (options.inference) resolve_inference(model, options, run, assumptions);
  run.attention = resolve_attention(model, options, assumptions);
  run.expandable_segments = options.expandable_segments || options.unsloth;  // unsloth_zoo/__init__.py
  resolve_data_loader(options, run);
  run.padding = options.padding;
  run.dropout = options.dropout;
  resolved.halves_completions = run.trains_on_answers() && !options.completion_length;
  if (run.trains()) run.training().skipped_steps = resolve_skipped_steps(run, options, assumptions);
  run.fine_tuning = resolve_fine_tuning(model, options, run, assumptions);
  run.parallel = resolve_parallel(options, assumptions);
  resolve_zero_sizes(model, options.deepspeed_sizes, run.uses_trainer(), run.parallel, assumptions);
  resolve_trl_adapters(run, assumptions);
  run.generation_cache = resolve_generation_cache(model, run, assumptions);
  resolve_compiled_parts(options, run, assumptions);
  say_what_else_holds(model, run, assumptions);
  validate(model, run);
  return resolved;
}

}  // namespace memcalc
