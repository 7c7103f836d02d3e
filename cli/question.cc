#include "question.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

// The card whose behaviour is assumed where none is named: the one that the project has measured most.
constexpr const char* kAssumedDevice = "h100-sxm";

template <typename Enum, std::size_t kSize>
std::optional<Enum> choice_of(std::string_view option, const std::string& text,
                              const std::array<std::string_view, kSize>& names) {
  if (text.empty()) return std::nullopt;
  return parse_choice<Enum>(option, text, names);
}

void set_precision(const RunArguments& a, RunOptions& options) {
  if (a.fp16 && a.bf16) throw UsageError("--fp16 and --bf16 contradict each other: give one");
  if ((a.fp16 || a.bf16) && !a.precision.empty()) {
    throw UsageError(std::string(a.fp16 ? "--fp16" : "--bf16") + " and --precision contradict each other: give one");
  }
  if (a.fp16) options.mixed_precision = DType::kFloat16;
  if (a.bf16) options.mixed_precision = DType::kBFloat16;
  options.precision = choice_of<Precision>("--precision", a.precision, kPrecisionNames);
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
  set_precision(a, options);
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
  options.loss_in_loop = a.loss_in_loop;
  options.compile = a.compile;
  options.float8 = choice_of<Float8>("--float8", a.float8, kFloat8Names);
  options.compiled_parts = choice_of<CompiledParts>("--compile-parts", a.compiled_parts, kCompiledPartsNames);
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
