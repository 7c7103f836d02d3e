// Internal to spec/config_files: what the tools that stand on transformers' Trainer share.
// MIRRORS(transformers, "training_args.py", "5.17.0")
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/config_files/key_table.h"
#include "memcalc/spec/config_files/section.h"

namespace memcalc::config {

/// transformers 5.17, training_args.py, and names that earlier versions had.
[[nodiscard]] KeyTable trainer_keys();

/// What differs between the tools that take TrainingArguments.
struct TrainerDefaults {
  std::int64_t batch_size = 8;
  std::optional<bool> checkpointing = false;  // nothing: the tool's own function says it
  bool bf16 = false;
};

/// Batch, precision, checkpointing, optimizer, evaluation, sharding.
void read_trainer(Section& section, const TrainerDefaults& defaults);

/// --precision amp-bf16, amp-fp16, tf32 or fp32.
void read_mixed_precision(Section& section, bool bf16_by_default);

/// --checkpointing full, where it is on. `on_by_default`: of TRL.
void read_checkpointing(Section& section, bool on_by_default);

/// gradient_checkpointing_kwargs under the key `more`: --reentrant, --checkpointing every-N in place of what `key`
/// said.
void read_checkpointing_arguments(Section& section, std::string_view key, std::string_view more);

/// --compile; "auto" is on.
void read_compile(Section& section);

/// Evaluation between the steps: --eval-bs.
void read_evaluation(Section& section);

/// attn_implementation: --attn.
void set_attention(Section& section, std::string_view key, const std::string& name);

/// Whether it has characters that no name has: peft takes it for a regular expression.
[[nodiscard]] bool is_pattern(const std::string& target);

/// Names of layers, or a pattern behind kPatternPrefix: --lora-targets. Refuses lists of patterns.
void set_targets(Section& section, std::string_view key, const std::vector<std::string>& targets);

/// The same of `modules` and what lora_target_parameters names; false: there are neither.
[[nodiscard]] bool set_targets(Section& section, std::vector<std::string> modules);

/// lora_modules_to_save: --lora-modules-to-save.
void set_saved(Section& section);

struct ExampleScript;

/// --model or --arch and its sizes, where the script makes a model of a configuration (fresh_model.cc); `script`: null
/// of one's own.
void read_fresh_model(Section& section, const ExampleScript* script);

/// A path or a mapping of DeepSpeed's configuration.
void read_deepspeed_key(Section& section, std::string_view key);

// --- FSDP (fsdp.cc)

/// Under fsdp_config/, with and without "fsdp_" in front.
[[nodiscard]] KeyTable fsdp_keys();

/// fsdp_config/…: --parallel fsdp1 or fsdp2 and what belongs to it. `version_by_default`: where the file says none.
void read_fsdp(Section& section, std::int64_t version_by_default);

// --- DeepSpeed (deepspeed_file.cc)

[[nodiscard]] KeyTable deepspeed_keys();

/// Its JSON, within a tool that stands on the Trainer, or alone.
void read_deepspeed(Account& account, const JsonNode& object, const std::string& file, std::string prefix);

// --- files that files name (named_file.cc)

/// The file that a configuration file names: as it stands, beside it, or beside a folder above it, as tools are started
/// in the folder of their repository. Throws Error(kInput) where there is none.
[[nodiscard]] std::string find_named_file(const std::string& name, const std::string& beside);

/// Reads it.
[[nodiscard]] std::string read_config_file_text(const std::string& path);

/// Reads and parses it.
[[nodiscard]] JsonNode read_config_tree(const std::string& path);

// --- the tools

void read_axolotl(Account& account, const JsonNode& root);
void read_llama_factory(Account& account, const JsonNode& root);
void read_trl(Account& account, const JsonNode& root, std::string_view trainer);  // "sft", "dpo", "kto", "grpo", "rloo"
void read_training_arguments(Account& account, const JsonNode& root);             // and HF's example scripts
void read_accelerate(Account& account, const JsonNode& root, const std::string& file, const std::string& prefix);
void read_deepspeed_alone(Account& account, const JsonNode& root);
void read_torchtitan(Account& account, const JsonNode& root);
void read_torchtune(Account& account, const JsonNode& root);
void read_megatron(Account& account, const JsonNode& root);
void read_report(Account& account, const JsonNode& root);  // memcalc's own (report_record.cc)

}  // namespace memcalc::config
