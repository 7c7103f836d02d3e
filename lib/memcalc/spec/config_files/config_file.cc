#include "memcalc/spec/config_files/config_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/config_files/command_words.h"
#include "memcalc/spec/config_files/config_text.h"
#include "memcalc/spec/config_files/example_scripts.h"
#include "memcalc/spec/config_files/section.h"
#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/names.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_fields.h"
#include "memcalc/spec/run_request.h"
#include "memcalc/spec/user_file.h"

namespace memcalc {
namespace {

using config::Account;

struct Format {
  std::string_view name;
  std::string_view program;  // whose keys and defaults
  void (*read)(Account& account, const JsonNode& root);
  std::string_view signs;  // keys of the top level that no other tool has
  // The same of a file alone. Scripts of people's own have arguments of these names, too: base_model and
  // cutoff_len (alpaca-lora's finetune.py), lora_rank and load_in_4bit (Chinese-LLaMA-Alpaca-2's
  // run_clm_pt_with_peft.py), lora_target_modules (FastChat's train_lora.py, Qwen's finetune.py); stage, template and
  // beta are common words. The loops and defaults of such scripts are not the tool's. They read no files: a file with
  // such a key is the tool's.
  std::string_view signs_of_files{};
};

void read_sft(Account& account, const JsonNode& root) { config::read_trl(account, root, "sft"); }
void read_dpo(Account& account, const JsonNode& root) { config::read_trl(account, root, "dpo"); }
void read_kto(Account& account, const JsonNode& root) { config::read_trl(account, root, "kto"); }
void read_reward(Account& account, const JsonNode& root) { config::read_trl(account, root, "reward"); }
void read_grpo(Account& account, const JsonNode& root) { config::read_trl(account, root, "grpo"); }
void read_rloo(Account& account, const JsonNode& root) { config::read_trl(account, root, "rloo"); }
void read_orpo(Account& account, const JsonNode& root) { config::read_trl(account, root, "orpo"); }
void read_online_dpo(Account& account, const JsonNode& root) { config::read_trl(account, root, "online-dpo"); }
void read_launch(Account& account, const JsonNode& root) { config::read_accelerate(account, root, account.file(), ""); }

// The first whose sign is there is taken.
constexpr Format kFormats[] = {
    {"memcalc", "a report of memcalc", config::read_report, "needed_bytes"},
    {"megatron", "Megatron-LM core_r0.14.0", config::read_megatron, "tensor_model_parallel_size use_mcore_models"},
    {"deepspeed", "DeepSpeed 0.19.8, transformers 5.17", config::read_deepspeed_alone,
     "zero_optimization train_micro_batch_size_per_gpu"},
    {"accelerate", "accelerate 1.15", read_launch, "compute_environment distributed_type"},
    {"axolotl", "axolotl 0.19.0", config::read_axolotl, "", "base_model micro_batch_size sequence_len"},
    {"llama-factory", "LLaMA-Factory 0.9.5", config::read_llama_factory, "finetuning_type pure_bf16",
     "stage cutoff_len template lora_target lora_rank quantization_bit"},
    {"torchtitan", "torchtitan 0.2.2", config::read_torchtitan, "training parallelism job activation_checkpoint"},
    {"torchtune", "torchtune 0.6.1", config::read_torchtune, "checkpointer metric_logger tokenizer"},
    {"trl-rloo", "TRL 1.16", read_rloo, "normalize_advantages reward_clip_range"},
    {"trl-online-dpo", "TRL 1.16", read_online_dpo, "missing_eos_penalty reward_model_path"},
    {"trl-orpo", "TRL 1.16", read_orpo, "is_encoder_decoder padding_value"},
    {"trl-grpo", "TRL 1.16", read_grpo,
     "num_generations use_vllm vllm_mode reward_funcs reward_weights scale_rewards steps_per_generation "
     "generation_batch_size"},
    {"trl-kto", "TRL 1.16", read_kto, "desirable_weight undesirable_weight"},
    {"trl-reward", "TRL 1.16", read_reward, "center_rewards_coefficient"},
    {"trl-dpo", "TRL 1.16", read_dpo, "precompute_ref_log_probs f_divergence_type sync_ref_model disable_dropout",
     "beta"},
    {"trl-sft", "TRL 1.16", read_sft,
     "use_peft use_peft_lora packing dataset_text_field completion_only_loss assistant_only_loss padding_free "
     "packing_strategy "
     "dataset_kwargs",
     "lora_r lora_target_modules load_in_4bit"},
    {"training-arguments", "transformers 5.17", config::read_training_arguments,
     "per_device_train_batch_size output_dir num_train_epochs learning_rate do_train gradient_accumulation_steps "
     "max_steps model_name_or_path"},
};

bool has_key(const JsonNode& root, std::string_view keys) {
  return std::any_of(root.children.begin(), root.children.end(), [&](const JsonNode& child) {
    const std::string wanted = " " + child.key + " ";
    return (" " + std::string(keys) + " ").find(wanted) != std::string::npos;
  });
}

const Format* format_named(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& each) { return each.name == name; });
  return found == std::end(kFormats) ? nullptr : found;
}

