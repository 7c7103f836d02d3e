// Other tools' configuration files and command lines as options of memcalc: `memcalc --config FILE`, and
// `memcalc -- python train.py …`. Every key is used, told to be irrelevant, approximated with a sentence that says how,
// or refused. docs/config-files.md. Covered by tests/unit/config_files_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace memcalc {

class SpecRegistry;

/// What became of a key.
enum class KeyUse : std::uint8_t { kUsed, kIrrelevant, kApproximated, kLeftOut };

struct ConfigKey {
  std::string key;  // "fsdp_config/offload_params"
  KeyUse use = KeyUse::kIrrelevant;
  std::string why;  // irrelevant, approximated: in words
};

/// An option of memcalc as it is typed: {"--bs", "4"}, {"--liger", ""}.
struct ConfigOption {
  std::string flag;
  std::string text;
  std::string key;  // that set it; empty: a default of the tool
};

/// An option that a file does not say and that has no default then.
struct ConfigNeed {
  std::string flag;
  std::string key;  // that leaves it open
  std::string why;
};

struct ConfigFile {
  std::string file;     // its path; of a command line: "command line"
  std::string format;   // one of config_formats(), or "command"
  std::string program;  // whose keys and defaults these are: "axolotl 0.19.0"
  std::vector<ConfigOption> options;
  std::vector<ConfigKey> keys;     // all of them, in the order of the file
  std::vector<std::string> notes;  // what is assumed where the file says nothing or more than memcalc models
  std::vector<ConfigNeed> needs;
  std::int64_t most_tokens =
      0;  // of a sequence, where the model has more positions and nothing says --seq; 0: no limit
  std::string masking_argument;   // which would make the script mask words; empty: none, or it does
  std::string padded_to_length;   // why --lengths says nothing; empty: it does
  std::int64_t global_batch = 0;  // samples of a step on all GPUs, which say how many micro-batches it has; 0: not said
  std::string global_batch_key;   // that says so
};

/// Which file, and how it is to be read.
struct ConfigRequest {
  std::string path;
  std::string format;                 // --config-format; empty: recognised by its keys
  std::vector<std::string> left_out;  // --config-without: keys that are taken as if they were not there
};

/// Reads a file, and the files that it names (its `deepspeed`). Throws Error(kInput): it cannot be read, or a value is
/// wrong; Error(kUsage): an unknown format, or a key to leave out that it has not; Error(kUnsupported): keys that mean
/// what memcalc does not model, all of them in one line.
[[nodiscard]] ConfigFile read_config(const ConfigRequest& request);

/// The same of the text of a file; `request.path` stands for it in messages, and its ending says what it is.
[[nodiscard]] ConfigFile read_config_text(std::string_view text, const ConfigRequest& request);

/// The same of a training's command line: {"accelerate", "launch", "train.py", "--bf16", …}.
[[nodiscard]] ConfigFile read_command_line(std::span<const std::string> words,
                                           const std::vector<std::string>& left_out);

/// Values of --config-format.
[[nodiscard]] std::span<const std::string_view> config_formats();

/// The file's options beside those that were typed, which win. `notes` of the result says which did, and what else
/// follows from both together: what is left out on several GPUs, that one GPU is assumed.
[[nodiscard]] ConfigFile config_beside(ConfigFile file, std::span<const ConfigOption> typed);

/// The micro-batches that its global batch means beside other options: --accum, of a pipeline --micro-batches. Nothing:
/// it has no global batch. Throws Error(kUsage) where it cannot be shared out.
[[nodiscard]] std::optional<ConfigOption> micro_batches_of(const ConfigFile& file, std::span<const ConfigOption> typed);

/// Of a report of memcalc less the options that do not exist in the run which it becomes beside those that were typed:
/// a loop's of a run with --infer. Other tools' files as they are, and a run that is refused for another reason.
[[nodiscard]] ConfigFile without_absent(ConfigFile file, std::span<const ConfigOption> typed,
                                        const SpecRegistry& registry);

/// With --seq where the file's limit is shorter than what the model has by default.
/// Throws Error(kUsage) for an encoder in a script that was not told to mask words.
void require_masking(const ConfigFile& file, std::span<const ConfigOption> typed, const SpecRegistry& registry);

[[nodiscard]] ConfigFile with_limited_length(ConfigFile file, std::span<const ConfigOption> typed,
                                             const SpecRegistry& registry);

/// "12 keys used, 30 irrelevant, 1 approximated"
[[nodiscard]] std::string counts_of(const ConfigFile& file);

/// What a report says of it, a line each: the options that it became, and every key by its use.
[[nodiscard]] std::vector<std::string> lines_of(const ConfigFile& file);

/// What an answer assumes because of it: its notes, and what each approximated key means.
[[nodiscard]] std::vector<std::string> assumptions_of(const ConfigFile& file);

/// The keys of one use.
[[nodiscard]] std::vector<std::string> keys_of(const ConfigFile& file, KeyUse use);

}  // namespace memcalc
