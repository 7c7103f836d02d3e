#include "memcalc/spec/config_files/command_words.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/config_files/example_scripts.h"
#include "memcalc/spec/config_files/launcher_options.h"
#include "memcalc/spec/config_files/trainer.h"
#include "memcalc/spec/names.h"

namespace memcalc::config {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kUsage, "command line: " + message, "--");
}

JsonNode text_of(std::string text) {
  JsonNode node;
  node.kind = JsonNode::Kind::kString;
  node.text = std::move(text);
  return node;
}

JsonNode truth(bool value) {
  JsonNode node;
  node.kind = JsonNode::Kind::kBool;
  node.boolean = value;
  return node;
}

JsonNode mapping() {
  JsonNode node;
  node.kind = JsonNode::Kind::kObject;
  return node;
}

void put(JsonNode& object, std::string key, JsonNode value) {
  value.key = std::move(key);
  for (JsonNode& child : object.children) {
    if (child.key != value.key) continue;
    child = std::move(value);
    return;
  }
  object.children.push_back(std::move(value));
}

// "training.seq_len" as two keys, as torchtitan's arguments are.
void put_path(JsonNode& object, std::string_view path, JsonNode value) {
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) return put(object, std::string(path), std::move(value));
  const std::string first(path.substr(0, dot));
  for (JsonNode& child : object.children) {
    if (child.key == first && child.kind == JsonNode::Kind::kObject)
      return put_path(child, path.substr(dot + 1), std::move(value));
  }
  JsonNode inner = mapping();
  put_path(inner, path.substr(dot + 1), std::move(value));
  put(object, first, std::move(inner));
}

bool is_option(std::string_view word) {
  return word.size() > 1 && word.front() == '-' && std::isdigit(static_cast<unsigned char>(word[1])) == 0 &&
         word[1] != '.';
}

bool ends_in(std::string_view word, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view each) { return word.ends_with(each); });
}

std::string key_of(std::string_view word) {
  const std::size_t first = word.find_first_not_of('-');
  if (first == std::string_view::npos) refuse(fmt::format("'{}' is no option", one_line(word)));
  std::string key(word.substr(first));
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::int64_t count_of(const std::string& word, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > 131072) {
    refuse(fmt::format("{}: found '{}'; accepted: a number of processes", one_line(word), one_line(text)));
  }
  return value;
}

bool is_trl(std::string_view trainer) {
  constexpr std::array<std::string_view, 6> kTrainers = {"sft", "dpo", "kto", "reward", "grpo", "rloo"};
  return std::find(kTrainers.begin(), kTrainers.end(), trainer) != kTrainers.end();
}

/// TRL's scripts by their own names and by those of alignment-handbook, where the trainer is another word.
struct TrlScript {
  std::string_view name;
  std::string_view trainer;  // empty: not modelled
};
constexpr TrlScript kTrlScripts[] = {
    {"dpo_online", "online-dpo"},
    {"online_dpo", "online-dpo"},
    {"online_dpo_vlm", "online-dpo"},
    {"orpo", "orpo"},
    {"run_orpo", "orpo"},
    {"run_sft", "sft"},
    {"sft_vlm", "sft"},
    {"sft_gpt_oss", "sft"},
    {"sft_gemma3", "sft"},
    {"sft_vlm_gemma3", "sft"},
    {"sft_nemotron_3", "sft"},
    {"sft_diffusion_gemma", ""},
    {"sft_tiny_aya_tool_calling", ""},
    {"run_dpo", "dpo"},
    {"dpo_vlm", "dpo"},
    {"reward_modeling", "reward"},
    {"grpo_vlm", "grpo"},
    {"grpo_agent", "grpo"},
    {"gspo", "grpo"},
    {"gspo_vlm", "grpo"},
    {"grpo_2048", ""},
    {"grpo_continuous_batching", ""},
    {"rloo_vlm", "rloo"},
    {"async_grpo", ""},
    {"bco", ""},
    {"cpo", ""},
    {"distillation", ""},
    {"run_simpo", ""},
    {"gkd", ""},
    {"gold", ""},
    {"nash_md", ""},
    {"xpo", ""},
    {"ppo", ""},
    {"ppo_tldr", ""},
    {"prm", ""},
    {"tpo", ""},
    {"sdft", ""},
    {"sdpo", ""},
    {"ssd", ""},
    {"mpo_vlm", ""},
};

