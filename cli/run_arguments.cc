#include "run_arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

// The card whose behaviour is assumed where none is named: the one that the project has measured most.
constexpr const char* kAssumedDevice = "h100-sxm";

// Where descriptions start in --help: with at most 56 characters each they end within 80 columns.
constexpr std::size_t kHelpColumn = 24;

constexpr const char* kModelGroup = "Model and data";
constexpr const char* kArchitectureGroup = "Architecture";
constexpr const char* kPrecisionGroup = "Precision";
constexpr const char* kTrainingGroup = "Training";
constexpr const char* kFineTuningGroup = "Fine-tuning";
constexpr const char* kSavingGroup = "Saving memory, host memory";
constexpr const char* kInferenceGroup = "Inference";
constexpr const char* kCardGroup = "Card and data files";

void add_model_options(CLI::App& command, RunArguments& a) {
  command.add_option("--model", a.model, "name (memcalc models), config.json or its directory")
      ->type_name("MODEL")
      ->group(kModelGroup);
  command.add_option("--bs", a.batch, "sequences per micro-batch [1]")->type_name("N")->group(kModelGroup);
  command.add_option("--seq", a.sequence, "tokens per sequence [trained context, at most 2048]")
      ->type_name("N")
      ->group(kModelGroup);
  command.add_option("--target-seq", a.target_sequence, "seq2seq: tokens per label sequence [as --seq]")
      ->type_name("N")
      ->group(kModelGroup);
  command.add_option("--image", a.image, "pixels a side, for image models [the trained size]")
      ->type_name("N")
      ->group(kModelGroup);
  command.add_option("--task", a.task, "seqcls, mlm, tokcls, causal, seq2seq, speech, image,\ncontrastive")
      ->type_name("TASK")
      ->group(kModelGroup);
  command.add_flag("--padding", a.padding, "some sequences are padded, so a mask is passed")
      ->disable_flag_override()
      ->group(kModelGroup);
}

void add_architecture_options(CLI::App& command, RunArguments& a) {
  const auto size = [&](const char* name, std::string& value, const char* description) {
    command.add_option(name, value, description)->type_name("N")->group(kArchitectureGroup);
  };
  command.add_option("--arch", a.family, "a family by itself, instead of --model (gpt2, llama, …)")
      ->type_name("FAMILY")
      ->group(kArchitectureGroup);
  size("--layers", a.layers, "layers; of an encoder-decoder: of each");
  size("--hidden", a.hidden, "width of the hidden states");
  size("--heads", a.heads, "attention heads");
  size("--kv-heads", a.kv_heads, "key and value heads, where they are grouped");
  size("--head-dim", a.head_dim, "width of a head");
  size("--ffn", a.ffn, "width of the feed-forward layers");
  size("--vocab", a.vocabulary, "rows of the embedding");
  size("--max-positions", a.max_positions, "positions that the model has");
  command.add_flag("--tie", a.tie, "the head shares the embedding's weight")
      ->disable_flag_override()
      ->group(kArchitectureGroup);
  command.add_flag("--no-tie", a.no_tie, "the head has a weight of its own")
      ->disable_flag_override()
      ->group(kArchitectureGroup);
}

void add_precision_options(CLI::App& command, RunArguments& a) {
  command.add_option("--precision", a.precision, "fp32, tf32, amp-fp16, amp-bf16, bf16, fp16 [fp32]")
      ->type_name("P")
      ->group(kPrecisionGroup);
  command.add_flag("--fp16", a.fp16, "as in HF Trainer: --precision amp-fp16")
      ->disable_flag_override()
      ->group(kPrecisionGroup);
  command.add_flag("--bf16", a.bf16, "as in HF Trainer: --precision amp-bf16")
      ->disable_flag_override()
      ->group(kPrecisionGroup);
  command.add_option("--weights-dtype", a.weights_dtype, "fp32, fp16 or bf16 [as the precision says]")
      ->type_name("T")
      ->group(kPrecisionGroup);
}

