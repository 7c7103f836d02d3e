// TrainingArguments as JSON or YAML, with the arguments of transformers' example scripts (examples/pytorch: run_clm.py,
// run_mlm.py, run_glue.py, run_summarization.py), whose HfArgumentParser reads such files and command lines.
#include <fmt/core.h>

#include <string>

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
     "source_lang target_lang source_prefix ignore_pad_token_for_loss forced_bos_token num_beams val_max_target_length "
     "text_column_name label_column_name return_entity_level_metrics label_all_tokens text_column_names "
     "text_column_delimiter do_regression metric_name remove_splits remove_columns shuffle_train_dataset shuffle_seed",
     U::kIrrelevant, "the data"},
    {"sortish_sampler generation_max_length generation_num_beams generation_config", U::kIrrelevant, "of evaluation"},
    {"predict_with_generate", U::kUsed},
};

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
  if (section.on("predict_with_generate") && account.is_set("--eval-bs")) {
    section.refuse("predict_with_generate", "evaluation that generates text is not modelled");
  }
  section.done();
}

}  // namespace memcalc::config