/// "sft" of sft.py, of sft_vlm.py and of the module trl.scripts.sft; empty: no script of TRL's. Refuses those of its
/// other trainers.
std::string_view trl_trainer_of(std::string_view program) {
  constexpr std::string_view kModule = "trl.scripts.";
  std::string_view stem;
  if (program.starts_with(kModule)) stem = program.substr(kModule.size());
  if (program.ends_with(".py")) stem = program.substr(0, program.size() - 3);
  if (is_trl(stem)) return stem;
  const auto* found = std::find_if(std::begin(kTrlScripts), std::end(kTrlScripts),
                                   [&](const TrlScript& each) { return each.name == stem; });
  if (found == std::end(kTrlScripts)) return "";
  if (found->trainer.empty()) {
    refuse(
        fmt::format("{} is taken for TRL's script of that name, which is not modelled; accepted: for a script of your "
                    "own another name in its place, as train.py",
                    one_line(program)));
  }
  return found->trainer;
}

bool is_megatron_script(std::string_view program) {
  return program == "pretrain_gpt.py" || program == "pretrain_bert.py" || program == "pretrain_t5.py";
}

/// deepspeed/launcher/runner.py, --include: "localhost:0,1@worker:0,1".
struct Included {
  std::int64_t hosts = 0;
  std::int64_t gpus = 0;  // of all; 0: not said
};
Included included_of(std::string_view list) {
  Included all;
  std::int64_t each = -1;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find('@'), list.size());
    const std::string_view host = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    const std::size_t colon = host.find(':');
    const std::int64_t gpus = colon == std::string_view::npos
                                  ? 0
                                  : std::count(host.begin() + static_cast<std::ptrdiff_t>(colon), host.end(), ',') + 1;
    if (each >= 0 && gpus != each) {
      refuse(
          "--include: hosts with unequal numbers of cards, or without a list of them, are not modelled beside others; "
          "accepted: HOST:0,1@HOST:0,1");
    }
    each = gpus;
    ++all.hosts;
    all.gpus += gpus;
  }
  if (all.hosts > 1 && all.gpus == 0) {
    refuse("--include: how many cards its hosts have is not known; accepted: HOST:0,1@HOST:0,1");
  }
  return all;
}

class CommandReader {
 public:
  explicit CommandReader(std::span<const std::string> words) : words_(words) { command_.arguments = mapping(); }

  Command read() {
    do {
      read_environment();
    } while (read_launcher());
    read_program();
    check_tasks();
    take_visible_gpus();
    return std::move(command_);
  }

 private:
  [[nodiscard]] bool done() const { return at_ >= words_.size(); }
  [[nodiscard]] const std::string& word() const { return words_[at_]; }
  const std::string& next() {
    if (done()) refuse("it ends where a script or a value is expected");
    return words_[at_++];
  }
  [[nodiscard]] std::string_view name() const {  // of a program, without its folder
    const std::string_view all = word();
    return all.substr(all.rfind('/') + 1);
  }

  // Assignments in front of a program, also behind `env`.
  void read_environment() {
    while (!done()) {
      if (name() == "env") {
        ++at_;
        while (!done() && is_option(word())) {
          const bool takes_name = word() == "-u" || word() == "--unset";
          at_ += takes_name && at_ + 1 < words_.size() ? 2 : 1;
        }
        continue;
      }
      if (is_option(word()) || word().find('=') == std::string::npos) return;
      read_variable(word().substr(0, word().find('=')), word().substr(word().find('=') + 1));
      ++at_;
    }
  }

