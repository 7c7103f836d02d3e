// TrainingArguments as JSON or YAML, with the arguments of transformers' example scripts (examples/pytorch: run_clm.py,
// run_mlm.py, run_glue.py, run_summarization.py, run_qa.py, run_speech_recognition_seq2seq.py), whose HfArgumentParser
// reads such files and command lines.
// MIRRORS(transformers, "training_args.py", "5.17.0")
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/config_files/example_scripts.h"
#include "memcalc/spec/config_files/trainer.h"

namespace memcalc::config {
namespace {

using U = RowUse;

constexpr KeyRow kRows[] = {
    {"model_name_or_path", U::kUsed, "", "--model"},
    {"dtype torch_dtype attn_implementation", U::kUsed},
    {"block_size max_seq_length max_source_length max_length model_max_length", U::kUsed},
    {"max_target_length", U::kUsed, "", "--target-seq"},
    {"config_name config_overrides model_type", U::kUsed},
    {"lora_r lora_rank lora_alpha lora_dropout lora_target lora_targets lora_target_modules lora_modules use_peft "
     "use_lora use_qlora q_lora load_in_4bit load_in_8bit quantization_bit",
     U::kUsed},
    {"tokenizer_name cache_dir use_fast_tokenizer model_revision token use_auth_token trust_remote_code "
     "low_cpu_mem_usage ignore_mismatched_sizes resize_position_embeddings image_processor_name",
     U::kIrrelevant, "the tokenizer and loading"},
    {"dataset_name dataset_config_name dataset_config train_file validation_file test_file task_name "
     "mlm_probability "
     "preprocessing_num_workers preprocess_num_workers overwrite_cache validation_split_percentage keep_linebreaks "
     "streaming "
     "max_train_samples max_eval_samples max_predict_samples text_column summary_column lang "
     "source_lang target_lang source_prefix ignore_pad_token_for_loss forced_bos_token "
     "text_column_name label_column_name return_entity_level_metrics label_all_tokens text_column_names "
     "text_column_delimiter do_regression metric_name remove_splits remove_columns shuffle_train_dataset shuffle_seed "
     "train_language context_column question_column answer_column image_column_name train_dir "
     "validation_dir train_val_split data_path eval_data_path lazy_preprocess validation_split_name test_split_name "
     "server_ip server_port",
     U::kIrrelevant, "the data"},
    // run_…_no_trainer.py
    {"num_warmup_steps checkpointing_steps with_tracking use_slow_tokenizer", U::kIrrelevant,
     "the learning rate, saving and the tokenizer"},
    {"pad_to_max_length line_by_line", U::kUsed},
    // examples/legacy/run_language_modeling.py
    {"mlm evaluate_during_training", U::kUsed},
    {"eval_all_checkpoints whole_word_mask", U::kIrrelevant, "the data, and what comes after the training"},
    // run_fim.py
    {"fim_rate fim_spm_rate truncate_or_pad", U::kIrrelevant, "the data"},
    {"fim_prefix_token fim_middle_token fim_suffix_token pad_to_multiple_of", U::kApproximated,
     "a few words more in the vocabulary are left out"},
    // run_qa.py
    {"doc_stride version_2_with_negative n_best_size max_answer_length null_score_diff_threshold", U::kUsed},
    // run_speech_recognition_*.py
    {"audio_column_name language task max_duration_in_seconds min_duration_in_seconds", U::kUsed},
    {"feature_extractor_name train_split_name eval_split_name do_lower_case preprocessing_only chars_to_ignore "
     "eval_metrics unk_token pad_token word_delimiter_token phoneme_language apply_spec_augment",
     U::kIrrelevant, "the data"},
    {"freeze_feature_encoder freeze_encoder", U::kRefused, "parts that do not train are told by --freeze"},
    {"forced_decoder_ids suppress_tokens", U::kIrrelevant, "which tokens are generated"},
    {"mask_time_prob mask_time_length mask_feature_prob mask_feature_length ctc_loss_reduction ctc_zero_infinity "
     "layerdrop add_adapter attention_dropout activation_dropout feat_proj_dropout hidden_dropout final_dropout",
     U::kRefused, "training with CTC (run_speech_recognition_ctc.py) is not modelled"},
    // FastChat's train_lora.py
    {"lora_bias flash_attn", U::kUsed},
    {"lora_weight_path", U::kIrrelevant, "the script does not read it"},
    {"sortish_sampler generation_config", U::kIrrelevant, "of evaluation"},
    {"predict_with_generate generation_max_length generation_num_beams num_beams val_max_target_length "
     "val_max_answer_length",
     U::kUsed},
};

/// run_qa.py's and run_speech_recognition_seq2seq.py's own arguments.
constexpr std::string_view kAnswerKeys[] = {"doc_stride", "version_2_with_negative", "n_best_size", "max_answer_length",
                                            "null_score_diff_threshold"};
constexpr std::string_view kSpeechKeys[] = {"audio_column_name", "language", "task", "max_duration_in_seconds",
                                            "min_duration_in_seconds"};

/// run_summarization.py, run_translation.py, run_seq2seq_qa.py: generation_max_length counts the start of the decoder's
/// ids, Whisper's does not; what the scripts' own arguments say comes first for beams and last for the length.
void read_generation(Section& section) {
  constexpr std::string_view kLengths[] = {"generation_max_length", "val_max_target_length", "val_max_answer_length",
                                           "max_target_length", "max_answer_length"};
  constexpr std::string_view kBeams[] = {"num_beams", "generation_num_beams"};
  if (!section.on("predict_with_generate") || !section.account().is_set("--eval-bs")) {
    for (const std::string_view key : {kLengths[0], kLengths[1], kLengths[2], kBeams[0], kBeams[1]}) {
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
  const ExampleScript* const script = find_example_script(section.account().script);
  const bool has_own = script != nullptr && script->target_length > 0;
  if (!length) length = has_own ? script->target_length : kMaxTargetLength;
  const bool has_keys = std::any_of(std::begin(kSpeechKeys), std::end(kSpeechKeys),
                                    [&](std::string_view key) { return section.has(key); });
  const bool is_speech = script == nullptr ? has_keys : script->task == "speech";
  const std::int64_t start = is_speech ? 0 : 1;
  section.set("predict_with_generate", "--eval-generate", std::to_string(*length - start));
  if (beams) section.set("predict_with_generate", "--eval-beams", std::to_string(*beams));
}

/// run_qa.py, whose head tells two numbers of each token; run_speech_recognition_seq2seq.py: where no name tells which
/// script it is, their own arguments do.
void read_task(Section& section, const ExampleScript* script) {
  std::string_view task = script == nullptr ? "" : script->task;
  const bool masks = script != nullptr && !script->masking_key.empty() && section.on(script->masking_key);
  if (masks) task = "mlm";
  if (!masks && script != nullptr && !script->masking_key.empty()) {
    section.account().switch_of_masking("--" + std::string(script->masking_key) + " behind the script");
  }
  const auto take = [&](std::string_view key, std::string_view of) {
    if (!section.has(key)) return;
    if (key == "max_answer_length" && script != nullptr && script->target_length > 0) return;  // a length of its own
    const bool says_so = task.empty();
    if (says_so) {
      section.set(key, "--task", std::string(of));
    } else {
      section.irrelevant(key, "the data and what is told of it");
    }
    if (says_so) task = of;
  };
  if (!task.empty()) section.account().set("--task", std::string(task));
  for (const std::string_view key : kAnswerKeys) take(key, "qa");
  for (const std::string_view key : kSpeechKeys) take(key, "speech");
  if (task == "speech") section.account().note("recordings are taken to be as long as the model's input");
}

/// --seq: what the script's own argument says, or its default.
void read_length(Section& section, const ExampleScript* script) {
  Account& account = section.account();
  const std::string_view ours = script != nullptr ? script->length_key : "";
  bool is_said = false;
  for (const std::string_view key :
       {"block_size", "max_seq_length", "max_source_length", "max_length", "model_max_length"}) {
    const std::vector<std::string_view> keys = words_of(ours, " ");
    if (!keys.empty() && std::find(keys.begin(), keys.end(), key) == keys.end()) {
      section.irrelevant(key, "the script does not cut its inputs by it");
      continue;
    }
    const auto tokens = section.whole(key);
    if (!tokens) continue;
    // run_language_modeling.py, whose default is -1: as much as the tokenizer takes
    if (*tokens <= 0 && script != nullptr && !script->masking_key.empty()) continue;
    section.set(key, "--seq", std::to_string(*tokens));
    is_said = true;
  }
  if (is_said) return;
  constexpr std::int64_t kAnswerLength = 384;  // run_qa.py
  std::int64_t length = account.text_of("--task") == "qa" ? kAnswerLength : 0;
  if (script != nullptr) {
    const bool has_own = has_own_loop(account.script) && script->own_loop_length > 0;
    length = has_own ? script->own_loop_length : script->length;
  }
  if (length > 0) {
    account.set("--seq", std::to_string(length));
    account.note(fmt::format("sequences of {} tokens: the default of the script (--seq)", length));
  } else if (script != nullptr && script->most_length > 0) {
    account.limit_length(script->most_length);
    account.note(
        fmt::format("sequences of as many tokens as the model has positions, {} at most: the default of the "
                    "script, unless the tokenizer names a length of its own (--seq)",
                    script->most_length));
  }
}

void read_padding(Section& section, const ExampleScript& script) {
  Account& account = section.account();
  const bool takes_lines = account.text_of("--task") == "mlm" || !script.masking_key.empty();
  const bool by_line = takes_lines && section.on("line_by_line");
  const bool to_max = section.flag("pad_to_max_length").value_or(script.pads_to_max && !has_own_loop(account.script));
  if (script.pads_always) {
    account.set("--padding");
    account.pad_to_length(account.script + " pads every text to the length of a sequence; accepted: no --lengths");
    return account.note("every text is padded to the length above, as the script does it");
  }
  if (!script.pads && !by_line) return section.irrelevant("pad_to_max_length", "texts are cut into full sequences");
  account.set("--padding");
  if (!to_max) {
    return account.note(
        "texts differ in length, so that batches are padded, to the length above at most (--lengths says how long "
        "yours are)");
  }
  account.pad_to_length(account.script +
                        " pads every text to the length of a sequence (pad_to_max_length); accepted: no --lengths, or "
                        "--pad_to_max_length False behind the script");
  account.note("every text is padded to the length above (pad_to_max_length)");
}

void read_lengths(Section& section, const ExampleScript* script) {
  read_length(section, script);
  if (script == nullptr) return;
  read_padding(section, *script);
  if (script->target_length == 0 || section.has("max_target_length")) return;
  const auto answer = section.whole("max_answer_length");
  section.set("max_answer_length", "--target-seq", std::to_string(answer.value_or(script->target_length)));
}

/// Adapters and 4 bits, of which each script makes what it likes: every option that says so has to be typed.
void read_adapters(Section& section) {
  constexpr std::string_view kWhy =
      "what a script of your own makes of it is not known (options beside it say it, --config-without leaves it out)";
  bool has_adapters = true;  // a switch that is off leaves whatever is said of them without a meaning
  for (const std::string_view key : {"use_lora", "use_peft"}) has_adapters &= section.flag(key).value_or(true);
  const auto ask = [&](std::string_view key, std::string_view flag, bool is_on) {
    if (is_on) return section.account().need({std::string(flag), std::string(key), std::string(kWhy)});
    section.irrelevant(key, "it is off");
  };
  const auto ask_of_adapters = [&](std::string_view key, std::string_view flag, bool is_on) {
    if (has_adapters) return ask(key, flag, is_on);
    section.irrelevant(key, "no adapters");
  };
  for (const std::string_view key : {"use_lora", "use_peft", "use_qlora", "q_lora"}) {
    if (section.has(key)) ask_of_adapters(key, "--lora", section.on(key));
  }
  for (const std::string_view key : {"lora_r", "lora_rank"}) {
    if (const auto rank = section.whole(key)) ask_of_adapters(key, "--lora", *rank != 0);
  }
  if (const auto dropout = section.number("lora_dropout")) {
    ask_of_adapters("lora_dropout", "--lora-dropout", *dropout != 0);
  }
  for (const std::string_view key : {"lora_target", "lora_targets", "lora_target_modules", "lora_modules"}) {
    if (section.has(key)) ask_of_adapters(key, "--lora-targets", !section.texts(key).empty());
  }
  if (section.has("lora_alpha")) section.irrelevant("lora_alpha", "a number that the adapters are multiplied by");
  for (const std::string_view key : {"load_in_4bit", "load_in_8bit"}) {
    if (section.has(key)) ask(key, "--quantize", section.on(key));
  }
  for (const std::string_view key : {"q_lora", "use_qlora"}) {
    if (section.on(key)) ask(key, "--quantize", true);
  }
  if (const auto bits = section.whole("quantization_bit")) ask("quantization_bit", "--quantize", *bits != 0);
}

/// FastChat's train_lora.py: LoraArguments, which are there whether an argument says so or not.
void read_fastchat_adapters(Section& section) {
  constexpr std::int64_t kRank = 8;
  constexpr double kDropout = 0.05;
  section.set("lora_r", "--lora", std::to_string(section.whole("lora_r").value_or(kRank)));
  if (section.has("lora_alpha")) section.irrelevant("lora_alpha", "a number that the adapters are multiplied by");
  const double dropout = section.number("lora_dropout").value_or(kDropout);
  if (dropout != 0) section.set("lora_dropout", "--lora-dropout", section.text("lora_dropout").value_or("0.05"));
  const std::vector<std::string> targets = section.texts("lora_target_modules");
  set_targets(section, "lora_target_modules", targets.empty() ? std::vector<std::string>{"q_proj", "v_proj"} : targets);
  if (section.text("lora_bias").value_or("none") != "none") {
    section.refuse("lora_bias", "biases that train beside adapters are not modelled");
  }
  if (section.on("q_lora")) section.set("q_lora", "--quantize", "nf4-double");
  if (section.on("flash_attn")) {
    set_attention(section, "flash_attn", "flash_attention_2");
    section.account().note(
        "norms, embedding and head, which the script casts to the type of autocast beside flash_attn, keep their own");
  }
}

/// "train_data_file", "eval_path": a script's own argument whose name says that it names data.
bool is_place_of_data(std::string_view key) {
  constexpr std::string_view kData =
      " train training eval evaluation valid validation val dev test data dataset datasets ";
  constexpr std::string_view kPlaces = " file files path paths dir dirs directory folder ";
  constexpr std::string_view kOthers = " model config checkpoint weights adapter output save cache log ";
  const auto is_of = [](std::string_view words, std::string_view word) {
    return words.find(" " + std::string(word) + " ") != std::string_view::npos;
  };
  const std::vector<std::string_view> words = words_of(key, "_");
  return words.size() > 1 && is_of(kPlaces, words.back()) &&
         std::any_of(words.begin(), words.end(), [&](std::string_view word) { return is_of(kData, word); }) &&
         std::none_of(words.begin(), words.end(), [&](std::string_view word) { return is_of(kOthers, word); });
}

/// run_…_no_trainer.py: torch's AdamW, no clipping, and the precision that accelerate is told.
void read_own_loop(Section& section) {
  Account& account = section.account();
  account.set("--loop", "bare");
  account.set("--optimizer", "adamw");
  account.note(
      "the loop is the script's own: of accelerate no more than its precision and sharding is modelled, and "
      "the evaluation after each epoch is left out");
}

}  // namespace

void read_training_arguments(Account& account, const JsonNode& root) {
  const ExampleScript* const script = find_example_script(account.script);
  if (script != nullptr && script->task.empty()) {
    throw Error(ErrorCode::kUnsupported, fmt::format("command line: {} is not modelled", script->why), "--task");
  }
  std::string places;
  for (const JsonNode& child : root.children) {
    if (is_place_of_data(child.key)) places += child.key + " ";
  }
  const KeyRow rows_of_places[] = {{places, U::kIrrelevant, "where data are, by its name"}};
  Section section(account, root, account.file(), {kRows, trainer_keys(), fsdp_keys(), rows_of_places});
  account.set("--loop", "trainer");
  if (section.has("dataset_name") && script == nullptr) {
    account.note("the loop is transformers' Trainer; a file of TRL's is read by --config-format trl-sft or trl-dpo");
  }
  read_trainer(section, {.batch_size = 8, .checkpointing = false, .bf16 = false});
  for (const std::string_view key : {"dtype", "torch_dtype"}) {
    const std::string type = section.text(key).value_or("auto");
    if (type == "float32") section.set(key, "--weights-dtype", "fp32");
    if (type == "bfloat16") section.set(key, "--weights-dtype", "bf16");
    if (type == "float16") section.set(key, "--weights-dtype", "fp16");
  }
  if (const auto name = section.text("attn_implementation")) set_attention(section, "attn_implementation", *name);
  read_fresh_model(section, script);
  if (script != nullptr && script->has_adapters) {
    read_fastchat_adapters(section);
  } else {
    read_adapters(section);
  }
  if (script != nullptr && script->patches_attention) {
    account.set("--attn", "flash");
    account.note(account.script + " puts flash-attn in the place of Llama's attention (--attn)");
  }
  read_generation(section);
  read_task(section, script);
  read_lengths(section, script);
  if (script != nullptr && !script->model.empty() && !section.has("model_name_or_path")) {
    account.set("--model", std::string(script->model));
  }
  if (has_own_loop(account.script)) read_own_loop(section);
  section.done();
}

}  // namespace memcalc::config