void add_training_options(CLI::App& command, RunArguments& a) {
  command.add_option("--loop", a.loop, "trainer (HF Trainer) or bare (a plain loop) [trainer]")
      ->type_name("LOOP")
      ->group(kTrainingGroup);
  command.add_option("--optimizer", a.optimizer, "name (docs/cli.md) or HF Trainer's optim [by loop]")
      ->type_name("OPT")
      ->group(kTrainingGroup);
  command.add_option("--accum", a.accumulation, "micro-batches per optimizer step [1]")
      ->type_name("N")
      ->group(kTrainingGroup);
  a.clip_grad = command.add_option("--clip-grad", "clip at this norm, 0: never [trainer 1.0, bare never]")
                    ->expected(0, 1)
                    ->type_name("[NORM]")
                    ->group(kTrainingGroup);
  command.add_option("--checkpointing", a.checkpointing, "none, full, every-N (layers) or selective [none]")
      ->type_name("C")
      ->group(kTrainingGroup);
  command.add_flag("--compile", a.compile, "torch.compile(model), the default mode")
      ->disable_flag_override()
      ->group(kTrainingGroup);
  command.add_option("--attn", a.attention, "sdpa, eager or flash [sdpa]")->type_name("A")->group(kTrainingGroup);
  command.add_option("--dropout", a.dropout, "every dropout probability [the model's own]")
      ->type_name("P")
      ->group(kTrainingGroup);
  command.add_option("--skipped-steps", a.skipped_steps, "first steps that the fp16 loss scaler skips [0]")
      ->type_name("N")
      ->group(kTrainingGroup);
  command.add_flag("--use-cache", a.use_cache, "keep the KV cache, as plain loops over decoders do")
      ->disable_flag_override()
      ->group(kTrainingGroup);
}

void add_fine_tuning_options(CLI::App& command, RunArguments& a) {
  command.add_option("--lora", a.lora, "peft adapters of this rank on a frozen base")
      ->type_name("R")
      ->group(kFineTuningGroup);
  command.add_option("--lora-targets", a.lora_targets, "ends of layer names, by commas [all linear layers]")
      ->type_name("LIST")
      ->group(kFineTuningGroup);
  command.add_option("--lora-dropout", a.lora_dropout, "dropout in front of the adapters [0]")
      ->type_name("P")
      ->group(kFineTuningGroup);
  command.add_option("--lora-dtype", a.lora_dtype, "fp32, or base: as the base's weights [fp32]")
      ->type_name("T")
      ->group(kFineTuningGroup);
  command.add_flag("--lora-head", a.lora_head, "a classifier is trained in full (peft's task_type)")
      ->disable_flag_override()
      ->group(kFineTuningGroup);
  command.add_option("--quantize", a.quantize, "nf4, nf4-double, int8; to infer also gptq4, awq4 [none]")
      ->type_name("Q")
      ->group(kFineTuningGroup);
  command.add_flag("--quantize-head", a.quantize_head, "the output head is packed, too (LitGPT)")
      ->disable_flag_override()
      ->group(kFineTuningGroup);
  command.add_option("--bitsandbytes", a.bitsandbytes, "its version; inputs kept before 0.43.2 [0.50]")
      ->type_name("V")
      ->group(kFineTuningGroup);
  command.add_option("--group-size", a.group_size, "of gptq4, awq4: numbers that share a scale [128]")
      ->type_name("N")
      ->group(kFineTuningGroup);
  command.add_flag("--prepare-kbit", a.prepare_kbit, "prepare_model_for_kbit_training [with both]")
      ->disable_flag_override()
      ->group(kFineTuningGroup);
  command.add_flag("--no-prepare-kbit", a.no_prepare_kbit, "leave that call out")
      ->disable_flag_override()
      ->group(kFineTuningGroup);
  command.add_flag("--liger", a.liger, "Liger's fused kernels and loss (LLaMA, Mistral, Qwen)")
      ->disable_flag_override()
      ->group(kFineTuningGroup);
  command.add_option("--freeze", a.freeze, "parts of parameter names, by commas, not to train")
      ->type_name("LIST")
      ->group(kFineTuningGroup);
}