  void read_variable(const std::string& variable, const std::string& value) {
    if (variable == "NPROC_PER_NODE" || variable == "NGPU") {
      command_.gpus = count_of(variable, value);
      command_.gpus_key = variable;
    } else if (variable == "CUDA_VISIBLE_DEVICES") {
      visible_gpus_ = visible_of(value);
      visible_key_ = variable;
      if (*visible_gpus_ == 0) refuse("CUDA_VISIBLE_DEVICES: a training without a GPU is not modelled");
    } else if (variable == "PYTORCH_CUDA_ALLOC_CONF" || variable == "PYTORCH_ALLOC_CONF") {
      read_allocator(variable, value);
    } else {
      command_.irrelevant.push_back(variable);
    }
  }

  // CUDA takes the cards up to the first number that is none: "-1", "".
  static std::int64_t visible_of(std::string_view value) {
    std::int64_t count = 0;
    for (; !value.empty() && value.front() != '-'; ++count) {
      const std::size_t comma = value.find(',');
      value = comma == std::string_view::npos ? "" : value.substr(comma + 1);
    }
    return count;
  }

  // c10/core/AllocatorConfig.cpp: "expandable_segments:True,max_split_size_mb:128".
  void read_allocator(const std::string& variable, std::string_view value) {
    command_.allocator_key = variable;
    while (!value.empty()) {
      const std::size_t comma = value.find(',');
      const std::string_view option = value.substr(0, comma);
      value = comma == std::string_view::npos ? "" : value.substr(comma + 1);
      if (option == "expandable_segments:True") {
        command_.expandable_segments = true;
      } else if (option == "expandable_segments:False") {
        command_.expandable_segments = false;
      } else if (!option.empty()) {
        command_.other_allocator_options += (command_.other_allocator_options.empty() ? "" : ", ") + one_line(option);
      }
    }
  }

  // A launcher that was not told how many processes starts one for each GPU that it sees, and plain python has one for
  // all.
  void take_visible_gpus() {
    if (!visible_gpus_) return;
    if (*visible_gpus_ > 1 && !command_.gpus && !counts_processes_) {
      command_.gpus = visible_gpus_;
      command_.gpus_key = visible_key_;
      command_.sees_gpus = true;
      std::erase(command_.irrelevant, visible_key_);
    } else if (visible_key_ != "srun") {
      command_.irrelevant.push_back(visible_key_);
    }
  }

  // One launcher: true where there was one.
  bool read_launcher() {
    if (done()) refuse("it has no script");
    const std::string_view program = name();
    command_.is_launched = !program.starts_with("python") && !program.ends_with(".py");
    if (program == "uv" || program == "nohup" || program == "time" || program == "poetry") {
      ++at_;
      if (!done() && word() == "run") ++at_;
      return true;
    }
    if (program == "srun") {
      ++at_;
      read_srun();
      return true;
    }
    if (program.starts_with("python")) {
      ++at_;
      if (done()) refuse("it has no script");
      if (word() == "-m" && at_ + 1 < words_.size() &&
          (words_[at_ + 1] == "torch.distributed.run" || words_[at_ + 1] == "torch.distributed.launch")) {
        at_ += 2;
        command_.is_launched = true;
        read_torchrun();
      } else if (word() == "-m" && at_ + 1 < words_.size() && words_[at_ + 1] == "accelerate.commands.launch") {
        at_ += 2;
        command_.is_launched = true;
        read_accelerate_launch();
      } else {
        while (!done() && is_option(word()) && word() != "-m") ++at_;  // -u
      }
      return false;
    }
    if (program == "torchrun") {
      ++at_;
      read_torchrun();
      return false;
    }
    if (program == "accelerate" || program == "accelerate-launch") {
      ++at_;
      if (program == "accelerate" && (done() || next() != "launch"))
        refuse("of accelerate 'accelerate launch' is read");
      read_accelerate_launch();
      return false;
    }
    if (program == "deepspeed") {
      ++at_;
      read_deepspeed_launch();
      return false;
    }
    return false;
  }

  // --name value, --name=value; `flags` take none.
  std::pair<std::string, std::string> launcher_option(OptionNames flags) {
    std::string word = next();
    const std::size_t equals = word.find('=');
    std::string key = key_of(word.substr(0, equals));
    if (equals != std::string::npos) return {std::move(key), word.substr(equals + 1)};
    if (holds(flags, key)) return {std::move(key), "true"};
    return {std::move(key), next()};
  }