const Format* format_by_signs(const JsonNode& root, bool is_file) {
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& each) {
    return has_key(root, each.signs) || (is_file && has_key(root, each.signs_of_files));
  });
  return found == std::end(kFormats) ? nullptr : found;
}

/// Of a script's arguments. A script of transformers' examples is known by its name.
const Format& format_of_arguments(const config::Command& command) {
  const Format* found =
      config::find_example_script(command.script) == nullptr ? format_by_signs(command.arguments, false) : nullptr;
  return found == nullptr ? *format_named("training-arguments") : *found;
}

const Format& format_of(const JsonNode& root, const std::string& file) {
  if (has_key(root, "architectures")) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: it is a model's config.json; accepted: --model FILE", shown_path(file)), file);
  }
  const bool is_component = has_key(root, "model") && has_key(root, "tokenizer dataset checkpointer");
  if (is_component) return *format_named("torchtune");
  const Format* const found = format_by_signs(root, true);
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const Format& each : kFormats) names.emplace_back(each.name);
    throw Error(ErrorCode::kInput,
                fmt::format("{}: no key says whose file it is; accepted: --config-format with one of {}",
                            shown_path(file), join(names)),
                file);
  }
  return *found;
}

const Format& format_asked(const ConfigRequest& request, const JsonNode& root) {
  if (request.format.empty()) return format_of(root, request.path);
  const Format* format = format_named(request.format);
  if (format != nullptr) return *format;
  std::vector<std::string> names;
  for (const Format& each : kFormats) names.emplace_back(each.name);
  throw Error(ErrorCode::kUsage,
              fmt::format("--config-format: expected one of {}, found '{}'{}", join(names), one_line(request.format),
                          did_you_mean(request.format, names)),
              "--config-format");
}

/// Options of which one said takes the place of the others.
constexpr std::string_view kAlternatives[][3] = {{"--precision", "--bf16", "--fp16"},
                                                 {"--model", "--arch"},
                                                 {"--prepare-kbit", "--no-prepare-kbit"},
                                                 {"--tie", "--no-tie"},
                                                 {"--gpu", "--card"}};

/// What only means something beside the data-parallel mode of the file.
constexpr std::array<std::string_view, 9> kOfTheMode = {"--deepspeed",
                                                        "--framework",
                                                        "--offload-states",
                                                        "--offload-parameters",
                                                        "--no-reshard-after-forward",
                                                        "--keep-last-layer",
                                                        "--fsdp-param-dtype",
                                                        "--fsdp-reduce-dtype",
                                                        "--hsdp-shard"};

bool takes_place(std::string_view typed, std::string_view ours) {
  if (typed == ours) return true;
  if (typed == "--parallel" && std::find(kOfTheMode.begin(), kOfTheMode.end(), ours) != kOfTheMode.end()) return true;
  return std::any_of(std::begin(kAlternatives), std::end(kAlternatives), [&](const auto& group) {
    return std::find(std::begin(group), std::end(group), typed) != std::end(group) &&
           std::find(std::begin(group), std::end(group), ours) != std::end(group);
  });
}

