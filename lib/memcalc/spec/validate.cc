#include "memcalc/spec/validate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <variant>

#include "memcalc/base/error.h"
#include "memcalc/spec/custom_shapes.h"
#include "memcalc/spec/inference.h"
#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/spec/validate_compile.h"
#include "memcalc/spec/validate_parallel.h"

namespace memcalc {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kUsage, message); }

void require_positive(std::int64_t value, const char* what) {
  if (value < 1) refuse(std::string(what) + ": expected a whole number of 1 or more, found " + std::to_string(value));
}

void check_numbers(const RunSpec& run) {
  require_positive(run.batch_size, "batch size");
  require_positive(run.sequence_length, "sequence length");
  require_positive(run.accumulation_steps, "accumulation steps");
  constexpr std::int64_t kMostAccumulation = 65536;  // the Trainer moves all micro-batches of a step to the card first
  if (run.accumulation_steps > kMostAccumulation) {
    refuse("accumulation steps: expected a whole number from 1 to " + std::to_string(kMostAccumulation) + ", found " +
           std::to_string(run.accumulation_steps));
  }
  require_positive(run.checkpoint_every, "checkpointing every-N");
  if (run.use_cache && run.checkpointing != Checkpointing::kNone && !run.inference) {
    refuse("use_cache beside checkpointing: transformers switches the cache off; accepted: one of them");
  }
  require_positive(run.prefetch_factor, "prefetch factor");
  constexpr std::int64_t kMostWorkers = 4096;
  if (run.dataloader_workers < 0 || run.dataloader_workers > kMostWorkers) {
    refuse("data loader workers: expected a whole number from 0 to " + std::to_string(kMostWorkers) + ", found " +
           std::to_string(run.dataloader_workers));
  }
  constexpr std::int64_t kMostSkipped = 65536;
  if (run.skipped_steps < 0 || run.skipped_steps > kMostSkipped) {
    refuse("skipped steps: expected a whole number from 0 to " + std::to_string(kMostSkipped) + ", found " +
           std::to_string(run.skipped_steps));
  }
  const bool deepspeed_scales = run.precision == Precision::kFp16 && run.parallel.framework == Framework::kDeepSpeed;
  if (run.skipped_steps > 0 && run.precision != Precision::kAmpFp16 && !deepspeed_scales) {
    refuse("skipped steps: only the loss scaler skips steps, which precision amp-fp16 has; found " +
           std::string(name_of(run.precision)));
  }
  if (run.max_grad_norm && !(std::isfinite(*run.max_grad_norm) && *run.max_grad_norm > 0)) {
    refuse("gradient clipping: expected a norm greater than 0");
  }
  if (run.dropout && !(*run.dropout >= 0 && *run.dropout < 1)) {
    refuse("dropout: expected a probability from 0 to less than 1");
  }
}

void check_sequence(const ModelSpec& model, const RunSpec& run) {
  const auto limit = position_limit(model);
  if (limit && run.target_sequence_length > *limit) {
    refuse("target sequence length " + std::to_string(run.target_sequence_length) + " is beyond the " +
           std::to_string(*limit) + " positions of " + model.name);
  }
  if (limit && run.sequence_length > *limit) {
    refuse("sequence length " + std::to_string(run.sequence_length) + " is beyond the " + std::to_string(*limit) +
           " positions of " + model.name);
  }
}

void check_image(const ModelSpec& model, const RunSpec& run) {
  if (is_custom(model)) return;
  const bool image = run.task == Task::kImageClassification;
  if (image != is_vision(model)) {
    refuse("task " + std::string(name_of(run.task)) + ": " + model.name + " takes " +
           (is_vision(model) ? "image" : "text (seqcls, mlm or causal)"));
  }
  if (!image) return;
  const bool torchvision = std::holds_alternative<TorchvisionSpec>(model.architecture);
  if (torchvision && run.loop == Loop::kTrainer && is_half(weights_dtype_of(run))) {
    refuse("weights dtype " + std::string(name_of(weights_dtype_of(run))) +
           ": the Trainer's images are float32, which torchvision's models do not convert; accepted: fp32, or amp-fp16 "
           "and amp-bf16");
  }
  require_positive(run.image_size, "image size");
  const auto* vit = std::get_if<VitSpec>(&model.architecture);
  if (vit != nullptr && run.image_size != vit->image_size) {
    refuse("image size " + std::to_string(run.image_size) + ": " + model.name + " has positions for " +
           std::to_string(vit->image_size) + " pixels; accepted: --image " + std::to_string(vit->image_size));
  }
  if (run.padding) refuse("padding: images have none");
  if (run.use_cache) refuse("use_cache: " + model.model_type + " has no key/value cache");
}