  // srun(1): one task on each node, unless it is told how many; each sees the cards of its node that were asked for.
  void read_srun() {
    std::optional<std::int64_t> tasks, nodes, each;
    while (!done() && is_option(word())) {
      const std::string option = next();
      std::string key, value;
      if (option.starts_with("--")) {
        const std::size_t equals = option.find('=');
        key = key_of(option.substr(0, equals));
        value = equals != std::string::npos ? option.substr(equals + 1) : holds(kSrunFlags, key) ? "" : next();
      } else {
        key = option.substr(1, 1);
        const bool takes_value = kSrunLettersWithValue.find(key) != std::string_view::npos;
        value = option.size() > 2 ? option.substr(2) : takes_value ? next() : "";
      }
      if (key == "n" || key == "ntasks") tasks = count_of(option, value);
      if (key == "N" || key == "nodes") nodes = count_of(option, value);
      if (key == "ntasks_per_node") each = count_of(option, value);
      if (key == "gres" || key == "gpus_per_node") take_cards(option, value);
    }
    srun_tasks_ = tasks.value_or(nodes.value_or(1) * each.value_or(1));
    command_.irrelevant.emplace_back("srun");
  }

  // "gpu:8", "gpu:a100:8", "gpu:2,shm:1"; of --gpus-per-node "8", "a100:8".
  void take_cards(const std::string& option, std::string_view value) {
    const bool is_gres = option.starts_with("--gres");
    for (const std::string_view each : words_of(value, ",")) {
      if (is_gres && !each.starts_with("gpu")) continue;
      const std::string_view count = each.substr(each.rfind(':') + 1);
      visible_gpus_ = is_digits(count) ? count_of(option, std::string(count)) : 1;
      visible_key_ = "srun";
    }
  }

  // Every task of srun's starts what stands behind it. They are one training where the launcher there is told so: of
  // SLURM_PROCID neither accelerate's PartialState nor torchrun knows.
  void check_tasks() const {
    if (srun_tasks_ == 1) return;
    std::int64_t nodes = command_.nodes;
    for (const JsonNode* tree : trees()) {
      for (const JsonNode& child : tree->children) {
        if (child.key == "num_machines" && child.kind == JsonNode::Kind::kString)
          nodes = count_of(child.key, child.text);
        if (child.key == "num_machines" && child.kind == JsonNode::Kind::kInteger) nodes = child.integer;
      }
    }
    if (nodes == srun_tasks_) return;
    refuse(fmt::format(
        "srun starts {} tasks, and what stands behind it is told of {}: whether they are one training is not known; "
        "accepted: a task for each node and torchrun --nnodes N --nproc_per_node M (accelerate launch --num_machines N "
        "--num_processes N*M) behind it, or the line without srun and --gpus N beside it",
        srun_tasks_, nodes == 1 ? "one node" : fmt::format("{} nodes", nodes)));
  }
  [[nodiscard]] std::vector<const JsonNode*> trees() const {
    std::vector<const JsonNode*> all = {&command_.arguments};
    for (const Launcher& each : command_.launchers) all.push_back(&each.arguments);
    return all;
  }

  void read_torchrun() {
    std::optional<std::int64_t> each;
    while (!done() && is_option(word()) && word() != "-m") {
      const auto [key, value] = launcher_option(kTorchrunFlags);
      if (key == "nproc_per_node" || key == "nproc") {
        command_.gpus_key = key;
        if (value != "gpu" && value != "auto") each = count_of(key, value);
        if (!each && visible_gpus_) each = visible_gpus_;
      } else if (key == "nnodes") {
        command_.nodes = count_of(key, value.substr(value.find(':') + 1));  // MIN:MAX
      } else {
        command_.irrelevant.push_back(key);
      }
    }
    counts_processes_ = true;  // one, where it was told nothing
    if (each) command_.gpus = *each * command_.nodes;
  }