std::optional<std::string> value_of(std::span<const ConfigOption> typed, const std::vector<ConfigOption>& ours,
                                    std::string_view flag) {
  for (const ConfigOption& each : typed) {
    if (each.flag == flag) return each.text;
  }
  for (const ConfigOption& each : ours) {
    if (each.flag == flag) return each.text;
  }
  return std::nullopt;
}

std::int64_t gpus_of(std::span<const ConfigOption> typed, const std::vector<ConfigOption>& ours) {
  std::int64_t product = 1;
  for (const std::string_view flag : {"--tp", "--cp", "--pp"}) {
    std::int64_t size = 1;
    const std::string text = value_of(typed, ours, flag).value_or("1");
    std::from_chars(text.data(), text.data() + text.size(), size);
    if (size > 0 && size <= 131072 && product <= 131072) product *= size;
  }
  const std::string text = value_of(typed, ours, "--gpus").value_or("");
  std::int64_t gpus = 0;
  std::from_chars(text.data(), text.data() + text.size(), gpus);
  return gpus > 0 ? gpus : product;
}

/// What a global batch is shared out by.
constexpr std::string_view kShares[] = {"--bs", "--gpus", "--tp", "--cp", "--pp"};

/// "1,2,4" and "1..8" of a sweep.
bool is_list(const ConfigOption& option) {
  return std::find(std::begin(kShares), std::end(kShares), option.flag) != std::end(kShares) &&
         option.text.find_first_not_of("0123456789") != std::string::npos;
}

bool says_micro_batches(const ConfigOption& option) {
  return option.flag == "--accum" || option.flag == "--micro-batches";
}

/// Shares the global batch out, unless what was typed says how many micro-batches there are, or lists values, of which
/// each has a number of its own.
void share_out_batch(ConfigFile& file, std::span<const ConfigOption> typed) {
  if (std::any_of(typed.begin(), typed.end(), says_micro_batches)) file.global_batch = 0;
  if (std::any_of(typed.begin(), typed.end(), is_list)) return;
  if (auto option = micro_batches_of(file, typed)) file.options.push_back(*std::move(option));
}

/// Keys that say something in words of their own, which options that were typed say instead.
std::vector<std::string> take_needs(ConfigFile& file, std::span<const ConfigOption> typed) {
  std::vector<std::string> taken;
  for (const ConfigNeed& need : file.needs) {
    const bool is_typed =
        std::any_of(typed.begin(), typed.end(), [&](const ConfigOption& each) { return each.flag == need.flag; });
    if (is_typed && std::find(taken.begin(), taken.end(), need.key) == taken.end()) taken.push_back(need.key);
  }
  for (ConfigKey& key : file.keys) {
    if (std::find(taken.begin(), taken.end(), key.key) == taken.end()) continue;
    key.use = KeyUse::kLeftOut;
    key.why = "options that were typed take its place";
  }
  return taken;
}

/// Throws for what neither the file nor what was typed says: all of it in one line.
void refuse_open_needs(const ConfigFile& file, std::span<const ConfigOption> typed) {
  std::vector<std::string> keys, flags;
  const ConfigNeed* first = nullptr;
  const auto add = [](std::vector<std::string>& list, const std::string& text) {
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
  };
  for (const ConfigNeed& need : file.needs) {
    if (value_of(typed, file.options, need.flag)) continue;
    if (first == nullptr) first = &need;
    add(keys, need.key);
    add(flags, need.flag + " " + std::string(find_field(need.flag)->value));
  }
  if (first == nullptr) return;
  const std::string others =
      keys.size() > 1 ? fmt::format(" (also: {})", join(std::vector<std::string>(keys.begin() + 1, keys.end()))) : "";
  throw Error(ErrorCode::kUsage,
              fmt::format("{}: /{}: {}{}; accepted: {}", shown_path(file.file), first->key, first->why, others,
                          join(flags, " ")),
              first->flag);
}

