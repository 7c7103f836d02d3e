// The rows themselves; those of several GPUs stand in run_fields_parallel.cc, of a job's stages, trainers and data in
// run_fields_jobs.cc, of --megatron and --deepspeed in run_fields_lists.cc. A new option is a row, its meaning in
// resolve() or in the step, its rules in rules_*.cc.
#include <algorithm>
#include <charconv>
#include <vector>

#include "memcalc/spec/card_description.h"
#include "memcalc/spec/host_step.h"
#include "memcalc/spec/image_text_spec.h"
#include "memcalc/spec/limits.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/peft_targets.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/run_field_access.h"

namespace memcalc {
namespace {

using fields::has_stages, fields::row, fields::kBelowOne, fields::kProbability, fields::nothing, fields::put,
    fields::take, fields::take_but, fields::take_filled;
using R = RunOptions;
using S = RunSpec;
using N = Training;
using T = FineTuning;
using A = ArchitectureChanges;
using G = FieldGroup;
using K = FieldType;

constexpr std::string_view kCheckpointings[] = {"none", "full", "every-2", "every-4", "selective"};

constexpr double kMostCardGib = 1 << 20;  // 1 PiB, as in a card's file
constexpr double kMostHostGib = 1 << 20;

// --- where a row exists ------------------------------------------------------------------------------------------

bool trains(const RunRecord& r) { return r.run.trains(); }
bool infers(const RunRecord& r) { return !r.run.trains(); }
bool adds_tokens(const RunRecord& r) { return infers(r) && r.run.inference()->new_tokens > 0; }
bool adapts(const RunRecord& r) { return r.run.fine_tuning.lora.has_value(); }
bool adapts_classifier(const RunRecord& r) { return adapts(r) && has_classifier(r.run.task); }
bool compiles(const RunRecord& r) { return r.run.compiles(); }
bool has_symbol(const ProgramSpec& recorded, std::string_view name) {
  const std::vector<ProgramSymbol>& symbols = recorded.program->symbols;
  return std::any_of(symbols.begin(), symbols.end(), [&](const ProgramSymbol& each) { return each.name == name; });
}
bool takes_tokens(const RunRecord& r) {
  if (const auto* recorded = r.model.architecture.get_if<ProgramSpec>()) return has_symbol(*recorded, "sequence");
  if (const auto* custom = r.model.architecture.get_if<CustomSpec>()) {
    return std::holds_alternative<custom::TokensInput>(custom->input);
  }
  return !is_vision(r.model);
}
bool takes_images(const RunRecord& r) {
  if (const auto* recorded = r.model.architecture.get_if<ProgramSpec>()) return has_symbol(*recorded, "image");
  if (const auto* custom = r.model.architecture.get_if<CustomSpec>()) {
    return std::holds_alternative<custom::ImagesInput>(custom->input);
  }
  return is_vision(r.model) || is_contrastive(r.model) || shows_images(r.model);
}
bool sees_images(const RunRecord& r) { return image_text_of(r.model) != nullptr; }
bool has_free_sides(const RunRecord& r) { return shows_images(r.model) && image_text_of(r.model)->side_multiple > 0; }
std::optional<FieldValue> images_of(const RunRecord& r) {
  const ImageTextSpec* const spec = image_text_of(r.model);
  return spec != nullptr ? fields::read(spec->images) : std::nullopt;
}
std::optional<FieldValue> image_width_of(const RunRecord& r) {
  const ImageTextSpec* const spec = image_text_of(r.model);
  return spec != nullptr ? fields::read(spec->image_width) : std::nullopt;
}
bool attends(const RunRecord& r) { return takes_attention(r.model); }
bool has_targets(const RunRecord& r) {
  const auto* recorded = r.model.architecture.get_if<ProgramSpec>();
  return trains(r) && (recorded != nullptr ? has_symbol(*recorded, "target") : r.run.task == Task::kSeq2Seq);
}
bool is_in_marlin(const RunRecord& r) { return is_marlin(r.run.fine_tuning.quantization); }
bool packs_by_bitsandbytes(const RunRecord& r) { return is_packed_by_bitsandbytes(r.run.fine_tuning.quantization); }
bool packs_nf4(const RunRecord& r) {
  const Quantization kind = r.run.fine_tuning.quantization;
  return kind == Quantization::kNf4 || kind == Quantization::kNf4Double;
}
bool shards_nf4(const RunRecord& r) {
  const DataParallel mode = r.run.parallel.data_parallel;
  return packs_nf4(r) && (mode == DataParallel::kFsdp1 || mode == DataParallel::kFsdp2) && r.run.parallel.gpus > 1;
}
bool has_workers(const RunRecord& r) { return r.run.dataloader_workers > 0; }
bool accumulates(const RunRecord& r) { return trains(r) && !has_stages(r); }
bool keeps_cache(const RunRecord& r) { return trains(r) && !has_stages(r); }

// --- rows whose value is no member as it stands -------------------------------------------------------------------

template <DType kType>
bool put_mixed_precision(RunRequest& request, const FieldValue& value) {
  if (std::get<bool>(value)) request.run.mixed_precision = kType;
  return true;
}

bool put_optimizer(RunRequest& request, const FieldValue& value) {
  request.run.optimizer = optimizer_from(std::get<std::string>(value));
  return request.run.optimizer.has_value();
}

std::optional<FieldValue> take_weights_dtype(const RunRecord& r) {
  if (!r.run.trains()) return fields::named(weights_dtype_of(r.run));
  const Training& training = r.run.training();
  const DType loaded = training.sharded_from.value_or(weights_dtype_of(r.run));
  return fields::named(training.reference_in_half ? DType::kBFloat16 : loaded);
}

// none, full, selective, or every-N: of the layers 0, N, 2N, ….
bool put_checkpointing(RunRequest& request, const FieldValue& value) {
  constexpr std::string_view kEvery = "every-";
  const std::string& text = std::get<std::string>(value);
  if (!text.starts_with(kEvery)) return fields::assign(request.run.checkpointing, value);
  std::int64_t every = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + kEvery.size(), end, every);
  if (error != std::errc{} || rest != end || every < 1) return false;
  request.run.checkpointing = Checkpointing::kFull;
  request.run.checkpoint_every = every;
  return true;
}
std::optional<FieldValue> take_checkpointing(const RunRecord& r) { return checkpointing_of(r.run); }

// A program stays what its recording saw; Megatron-core has one form alone.
bool chooses_reentrant(const RunRecord& r) {
  return r.run.checkpointing() == Checkpointing::kFull && !is_program(r.model) && !is_custom(r.model) &&
         r.run.parallel.framework() != Framework::kMegatron;
}

std::optional<FieldValue> take_clipping(const RunRecord& r) {
  if (!trains(r)) return std::nullopt;
  return r.run.training().max_grad_norm.value_or(0.0);
}

// all-linear is the default, too. A pattern may have commas.
bool put_lora_targets(RunRequest& request, const FieldValue& value) {
  request.run.lora_targets = std::get<std::vector<std::string>>(value);
  if (!request.run.lora_targets.empty() && request.run.lora_targets.front().starts_with(kPatternPrefix)) {
    request.run.lora_targets = {join(request.run.lora_targets, ",")};
  }
  if (request.run.lora_targets == std::vector{std::string(kAllLinear)}) request.run.lora_targets.clear();
  return true;
}
std::optional<FieldValue> take_lora_targets(const RunRecord& r) {
  const std::vector<std::string>& targets = r.run.fine_tuning.lora->targets;
  return targets.empty() ? std::vector{std::string(kAllLinear)} : targets;
}

bool put_lora_dtype(RunRequest& request, const FieldValue& value) {
  request.run.lora_in_base_dtype = std::get<std::string>(value) == kAdapterDTypeNames[1];
  return true;
}
std::optional<FieldValue> take_lora_dtype(const RunRecord& r) {
  return std::string(kAdapterDTypeNames[r.run.fine_tuning.lora->in_base_dtype ? 1 : 0]);
}

bool put_sampling(RunRequest& request, const FieldValue& value) {
  request.inference.sampling = sampling_of(std::get<std::vector<std::string>>(value));
  return request.inference.sampling.has_value();
}
std::optional<FieldValue> take_sampling(const RunRecord& r) {
  const std::optional<Sampling>& sampling = r.run.inference()->sampling;
  if (!sampling) return std::nullopt;
  return words_of(*sampling);
}

std::optional<FieldValue> take_inference(const RunRecord& r) { return infers(r); }

std::optional<FieldValue> take_model(const RunRecord& r) {
  if (r.model.reference.empty()) return std::nullopt;
  return r.model.reference;
}
std::optional<FieldValue> take_family(const RunRecord& r) {
  if (r.model.family.empty()) return std::nullopt;
  return r.model.family;
}
std::optional<FieldValue> take_memory(const RunRecord& r) {
  if (r.device == nullptr || !r.device->memory_given) return std::nullopt;
  return in_gib(r.device->memory_bytes);
}
std::optional<FieldValue> take_host_memory(const RunRecord& r) {
  if (r.time == nullptr || r.time->host_size.source != kHostMemoryOption) return std::nullopt;
  return in_gib(r.time->host_size.bytes);
}
std::optional<FieldValue> take_margin(const RunRecord& r) {
  if (r.device == nullptr || r.device->margin_bytes == 0) return std::nullopt;
  return in_gib(r.device->margin_bytes);
}

std::optional<FieldValue> take_power_limit(const RunRecord& r) {
  if (r.device == nullptr || !r.device->power_given) return std::nullopt;
  return r.device->power_watts;
}

std::optional<FieldValue> take_description(const RunRecord& r) {
  if (r.device == nullptr || r.device_assumed || !is_card_description(r.device->reference)) return std::nullopt;
  return r.device->reference;
}
std::optional<FieldValue> take_card(const RunRecord& r) {
  if (r.device == nullptr || r.device_assumed || is_card_description(r.device->reference)) return std::nullopt;
  return r.device->reference.empty() ? r.device->name : r.device->reference;
}

constexpr std::string_view kTraining = "training, not to --infer";
constexpr std::string_view kLora = "adapters (--lora R)";

const Field kFields[] = {
    // --- Model and data ---
    row("--model", "model", G::kModel, K::kText, "MODEL", "name (memcalc models), config.json or its directory",
        {.set = put<&RunRequest::model>, .get = take_model}),
    row("--bs", "batch_size", G::kModel, K::kWhole, "N", "sequences per micro-batch [1]",
        {.unit = "sequences", .set = put<&R::batch_size>, .get = take<&S::batch_size>}),
    row("--seq", "sequence_length", G::kModel, K::kWhole, "N", "tokens per sequence [trained context, at most 2048]",
        {.unit = "tokens",
         .set = put<&R::sequence_length>,
         .get = take<&S::sequence_length>,
         .exists = takes_tokens,
         .belongs_to = "models that take tokens, and programs recorded so that their length is free"}),
    row("--target-seq", "target_sequence_length", G::kModel, K::kWhole, "N",
        "labels of a sequence, or objects in an image [as --seq]",
        {.unit = "tokens",
         .set = put<&R::target_sequence_length>,
         .get = take<&S::target_sequence_length>,
         .exists = has_targets,
         .belongs_to =
             "the training of models with an encoder and a decoder (--task seq2seq), and of programs that have it"}),
    row("--image", "image_size", G::kModel, K::kWhole, "N", "pixels a side, for image models [the trained size]",
        {.unit = "pixels",
         .set = put<&R::image_size>,
         .get = take<&S::image_size>,
         .exists = takes_images,
         .belongs_to = "models of images, and programs recorded so that their size is free"}),
    row("--image-width", "image_width", G::kModel, K::kWhole, "N", "pixels across, if not as high: --image [square]",
        {.unit = "pixels",
         .set = put<&RunRequest::image_width>,
         .get = image_width_of,
         .exists = has_free_sides,
         .belongs_to = "models of images of any shape and text"}),
    row("--images", "images", G::kModel, K::kWhole, "N", "images in each sequence of images and text [1]",
        {.least = 0,
         .set = put<&RunRequest::images>,
         .get = images_of,
         .exists = sees_images,
         .belongs_to = "models of images and text"}),
    row("--task", "task", G::kModel, K::kName, "TASK",
        "seqcls, mlm, tokcls, qa, causal, seq2seq, speech,\nimage, contrastive, features",
        {.names = kTaskNames, .set = put<&R::task>, .get = take<&S::task>}),
    row("--padding", "padding", G::kModel, K::kFlag, "", "some sequences are padded, so a mask is passed",
        {.set = put<&R::padding>, .get = take<&S::padding>}),

    // --- Architecture ---
    row("--arch", "arch", G::kArchitecture, K::kText, "FAMILY",
        "a family by itself, instead of --model (gpt2, llama, …)",
        {.set = put<&RunRequest::family>, .get = take_family}),
    row("--layers", "layers", G::kArchitecture, K::kWhole, "N", "layers; of an encoder-decoder: of each",
        {.most = kMostLayers, .set = put<&A::layers>, .get = take<&A::layers>}),
    row("--hidden", "hidden", G::kArchitecture, K::kWhole, "N", "width of the hidden states",
        {.set = put<&A::hidden>, .get = take<&A::hidden>}),
    row("--heads", "heads", G::kArchitecture, K::kWhole, "N", "attention heads",
        {.set = put<&A::heads>, .get = take<&A::heads>}),
    row("--kv-heads", "kv_heads", G::kArchitecture, K::kWhole, "N", "key and value heads, where they are grouped",
        {.set = put<&A::kv_heads>, .get = take<&A::kv_heads>}),
    row("--head-dim", "head_dim", G::kArchitecture, K::kWhole, "N", "width of a head",
        {.set = put<&A::head_dim>, .get = take<&A::head_dim>}),
    row("--ffn", "ffn", G::kArchitecture, K::kWhole, "N", "width of the feed-forward layers",
        {.set = put<&A::ffn>, .get = take<&A::ffn>}),
    row("--vocab", "vocab", G::kArchitecture, K::kWhole, "N", "rows of the embedding",
        {.set = put<&A::vocabulary>, .get = take<&A::vocabulary>}),
    row("--max-positions", "max_positions", G::kArchitecture, K::kWhole, "N", "positions that the model has",
        {.set = put<&A::max_positions>, .get = take<&A::max_positions>}),
    row("--tie", "tie", G::kArchitecture, K::kFlag, "", "the head shares the embedding's weight",
        {.negative = "--no-tie",
         .negative_help = "the head has a weight of its own",
         .set = put<&A::tie>,
         .get = take<&A::tie>}),

    // --- Precision ---
    row("--precision", "precision", G::kPrecision, K::kName, "P", "fp32, tf32, amp-fp16, amp-bf16, bf16, fp16 [fp32]",
        {.names = kPrecisionNames, .set = put<&R::precision>, .get = take<&S::precision>}),
    row("--fp16", "fp16", G::kPrecision, K::kFlag, "", "--precision amp-fp16; bare DeepSpeed, Megatron: fp16",
        {.set = put_mixed_precision<DType::kFloat16>, .get = nothing}),
    row("--bf16", "bf16", G::kPrecision, K::kFlag, "", "--precision amp-bf16; bare DeepSpeed, Megatron: bf16",
        {.set = put_mixed_precision<DType::kBFloat16>, .get = nothing}),
    row("--weights-dtype", "weights_dtype", G::kPrecision, K::kName, "T",
        "fp32, fp16 or bf16 [of the precision, else as stored]",
        {.names = kWeightDTypeNames, .set = put<&R::weights_dtype>, .get = take_weights_dtype}),

    // --- Training ---
    row("--loop", "loop", G::kTraining, K::kName, "LOOP",
        "trainer, bare, trl-sft, -dpo, -kto, -grpo, -rloo,\n-reward, -orpo, -online-dpo, sentence-transformer,\n"
        "cross-encoder [trainer]",
        {.names = kLoopNames, .set = put<&R::loop>, .get = take<&N::loop>, .exists = trains, .belongs_to = kTraining}),
    row("--optimizer", "optimizer", G::kTraining, K::kText, "OPT", "name (docs/cli.md) or HF Trainer's optim [by loop]",
        {.names = kOptimizerNames,
         .set = put_optimizer,
         .get = take<&N::optimizer>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--accum", "accumulation_steps", G::kTraining, K::kWhole, "N", "micro-batches per optimizer step [1]",
        {.unit = "micro-batches",
         .most = 65536,  // the Trainer moves all micro-batches of a step to the card first
         .set = put<&R::accumulation_steps>,
         .get = take<&N::accumulation_steps>,
         .exists = accumulates,
         .belongs_to = "training without a pipeline, whose micro-batches are --micro-batches"}),
    row("--clip-grad", "max_grad_norm", G::kTraining, K::kNumber, "[NORM]",
        "clip at this norm, 0: never [trainer, DeepSpeed 1.0]",
        {.least = 0, .set = put<&R::max_grad_norm>, .get = take_clipping, .exists = trains, .belongs_to = kTraining}),
    row("--checkpointing", "checkpointing", G::kTraining, K::kText, "C",
        "none, full, every-N (layers) or selective [none]",
        {.names = kCheckpointings,
         .accepted = "one of none, full, selective, every-N",
         .set = put_checkpointing,
         .get = take_checkpointing,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--reentrant", "reentrant", G::kTraining, K::kFlag, "", "checkpoints with use_reentrant=True [as the versions]",
        {.negative = "--no-reentrant",
         .negative_help = "with use_reentrant=False",
         .set = put<&R::reentrant>,
         .get = take<&N::reentrant>,
         .exists = chooses_reentrant,
         .belongs_to = "checkpoints of a family's whole layers under torch (--checkpointing full or every-N)"}),
    row("--compile", "compile", G::kTraining, K::kFlag, "", "torch.compile",
        {.set = put<&R::compile>, .get = take<&N::compile>, .exists = trains, .belongs_to = kTraining}),
    row("--float8", "float8", G::kTraining, K::kName, "F", "tensorwise, tensorwise-gather or rowwise [none]",
        {.names = kFloat8Names,
         .set = put<&R::float8>,
         .get = take<&N::float8>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--compile-parts", "compile_parts", G::kTraining, K::kName, "P",
        "model, layers, layers-loss [model; on several: layers]",
        {.names = kCompiledPartsNames,
         .set = put<&R::compiled_parts>,
         .get = take<&N::compiled_parts>,
         .exists = compiles,
         .belongs_to = "torch.compile (--compile)"}),
    row("--compile-mode", "compile_mode", G::kTraining, K::kName, "M", "default or reduce-overhead [default]",
        {.names = kCompileModeNames,
         .set = put<&R::compile_mode>,
         .get = take<&N::compile_mode>,
         .exists = compiles,
         .belongs_to = "torch.compile (--compile)"}),
    row("--attn", "attention", G::kTraining, K::kName, "A", "sdpa, eager or flash [sdpa]",
        {.names = kAttentionNames,
         .set = put<&R::attention>,
         .get = take<&S::attention>,
         .exists = attends,
         .belongs_to = "models with attention layers whose implementation transformers chooses"}),
    row("--dropout", "dropout", G::kTraining, K::kNumber, "P", "every dropout probability [the model's own]",
        {.least = 0,
         .most = kBelowOne,
         .accepted = kProbability,
         .set = put<&R::dropout>,
         .get = take<&S::dropout>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--skipped-steps", "skipped_steps", G::kTraining, K::kWhole, "N",
        "first steps that the fp16 loss scaler skips [0]",
        {.unit = "steps",
         .least = 0,
         .most = 65536,
         .set = put<&R::skipped_steps>,
         .get = take<&N::skipped_steps>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--loss-in-loop", "loss_in_loop", G::kTraining, K::kFlag, "", "a plain loop computes the loss from the logits",
        {.set = put<&R::loss_in_loop>, .get = take<&N::loss_in_loop>, .exists = trains, .belongs_to = kTraining}),
    row("--use-cache", "use_cache", G::kTraining, K::kFlag, "", "keep the KV cache, as plain loops over decoders do",
        {.set = put<&R::use_cache>,
         .get = take<&S::use_cache>,
         .exists = keeps_cache,
         .belongs_to = "training without a pipeline"}),

    // --- Fine-tuning ---
    row("--lora", "lora", G::kFineTuning, K::kWhole, "R", "peft adapters of this rank on a frozen base",
        {.most = 65536,
         .set = put<&R::lora_rank>,
         .get = take<&Lora::rank>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--lora-targets", "lora_targets", G::kFineTuning, K::kTexts, "LIST",
        "layers, experts' parameters by name or re:PATTERN [all]",
        {.set = put_lora_targets, .get = take_lora_targets, .exists = adapts, .belongs_to = kLora}),
    row("--lora-modules-to-save", "lora_modules_to_save", G::kFineTuning, K::kTexts, "LIST",
        "modules that are trained in full beside adapters",
        {.set = put<&R::lora_saved>, .get = take_filled<&Lora::saved>, .exists = adapts, .belongs_to = kLora}),
    row("--lora-dropout", "lora_dropout", G::kFineTuning, K::kNumber, "P", "dropout in front of the adapters [0]",
        {.least = 0,
         .most = kBelowOne,
         .accepted = kProbability,
         .set = put<&R::lora_dropout>,
         .get = take<&Lora::dropout>,
         .exists = adapts,
         .belongs_to = kLora}),
    row("--dora", "dora", G::kFineTuning, K::kFlag, "", "adapters with lengths that train (peft's use_dora)",
        {.set = put<&R::dora>, .get = take<&Lora::dora>, .exists = adapts, .belongs_to = kLora}),
    row("--lora-dtype", "lora_dtype", G::kFineTuning, K::kName, "T", "fp32, or base: as the base's weights [fp32]",
        {.names = kAdapterDTypeNames,
         .set = put_lora_dtype,
         .get = take_lora_dtype,
         .exists = adapts,
         .belongs_to = kLora}),
    row("--lora-head", "lora_head", G::kFineTuning, K::kFlag, "", "a classifier is trained in full (peft's task_type)",
        {.set = put<&R::lora_trains_head>,
         .get = take<&Lora::trains_head>,
         .exists = adapts_classifier,
         .belongs_to = "adapters of a classifier (--lora R --task seqcls, tokcls or qa)"}),
    row("--quantize", "quantize", G::kFineTuning, K::kName, "Q",
        "nf4[-double] int8 gptq4/8 awq4 mxfp4 fp8[-cast/-scaled]",
        {.names = kQuantizationNames, .set = put<&R::quantization>, .get = take<&T::quantization>}),
    row("--quantize-head", "quantize_head", G::kFineTuning, K::kFlag, "", "the output head is packed, too (LitGPT)",
        {.set = put<&R::packs_head>,
         .get = take<&T::packs_head>,
         .exists = packs_by_bitsandbytes,
         .belongs_to = "a base that bitsandbytes packs (--quantize nf4, nf4-double or int8)"}),
    row("--quantize-experts", "quantize_experts", G::kFineTuning, K::kFlag, "",
        "experts' matrices are packed, too (axolotl)",
        {.set = put<&R::packs_experts>,
         .get = take<&T::packs_experts>,
         .exists = packs_by_bitsandbytes,
         .belongs_to = "a base that bitsandbytes packs (--quantize nf4, nf4-double or int8)"}),
    row("--quant-storage", "quant_storage", G::kFineTuning, K::kName, "T",
        "bnb_4bit_quant_storage: bf16 is sharded [bytes: whole]",
        {.names = kWeightDTypeNames,
         .set = put<&R::quant_storage>,
         .get = take<&T::quant_storage>,
         .exists = shards_nf4,
         .belongs_to = "4-bit bases under FSDP (--quantize nf4 or nf4-double with --parallel fsdp1 or fsdp2)"}),
    row("--group-size", "group_size", G::kFineTuning, K::kWhole, "N",
        "of gptq4, gptq8, awq4: numbers that share a scale [128]",
        {.unit = "numbers",
         .set = put<&R::group_size>,
         .get = take<&T::group_size>,
         .exists = is_in_marlin,
         .belongs_to = "--quantize gptq4, gptq8 or awq4"}),
    row("--prepare-kbit", "prepare_kbit", G::kFineTuning, K::kFlag, "", "prepare_model_for_kbit_training [with both]",
        {.negative = "--no-prepare-kbit",
         .negative_help = "leave that call out",
         .set = put<&R::prepares_for_kbit>,
         .get = take<&T::prepares_for_kbit>,
         .exists = [](const RunRecord& r) { return trains(r) && packs_by_bitsandbytes(r); },
         .belongs_to = "the training of a quantised base (--quantize nf4, nf4-double or int8)"}),
    row("--liger", "liger", G::kFineTuning, K::kFlag, "", "Liger's fused kernels and loss (LLaMA, Mistral, Qwen)",
        {.set = put<&R::liger>, .get = take<&T::liger>, .exists = trains, .belongs_to = kTraining}),
    row("--cut-cross-entropy", "cut_cross_entropy", G::kFineTuning, K::kFlag, "",
        "the loss of cut_cross_entropy's kernels, without logits",
        {.set = put<&R::cut_cross_entropy>,
         .get = take<&T::cut_cross_entropy>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--unsloth", "unsloth", G::kFineTuning, K::kFlag, "", "Unsloth's FastLanguageModel (LLaMA, Mistral, Qwen)",
        {.set = put<&R::unsloth>, .get = take<&T::unsloth>, .exists = trains, .belongs_to = kTraining}),
    row("--freeze", "freeze", G::kFineTuning, K::kTexts, "LIST",
        "parts of names not to train; except:PATTERNS: the others",
        {.set = put<&R::frozen>, .get = take_filled<&T::frozen>, .exists = trains, .belongs_to = kTraining}),

    // --- Saving memory, host memory ---
    row("--activation-offload", "activation_offload", G::kSaving, K::kFlag, "",
        "saved tensors go to pinned host memory",
        {.set = put<&R::offload_activations>,
         .get = take<&N::offload_activations>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--offload-optimizer", "offload_optimizer", G::kSaving, K::kFlag, "",
        "AdamW's states and step on the host (torchao)",
        {.set = put<&R::offload_optimizer>,
         .get = take<&N::offload_optimizer>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--blocks-to-swap", "blocks_to_swap", G::kSaving, K::kWhole, "N",
        "a denoiser's frozen blocks that wait on the host [0]",
        {.unit = "blocks",
         .least = 0,
         .most = 1024,
         .set = put<&R::blocks_to_swap>,
         .get = take<&T::blocks_to_swap>,
         .exists = [](const RunRecord& r) { return trains(r) && adapts(r) && is_denoiser(r.model); },
         .belongs_to = "LoRA of a denoising network (docs/diffusion.md)"}),
    row("--offload-gradients", "offload_gradients", G::kSaving, K::kFlag, "",
        "with it: gradients die once they are copied",
        {.set = put<&R::offload_gradients>,
         .get = take<&N::offload_gradients>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--optimizer-in-backward", "optimizer_in_backward", G::kSaving, K::kFlag, "",
        "a step for each parameter as its gradient arrives",
        {.set = put<&R::optimizer_in_backward>,
         .get = take<&N::optimizer_in_backward>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--expandable", "expandable", G::kSaving, K::kFlag, "", "the allocator's expandable_segments:True",
        {.negative = "--no-expandable",
         .negative_help = "without it",
         .set = put<&R::expandable_segments>,
         .get = take<&S::expandable_segments>}),
    row("--loader-workers", "loader_workers", G::kSaving, K::kWhole, "N", "processes that load batches [0]",
        {.unit = "processes",
         .least = 0,
         .most = 4096,
         .set = put<&R::dataloader_workers>,
         .get = take<&S::dataloader_workers>}),
    row("--prefetch-factor", "prefetch_factor", G::kSaving, K::kWhole, "N", "batches each worker prepares ahead [2]",
        {.unit = "batches",
         .set = put<&R::prefetch_factor>,
         .get = take<&S::prefetch_factor>,
         .exists = has_workers,
         .belongs_to = "a loader with processes of its own (--loader-workers N)"}),
    row("--pin-memory", "pin_memory", G::kSaving, K::kFlag, "", "batches pass through pinned memory [trainer: on]",
        {.set = put<&R::pin_memory>, .get = take<&S::pin_memory>}),

    // --- Inference ---
    row("--infer", "infer", G::kInference, K::kFlag, "", "no training: one forward pass, or generate()",
        {.set = put<&RunRequest::infer>, .get = take_inference}),
    row("--new-tokens", "new_tokens", G::kInference, K::kWhole, "N", "tokens that generate() adds to each sequence",
        {.unit = "tokens",
         .set = put<&Inference::new_tokens>,
         .get = take_but<&Inference::new_tokens, std::int64_t{0}>,
         .exists = infers,
         .belongs_to = "inference (--infer)"}),
    row("--beams", "beams", G::kInference, K::kWhole, "K", "beams of generate()'s beam search [1]",
        {.unit = "beams",
         .set = put<&Inference::beams>,
         .get = take<&Inference::beams>,
         .exists = infers,
         .belongs_to = "inference (--infer)"}),
    row("--sampling", "sampling", G::kInference, K::kTexts, "LIST", "do_sample with temperature,top-k,top-p,… [greedy]",
        {.accepted = "plain, or of repetition-penalty, temperature, top-k, top-p and min-p, by commas, without values",
         .set = put_sampling,
         .get = take_sampling,
         .exists = adds_tokens,
         .belongs_to = "generate() (--infer --new-tokens N)"}),
    row("--num-return-sequences", "num_return_sequences", G::kInference, K::kWhole, "N", "answers to each prompt [1]",
        {.unit = "answers",
         .set = put<&Inference::return_sequences>,
         .get = take_but<&Inference::return_sequences, std::int64_t{1}>,
         .exists = adds_tokens,
         .belongs_to = "generate() (--infer --new-tokens N)"}),
    row("--kv-cache-dtype", "kv_cache_dtype", G::kInference, K::kName, "T", "fp32, fp16 or bf16 [as the activations]",
        {.names = kWeightDTypeNames,
         .set = put<&Inference::key_value_cache_dtype>,
         .get = take<&Inference::key_value_cache_dtype>,
         .exists = infers,
         .belongs_to = "inference (--infer)"}),

    // --- Card and data files ---
    row("--gpu", "gpu", G::kCard, K::kText, "GPU", "name (memcalc gpus) or file [as h100-sxm; fit on others]",
        {.set = put<&RunRequest::gpu>, .get = take_card}),
    row("--card", "card", G::kCard, K::kText, "TEXT", "in place of --gpu: mine,24GB,sm89,1008GB/s,165TFLOPS",
        {.set = put<&CardOptions::description>, .get = take_description}),
    row("--memory", "memory_gib", G::kCard, K::kNumber, "GIB", "of the card, as torch reports it [the card's own]",
        {.unit = "GiB",
         .least = 1.0 / 16,
         .most = kMostCardGib,
         .set = put<&CardOptions::memory_gib>,
         .get = take_memory}),
    row("--host-memory", "host_memory_gib", G::kCard, K::kNumber, "GIB", "of each host [the card's usual host's]",
        {.unit = "GiB",
         .least = 1.0 / 16,
         .most = kMostHostGib,
         .set = put<&CardOptions::host_memory_gib>,
         .get = take_host_memory}),
    row("--margin", "margin_gib", G::kCard, K::kNumber, "GIB", "of the card that is to stay free [0]",
        {.unit = "GiB", .least = 0, .most = kMostCardGib, .set = put<&CardOptions::margin_gib>, .get = take_margin}),
    row("--power-limit", "power_limit", G::kCard, K::kNumber, "W", "of the card, by nvidia-smi -pl [the card's own]",
        {.unit = "watts", .least = 1, .most = 1e5, .set = put<&CardOptions::power_watts>, .get = take_power_limit}),

    // --- Time ---
    row("--host", "host", G::kTime, K::kText, "FILE", "of the host, by memcalc.measure --host [their middle]",
        {.set = put<&TimeOptions::host>, .get = take<&TimeOptions::host>}),
    row("--tokens", "tokens", G::kTime, K::kNumber, "T", "of the whole training: days, price, energy",
        {.unit = "tokens",
         .least = 1,
         .most = 1e18,
         .set = put<&TimeOptions::tokens>,
         .get = take<&TimeOptions::tokens>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--sample-seconds", "sample_seconds", G::kTime, K::kNumber, "S", "of a loader worker for a sample [0]",
        {.unit = "seconds",
         .least = 0,
         .most = 1e9,
         .set = put<&TimeOptions::sample_seconds>,
         .get = take<&TimeOptions::sample_seconds>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--sample-bytes", "sample_bytes", G::kTime, K::kNumber, "N", "read from storage for a sample [0]",
        {.unit = "bytes",
         .least = 0,
         .most = 1e18,
         .set = put<&TimeOptions::sample_bytes>,
         .get = take<&TimeOptions::sample_bytes>,
         .exists = trains,
         .belongs_to = kTraining}),
    row("--storage-rate", "storage_rate", G::kTime, K::kNumber, "R", "bytes/s of the storage",
        {.unit = "bytes/s",
         .least = 1e-3,
         .most = 1e18,
         .accepted = "a number above 0",
         .set = put<&TimeOptions::storage_rate>,
         .get = take<&TimeOptions::storage_rate>,
         .exists = trains,
         .belongs_to = kTraining}),
};

}  // namespace

std::span<const Field> fields_of_runs() { return kFields; }

std::span<const Field> run_fields() {
  static const std::vector<Field> all = [] {
    std::vector<Field> rows;
    for (const auto part :
         {fields_of_runs(), fields_of_parallel(), fields_of_jobs(), fields_of_lists(), fields_of_versions()}) {
      rows.insert(rows.end(), part.begin(), part.end());
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Field& a, const Field& b) { return a.group < b.group; });
    return rows;
  }();
  return all;
}

}  // namespace memcalc