  void read_deepspeed_launch() {
    std::optional<std::int64_t> each;
    while (!done() && is_option(word()) && word() != "-m") {
      const auto [key, value] = launcher_option(kDeepSpeedFlags);
      if (key == "num_gpus") {
        command_.gpus_key = key;
        each = count_of(key, value);
      } else if ((key == "include" || key == "i") && included_of(value).gpus > 0) {
        command_.gpus_key = key;
        command_.nodes = included_of(value).hosts;
        command_.gpus = included_of(value).gpus;
      } else if (key == "num_nodes") {
        command_.nodes = count_of(key, value);
      } else {
        command_.irrelevant.push_back(key);
      }
    }
    if (each) command_.gpus = *each * command_.nodes;
  }

  void read_accelerate_launch() {
    Launcher launcher{mapping(), "command line", "accelerate/"};

    while (!done() && is_option(word()) && word() != "-m") {
      const auto [key, value] = launcher_option(kAccelerateFlags);
      if (key == "config_file") {
        const std::string path = find_named_file(value, "./");
        command_.launchers.push_back({read_config_tree(path), path, "config_file/"});
        counts_processes_ = true;
        continue;
      }
      if (key == "num_processes") counts_processes_ = true;
      JsonNode node = value == "true" ? truth(true) : text_of(value);
      const bool deepspeed = key == "zero_stage" || key.starts_with("offload_") || key.starts_with("zero3_") ||
                             key == "gradient_clipping" || key == "gradient_accumulation_steps" ||
                             key == "deepspeed_config_file";
      put_path(launcher.arguments,
               (deepspeed                  ? "deepspeed_config."
                : key.starts_with("fsdp_") ? "fsdp_config."
                                           : "") +
                   key,
               std::move(node));
    }
    if (!launcher.arguments.children.empty()) command_.launchers.push_back(std::move(launcher));
  }

  // The script, or a tool's own program, and its arguments.
  void read_program() {
    if (done()) refuse("it has no script");
    bool module = false;
    if (word() == "-m") {
      module = true;
      ++at_;
    }
    const std::string known = script_in_folder(done() ? "" : word());
    const std::string program(module ? next() : std::string(name()));
    if (!module) ++at_;
    if (program == "trl") {
      const std::string trainer = next();
      if (!is_trl(trainer)) {
        refuse("trl " + one_line(trainer) + ": of TRL's trainers sft, dpo, kto, reward, grpo and rloo are modelled");
      }
      command_.format = "trl-" + trainer;
    } else if (program == "llamafactory-cli" || program == "lmf") {
      if (next() != "train") refuse("of llamafactory-cli 'train' is modelled");
      command_.format = "llama-factory";
    } else if (program == "axolotl") {
      if (next() != "train") refuse("of axolotl 'train' is modelled");
      command_.format = "axolotl";
    } else if (program == "axolotl.cli.train") {
      command_.format = "axolotl";
    } else if (program == "torchtitan.train") {
      command_.format = "torchtitan";
    } else if (program == "tune") {
      read_tune();
    } else if (!trl_trainer_of(program).empty()) {
      command_.format = "trl-" + std::string(trl_trainer_of(program));
    } else if (!module && !program.ends_with(".py")) {
      refuse(
          fmt::format("'{}' is no program that is known; accepted: python, torchrun, accelerate launch, deepspeed, "
                      "trl, llamafactory-cli, axolotl, tune",
                      one_line(program)));
    }  // else by its arguments
    if (program.ends_with(".py")) command_.script = program;
    if (!known.empty()) command_.script = known;
    if (command_.format.empty() && (is_megatron_script(program) || is_megatron())) command_.format = "megatron";
    read_arguments();
  }

  // By arguments that no other tool has: scripts of Megatron-LM have many names.
  [[nodiscard]] bool is_megatron() const {
    return std::any_of(words_.begin() + static_cast<std::ptrdiff_t>(at_), words_.end(), [](const std::string& word) {
      const std::string_view name = std::string_view(word).substr(0, word.find('='));
      return name == "--num-attention-heads" || name == "--tensor-model-parallel-size" || name == "--use-mcore-models";
    });
  }