/// Leaves out an option, and says so of its key. `use`: what becomes of the key.
void drop(ConfigFile& file, std::string_view flag, std::string_view why, KeyUse use = KeyUse::kApproximated) {
  const auto found = std::find_if(file.options.begin(), file.options.end(),
                                  [&](const ConfigOption& each) { return each.flag == flag; });
  if (found == file.options.end()) return;
  for (ConfigKey& key : file.keys) {
    if (key.key != found->key) continue;
    key.use = use;
    key.why = std::string(why);
  }
  file.options.erase(found);
}

/// Evaluation with all that belongs to it.
void drop_evaluation(ConfigFile& file, std::string_view why) {
  for (const std::string_view flag : {"--eval-bs", "--eval-logits", "--eval-accum"}) drop(file, flag, why);
  for (ConfigKey& key : file.keys) {
    const bool asks = key.key == "eval_strategy" || key.key == "evaluation_strategy" || key.key == "do_eval";
    if (!asks || key.use != KeyUse::kUsed) continue;
    key.use = KeyUse::kApproximated;
    key.why = std::string(why);
  }
}

/// Whether the file's double quantisation became the single one.
bool take_single_quantization(ConfigFile& file) {
  for (ConfigOption& each : file.options) {
    if (each.flag != "--quantize" || each.text != "nf4-double") continue;
    each.text = "nf4";
    return true;
  }
  return false;
}

/// One rank of ZeRO-3 gathers nothing: sizes of what is gathered say nothing of it.
void leave_gathering_out(ConfigFile& file) {
  for (ConfigOption& each : file.options) {
    if (each.flag != "--deepspeed") continue;
    std::string kept;
    for (std::size_t at = 0; at < each.text.size();) {
      const std::size_t end = std::min(each.text.find(',', at), each.text.size());
      const std::string item = each.text.substr(at, end - at);
      if (!item.starts_with("stage3_")) kept += (kept.empty() ? "" : ",") + item;
      at = end + 1;
    }
    each.text = kept;
  }
  std::erase_if(file.options, [](const ConfigOption& each) { return each.flag == "--deepspeed" && each.text.empty(); });
}

/// PYTORCH_CUDA_ALLOC_CONF: --expandable.
void tell_environment(Account& account, const config::Command& command) {
  if (command.allocator_key.empty()) return;
  account.key(command.allocator_key, KeyUse::kUsed);
  if (command.expandable_segments) account.set("--expandable", {}, command.allocator_key);
  if (command.other_allocator_options.empty()) return;
  account.key(command.allocator_key, KeyUse::kApproximated,
              "of its options expandable_segments is modelled, not " + command.other_allocator_options);
}

/// Plain python with several GPUs.
bool is_one_process(const config::Command& command) {
  return !command.is_launched && command.gpus && command.sees_gpus;
}

/// The Trainer makes one process use all of them.
bool has_trainer(const Account& account) {
  const std::string loop = account.text_of("--loop").value_or("");
  return loop == "trainer" || loop.starts_with("trl-");
}

bool takes_data_parallel(const Account& account) {
  return account.text_of("--loop") == "trainer" && !account.is_set("--eval-bs") && !account.is_set("--parallel");
}

/// The option that does not exist in this run (rule "KEY-exists"); none: the run is made, or refused for another
/// reason.
std::optional<std::string> absent_option(std::span<const ConfigOption> typed, const ConfigFile& file,
                                         const SpecRegistry& registry) {
  try {
    RunRequest request;
    for (const ConfigOption& each : typed) set_option(request, each.flag, each.text);
    for (const ConfigOption& each : file.options) set_option(request, each.flag, each.text);
    (void)question_of(request, registry);
  } catch (const Error& error) {
    if (error.rule().ends_with("-exists")) return error.part();
  }
  return std::nullopt;
}

/// Whether an error's part, "--tie" or "--deepspeed overlap_comm", is of an option "--no-tie" or "--deepspeed".
bool is_part(std::string_view part, std::string_view flag) {
  const Field* const field = find_field(flag);
  return part == (field != nullptr ? field->flag : flag) || part.starts_with(std::string(flag) + " ");
}