void check_task(const ModelSpec& model, const RunSpec& run) {
  if (is_custom(model)) return;
  const std::string task = "task " + std::string(name_of(run.task)) + ": " + model.model_type;
  const bool seq2seq = run.task == Task::kSeq2Seq || run.task == Task::kSpeech;
  if (is_vision(model)) return;
  if ((run.task == Task::kContrastive) != is_contrastive(model)) {
    refuse(task + (is_contrastive(model) ? " compares images and captions; it takes contrastive"
                                         : " has no images and captions to compare"));
  }
  if (is_contrastive(model)) {
    if (run.loop == Loop::kTrainer) {
      refuse("loop trainer: the Trainer asks a collator for return_loss, which is not modelled; accepted: --loop bare");
    }
    if (run.use_cache) refuse("use_cache: " + model.model_type + " has no key/value cache");
    const std::int64_t size = trained_image_size(model);
    if (run.image_size != size) {
      refuse("image size " + std::to_string(run.image_size) + ": " + model.name + " has positions for " +
             std::to_string(size) + " pixels; accepted: --image " + std::to_string(size));
    }
  } else if (is_encoder_decoder(model)) {
    const Task usual = usual_task(model);
    if (run.padding && is_speech(model)) refuse("padding: " + model.model_type + " pads its features, without a mask");
    if (run.task != usual) refuse(task + " is an encoder with a decoder; it takes " + std::string(name_of(usual)));
  } else if (is_decoder(model)) {
    if (run.task != Task::kCausalLm && run.task != Task::kSequenceClassification) {
      refuse(task + " is a decoder; it takes causal or seqcls");
    }
  } else {
    if (run.task == Task::kCausalLm || seq2seq) refuse(task + " is an encoder; it takes seqcls, mlm or tokcls");
    if (run.use_cache) refuse("use_cache: " + model.model_type + " has no key/value cache");
  }
}

void check_attention(const ModelSpec& model, const RunSpec& run) {
  if (!has_eager_attention_only(model) || run.attention == Attention::kEager) return;
  refuse("attention " + std::string(name_of(run.attention)) + ": transformers has attention sinks, which " +
         model.model_type + " needs, in its eager attention only; accepted: --attn eager");
}

/// save_on_cpu (torch/autograd/graph.py) brings a tensor back contiguous. T5's position bias is a permuted table, for
/// which SDPA has its math kernel only, but a contiguous one takes the memory-efficient kernel.
void check_offloaded_bias(const ModelSpec& model, const RunSpec& run) {
  if (!std::holds_alternative<T5Spec>(model.architecture) || run.attention != Attention::kSdpa) return;
  if (!run.offload_activations || run.checkpointing == Checkpointing::kNone) return;
  refuse(
      "activation offload with checkpointing: T5's position bias comes back from the host in another layout, so the "
      "recomputation takes another attention kernel than forward did, and torch stops with a CheckpointError; "
      "accepted: one of the two, or --attn eager");
}

/// A model of layers is a plain torch module in a plain loop.
void check_custom(const ModelSpec& model, const RunSpec& run) {
  const auto* spec = std::get_if<CustomSpec>(&model.architecture);
  if ((spec != nullptr) != (run.task == Task::kCustom)) {
    refuse("task " + std::string(name_of(run.task)) + ": " + model.name +
           (spec != nullptr ? " has its loss in its file; accepted: no --task"
                            : " is no model of layers, to which the task custom belongs"));
  }
  if (spec == nullptr) return;
  if (run.loop != Loop::kBare) {
    refuse("loop trainer: " + model.name +
           " is a plain torch module, without the inputs and outputs that the Trainer asks for; accepted: --loop bare");
  }
  if (run.attention != Attention::kSdpa) {
    refuse("attention " + std::string(name_of(run.attention)) +
           ": the attention of layers is F.scaled_dot_product_attention; accepted: --attn sdpa");
  }
  if (run.padding) refuse("padding: a model of layers takes no mask");
  if (run.checkpointing != Checkpointing::kNone && !custom::has_layer<custom::RepeatLayer>(spec->layers)) {
    refuse("checkpointing full: it is the blocks of a repeat that are checkpointed, and " + model.name +
           " has none; accepted: none");
  }
  if (run.use_cache) refuse("use_cache: a model of layers has no key/value cache");
  check_shapes(*spec, input_shape(*spec, run), run.batch_size);
}

