#include "run_arguments.h"

#include <CLI/CLI.hpp>
#include <array>
#include <string_view>
#include <utility>

#include "arguments.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

// The card whose behaviour is assumed where none is named: the one that the project has measured most.
constexpr const char* kAssumedDevice = "h100-sxm";

// Where descriptions start in --help: with at most 56 characters each they end within 80 columns.
constexpr std::size_t kHelpColumn = 24;

constexpr const char* kModelGroup = "Model and data";
constexpr const char* kPrecisionGroup = "Precision";
constexpr const char* kTrainingGroup = "Training";
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
  command.add_option("--task", a.task, "seqcls, mlm, tokcls, causal, seq2seq, speech, image")
      ->type_name("TASK")
      ->group(kModelGroup);
  command.add_flag("--padding", a.padding, "some sequences are padded, so a mask is passed")
      ->disable_flag_override()
      ->group(kModelGroup);
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
  command.add_option("--checkpointing", a.checkpointing, "none or full (every layer) [none]")
      ->type_name("C")
      ->group(kTrainingGroup);
  command.add_option("--attn", a.attention, "sdpa, eager or flash [sdpa]")->type_name("A")->group(kTrainingGroup);
  command.add_option("--dropout", a.dropout, "every dropout probability [the model's own]")
      ->type_name("P")
      ->group(kTrainingGroup);
  command.add_flag("--use-cache", a.use_cache, "keep the KV cache, as plain loops over decoders do")
      ->disable_flag_override()
      ->group(kTrainingGroup);
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
  options.checkpointing = choice_of<Checkpointing>("--checkpointing", a.checkpointing, kCheckpointingNames);
  options.accumulation_steps = whole_of("--accum", a.accumulation);
  options.max_grad_norm = max_grad_norm_of(a);
  options.dropout = dropout_of(a);
  options.use_cache = a.use_cache;
  options.padding = a.padding;
  return options;
}

}  // namespace

void add_run_options(CLI::App& command, RunArguments& arguments) {
  command.get_formatter()->column_width(kHelpColumn);
  add_model_options(command, arguments);
  add_precision_options(command, arguments);
  add_training_options(command, arguments);
  add_card_options(command, arguments);
}

Question resolve_arguments(const RunArguments& a) {
  if (a.model.empty()) throw UsageError("--model: expected a name (see memcalc models), a config.json or a directory");
  const RunOptions options = options_of(a);
  SpecRegistry registry(find_specs(a.specs));
  ModelSpec model = registry.model(a.model);
  ResolvedRun run = resolve(model, options);
  DeviceSpec device = registry.device(a.gpu.empty() ? kAssumedDevice : a.gpu);
  if (a.gpu.empty()) {
    run.assumptions.push_back("the card behaves as " + device.name + ": none was named (--gpu)");
  }
  return {std::move(registry), std::move(model), std::move(run), std::move(device), a.gpu.empty()};
}

}  // namespace memcalc::cli