ConfigFile finished(Account& account, const config::Command& command, const Format& format) {
  for (const std::string& word : command.irrelevant)
    account.key(word, KeyUse::kIrrelevant, "how processes are started");
  return account.finish("command", format.program);
}

}  // namespace

std::span<const std::string_view> config_formats() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const Format& each : kFormats) all.push_back(each.name);
    return all;
  }();
  return names;
}

ConfigFile read_config(const ConfigRequest& request) {
  return read_config_text(config::read_config_file_text(request.path), request);
}

ConfigFile read_config_text(std::string_view text, const ConfigRequest& request) {
  const JsonNode root = parse_config_text(text, config_syntax_of(request.path), request.path);
  const Format& format = format_asked(request, root);
  Account account(request.path, request.left_out);
  format.read(account, root);
  return account.finish(format.name, format.program);
}

ConfigFile read_command_line(std::span<const std::string> words, const std::vector<std::string>& left_out) {
  const config::Command command = config::read_command(words);
  Account account("command line", left_out);
  account.script = command.script;
  const Format& format = command.format.empty() ? format_of_arguments(command) : *format_named(command.format);
  format.read(account, command.arguments);
  for (const config::Launcher& launcher : command.launchers) {
    config::read_accelerate(account, launcher.arguments, launcher.file, launcher.prefix);
  }
  tell_environment(account, command);
  if (is_one_process(command) && !has_trainer(account)) {
    account.key(command.gpus_key, KeyUse::kIrrelevant, "one process takes one card");
    return finished(account, command, format);
  }
  if (is_one_process(command) && !takes_data_parallel(account)) {
    account.key(command.gpus_key, KeyUse::kApproximated,
                fmt::format("one process sees {} GPUs, so that the Trainer wraps the model in nn.DataParallel, which "
                            "is not modelled here: one GPU is predicted, and the first of them holds more",
                            *command.gpus));
    return finished(account, command, format);
  }
  if (is_one_process(command)) account.set("--parallel", "dp", command.gpus_key);
  if (command.gpus) account.set("--gpus", std::to_string(*command.gpus), command.gpus_key);
  if (command.nodes > 1) account.set("--nodes", std::to_string(command.nodes), command.gpus_key);
  if (!command.gpus_key.empty()) account.key(command.gpus_key, KeyUse::kUsed);
  return finished(account, command, format);
}

std::optional<ConfigOption> micro_batches_of(const ConfigFile& file, std::span<const ConfigOption> typed) {
  if (file.global_batch == 0) return std::nullopt;
  const auto size = [&](std::string_view flag) {
    std::int64_t value = 1;
    const std::string text = value_of(typed, file.options, flag).value_or("1");
    std::from_chars(text.data(), text.data() + text.size(), value);
    return std::clamp<std::int64_t>(value, 1, 131072);
  };
  const std::string_view flag = size("--pp") > 1 ? "--micro-batches" : "--accum";
  const std::int64_t replicas =
      std::max<std::int64_t>(1, gpus_of(typed, file.options) / size("--tp") / size("--pp") / size("--cp"));
  const std::int64_t at_once = replicas * size("--bs");
  if (file.global_batch % at_once != 0 || file.global_batch < at_once) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: /{}: {} samples are no multiple of the {} of a micro-batch on all replicas",
                            shown_path(file.file), file.global_batch_key, file.global_batch, at_once),
                std::string(flag));
  }
  return ConfigOption{std::string(flag), std::to_string(file.global_batch / at_once), file.global_batch_key};
}