  // tune run [torchrun's options] RECIPE --config FILE key=value …
  void read_tune() {
    constexpr std::array<std::string_view, 4> kRecipes = {"full_finetune_single_device", "full_finetune_distributed",
                                                          "lora_finetune_single_device", "lora_finetune_distributed"};
    if (done() || next() != "run") refuse("of torchtune 'tune run' is modelled");
    read_torchrun();
    const std::string recipe = next();
    if (std::find(kRecipes.begin(), kRecipes.end(), recipe) == kRecipes.end()) {
      refuse(fmt::format("torchtune's recipe '{}' is not modelled; accepted: {}", one_line(recipe),
                         join(std::vector<std::string>(kRecipes.begin(), kRecipes.end()))));
    }
    command_.format = "torchtune";
  }

  // A file first, so that what stands on the line wins over it.
  void read_arguments() {
    JsonNode said = mapping();
    bool has_file = false;
    const auto take_file = [&](const std::string& path) {
      if (has_file) refuse("two configuration files");
      has_file = true;
      command_.arguments = read_config_tree(find_named_file(path, "./"));
    };
    while (!done()) {
      const std::string& word = next();
      if (is_option(word)) {
        const std::size_t equals = word.find('=');
        std::string key = key_of(word.substr(0, equals));
        if (equals != std::string::npos) {
          put_argument(said, std::move(key), text_of(word.substr(equals + 1)));
          continue;
        }
        std::vector<std::string> values;
        const bool is_config = key == "config" || key == "job.config_file";
        // What follows a file are words of their own: tune run … --config x.yaml batch_size=4
        while (!done() && !is_option(this->word()) && !(is_config && values.size() == 1)) values.push_back(next());
        if (is_config && values.size() == 1) {
          take_file(values.front());
          continue;
        }
        if (values.empty()) {
          put_argument(said, std::move(key), truth(true));
        } else if (values.size() == 1) {
          put_argument(said, std::move(key), text_of(values.front()));
        } else {
          JsonNode list;
          list.kind = JsonNode::Kind::kArray;
          for (std::string& value : values) list.children.push_back(text_of(std::move(value)));
          put_argument(said, std::move(key), std::move(list));
        }
        continue;
      }
      if (word.find('=') != std::string::npos) {  // llamafactory-cli train x.yaml learning_rate=1e-5
        const std::string key = word.substr(0, word.find('='));
        JsonNode value = text_of(word.substr(key.size() + 1));
        command_.format == "torchtune" ? put_path(said, key, std::move(value)) : put(said, key, std::move(value));
      } else if (ends_in(word, {".yaml", ".yml", ".json", ".toml"})) {
        take_file(word);
      } else {
        refuse(fmt::format("unexpected word '{}'; every value follows its option", one_line(word)));
      }
    }
    for (JsonNode& child : said.children) {
      std::string key = child.key;
      if (child.kind == JsonNode::Kind::kObject) {
        for (JsonNode& inner : child.children) put_path(command_.arguments, key + "." + inner.key, inner);
      } else {
        put(command_.arguments, std::move(key), std::move(child));
      }
    }
    if (command_.arguments.children.empty()) refuse("it has no arguments");
  }

  // transformers' HfArgumentParser has --no_NAME for what is on by default, Megatron arguments that are so called.
  void put_argument(JsonNode& said, std::string key, JsonNode value) const {
    const bool negated = key.starts_with("no_") && key != "no_cuda" && command_.format != "megatron" &&
                         value.kind == JsonNode::Kind::kBool;
    if (negated) return put(said, key.substr(3), truth(false));
    put_path(said, key, std::move(value));
  }

  std::span<const std::string> words_;
  std::size_t at_ = 0;
  std::optional<std::int64_t> visible_gpus_;  // that one process sees
  std::string visible_key_;                   // CUDA_VISIBLE_DEVICES, or srun, whose options say so
  std::int64_t srun_tasks_ = 1;
  bool counts_processes_ = false;  // the launcher was told how many
  Command command_;
};

}  // namespace

Command read_command(std::span<const std::string> words) {
  if (words.empty()) refuse("it is empty");
  return CommandReader(words).read();
}

}  // namespace memcalc::config