void check_precision(const RunSpec& run) {
  const DType weights = weights_dtype_of(run);
  if (!is_floating(weights) || weights == DType::kFloat64) refuse("weights dtype: expected fp32, bf16 or fp16");
  const bool pure = !is_autocast(run.precision);
  const DType asked = weights_dtype_of(RunSpec{.precision = run.precision});
  if (pure && weights != asked) {
    refuse("precision " + std::string(name_of(run.precision)) + " computes in the dtype of its weights, which is not " +
           std::string(name_of(weights)) + "; change one of the two or use amp-bf16 or amp-fp16");
  }
  // flash-attn has kernels for float16 and bfloat16 only; under autocast its inputs are 16-bit, and so they are where
  // FSDP gathers parameters in 16 bits.
  const bool gathered = run.parallel.fsdp_param_dtype && is_half(*run.parallel.fsdp_param_dtype);
  if (run.attention == Attention::kFlash && pure && !is_half(weights) && !gathered) {
    refuse("attention flash needs 16-bit tensors: use precision bf16, fp16, amp-bf16 or amp-fp16");
  }
}

void check_fine_tuning(const ModelSpec& model, const RunSpec& run) {
  const FineTuning& tuning = run.fine_tuning;
  if (std::holds_alternative<TorchvisionSpec>(model.architecture) && tuning.replaces_linear_layers()) {
    refuse("LoRA and quantisation: peft and bitsandbytes are modelled on transformers' models, not torchvision's");
  }
  if (tuning.lora) {
    constexpr std::int64_t kMostRank = 65536;
    if (tuning.lora->rank < 1 || tuning.lora->rank > kMostRank) {
      refuse("LoRA rank: expected a whole number from 1 to " + std::to_string(kMostRank) + ", found " +
             std::to_string(tuning.lora->rank));
    }
    if (!(tuning.lora->dropout >= 0 && tuning.lora->dropout < 1)) {
      refuse("LoRA dropout: expected a probability from 0 to less than 1");
    }
    if (!tuning.frozen.empty()) refuse("freeze: LoRA freezes the whole base; give one of the two");
  }
  if (is_prequantized(tuning.quantization)) {
    if (!run.inference)
      refuse("quantize " + std::string(name_of(tuning.quantization)) + ": modelled for inference; add --infer");
    constexpr std::int64_t kGroups[] = {32, 64, 128};
    if (std::find(std::begin(kGroups), std::end(kGroups), tuning.group_size) == std::end(kGroups)) {
      refuse("group size: expected 32, 64 or 128, found " + std::to_string(tuning.group_size));
    }
    if (!is_half(weights_dtype_of(run))) {
      refuse("quantize " + std::string(name_of(tuning.quantization)) +
             ": its kernels compute in 16 bits; accepted: --precision fp16, bf16");
    }
  } else if (tuning.quantization != Quantization::kNone && !tuning.lora && !run.inference) {
    refuse("quantize " + std::string(name_of(tuning.quantization)) +
           ": packed weights get no gradient, so a quantised base is trained through adapters: add --lora R");
  }
  const bool has_liger = std::holds_alternative<LlamaSpec>(model.architecture) ||
                         std::holds_alternative<Qwen2Spec>(model.architecture) ||
                         std::holds_alternative<Qwen3Spec>(model.architecture);
  if (tuning.liger && !has_liger) {
    refuse("liger: its kernels are modelled for the families llama, mistral, qwen2 and qwen3, not for " +
           model.model_type);
  }
  if (tuning.prepares_for_kbit && run.checkpointing != Checkpointing::kNone && run.loop == Loop::kBare &&
      std::holds_alternative<T5Spec>(model.architecture)) {
    refuse(
        "prepare_model_for_kbit_training: its reentrant checkpoints of T5's layers, which share a position bias, are "
        "not "
        "modelled; accepted: --no-prepare-kbit, --checkpointing none or --loop trainer");
  }
  if (tuning.prepares_for_kbit && tuning.quantization == Quantization::kNone) {
    refuse("prepare_model_for_kbit_training: the base is not quantised (--quantize nf4, nf4-double or int8)");
  }
}