ConfigFile config_beside(ConfigFile file, std::span<const ConfigOption> typed) {
  std::vector<std::string> displaced;
  std::erase_if(file.options, [&](const ConfigOption& ours) {
    const bool gone = std::any_of(typed.begin(), typed.end(),
                                  [&](const ConfigOption& each) { return takes_place(each.flag, ours.flag); });
    if (gone && !ours.key.empty()) displaced.push_back(ours.key);
    return gone;
  });
  for (const std::string& key : take_needs(file, typed)) displaced.push_back(key);
  if (!displaced.empty()) file.notes.push_back("options that were typed take the place of " + join(displaced));

  if (!value_of(typed, file.options, "--model") && !value_of(typed, file.options, "--arch")) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: it names no model; accepted: --model MODEL beside it", shown_path(file.file)),
                "--model");
  }
  refuse_open_needs(file, typed);
  const std::int64_t gpus = gpus_of(typed, file.options);
  const bool is_torchtune = file.program.starts_with("torchtune");
  if (is_torchtune && gpus > 1 && !value_of(typed, file.options, "--parallel")) {
    file.options.push_back({"--parallel", "fsdp2", ""});
    file.notes.emplace_back("FSDP2: torchtune's recipes for several GPUs shard so (--parallel)");
  }
  const std::string mode = value_of(typed, file.options, "--parallel").value_or("");
  const bool said = value_of(typed, file.options, "--gpus").has_value();
  const bool shards = mode.starts_with("fsdp") || mode.starts_with("zero") || mode.starts_with("ds-");
  if (!said && gpus == 1 && shards) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: it shards the model over GPUs, and nothing says how many; accepted: --gpus N",
                            shown_path(file.file)),
                "--gpus");
  }
  if (!said && gpus == 1) file.notes.emplace_back("one GPU: nothing says how many (--gpus N)");
  if (gpus > 1 && shards && take_single_quantization(file)) {
    file.notes.emplace_back(
        "nf4 in place of nf4-double, which is not modelled on sharded weights: 0.4 bits more for each weight");
  }
  if (gpus == 1 && !value_of(typed, file.options, "--offload-parameters")) leave_gathering_out(file);
  share_out_batch(file, typed);
  const std::string loop = value_of(typed, file.options, "--loop").value_or("trainer");
  const bool typed_evaluation =
      std::any_of(typed.begin(), typed.end(), [](const ConfigOption& each) { return each.flag == "--eval-bs"; });
  const bool never = loop == "trl-grpo" || loop == "trl-rloo" || loop == "trl-online-dpo";
  if (!typed_evaluation && never) {
    drop_evaluation(file, "evaluation of this trainer is not modelled: the peak is that of the training steps");
  }
  if (value_of(typed, file.options, "--completion")) {
    for (ConfigKey& key : file.keys) {
      const bool says_which = key.key == "completion_only_loss" || key.key == "assistant_only_loss";
      if (says_which && key.use == KeyUse::kApproximated) key = {key.key, KeyUse::kUsed, ""};
    }
  }
  if (value_of(typed, file.options, "--lengths")) {
    if (!file.padded_to_length.empty()) {
      throw Error(ErrorCode::kUsage, "--lengths: " + file.padded_to_length, "--lengths");
    }
    std::erase_if(file.options, [](const ConfigOption& each) { return each.flag == "--padding" && each.key.empty(); });
  } else {  // rows are packed of samples whose lengths are known
    drop(file, "--packing",
         "each row is packed full: as sequences of max_length tokens that attend as one each (--lengths)");
    drop(file, "--padding-free", "rows are taken to be full: nothing is padded (--lengths)");
    drop(file, "--group-by-length", "every sequence is as long as the others (--lengths)");
    drop(file, "--seed", "the order of samples, which are equally long (--lengths)", KeyUse::kIrrelevant);
  }
  if (gpus == 1 || mode != "fsdp2") {
    std::erase_if(file.options, [](const ConfigOption& each) { return each.flag == "--quant-storage"; });
  }
  if (value_of(typed, file.options, "--quantize").value_or("none") == "none") {
    std::erase_if(file.options, [](const ConfigOption& each) { return each.flag == "--no-prepare-kbit"; });
  }
  if (gpus == 1) {
    std::erase_if(file.options, [](const ConfigOption& each) { return each.flag == "--ddp-static-graph"; });
  }
  return file;
}

