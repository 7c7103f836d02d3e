// TrainingArguments as JSON or YAML, with the arguments of transformers' example scripts (examples/pytorch: run_clm.py,
// run_mlm.py, run_glue.py, run_summarization.py), whose HfArgumentParser reads such files and command lines.
#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "memcalc/spec/config_files/trainer.h"

namespace memcalc::config {
namespace {

using U = RowUse;

constexpr KeyRow kRows[] = {
    {"model_name_or_path", U::kUsed, "", "--model"},
    {"dtype torch_dtype attn_implementation", U::kUsed},
    {"block_size max_seq_length max_source_length max_length", U::kUsed},
    {"max_target_length", U::kUsed, "", "--target-seq"},
    {"config_name config_overrides", U::kRefused,
     "another configuration of the model is told by --model FILE or --layers, --hidden, …"},
    {"lora_r use_peft load_in_4bit load_in_8bit", U::kRefused,
     "no argument of these scripts: --lora, --quantize say it"},
    {"model_type tokenizer_name cache_dir use_fast_tokenizer model_revision token use_auth_token trust_remote_code "
     "low_cpu_mem_usage ignore_mismatched_sizes resize_position_embeddings",
     U::kIrrelevant, "the tokenizer and loading"},
    {"dataset_name dataset_config_name train_file validation_file test_file task_name line_by_line mlm_probability "
     "preprocessing_num_workers overwrite_cache validation_split_percentage keep_linebreaks streaming "
     "max_train_samples max_eval_samples max_predict_samples pad_to_max_length text_column summary_column lang "
     "source_lang target_lang source_prefix ignore_pad_token_for_loss forced_bos_token "
     "text_column_name label_column_name return_entity_level_metrics label_all_tokens text_column_names "
     "text_column_delimiter do_regression metric_name remove_splits remove_columns shuffle_train_dataset shuffle_seed",
     U::kIrrelevant, "the data"},
    {"sortish_sampler generation_config", U::kIrrelevant, "of evaluation"},
    {"predict_with_generate generation_max_length generation_num_beams num_beams val_max_target_length", U::kUsed},
};

/// run_summarization.py, run_translation.py: generation_max_length counts the start of the decoder's ids; what the
/// scripts' own arguments say comes first for beams and last for the length.
void read_generation(Section& section) {
  constexpr std::string_view kLengths[] = {"generation_max_length", "val_max_target_length", "max_target_length"};
  constexpr std::string_view kBeams[] = {"num_beams", "generation_num_beams"};
  if (!section.on("predict_with_generate") || !section.account().is_set("--eval-bs")) {
    for (const std::string_view key : {kLengths[0], kLengths[1], kBeams[0], kBeams[1]}) {
      if (section.has(key)) section.irrelevant(key, "of an evaluation that generates, which this one does not");
    }
    return;
  }
  std::optional<std::int64_t> length, beams;
  for (const std::string_view key : kLengths) {
    const auto given = section.whole(key);
    if (!length) length = given;
  }
  for (const std::string_view key : kBeams) {
    const auto given = section.whole(key);
    if (!beams) beams = given;
  }
  constexpr std::int64_t kMaxTargetLength = 128;
  section.set("predict_with_generate", "--eval-generate", std::to_string(length.value_or(kMaxTargetLength) - 1));
  if (beams) section.set("predict_with_generate", "--eval-beams", std::to_string(*beams));
}

}  // namespace

void read_training_arguments(Account& account, const JsonNode& root) {
  Section section(account, root, account.file(), {kRows, trainer_keys(), fsdp_keys()});
  account.set("--loop", "trainer");
  if (section.has("dataset_name")) {
    account.note("the loop is transformers' Trainer; a file of TRL's is read by --config-format trl-sft or trl-dpo");
  }
  for (const std::string_view key : {"block_size", "max_seq_length", "max_source_length", "max_length"}) {
    if (const auto tokens = section.whole(key)) section.set(key, "--seq", std::to_string(*tokens));
  }
  read_trainer(section, {.batch_size = 8, .checkpointing = false, .bf16 = false});
  for (const std::string_view key : {"dtype", "torch_dtype"}) {
    const std::string type = section.text(key).value_or("auto");
    if (type == "float32") section.set(key, "--weights-dtype", "fp32");
    if (type == "bfloat16") section.set(key, "--weights-dtype", "bf16");
    if (type == "float16") section.set(key, "--weights-dtype", "fp16");
  }
  if (const auto name = section.text("attn_implementation")) set_attention(section, "attn_implementation", *name);
  read_generation(section);
  section.done();
}

}  // namespace memcalc::config
