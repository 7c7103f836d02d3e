// What goes with adapters, quantised bases, frozen parts and Liger's kernels; and what LitGPT's scripts do.
// Covered by tests/unit/rules_fine_tuning_test.cc.
#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/peft_targets.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/rule_words.h"

namespace memcalc {
namespace {

// --- LoRA

bool is_on_one_gpu_or_ddp(const RuleQuestion& q) {
  return !q.parallel.is_parallel() || (q.parallel.data_parallel == DataParallel::kDdp && q.parallel.tensor == 1);
}

constexpr Rule kLora[] = {
    {.id = "lora-of-transformers",
     .options = "--lora --model",
     .message = "LoRA: adapters are modelled for transformers' models, and {model} is one of torchvision's",
     .accepted = "no --lora",
     .broken = [](const RuleQuestion& q) { return has(q, &Family::is_torchvision); }},
    {.id = "lora-modules-to-save",
     .options = "--lora-modules-to-save --parallel --unsloth --save --infer",
     .message = "modules that are trained in full beside adapters are modelled on one GPU and under DDP, in training "
                "without --save or --unsloth",
     .accepted = "no --lora-modules-to-save, or none of these",
     .broken =
         [](const RuleQuestion& q) {
           if (q.run.fine_tuning.lora->saved.empty()) return false;
           return !is_on_one_gpu_or_ddp(q) || !trains(q) || has_unsloth(q) ||
                  training_of(q).saving != ModelSaving::kNone;
         }},
    {.id = "lora-dora",
     .options = "--dora --quantize --parallel --compile --unsloth --save --model",
     .message = "DoRA is modelled of transformers' models on one GPU and under DDP, of weights that are not packed or "
                "in NF4, without --compile, --unsloth, --save merge",
     .accepted = "no --dora, or none of these",
     .broken =
         [](const RuleQuestion& q) {
           if (!q.run.fine_tuning.lora->dora) return false;
           const Quantization packing = q.run.fine_tuning.quantization;
           const bool has_weights =
               packing == Quantization::kNone || packing == Quantization::kNf4 || packing == Quantization::kNf4Double;
           const bool other = q.run.task == Task::kCustom || q.model.model_type == kLitGptType;
           return !is_on_one_gpu_or_ddp(q) || !has_weights || other || q.run.compiles() || has_unsloth(q) ||
                  (trains(q) && training_of(q).saving == ModelSaving::kMerge);
         }},
    // tuners/tuners_utils.py, _maybe_include_all_linear_layers (peft 0.21): of heads without output embeddings it
    // leaves out a sequence classifier's alone, and what has an adapter cannot be in modules_to_save.
    {.id = "lora-head-among-all-linear",
     .options = "--lora-head --lora-targets --task",
     .message =
         "--lora-head: of --task qa and tokcls peft counts the head among all linear layers, and then cannot train "
         "it in full",
     .accepted = "--lora-targets with names of layers, such as query,value, or no --lora-head",
     .broken =
         [](const RuleQuestion& q) {
           const Lora& lora = *q.run.fine_tuning.lora;
           const bool all = lora.targets.empty() || lora.targets.front() == kAllLinear;
           const bool has_other_head =
               q.run.task == Task::kTokenClassification || q.run.task == Task::kQuestionAnswering;
           return lora.trains_head && all && has_other_head;
         }},
    {.id = "freeze-beside-lora",
     .options = "--freeze --lora",
     .message = "freeze: LoRA freezes the whole base by itself",
     .accepted = "one of --freeze and --lora",
     .broken = [](const RuleQuestion& q) { return !q.run.fine_tuning.frozen.empty(); }},
};

// --- a quantised base

Quantization packing_of(const RuleQuestion& q) { return q.run.fine_tuning.quantization; }
bool is_prequantized(const RuleQuestion& q) { return is_prequantized(packing_of(q)); }
bool is_marlin(const RuleQuestion& q) { return is_marlin(packing_of(q)); }

/// Decoders whose layers are nn.Linear: GPT-2's are Conv1D, which replace_with_fp8_linear leaves.
bool has_fp8_layers(const RuleQuestion& q) { return has(q, &Family::fp8_layers); }

constexpr Rule kQuantized[] = {
    {.id = "quantize-of-transformers",
     .options = "--quantize --model",
     .message = "quantize {--quantize}: packed weights are modelled for transformers' models, and {model} is one of "
                "torchvision's",
     .accepted = "--quantize none",
     .broken = [](const RuleQuestion& q) { return has(q, &Family::is_torchvision); }},
    {.id = "quantize-native-to-infer",
     .options = "--quantize --infer",
     .message = "quantize {--quantize}: transformers does not train weights in this format",
     .accepted = "--infer, or --quantize none, which dequantises the checkpoint",
     .broken = [](const RuleQuestion& q) { return is_native(packing_of(q)) && trains(q); }},
    {.id = "quantize-to-infer",
     .options = "--quantize --infer",
     .message = "quantize {--quantize}: weights that were quantised beforehand are only modelled for inference",
     .accepted = "--infer, or --quantize nf4, nf4-double, int8 with --lora R",
     .broken = [](const RuleQuestion& q) { return is_prequantized(q) && trains(q); }},
    {.id = "quantize-mxfp4-of-gpt-oss",
     .options = "--quantize --model",
     .message = "quantize mxfp4: transformers has it for the experts of gpt-oss, and {model} is one of {family}",
     .accepted = "--quantize nf4, nf4-double, int8, none",
     .broken =
         [](const RuleQuestion& q) {
           return packing_of(q) == Quantization::kMxfp4 && q.model.model_type != "gpt_oss";
         }},
    {.id = "quantize-fp8-layers",
     .options = "--quantize --model",
     .message = "quantize fp8: transformers' FP8Linear and FP8Experts (which have no biases) are modelled for decoders "
                "of nn.Linear layers, and {model} is none",
     .accepted = "--quantize none",
     .broken = [](const RuleQuestion& q) { return packing_of(q) == Quantization::kFp8 && !has_fp8_layers(q); }},
    {.id = "quantize-experts-apart",
     .options = "--quantize --model",
     .message = "quantize {--quantize}: transformers 5 cannot load such checkpoints of {model}, which hold each expert "
                "by itself: it has a layer's experts in one parameter and would leave that random (gptqmodel's own "
                "loader and vLLM read them)",
     .accepted = "--quantize nf4, nf4-double, int8, none",
     .broken = [](const RuleQuestion& q) { return is_marlin(q) && has_experts(q.model); }},
    {.id = "quantize-group-size",
     .options = "--group-size --quantize",
     .message = "group size {--group-size}: gptqmodel's Marlin kernel is modelled with groups of 32, 64 or 128 numbers",
     .accepted = "--group-size 32, 64, 128",
     .broken =
         [](const RuleQuestion& q) {
           const std::int64_t size = q.run.fine_tuning.group_size;
           return is_marlin(q) && size != 32 && size != 64 && size != 128;
         }},
    {.id = "quantize-in-16-bit",
     .options = "--precision --quantize",
     .message = "quantize {--quantize}: its kernels compute in 16 bits, and the rest of the weights is in {}",
     .accepted = "--precision bf16, fp16",
     .broken = [](const RuleQuestion& q) { return is_prequantized(q) && !is_half(weights_dtype_of(q.run)); },
     .detail = [](const RuleQuestion& q) { return typed(weights_dtype_of(q.run)); }},
    {.id = "quantize-experts-nf4",
     .options = "--quantize-experts --quantize --compile --parallel --tp --cp --infer",
     .message = "quantised experts: they are modelled in 4 bits, in eager training on one GPU or under DDP",
     .accepted = "--quantize nf4, nf4-double with one GPU or --parallel ddp, or no --quantize-experts",
     .broken =
         [](const RuleQuestion& q) {
           if (!q.run.fine_tuning.packs_experts) return false;
           const DataParallel mode = q.parallel.data_parallel;
           const bool is_whole =
               !q.parallel.is_parallel() || (mode == DataParallel::kDdp && q.parallel.tensor * q.parallel.context == 1);
           return packing_of(q) == Quantization::kInt8 || !trains(q) || q.run.compiles() || !is_whole;
         }},
    {.id = "fp8-base-of-denoisers",
     .options = "--quantize --model",
     .message = "quantize {--quantize}: it is how scripts for diffusion models hold a frozen denoising network, and "
                "{model} is none",
     .accepted = "--quantize nf4, nf4-double, int8, or one of the networks of docs/diffusion.md",
     .broken = [](const RuleQuestion& q) { return is_fp8_base(packing_of(q)) && !is_denoiser(q.model); }},
    {.id = "fp8-cast-under-autocast",
     .options = "--quantize --precision",
     .message = "quantize fp8-cast: it is autocast that casts the weights, as PyTorch has no product of float8 with 16 "
                "bits",
     .accepted = "--precision amp-bf16, amp-fp16, or --quantize fp8-scaled",
     .broken =
         [](const RuleQuestion& q) {
           return packing_of(q) == Quantization::kFp8Cast && !is_autocast(q.run.precision);
         }},
    {.id = "swap-of-nf4",
     .options = "--blocks-to-swap --quantize",
     .message = "blocks to swap: the scripts swap weights of 16 bits or float8, none that bitsandbytes packed",
     .accepted = "--quantize none, fp8-cast, fp8-scaled",
     .broken =
         [](const RuleQuestion& q) {
           return q.run.fine_tuning.blocks_to_swap > 0 && is_packed_by_bitsandbytes(packing_of(q));
         }},
    {.id = "quantize-trains-adapters",
     .options = "--quantize --lora",
     .message =
         "quantize {--quantize}: packed weights get no gradient, so a quantised base is trained through adapters",
     .accepted = "--lora R beside it, or --infer",
     .broken = [](const RuleQuestion& q) { return !is_prequantized(q) && !has_adapters(q) && trains(q); }},
};

constexpr Rule kKbit[] = {
    {.id = "prepare-kbit-of-position-bias",
     .options = "--prepare-kbit --checkpointing --loop",
     .message = "prepare_model_for_kbit_training: T5's layers share a position bias, and reentrant checkpoints of such "
                "layers in a plain loop are not modelled",
     .accepted = "--no-prepare-kbit, --checkpointing none, --loop trainer",
     .broken =
         [](const RuleQuestion& q) {
           return has(q, &Family::shares_position_bias) && checkpoints(q) && !q.run.uses_trainer() &&
                  training_of(q).reentrant.value_or(true);
         }},
    {.id = "prepare-kbit-of-quantized",
     .options = "--prepare-kbit --quantize",
     .message = "prepare_model_for_kbit_training: the base is not quantised",
     .accepted = "--quantize nf4, nf4-double, int8, or --no-prepare-kbit",
     .broken = [](const RuleQuestion& q) { return !quantizes(q); }},
};

// --- Liger

constexpr Rule kLiger[] = {
    {.id = "liger-of-its-families",
     .options = "--liger --model",
     .message = "liger: its kernels are modelled for llama, mistral, qwen2 and qwen3, not for {family}",
     .accepted = "no --liger",
     .broken = [](const RuleQuestion& q) { return !has(q, &Family::liger); }},
};

// --- cut cross entropy

constexpr Rule kCutCrossEntropy[] = {
    {.id = "cut-cross-entropy-of-its-models",
     .options = "--cut-cross-entropy --model --task",
     .message =
         "cut cross entropy: it takes the place of a causal language model's head and loss; those of {family} are "
         "not modelled with it, nor other tasks",
     .accepted = "no --cut-cross-entropy, or --task causal of another family",
     .broken = [](const RuleQuestion& q) { return !is_causal(q) || !has(q, &Family::cut_cross_entropy); }},
    {.id = "cut-cross-entropy-loop",
     .options = "--cut-cross-entropy --loop",
     .message = "cut cross entropy: TRL's trainers compute losses of their own, beside which it is not modelled",
     .accepted = "--loop trainer, bare",
     .broken = [](const RuleQuestion& q) { return q.run.uses_trl() || q.run.uses_sentence_transformers(); }},
    {.id = "cut-cross-entropy-alone",
     .options = "--cut-cross-entropy --liger --unsloth --compile --loss-in-loop --eval-logits",
     .message =
         "cut cross entropy: beside Liger's or Unsloth's functions, torch.compile, or what needs the logits it is "
         "not modelled",
     .accepted = "no --cut-cross-entropy, or none of --liger, --unsloth, --compile, --loss-in-loop, --eval-logits",
     .broken =
         [](const RuleQuestion& q) {
           const Training& training = training_of(q);
           return has_liger(q) || has_unsloth(q) || q.run.compiles() || training.loss_in_loop ||
                  (training.evaluation && training.evaluation->keeps_logits);
         }},
    {.id = "cut-cross-entropy-parallel",
     .options = "--cut-cross-entropy --parallel --tp --cp --ep --pp --framework",
     .message = "cut cross entropy: it is modelled on one GPU and under DDP, FSDP1, FSDP2, ZeRO-1 and ZeRO-2",
     .accepted = "--parallel ddp, fsdp1, fsdp2, ds-zero1, ds-zero2 without --tp, --cp, --ep, --pp",
     .broken =
         [](const RuleQuestion& q) {
           const Parallel& p = q.parallel;
           return is_megatron(q) || p.data_parallel == DataParallel::kDsZero3 || p.data_parallel == DataParallel::kDp ||
                  p.tensor * p.context * p.expert * p.pipeline > 1;
         }},
};

// --- Unsloth

/// Its functions take the adapters of all of a layer's products, or leave the layer to peft.
bool adapts_every_product(const Lora& lora) {
  constexpr std::string_view products[] = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  const auto is_target = [&](std::string_view name) {
    return std::find(lora.targets.begin(), lora.targets.end(), name) != lora.targets.end();
  };
  return lora.targets.empty() || std::all_of(std::begin(products), std::end(products), is_target);
}

constexpr Rule kUnsloth[] = {
    {.id = "unsloth-of-its-families",
     .options = "--unsloth --model",
     .message = "unsloth: its patches are modelled for llama, mistral, qwen2 and qwen3, not for {family}",
     .accepted = "no --unsloth",
     .broken = [](const RuleQuestion& q) { return !has(q, &Family::liger); }},
    {.id = "unsloth-sft",
     .options = "--unsloth --loop",
     .message = "unsloth: of its trainers the SFTTrainer is modelled",
     .accepted = "--loop trl-sft, or no --unsloth",
     .broken = [](const RuleQuestion& q) { return training_of(q).loop != Loop::kTrlSft; }},
    {.id = "unsloth-adapters",
     .options = "--unsloth --lora",
     .message = "unsloth: its training of the whole model is not modelled",
     .accepted = "--lora R beside it, or no --unsloth",
     .broken = [](const RuleQuestion& q) { return !has_adapters(q); }},
    {.id = "unsloth-lora",
     .options = "--unsloth --lora-targets --lora-dropout --lora-dtype",
     .message = "unsloth: its functions are modelled with float32 adapters of all seven products of a layer (q_proj, "
                "k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj), without dropout",
     .accepted = "no --lora-targets, --lora-dropout, --lora-dtype",
     .broken =
         [](const RuleQuestion& q) {
           const std::optional<Lora>& lora = q.run.fine_tuning.lora;
           return lora && (lora->dropout > 0 || lora->in_base_dtype || !adapts_every_product(*lora));
         }},
    {.id = "unsloth-base",
     .options = "--unsloth --quantize --weights-dtype",
     .message = "unsloth: its functions take a base in 16 bits, or load_in_4bit's",
     .accepted = "--weights-dtype bf16, fp16; --quantize none, nf4-double",
     .broken =
         [](const RuleQuestion& q) {
           const Quantization kind = q.run.fine_tuning.quantization;
           const bool is_known = kind == Quantization::kNone || kind == Quantization::kNf4Double;
           return !is_known || q.run.fine_tuning.prepares_for_kbit || !is_half(weights_dtype_of(q.run));
         }},
    {.id = "unsloth-one-gpu",
     .options = "--unsloth --gpus",
     .message = "unsloth: several GPUs are not modelled",
     .accepted = "one GPU, or no --unsloth",
     .broken = is_parallel},
    {.id = "unsloth-own-kernels",
     .options = "--unsloth --liger --compile --attn",
     .message = "unsloth: it has kernels and attention functions of its own",
     .accepted = "--attn sdpa, and neither --liger nor --compile",
     .broken =
         [](const RuleQuestion& q) { return has_liger(q) || q.run.compiles() || q.run.attention != Attention::kSdpa; }},
    {.id = "unsloth-checkpoints",
     .options = "--unsloth --checkpointing --activation-offload",
     .message = "unsloth: use_gradient_checkpointing=False, True (with --reentrant) and \"unsloth\", which keeps the "
                "inputs of layers in host "
                "memory, are modelled",
     .accepted = "--checkpointing none, full",
     .broken =
         [](const RuleQuestion& q) {
           const Training& training = training_of(q);
           return training.checkpointing == Checkpointing::kSelective || training.checkpoint_every > 1 ||
                  training.offload_activations;
         }},
    {.id = "unsloth-plain-steps",
     .options = "--unsloth --padding-free --packing --eval-bs --stages --sft-loss --label-smoothing",
     .message = "unsloth: rows of several sequences, evaluation, its ways of loading and saving, and other losses are "
                "not modelled",
     .accepted = "one sequence a row, --stages train, and none of the others",
     .broken =
         [](const RuleQuestion& q) {
           const Training& training = training_of(q);
           return q.run.is_padding_free() || training.evaluation || training.stages == Stages::kAll ||
                  training.sft_loss == SftLoss::kDft || training.smooths_labels;
         }},
};

// --- LitGPT

constexpr Rule kLitGpt[] = {
    {.id = "litgpt-trains",
     .options = "--infer --model",
     .message = "LitGPT: its generate() is not modelled",
     .accepted = "no --infer, or the model's config.json of transformers",
     .broken = [](const RuleQuestion& q) { return !trains(q); }},
    {.id = "litgpt-in-its-own-loop",
     .options = "--loop --model",
     .message = "LitGPT: its scripts have a loop of their own, not the Trainer's",
     .accepted = "--loop bare",
     .broken = [](const RuleQuestion& q) { return q.run.uses_trainer(); }},
    {.id = "litgpt-of-two-tokens",
     .options = "--seq --model",
     .message = "LitGPT: a sequence of one token has no next token to predict",
     .accepted = "--seq 2 or more",
     .broken = [](const RuleQuestion& q) { return q.run.sequence_length < 2; }},
    {.id = "litgpt-predicts-tokens",
     .options = "--task --model",
     .message = "LitGPT: its models predict tokens and have no head for the task {--task}",
     .accepted = "--task causal",
     .broken = [](const RuleQuestion& q) { return !is_causal(q); }},
    {.id = "litgpt-precision",
     .options = "--precision --model",
     .message = "LitGPT: precision {--precision} is not modelled",
     .accepted = "--precision bf16, fp16, fp32",
     .broken =
         [](const RuleQuestion& q) { return is_autocast(q.run.precision) || q.run.precision == Precision::kTf32; }},
    {.id = "litgpt-attention",
     .options = "--attn --model",
     .message = "LitGPT: attention is scaled_dot_product_attention, not {--attn}",
     .accepted = "--attn sdpa",
     .broken = [](const RuleQuestion& q) { return q.run.attention != Attention::kSdpa; }},
    {.id = "litgpt-padding",
     .options = "--padding --model",
     .message = "LitGPT: it pads without a mask, so padded tokens take as much memory as others",
     .accepted = "no --padding",
     .broken = [](const RuleQuestion& q) { return q.run.padding; }},
    {.id = "litgpt-cache",
     .options = "--use-cache --model",
     .message = "LitGPT: no key/value cache is kept in training",
     .accepted = "no --use-cache",
     .broken = [](const RuleQuestion& q) { return q.run.use_cache; }},
    {.id = "litgpt-prepare-kbit",
     .options = "--prepare-kbit --model",
     .message = "LitGPT: it does not call prepare_model_for_kbit_training",
     .accepted = "--no-prepare-kbit",
     .broken = [](const RuleQuestion& q) { return q.run.fine_tuning.prepares_for_kbit; }},
    {.id = "litgpt-quantize",
     .options = "--quantize --model",
     .message = "LitGPT: quantize int8 is not modelled",
     .accepted = "--quantize nf4, nf4-double, none",
     .broken = [](const RuleQuestion& q) { return q.run.fine_tuning.quantization == Quantization::kInt8; }},
    {.id = "litgpt-lora-dtype",
     .options = "--lora-dtype --model",
     .message = "LitGPT: its adapters are in the base's data type",
     .accepted = "--lora-dtype base",
     .broken = [](const RuleQuestion& q) { return has_adapters(q) && !q.run.fine_tuning.lora->in_base_dtype; }},
    {.id = "litgpt-liger",
     .options = "--liger --model",
     .message = "LitGPT: Liger's kernels stand in for transformers' modules, which it does not use",
     .accepted = "no --liger",
     .broken = has_liger},
    {.id = "litgpt-checkpointing",
     .options = "--checkpointing --model",
     .message = "LitGPT: its scripts only checkpoint under FSDP, which is not modelled",
     .accepted = "--checkpointing none",
     .broken = checkpoints},
    {.id = "litgpt-compile",
     .options = "--compile --model",
     .message = "LitGPT: its compiled modules are not modelled",
     .accepted = "no --compile",
     .broken = [](const RuleQuestion& q) { return q.run.compiles(); }},
    {.id = "litgpt-one-gpu",
     .options = "--gpus --model",
     .message = "LitGPT: it is modelled on one GPU",
     .accepted = "--gpus 1",
     .broken = is_parallel},
};

constexpr RuleGroup kGroups[] = {
    {.title = "LitGPT",
     .concerns = [](const RuleQuestion& q) { return q.model.model_type == kLitGptType; },
     .rules = kLitGpt},
    {.title = "LoRA", .concerns = has_adapters, .rules = kLora},
    {.title = "Quantised base", .concerns = quantizes, .rules = kQuantized},
    {.title = "prepare_model_for_kbit_training",
     .concerns = [](const RuleQuestion& q) { return q.run.fine_tuning.prepares_for_kbit; },
     .rules = kKbit},
    {.title = "Liger's kernels", .concerns = has_liger, .rules = kLiger},
    {.title = "Cut cross entropy",
     .concerns = [](const RuleQuestion& q) { return trains(q) && cuts_cross_entropy(q); },
     .rules = kCutCrossEntropy},
    {.title = "Unsloth",
     .concerns = [](const RuleQuestion& q) { return trains(q) && has_unsloth(q); },
     .rules = kUnsloth},
};

}  // namespace

std::span<const RuleGroup> rules_of_fine_tuning() { return kGroups; }

}  // namespace memcalc