void require_masking(const ConfigFile& file, std::span<const ConfigOption> typed, const SpecRegistry& registry) {
  if (file.masking_argument.empty()) return;
  std::string rule;
  try {
    RunRequest request;
    for (const std::string_view flag : {"--model", "--arch", "--task"}) {
      if (const auto text = value_of(typed, file.options, flag)) set_option(request, flag, *text);
    }
    (void)question_of(request, registry);
  } catch (const Error& error) {
    rule = error.rule();
  }
  if (rule != "task-of-encoders") return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{}: the model is an encoder, and the script masks words where it is told to; accepted: {}",
                          shown_path(file.file), file.masking_argument),
              "--task");
}

ConfigFile with_limited_length(ConfigFile file, std::span<const ConfigOption> typed, const SpecRegistry& registry) {
  if (file.most_tokens == 0 || value_of(typed, file.options, "--seq")) return file;
  std::int64_t tokens = file.most_tokens;
  try {
    RunRequest request;
    for (const std::string_view flag : {"--model", "--arch", "--max-positions", "--task"}) {
      if (const auto text = value_of(typed, file.options, flag)) set_option(request, flag, *text);
    }
    tokens = std::min(tokens, question_of(request, registry).run.run.sequence_length);
  } catch (const Error&) {  // a list of models, or an unknown one, of which the run itself tells
  }
  file.options.push_back({"--seq", std::to_string(tokens), ""});
  return file;
}

ConfigFile without_absent(ConfigFile file, std::span<const ConfigOption> typed, const SpecRegistry& registry) {
  if (file.format != "memcalc") return file;
  std::vector<std::string> left_out;
  for (;;) {
    const std::optional<std::string> absent = absent_option(typed, file, registry);
    if (!absent) break;
    const auto found = std::find_if(file.options.begin(), file.options.end(),
                                    [&](const ConfigOption& each) { return is_part(*absent, each.flag); });
    if (found == file.options.end()) break;  // it was typed
    left_out.push_back(found->key);
    const std::string flag = found->flag;
    drop(file, flag, "no option of this run", KeyUse::kLeftOut);
  }
  if (!left_out.empty())
    file.notes.push_back("left out of the report, as this run has no such options: " + join(left_out));
  return file;
}

std::vector<std::string> keys_of(const ConfigFile& file, KeyUse use) {
  std::vector<std::string> keys;
  for (const ConfigKey& each : file.keys) {
    if (each.use == use) keys.push_back(each.key);
  }
  return keys;
}

std::vector<std::string> lines_of(const ConfigFile& file) {
  std::string options;
  for (const ConfigOption& each : file.options) {
    options += (options.empty() ? "" : " ") + each.flag + (each.text.empty() ? "" : " " + each.text);
  }
  std::vector<std::string> lines = {"as options: " + options};
  const std::pair<KeyUse, std::string_view> kinds[] = {{KeyUse::kUsed, "used"},
                                                       {KeyUse::kIrrelevant, "irrelevant to memory and time"},
                                                       {KeyUse::kApproximated, "approximated, as assumed below"},
                                                       {KeyUse::kLeftOut, "left out"}};
  for (const auto& [use, words] : kinds) {
    const std::vector<std::string> keys = keys_of(file, use);
    if (!keys.empty()) lines.push_back(fmt::format("{} ({}): {}", words, keys.size(), join(keys)));
  }
  return lines;
}

std::vector<std::string> assumptions_of(const ConfigFile& file) {
  std::vector<std::string> all = {
      fmt::format("{}, read as {}: {}", shown_path(file.file), file.program, counts_of(file))};
  for (const ConfigKey& key : file.keys) {
    if (key.use == KeyUse::kApproximated) all.push_back(key.key + ": " + key.why);
  }
  all.insert(all.end(), file.notes.begin(), file.notes.end());
  return all;
}

std::string counts_of(const ConfigFile& file) {
  std::string text = fmt::format("{} keys used, {} irrelevant", keys_of(file, KeyUse::kUsed).size(),
                                 keys_of(file, KeyUse::kIrrelevant).size());
  if (const auto near = keys_of(file, KeyUse::kApproximated).size(); near > 0)
    text += fmt::format(", {} approximated", near);
  if (const auto out = keys_of(file, KeyUse::kLeftOut).size(); out > 0) text += fmt::format(", {} left out", out);
  return text;
}

}  // namespace memcalc
