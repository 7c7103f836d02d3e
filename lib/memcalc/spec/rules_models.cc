// What a model takes: its tasks, sequences, images, masks, caches, attention, data types.
// Covered by tests/unit/rules_models_test.cc.
// MIRRORS(torch, "AmpKernels.cu", "2.11.0")
// MIRRORS(torch, "amp/grad_scaler.py", "2.11.0")
// MIRRORS(torch, "autograd/graph.py", "2.11.0")
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>

#include "memcalc/spec/image_text_spec.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/rule_words.h"

namespace memcalc {
namespace {

// --- tasks

bool lacks_task(const RuleQuestion& q) {
  const std::span<const Task> tasks = tasks_of(q.model);
  return std::find(tasks.begin(), tasks.end(), q.run.task) == tasks.end();
}

/// "causal, seqcls"
std::string task_names(const RuleQuestion& q) { return join(names_of(tasks_of(q.model))); }

constexpr Rule kTasks[] = {
    {.id = "task-of-layers",
     .options = "--task --model",
     .message = "task {--task}: {model} has its loss in its file",
     .accepted = "no --task, and --loop bare or trainer",
     .broken = [](const RuleQuestion& q) { return is_custom(q.model) || is_program(q.model); }},
    {.id = "task-custom-of-layers",
     .options = "--task --model",
     .message = "task custom: {model} is no model of layers, whose file says what the loss is",
     .accepted = "--task {}",
     .broken = [](const RuleQuestion& q) { return q.run.task == Task::kCustom; },
     .detail = task_names},
    {.id = "task-of-image-models",
     .options = "--task --model",
     .message = "task {--task}: {model} classifies images",
     .accepted = "--task image",
     .broken = [](const RuleQuestion& q) { return is_vision(q.model); }},
    {.id = "images-of-causal",
     .options = "--images --task --model",
     .message = "task {--task}: {model} with its images is a language model",
     .accepted = "--task causal",
     .broken = [](const RuleQuestion& q) { return is_image_text(q.model); }},
    {.id = "task-image-of-classifiers",
     .options = "--task --model",
     .message = "task image: {model} does not classify images",
     .accepted = "--task {}",
     .broken = [](const RuleQuestion& q) { return q.run.task == Task::kImageClassification; },
     .detail = task_names},
    {.id = "task-of-contrastive-models",
     .options = "--task --model",
     .message = "task {--task}: {model} compares images with their captions",
     .accepted = "--task contrastive",
     .broken = [](const RuleQuestion& q) { return is_contrastive(q.model); }},
    {.id = "task-contrastive-of-pairs",
     .options = "--task --model",
     .message = "task contrastive: {model} has no images and captions to compare",
     .accepted = "--task {}; pairs of texts train a sentence encoder by --loop sentence-transformer",
     .broken = [](const RuleQuestion& q) { return q.run.task == Task::kContrastive; },
     .detail = task_names},
    {.id = "task-of-encoder-decoders",
     .options = "--task --model",
     .message = "task {--task}: {model} is an encoder with a decoder",
     .accepted = "--task {}",
     .broken = [](const RuleQuestion& q) { return is_encoder_decoder(q.model); },
     .detail = task_names},
    {.id = "task-of-encoders",
     .options = "--task --model",
     .message = "task {--task} is not modelled for encoders such as {model}",
     .accepted = "--task {}",
     .broken = [](const RuleQuestion& q) { return is_encoder(q.model); },
     .detail = task_names},
    {.id = "task-of-decoders",
     .options = "--task --model",
     .message = "task {--task} is not modelled for decoders such as {model}",
     .accepted = "--task {}",
     .broken = [](const RuleQuestion& q) { return is_decoder(q.model); },
     .detail = task_names},
};

// --- lengths and sizes

std::string positions(const RuleQuestion& q) { return fmt::format("{}", *position_limit(q.model)); }

constexpr Rule kPositions[] = {
    {.id = "target-sequence-within-positions",
     .options = "--target-seq --model",
     .message = "target sequence length {--target-seq} is beyond the {} positions of {model}",
     .accepted = "--target-seq of {} or less",
     .broken = [](const RuleQuestion& q) { return q.run.target_sequence_length > *position_limit(q.model); },
     .detail = positions},
    {.id = "sequence-within-positions",
     .options = "--seq --model",
     .message = "sequence length {--seq} is beyond the {} positions of {model}",
     .accepted = "--seq of {} or less",
     .broken = [](const RuleQuestion& q) { return q.run.sequence_length > *position_limit(q.model); },
     .detail = positions},
};

// Tokens, summed over layers and over the micro-batches that are executed. mamba-2.8b with 2,048 (131,072 in all) takes
// 10 s of a Xeon and 3.2 GB, mamba-130m with 8,192 (196,608) 4 s and 2.3 GB.
constexpr std::int64_t kMostScanned = 200'000;
constexpr std::int64_t kMostMicroBatches = 4;  // train/loop_bare.h: the others are as one of these

std::int64_t longest_scan(const RuleQuestion& q) {
  const std::int64_t micro_batches = std::min(q.run.accumulation_steps(), kMostMicroBatches);
  return kMostScanned / micro_batches / std::max<std::int64_t>(q.sizes.layers.value_or(1), 1);
}

constexpr Rule kTokenByToken[] = {
    {.id = "scan-within-limits",
     .options = "--seq --accum --layers --model",
     .message =
         "without mamba-ssm transformers' mixers go through a sequence token by token, and so does memcalc: {--seq} "
         "tokens in {layers} layers would take too long, and gigabytes of memory",
     .accepted = "--seq of {} or less",
     .broken = [](const RuleQuestion& q) { return q.run.sequence_length > longest_scan(q); },
     .detail = [](const RuleQuestion& q) { return fmt::format("{}", longest_scan(q)); },
     .code = ErrorCode::kUnsupported,
     .is_limit = true},
};

constexpr Rule kImages[] = {
    {.id = "image-size-of-positions",
     .options = "--image --model",
     .message = "image size {--image}: the positions of {model} are for images of {} x {} pixels",
     .accepted = "--image {}",
     .broken = [](const RuleQuestion& q) { return q.run.image_size != trained_image_size(q.model); },
     .detail = [](const RuleQuestion& q) { return fmt::format("{}", trained_image_size(q.model)); }},
};

constexpr Rule kContrastive[] = {
    {.id = "contrastive-in-a-plain-loop",
     .options = "--loop --model",
     .message = "loop trainer: for {model} the Trainer asks a collator for return_loss, which is not modelled",
     .accepted = "--loop bare",
     .broken = [](const RuleQuestion& q) { return q.run.uses_trainer(); }},
};

constexpr Rule kTorchvision[] = {
    {.id = "torchvision-trainer-images",
     .options = "--precision --weights-dtype --loop",
     .message = "weights in {}: the Trainer's images are float32, and torchvision's models do not convert them",
     .accepted = "weights in fp32 (--precision fp32, amp-fp16, amp-bf16), or --loop bare",
     .broken = [](const RuleQuestion& q) { return q.run.uses_trainer() && is_half(weights_dtype_of(q.run)); },
     .detail = [](const RuleQuestion& q) { return typed(weights_dtype_of(q.run)); }},
    {.id = "torchvision-checkpointing",
     .options = "--checkpointing --model",
     .message = "checkpointing {--checkpointing}: torchvision's models have none",
     .accepted = "--checkpointing none",
     .broken = checkpoints},
};

constexpr Rule kPrograms[] = {
    {.id = "program-in-trainer",
     .options = "--loop --model",
     .message = "loop trainer: {model} takes no labels and returns no loss, as models of transformers do",
     .accepted = "--loop bare",
     .broken = [](const RuleQuestion& q) { return trains(q) && q.run.uses_trainer() && !takes_labels(q.model); }},
    {.id = "program-split",
     .options = "--tp --pp --cp --model",
     .message = "splitting {model}, a recorded program, by --tp, --pp or --cp is not modelled",
     .accepted = "--parallel ddp, zero1, fsdp, fsdp2, ds-zero1, ds-zero2 or ds-zero3",
     .broken = [](const RuleQuestion& q) { return q.parallel.tensor * q.parallel.pipeline * q.parallel.context > 1; }},
    {.id = "program-as-recorded",
     .options = "--attn --dropout --liger --loss-in-loop --model",
     .message = "{model} runs as it was recorded: attention, dropout, kernels and loss are the program's",
     .accepted = "a program that was recorded so, and no --attn, --dropout, --liger or --loss-in-loop",
     .broken =
         [](const RuleQuestion& q) {
           return q.run.attention != Attention::kSdpa || q.run.dropout || q.run.fine_tuning.liger ||
                  (trains(q) && q.run.training().loss_in_loop);
         }},
    {.id = "program-compiled-loss",
     .options = "--compile-parts --model",
     .message = "compile: the loss of {model}, a recorded program, is a part of its forward pass",
     .accepted = "--compile-parts model, layers",
     .broken =
         [](const RuleQuestion& q) {
           return trains(q) && q.run.compiles() && training_of(q).compiled_parts == CompiledParts::kLayersAndLoss;
         }},
    {.id = "denoiser-samples",
     .options = "--infer --model",
     .message = "inference: {model} was recorded in a step of its training, and sampling is not modelled",
     .accepted = "no --infer",
     .broken = [](const RuleQuestion& q) { return is_denoiser(q.model) && !trains(q); }},
    {.id = "denoiser-compiled",
     .options = "--compile --model",
     .message =
         "compile: what was recorded of {model} is a step with a loop's own calls, of which the scripts compile none",
     .accepted = "no --compile",
     .broken = [](const RuleQuestion& q) { return is_denoiser(q.model) && trains(q) && q.run.compiles(); }},
    {.id = "program-generates",
     .options = "--new-tokens --model",
     .message = "new tokens: generate() of {model}, a recorded program, is not modelled",
     .accepted = "no --new-tokens",
     .broken = [](const RuleQuestion& q) { return !trains(q) && q.run.inference()->new_tokens > 0; }},
};

// --- images in a text

const ImageTextSpec& spec_of(const RuleQuestion& q) { return *image_text_of(q.model); }
ImageSize shown(const RuleQuestion& q) { return spec_of(q).size_of_image(q.run.image_size); }

constexpr Rule kImagesInText[] = {
    {.id = "images-of-tower",
     .options = "--image --model",
     .message = "image size {--image}: the vision tower of {model} looks at images of {} x {} pixels",
     .accepted = "--image {}",
     .broken =
         [](const RuleQuestion& q) {
           const ImageTextSpec& spec = spec_of(q);
           return shows_images(q.model) && spec.side_multiple == 0 && q.run.image_size != spec.image_size;
         },
     .detail = [](const RuleQuestion& q) { return fmt::format("{}", spec_of(q).image_size); }},
    {.id = "images-of-patches",
     .options = "--image --image-width --model",
     .message = "images of {model} have sides that are multiples of {} pixels",
     .accepted = "such an --image and --image-width",
     .broken =
         [](const RuleQuestion& q) {
           const std::int64_t multiple = spec_of(q).side_multiple;
           return shows_images(q.model) && multiple > 0 &&
                  (shown(q).height % multiple != 0 || shown(q).width % multiple != 0);
         },
     .detail = [](const RuleQuestion& q) { return fmt::format("{}", spec_of(q).side_multiple); }},
    {.id = "images-within-sequence",
     .options = "--images --image --seq",
     .message = "sequence length {--seq}: the images of a sequence take {} tokens of it",
     .accepted = "a --seq of more than {}, fewer or smaller images",
     .broken = [](const RuleQuestion& q) { return spec_of(q).places(q.run.image_size) >= q.run.sequence_length; },
     .detail = [](const RuleQuestion& q) { return fmt::format("{}", spec_of(q).places(q.run.image_size)); }},
    {.id = "images-in-loops",
     .options = "--loop --images",
     .message = "loop {--loop}: images in it are not modelled",
     .accepted = "--loop trainer, bare, trl-sft",
     .broken =
         [](const RuleQuestion& q) {
           const bool by_sft = trains(q) && training_of(q).loop == Loop::kTrlSft;
           return (q.run.uses_trl() && !by_sft) || q.run.uses_sentence_transformers();
         }},
    {.id = "images-of-one-length",
     .options = "--lengths --images",
     .message = "lengths: sequences of images and text whose lengths differ are not modelled",
     .accepted = "no --lengths",
     .broken = [](const RuleQuestion& q) { return trains(q) && training_of(q).lengths.has_value(); }},
    {.id = "images-split",
     .options = "--tp --pp --cp --framework --images",
     .message = "splitting {model}, a model of images and text, by --tp, --pp or --cp, or in Megatron, is not modelled",
     .accepted = "--parallel ddp, zero1, fsdp1, fsdp2, ds-zero1, ds-zero2 or ds-zero3",
     .broken =
         [](const RuleQuestion& q) {
           return q.parallel.tensor * q.parallel.pipeline * q.parallel.context > 1 ||
                  q.parallel.framework() == Framework::kMegatron;
         }},
    {.id = "images-compiled",
     .options = "--compile --images",
     .message =
         "compile: {model}, a model of images and text, asks for values of the card, which breaks its graph; that "
         "is not modelled",
     .accepted = "no --compile",
     .broken = [](const RuleQuestion& q) { return q.run.compiles(); }},
    {.id = "images-flash-attention",
     .options = "--attn --images",
     .message = "attention flash: of {model}, a model of images and text, it is not modelled",
     .accepted = "--attn sdpa, eager",
     .broken = [](const RuleQuestion& q) { return q.run.attention == Attention::kFlash; }},
    {.id = "images-beams",
     .options = "--beams --images",
     .message = "beams: what generate() of {model}, a model of images and text, repeats for each beam is not modelled",
     .accepted = "--beams 1",
     .broken = [](const RuleQuestion& q) { return !trains(q) && q.run.inference()->beams > 1; }},
    {.id = "images-return-sequences",
     .options = "--num-return-sequences --images",
     .message =
         "return sequences: what generate() of {model}, a model of images and text, repeats for each answer is not "
         "modelled",
     .accepted = "--num-return-sequences 1",
     .broken = [](const RuleQuestion& q) { return !trains(q) && q.run.inference()->return_sequences > 1; }},
};

// --- masks and caches

constexpr Rule kPadding[] = {
    {.id = "padding-of-images",
     .options = "--padding --model",
     .message = "padding: {model} takes images, which have no mask",
     .accepted = "no --padding",
     .broken = [](const RuleQuestion& q) { return is_vision(q.model); }},
    {.id = "padding-of-layers",
     .options = "--padding --model",
     .message = "padding: {model} is a model of layers, which take no mask",
     .accepted = "no --padding",
     .broken = [](const RuleQuestion& q) { return is_custom(q.model); }},
    {.id = "padding-of-speech",
     .options = "--padding --model",
     .message = "padding: {family} pads its audio features itself and passes no mask",
     .accepted = "no --padding",
     .broken = [](const RuleQuestion& q) { return is_speech(q.model); }},
};

constexpr Rule kCache[] = {
    {.id = "cache-of-decoders",
     .options = "--use-cache --model",
     .message = "use_cache: {model} has no key/value cache, and only decoders have one",
     .accepted = "no --use-cache",
     .broken = [](const RuleQuestion& q) { return !is_decoder(q.model) && !is_encoder_decoder(q.model); }},
    {.id = "cache-without-checkpointing",
     .options = "--use-cache --checkpointing",
     .message = "use_cache beside checkpointing: transformers switches the cache off",
     .accepted = "one of --use-cache and --checkpointing",
     .broken = [](const RuleQuestion& q) { return checkpoints(q) && trains(q); }},
};

// --- what the class does not do

constexpr Rule kUncheckpointed[] = {
    {.id = "checkpointing-of-the-class",
     .options = "--checkpointing --model",
     .message =
         "checkpointing {--checkpointing}: {family} has none, and gradient_checkpointing_enable() raises an error",
     .accepted = "--checkpointing none",
     .broken = checkpoints},
};

constexpr Rule kRepeatedLayers[] = {
    {.id = "repeated-layers-sharded",
     .options = "--parallel --model",
     .message =
         "parallel {--parallel}: the layers of {family} run several times in a pass, and gathering their weights "
         "for each is not modelled",
     .accepted = "--parallel ddp, zero1, ds-zero1, ds-zero2",
     .broken = [](const RuleQuestion& q) { return is_fsdp(q) || q.parallel.data_parallel == DataParallel::kDsZero3; }},
};

// --- attention and precision

constexpr Rule kAttention[] = {
    {.id = "attention-of-sinks",
     .options = "--attn --model",
     .message = "attention {--attn}: {family} has only the eager attention of transformers",
     .accepted = "--attn eager",
     .broken = [](const RuleQuestion& q) { return has_eager_attention_only(q.model); }},
    {.id = "flash-attention-of-t5",
     .options = "--attn --model",
     .message = "attention flash: transformers has none for {family}",
     .accepted = "--attn sdpa, eager",
     .broken =
         [](const RuleQuestion& q) {
           return q.run.attention == Attention::kFlash && has(q, &Family::shares_position_bias);
         }},
    // flash-attn has kernels for float16 and bfloat16 only; under autocast its inputs are 16-bit, and so they are where
    // FSDP gathers parameters in 16 bits.
    {.id = "flash-attention-in-16-bit",
     .options = "--attn --precision",
     .message = "attention flash: the flash-attn package only has kernels for 16-bit tensors",
     .accepted = "--precision bf16, fp16, amp-bf16, amp-fp16",
     .broken =
         [](const RuleQuestion& q) {
           const std::optional<DType> type = q.parallel.gathered_dtype();
           const bool gathered = type && is_half(*type);
           return q.run.attention == Attention::kFlash && !is_autocast(q.run.precision) &&
                  !is_half(weights_dtype_of(q.run)) && !gathered;
         }},
};

// save_on_cpu (torch/autograd/graph.py) brings a tensor back contiguous. T5's position bias is a permuted table, for
// which SDPA has its math kernel only, but a contiguous one takes the memory-efficient kernel.
constexpr Rule kPositionBias[] = {
    {.id = "position-bias-offloaded-and-recomputed",
     .options = "--activation-offload --checkpointing --attn",
     .message =
         "activation offload with checkpointing: T5's position bias comes back from the host in another layout, so the "
         "recomputation takes another attention kernel than forward did, and torch stops with a CheckpointError",
     .accepted = "one of --activation-offload and --checkpointing, or --attn eager",
     .broken =
         [](const RuleQuestion& q) {
           return checkpoints(q) && training_of(q).offload_activations && q.run.attention == Attention::kSdpa;
         }},
};

constexpr Rule kPrecision[] = {
    {.id = "weights-dtype-is-known",
     .options = "--weights-dtype",
     .message = "weights dtype {} is not modelled",
     .accepted = "--weights-dtype fp32, bf16, fp16",
     .broken =
         [](const RuleQuestion& q) {
           const DType type = weights_dtype_of(q.run);
           return !is_floating(type) || type == DType::kFloat64;
         },
     .detail = [](const RuleQuestion& q) { return typed(weights_dtype_of(q.run)); }},
    {.id = "precision-is-that-of-weights",
     .options = "--precision --weights-dtype",
     .message = "precision {--precision} computes in the data type of the weights, but those are in {}",
     .accepted = "--weights-dtype as the precision, or --precision amp-bf16, amp-fp16",
     .broken =
         [](const RuleQuestion& q) {
           return !is_autocast(q.run.precision) &&
                  weights_dtype_of(q.run) != weights_dtype_of(RunSpec{.precision = q.run.precision});
         },
     .detail = [](const RuleQuestion& q) { return typed(weights_dtype_of(q.run)); }},
    // torch/amp/grad_scaler.py, _unscale_grads_(): "Attempting to unscale FP16 gradients"; AmpKernels.cu:
    // "_amp_foreach_non_finite_check_and_unscale_cuda" not implemented for 'BFloat16' (pytorch issue 127176).
    {.id = "loss-scaler-in-float32",
     .options = "--precision --weights-dtype --lora-dtype",
     .message = "precision amp-fp16 with trained weights in {}: torch's loss scaler takes no 16-bit gradients",
     .accepted = "--weights-dtype fp32, or --bf16",
     .broken =
         [](const RuleQuestion& q) {
           const std::optional<Lora>& lora = q.run.fine_tuning.lora;
           return trains(q) && q.run.precision == Precision::kAmpFp16 && is_half(weights_dtype_of(q.run)) &&
                  !is_deepspeed(q) && (!lora || lora->in_base_dtype);
         },
     .detail = [](const RuleQuestion& q) { return typed(weights_dtype_of(q.run)); }},
};

// --- a user's own layers

constexpr Rule kLayers[] = {
    {.id = "layers-in-a-plain-loop",
     .options = "--loop --model",
     .message =
         "loop trainer: {model} is a plain torch module, without the inputs and outputs that the Trainer asks for",
     .accepted = "--loop bare",
     .broken = [](const RuleQuestion& q) { return q.run.uses_trainer(); }},
    {.id = "layers-attention",
     .options = "--attn --model",
     .message = "attention {--attn}: the attention of layers is F.scaled_dot_product_attention",
     .accepted = "--attn sdpa",
     .broken = [](const RuleQuestion& q) { return q.run.attention != Attention::kSdpa; }},
    {.id = "layers-checkpointing",
     .options = "--checkpointing --model",
     .message = "checkpointing {--checkpointing}: the blocks of a repeat are checkpointed, and {model} has none",
     .accepted = "--checkpointing none",
     .broken =
         [](const RuleQuestion& q) {
           return checkpoints(q) &&
                  !custom::has_layer<custom::RepeatLayer>(q.model.architecture.as<CustomSpec>().layers);
         }},
};

constexpr RuleGroup kGroups[] = {
    {.title = "Task", .concerns = lacks_task, .rules = kTasks},
    {.title = "Positions",
     .concerns = [](const RuleQuestion& q) { return position_limit(q.model).has_value(); },
     .rules = kPositions},
    {.title = "Mixers that run token by token",
     .concerns = [](const RuleQuestion& q) { return q.model.architecture.dimensions().default_length.has_value(); },
     .rules = kTokenByToken},
    {.title = "Models of layers",
     .concerns = [](const RuleQuestion& q) { return is_custom(q.model); },
     .rules = kLayers},
    {.title = "Recorded programs",
     .concerns = [](const RuleQuestion& q) { return is_program(q.model); },
     .rules = kPrograms},
    {.title = "Images in patches",
     .concerns =
         [](const RuleQuestion& q) {
           return (is_vision(q.model) && !is_of_torchvision(q.model)) || is_contrastive(q.model);
         },
     .rules = kImages},
    {.title = "Images in a text",
     .concerns =
         [](const RuleQuestion& q) {
           const ImageTextSpec* const spec = image_text_of(q.model);
           return spec != nullptr && spec->images.has_value();
         },
     .rules = kImagesInText},
    {.title = "Contrastive models",
     .concerns = [](const RuleQuestion& q) { return is_contrastive(q.model); },
     .rules = kContrastive},
    {.title = "torchvision's models",
     .concerns = [](const RuleQuestion& q) { return is_of_torchvision(q.model); },
     .rules = kTorchvision},
    {.title = "Padding", .concerns = [](const RuleQuestion& q) { return q.run.padding; }, .rules = kPadding},
    {.title = "Key/value cache", .concerns = [](const RuleQuestion& q) { return q.run.use_cache; }, .rules = kCache},
    {.title = "Models without checkpointing",
     .concerns =
         [](const RuleQuestion& q) {
           const Family* const family = family_of(q.model);
           return family != nullptr && !family->checkpoints;
         },
     .rules = kUncheckpointed},
    {.title = "Models that repeat layers",
     .concerns = [](const RuleQuestion& q) { return has(q, &Family::repeats_layers); },
     .rules = kRepeatedLayers},
    {.title = "Attention",
     .concerns = [](const RuleQuestion& q) { return q.run.attention != Attention::kEager; },
     .rules = kAttention},
    {.title = "T5's position bias",
     .concerns = [](const RuleQuestion& q) { return has(q, &Family::shares_position_bias); },
     .rules = kPositionBias},
    {.title = "Precision", .concerns = nullptr, .rules = kPrecision},
};

}  // namespace

std::span<const RuleGroup> rules_of_models() { return kGroups; }

}  // namespace memcalc