void add_inference_options(CLI::App& command, RunArguments& a) {
  command.add_flag("--infer", a.infer, "no training: one forward pass, or generate()")
      ->disable_flag_override()
      ->group(kInferenceGroup);
  command.add_option("--new-tokens", a.new_tokens, "tokens that generate() adds to each sequence")
      ->type_name("N")
      ->group(kInferenceGroup);
  command.add_option("--beams", a.beams, "beams of generate()'s beam search [1]")
      ->type_name("K")
      ->group(kInferenceGroup);
  command.add_option("--kv-cache-dtype", a.cache_dtype, "fp32, fp16 or bf16 [as the activations]")
      ->type_name("T")
      ->group(kInferenceGroup);
}

void add_saving_options(CLI::App& command, RunArguments& a) {
  command.add_flag("--activation-offload", a.offload_activations, "saved tensors go to pinned host memory")
      ->disable_flag_override()
      ->group(kSavingGroup);
  command.add_flag("--offload-optimizer", a.offload_optimizer, "AdamW's states and step on the host (torchao)")
      ->disable_flag_override()
      ->group(kSavingGroup);
  command.add_flag("--offload-gradients", a.offload_gradients, "with it: gradients die once they are copied")
      ->disable_flag_override()
      ->group(kSavingGroup);
  command.add_flag("--expandable", a.expandable_segments, "the allocator's expandable_segments:True")
      ->disable_flag_override()
      ->group(kSavingGroup);
  command.add_option("--loader-workers", a.dataloader_workers, "processes that load batches [0]")
      ->type_name("N")
      ->group(kSavingGroup);
  command.add_option("--prefetch-factor", a.prefetch_factor, "batches each worker prepares ahead [2]")
      ->type_name("N")
      ->group(kSavingGroup);
  command.add_flag("--pin-memory", a.pin_memory, "batches pass through pinned memory [trainer: on]")
      ->disable_flag_override()
      ->group(kSavingGroup);
}

void add_card_options(CLI::App& command, RunArguments& a) {
  command.add_option("--gpu", a.gpu, "name (memcalc gpus) or file [as h100-sxm; fit on others]")
      ->type_name("GPU")
      ->group(kCardGroup);
  command.add_option("--specs", a.specs, "directory of models/, gpus/ [$MEMCALC_SPEC_PATH]")
      ->type_name("DIR")
      ->group(kCardGroup);
}

std::optional<Precision> precision_of(const RunArguments& a) {
  if (a.fp16 && a.bf16) throw UsageError("--fp16 and --bf16 contradict each other: give one");
  if ((a.fp16 || a.bf16) && !a.precision.empty()) {
    throw UsageError(std::string(a.fp16 ? "--fp16" : "--bf16") + " and --precision contradict each other: give one");
  }
  if (a.fp16) return Precision::kAmpFp16;
  if (a.bf16) return Precision::kAmpBf16;
  if (a.precision.empty()) return std::nullopt;
  return parse_choice<Precision>("--precision", a.precision, kPrecisionNames);
}

std::optional<DType> weights_dtype_of(const RunArguments& a) {
  if (a.weights_dtype.empty()) return std::nullopt;
  return parse_choice<DType>("--weights-dtype", a.weights_dtype, kWeightDTypeNames);
}

// --clip-grad alone means HF's max_grad_norm, 1.0.
std::optional<double> max_grad_norm_of(const RunArguments& a) {
  if (a.clip_grad == nullptr || a.clip_grad->count() == 0) return std::nullopt;
  const std::string text = a.clip_grad->results().front();
  if (text.empty() || text == "true" || text == "{}") return 1.0;  // what CLI11 stores where no value follows
  return parse_number("--clip-grad", text);
}

std::optional<double> dropout_of(const RunArguments& a) {
  if (a.dropout.empty()) return std::nullopt;
  const double probability = parse_number("--dropout", a.dropout);
  if (probability >= 1)
    throw UsageError("--dropout: expected a number from 0 to less than 1, found '" + a.dropout + "'");
  return probability;
}

template <typename Enum, std::size_t kSize>
std::optional<Enum> choice_of(std::string_view option, const std::string& text,
                              const std::array<std::string_view, kSize>& names) {
  if (text.empty()) return std::nullopt;
  return parse_choice<Enum>(option, text, names);
}