void check_offloaded_optimizer(const RunSpec& run) {
  if (run.offload_gradients && !run.offload_optimizer) {
    refuse("offload gradients: only an offloaded optimizer takes them; add --offload-optimizer");
  }
  if (!run.offload_optimizer) return;
  const std::string what = "offload optimizer: ";
  if (run.parallel.is_parallel()) refuse(what + "torchao's is for one GPU; accepted: --gpus 1");
  if (run.optimizer != Optimizer::kAdamWForeach && run.optimizer != Optimizer::kAdamWFused) {
    refuse(what + "torchao's CPUOffloadOptimizer is modelled with AdamW, fused on the host; found " +
           std::string(name_of(run.optimizer)) + "; accepted: adamw, adamw-fused");
  }
  if (run.precision == Precision::kAmpFp16) {
    refuse(what +
           "the loss scaler would unscale the host's gradients while they are still being copied; "
           "accepted: precision fp32, tf32, bf16, fp16, amp-bf16");
  }
  if (run.max_grad_norm) {
    refuse(what +
           "gradients go to the host during backward, so clipping those on the card changes nothing; "
           "accepted: --clip-grad 0");
  }
  if (run.offload_gradients && run.accumulation_steps > 1) {
    refuse("offload gradients: a micro-batch's gradients would replace those of the one before; accepted: --accum 1");
  }
}

/// Weights that live on the host: FSDP2's CPUOffloadPolicy, DeepSpeed's ZeRO-3 (validate_parallel.cc), and for
/// inference accelerate's cpu_offload, which puts a weight on the card while its module runs and has no backward pass.
void check_offloaded_shards(const RunSpec& run) {
  if (run.parallel.is_parallel()) return;
  if (run.parallel.offload_states != OffloadTo::kNowhere) {
    refuse(
        "offload states: on one GPU they are --offload-optimizer's (torchao), or DeepSpeed's: --parallel ds-zero1, "
        "ds-zero2 or ds-zero3 with --loop bare");
  }
  if (run.parallel.offload_parameters == OffloadTo::kNowhere) return;
  const std::string what = "offload parameters: ";
  if (!run.inference) {
    refuse(what +
           "on one GPU DeepSpeed's ZeRO-3 trains so; accepted: --parallel ds-zero3 --loop bare with "
           "--offload-parameters host, or --offload-optimizer, --activation-offload, --quantize");
  }
  if (run.parallel.offload_parameters == OffloadTo::kNvme) {
    refuse(what + "accelerate's cpu_offload puts them into host memory; accepted: host");
  }
  if (run.fine_tuning.quantization != Quantization::kNone || run.fine_tuning.liger) {
    refuse(what +
           "accelerate's hooks around packed weights or Liger's modules are not modelled; accepted: --quantize "
           "none, no --liger");
  }
}

void check_optimizer(const RunSpec& run) {
  if (run.loop != Loop::kTrainer) return;
  if (run.optimizer == Optimizer::kMuon) {
    refuse(
        "optimizer muon: torch.optim.Muon takes matrices alone, and the Trainer gives all weights to one optimizer; "
        "accepted: --loop bare");
  }
  if (run.optimizer == Optimizer::kAdafactorRelative) {
    refuse(
        "optimizer adafactor-hf-relative: the Trainer makes Adafactor with relative_step=False; accepted: "
        "adafactor, or --loop bare");
  }
}

}  // namespace

void validate(const ModelSpec& model, const RunSpec& run) {
  check_numbers(run);
  check_sequence(model, run);
  check_image(model, run);
  check_custom(model, run);
  check_task(model, run);
  if (run.task == Task::kSeq2Seq) require_positive(run.target_sequence_length, "target sequence length");
  check_attention(model, run);
  check_offloaded_bias(model, run);
  check_precision(run);
  check_litgpt(model, run);
  check_fine_tuning(model, run);
  check_inference(model, run);
  if (!run.inference) check_optimizer(run);
  check_parallel(model, run);
  check_compiled_parts(model, run);
  check_offloaded_optimizer(run);
  check_offloaded_shards(run);
}

}  // namespace memcalc