std::optional<Optimizer> optimizer_of(const RunArguments& a) {
  if (a.optimizer.empty()) return std::nullopt;
  const std::optional<Optimizer> optimizer = optimizer_from(a.optimizer);
  if (!optimizer) refuse_choice("--optimizer", a.optimizer, kOptimizerNames);
  return optimizer;
}

std::optional<std::int64_t> whole_of(std::string_view option, const std::string& text) {
  if (text.empty()) return std::nullopt;
  return parse_whole(option, text, 1);
}

std::vector<std::string> names_of(std::string_view option, const std::string& text) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at <= text.size() && !text.empty();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    if (comma == at) throw UsageError(std::string(option) + ": expected names between commas, found '" + text + "'");
    names.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return names;
}

void set_fine_tuning(const RunArguments& a, RunOptions& options) {
  options.lora_rank = whole_of("--lora", a.lora);
  options.lora_targets = names_of("--lora-targets", a.lora_targets);
  if (a.lora_targets == "all-linear") options.lora_targets.clear();
  if (!a.lora_dropout.empty()) options.lora_dropout = parse_number("--lora-dropout", a.lora_dropout);
  if (!a.lora_dtype.empty()) {
    enum class AdapterDType : std::uint8_t { kFloat32, kBase };
    options.lora_in_base_dtype =
        parse_choice<AdapterDType>("--lora-dtype", a.lora_dtype, kAdapterDTypeNames) == AdapterDType::kBase;
  }
  options.lora_trains_head = a.lora_head;
  options.quantization = choice_of<Quantization>("--quantize", a.quantize, kQuantizationNames);
  options.packs_head = a.quantize_head;
  if (!a.bitsandbytes.empty()) options.bitsandbytes = a.bitsandbytes;
  options.group_size = whole_of("--group-size", a.group_size);
  if (a.prepare_kbit && a.no_prepare_kbit) {
    throw UsageError("--prepare-kbit and --no-prepare-kbit contradict each other: give one");
  }
  if (a.prepare_kbit || a.no_prepare_kbit) options.prepares_for_kbit = a.prepare_kbit;
  options.liger = a.liger;
  options.frozen = names_of("--freeze", a.freeze);
}

void set_inference(const RunArguments& a, RunOptions& options) {
  if (!a.infer) {
    if (!a.new_tokens.empty()) throw UsageError("--new-tokens needs --infer");
    if (!a.beams.empty()) throw UsageError("--beams needs --infer");
    if (!a.cache_dtype.empty()) throw UsageError("--kv-cache-dtype needs --infer");
    return;
  }
  options.inference = Inference{.new_tokens = whole_of("--new-tokens", a.new_tokens).value_or(0),
                                .beams = whole_of("--beams", a.beams).value_or(1)};
  if (a.cache_dtype.starts_with("int") || a.cache_dtype.starts_with("fp8")) {
    throw UsageError("--kv-cache-dtype " + a.cache_dtype +
                     ": transformers' cache has the activations' type; its quantised cache (quanto and HQQ, 2 or 4 "
                     "bits) and the caches of serving engines are not modelled");
  }
  options.inference->key_value_cache_dtype = choice_of<DType>("--kv-cache-dtype", a.cache_dtype, kWeightDTypeNames);
}

ArchitectureChanges changes_of(const RunArguments& a) {
  if (a.tie && a.no_tie) throw UsageError("--tie and --no-tie contradict each other: give one");
  ArchitectureChanges changes;
  changes.layers = whole_of("--layers", a.layers);
  changes.hidden = whole_of("--hidden", a.hidden);
  changes.heads = whole_of("--heads", a.heads);
  changes.kv_heads = whole_of("--kv-heads", a.kv_heads);
  changes.head_dim = whole_of("--head-dim", a.head_dim);
  changes.ffn = whole_of("--ffn", a.ffn);
  changes.vocabulary = whole_of("--vocab", a.vocabulary);
  changes.max_positions = whole_of("--max-positions", a.max_positions);
  if (a.tie || a.no_tie) changes.tie = a.tie;
  return changes;
}

ModelSpec model_of(const RunArguments& a, const SpecRegistry& registry) {
  const ArchitectureChanges changes = changes_of(a);
  if (a.family.empty()) return registry.model(a.model, changes);
  if (!a.model.empty()) throw UsageError("--arch and --model contradict each other: give one");
  return model_of_family(a.family, changes);
}

// A name, or every-N: of the layers 0, N, 2N, ….
void set_checkpointing(const RunArguments& a, RunOptions& options) {
  constexpr std::string_view kEvery = "every-";
  if (std::string_view(a.checkpointing).starts_with(kEvery)) {
    options.checkpointing = Checkpointing::kFull;
    options.checkpoint_every = parse_whole("--checkpointing every-N", a.checkpointing.substr(kEvery.size()), 1);
    return;
  }
  constexpr std::array<std::string_view, 4> kAccepted = {kCheckpointingNames[0], kCheckpointingNames[1],
                                                         kCheckpointingNames[2], "every-N"};
  options.checkpointing = choice_of<Checkpointing>("--checkpointing", a.checkpointing, kAccepted);
}

RunOptions options_of(const RunArguments& a) {
  RunOptions options;
  options.task = choice_of<Task>("--task", a.task, kTaskNames);
  options.batch_size = whole_of("--bs", a.batch);
  options.sequence_length = whole_of("--seq", a.sequence);
  options.target_sequence_length = whole_of("--target-seq", a.target_sequence);
  options.image_size = whole_of("--image", a.image);
  options.precision = precision_of(a);
  options.weights_dtype = weights_dtype_of(a);
  options.loop = choice_of<Loop>("--loop", a.loop, kLoopNames);
  options.optimizer = optimizer_of(a);
  options.attention = choice_of<Attention>("--attn", a.attention, kAttentionNames);
  set_checkpointing(a, options);
  options.accumulation_steps = whole_of("--accum", a.accumulation);
  options.max_grad_norm = max_grad_norm_of(a);
  options.dropout = dropout_of(a);
  if (!a.skipped_steps.empty()) options.skipped_steps = parse_whole("--skipped-steps", a.skipped_steps, 0);
  options.use_cache = a.use_cache;
  options.padding = a.padding;
  set_fine_tuning(a, options);
  set_inference(a, options);
  options.offload_activations = a.offload_activations;
  options.expandable_segments = a.expandable_segments;
  options.compile = a.compile;
  options.offload_optimizer = a.offload_optimizer;
  options.offload_gradients = a.offload_gradients;
  if (!a.dataloader_workers.empty()) {
    options.dataloader_workers = parse_whole("--loader-workers", a.dataloader_workers, 0);
  }
  options.prefetch_factor = whole_of("--prefetch-factor", a.prefetch_factor);
  options.pin_memory = a.pin_memory;
  set_parallel(a.parallel, options);
  return options;
}

}  // namespace

void add_run_options(CLI::App& command, RunArguments& arguments) {
  command.get_formatter()->column_width(kHelpColumn);
  add_model_options(command, arguments);
  add_architecture_options(command, arguments);
  add_precision_options(command, arguments);
  add_training_options(command, arguments);
  add_fine_tuning_options(command, arguments);
  add_saving_options(command, arguments);
  add_inference_options(command, arguments);
  add_parallel_options(command, arguments.parallel);
  add_card_options(command, arguments);
}

Question resolve_arguments(const RunArguments& a) {
  if (a.model.empty() && a.family.empty()) {
    throw UsageError("--model: expected a name (see memcalc models), a config.json or a directory");
  }
  const RunOptions options = options_of(a);
  SpecRegistry registry(find_specs(a.specs));
  ModelSpec model = model_of(a, registry);
  ResolvedRun run = resolve(model, options);
  DeviceSpec device = registry.device(a.gpu.empty() ? kAssumedDevice : a.gpu);
  if (a.gpu.empty()) {
    run.assumptions.push_back("the card behaves as " + device.name + ": none was named (--gpu)");
  }
  return {std::move(registry), std::move(model), std::move(run), std::move(device), a.gpu.empty()};
}

}  // namespace memcalc::cli
