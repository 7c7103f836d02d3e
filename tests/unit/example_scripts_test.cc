// spec/config_files: command lines of scripts that are known by their names, transformers' examples and TRL's, as
// their READMEs have them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/spec/config_files/example_scripts.h"
#include "support/config_answers.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::refusal_of;
using test::text_of;
using test::use_of;
using testing::HasSubstr;
using testing::Not;

ConfigFile read(std::vector<std::string> words) { return read_command_line(words, {}); }
std::string options_of(std::vector<std::string> words) { return text_of(read(std::move(words)).options); }
std::string refused(std::vector<std::string> words) {
  return refusal_of([&] { (void)read_command_line(words, {}); });
}

TEST(ExampleScripts, AreFoundWithTheirKinds) {
  EXPECT_EQ(config::find_example_script("run_xnli_no_trainer.py"), config::find_example_script("run_glue.py"));
  EXPECT_EQ(config::find_example_script("run_.py"), nullptr);
  EXPECT_EQ(config::find_example_script("run_speech_recognition_seq2seq_streaming.py")->task, "speech");
  EXPECT_EQ(config::find_example_script("train.py"), nullptr);
  EXPECT_TRUE(config::has_own_loop("run_clm_no_trainer.py"));
  EXPECT_FALSE(config::has_own_loop("run_clm.py"));
  EXPECT_FALSE(config::has_own_loop("train_no_trainer.py"));
}

TEST(CommandLines, AScriptsNameSaysItsTask) {
  const std::vector<std::string> roberta = {"--model_name_or_path", "roberta-base", "--do_train", "--output_dir", "o"};
  const auto of = [&](const std::string& script) {
    std::vector<std::string> words = {"python", "examples/pytorch/" + script};
    words.insert(words.end(), roberta.begin(), roberta.end());
    return options_of(words);
  };
  EXPECT_THAT(of("run_mlm.py"), HasSubstr("--task mlm"));
  EXPECT_THAT(of("run_mlm.py"), Not(HasSubstr("--seq")));  // as many as the model has positions
  EXPECT_THAT(of("run_clm.py"), HasSubstr("--task causal"));
  EXPECT_THAT(of("run_clm.py"), Not(HasSubstr("--seq")));
  EXPECT_THAT(of("run_ner.py"), HasSubstr("--task tokcls"));
  EXPECT_THAT(of("run_glue.py"), HasSubstr("--task seqcls --seq 128 --padding"));
  EXPECT_THAT(of("run_qa.py"), HasSubstr("--task qa --seq 384"));
  EXPECT_THAT(of("run_summarization.py"), HasSubstr("--task seq2seq --seq 1024 --padding --target-seq 128"));
  EXPECT_THAT(of("run_seq2seq_qa.py"), HasSubstr("--task seq2seq --seq 384 --padding --target-seq 30"));
}

TEST(CommandLines, FastChatsScriptsAreKnownByTheirFolder) {
  EXPECT_EQ(config::script_in_folder("/a/FastChat/fastchat/train/train.py"), "fastchat/train/train.py");
  EXPECT_EQ(config::script_in_folder("fastchat.train.train_lora"), "fastchat/train/train_lora.py");
  for (const char* other :
       {"train.py", "train/train.py", "notfastchat/train/train.py", "fastchat/train/other.py", ""}) {
    EXPECT_EQ(config::script_in_folder(other), "") << other;
  }
  const auto of = [](const std::string& script, std::vector<std::string> more) {
    std::vector<std::string> words = {"python", "fastchat/train/" + script, "--data_path", "d", "--output_dir", "o"};
    words.insert(words.end(), more.begin(), more.end());
    return options_of(words);
  };
  EXPECT_THAT(of("train.py", {}), HasSubstr("--task causal --seq 512 --padding --model facebook/opt-125m"));
  EXPECT_THAT(of("train.py", {"--model_max_length", "2048"}), HasSubstr("--seq 2048 --padding"));
  EXPECT_THAT(of("train.py", {}), Not(HasSubstr("--attn")));
  EXPECT_THAT(of("train_mem.py", {}), HasSubstr("--attn flash"));
  EXPECT_THAT(of("train_lora.py", {}), HasSubstr("--lora 8 --lora-dropout 0.05 --lora-targets q_proj,v_proj"));
  const std::string packed = of("train_lora.py", {"--lora_r", "16", "--q_lora", "True", "--flash_attn", "True",
                                                  "--lora_dropout", "0", "--lora_target_modules", "q_proj", "k_proj"});
  EXPECT_THAT(packed, HasSubstr("--lora 16 --lora-targets q_proj,k_proj --quantize nf4-double --attn flash"));
  EXPECT_THAT(refused({"python", "fastchat/train/train_lora.py", "--output_dir", "o", "--lora_bias", "all"}),
              HasSubstr("lora_bias"));
}

TEST(CommandLines, AModelIsMadeAnewOfAConfiguration) {
  const std::string overrides = "--config_overrides=n_embd=1024,n_head=16,n_layer=48,n_positions=102,bos_token_id=1";
  EXPECT_THAT(options_of({"python", "run_clm.py", "--model_type", "gpt2", overrides, "--do_train"}),
              HasSubstr("--arch gpt2 --hidden 1024 --heads 16 --layers 48 --max-positions 102"));
  EXPECT_THAT(options_of({"python", "run_mlm.py", "--config_name", "roberta-base", "--model_type", "roberta"}),
              HasSubstr("--model roberta-base"));
  EXPECT_THAT(options_of({"python", "run_clm.py", "--model_name_or_path", "gpt2", "--model_type", "gpt2"}),
              Not(HasSubstr("--arch")));
  EXPECT_THAT(refused({"python", "run_clm.py", "--model_type", "gpt2", "--config_overrides", "n_ctx=1024"}),
              HasSubstr("n_ctx of the configuration"));
  EXPECT_THAT(refused({"python", "run_clm.py", "--model_name_or_path", "gpt2", overrides}),
              HasSubstr("the script takes none beside model_name_or_path"));
  EXPECT_THAT(refused({"python", "run_clm.py", "--model_name_or_path", "gpt2", "--config_name", "gpt2-xl"}),
              HasSubstr("weights beside another configuration"));
  EXPECT_THAT(refused({"python", "run_clm.py", "--model_type", "gpt2", "--config_overrides", "n_layer=many"}),
              HasSubstr("accepted: n_layer with a whole number"));
}

TEST(CommandLines, AnOldScriptMasksWhereItIsToldTo) {
  const std::vector<std::string> words = {"python",
                                          "run_language_modeling.py",
                                          "--model_name_or_path",
                                          "bert-base-uncased",
                                          "--mlm",
                                          "--train_data_file",
                                          "t.txt",
                                          "--line_by_line",
                                          "--do_train",
                                          "--evaluate_during_training"};
  EXPECT_THAT(options_of(words), HasSubstr("--eval-bs 8 --task mlm --padding"));
  EXPECT_THAT(options_of({"python", "run_language_modeling.py", "--model_name_or_path", "gpt2", "--do_train"}),
              HasSubstr("--task causal"));
  const auto unmasked = [](const std::string& model) {
    const ConfigFile file = read({"python", "run_language_modeling.py", "--model_name_or_path", model});
    return refusal_of([&] { require_masking(file, {}, test::registry()); });
  };
  EXPECT_THAT(unmasked("bert-base-uncased"), HasSubstr("accepted: --mlm behind the script"));
  EXPECT_EQ(unmasked("gpt2"), "no error");
  EXPECT_THAT(
      refused({"python", "run_language_modeling.py", "--model_type", "gpt2", "--config_overrides", "n_layer=2"}),
      HasSubstr("the script has no such argument"));
  EXPECT_THAT(options_of({"python", "run_language_modeling.py", "--model_name_or_path", "gpt2", "--block_size", "-1"}),
              Not(HasSubstr("--seq")));
}

TEST(CommandLines, AFewArgumentsOfAnotherToolDoNotMakeAScriptItsOwn) {
  // FastChat's train_lora.py, alpaca-lora's finetune.py: no bf16 and no checkpoints by default, as TRL has them.
  const ConfigFile lora =
      read({"python", "train.py", "--model_name_or_path", "gpt2", "--lora_r", "8", "--q_lora", "True"});
  EXPECT_EQ(lora.program, "transformers 5.17");
  const std::string why = refusal_of([&] { (void)config_beside(lora, {}); });
  EXPECT_THAT(why, HasSubstr("/q_lora: what a script of your own makes of it is not known"));
  const std::vector<ConfigOption> adapters = {{"--lora", "8", ""}};
  EXPECT_THAT(refusal_of([&] { (void)config_beside(lora, adapters); }), HasSubstr("/q_lora: what"));
  const std::vector<ConfigOption> packed = {{"--lora", "8", ""}, {"--quantize", "nf4", ""}};
  EXPECT_THAT(text_of(config_beside(lora, packed).options), HasSubstr("--precision fp32"));
  const ConfigFile without =
      read({"python", "train.py", "--model_name_or_path", "gpt2", "--use_lora", "False", "--lora_r", "8"});
  EXPECT_THAT(use_of(without, "lora_r"), HasSubstr("irrelevant"));
  EXPECT_THAT(refused({"python", "finetune.py", "--model_name_or_path", "gpt2", "--cutoff_len", "512"}),
              HasSubstr("/cutoff_len: unknown key"));
  EXPECT_EQ(read({"python", "run_glue.py", "--model_name_or_path", "bert-base-uncased", "--lora_r", "8"}).program,
            "transformers 5.17");
  EXPECT_EQ(read({"python", "train.py", "--model_name_or_path", "gpt2", "--use_peft", "--lora_r", "8"}).program,
            "TRL 1.16");
}

TEST(CommandLines, WhatAScriptMakesOfItsAdaptersHasToBeTyped) {
  const ConfigFile file = read({"python", "train.py", "--model_name_or_path", "gpt2", "--lora_r", "64", "--lora_alpha",
                                "16", "--lora_dropout", "0.1", "--lora_target_modules", "c_attn"});
  const std::vector<ConfigOption> rank = {{"--lora", "8", ""}};
  EXPECT_THAT(refusal_of([&] { (void)config_beside(file, rank); }),
              testing::AllOf(HasSubstr("/lora_dropout: what a script"), HasSubstr("(also: lora_target_modules)"),
                             HasSubstr("accepted: --lora-dropout"), HasSubstr("--lora-targets")));
  const std::vector<ConfigOption> all = {
      {"--lora", "8", ""}, {"--lora-dropout", "0.1", ""}, {"--lora-targets", "c_attn", ""}};
  const ConfigFile beside = config_beside(file, all);
  EXPECT_EQ(use_of(beside, "lora_r"), "left out");
  EXPECT_EQ(use_of(beside, "lora_target_modules"), "left out");
  EXPECT_EQ(use_of(beside, "lora_alpha"), "irrelevant");
  EXPECT_THAT(beside.notes, testing::Contains(HasSubstr("take the place of lora_r, lora_dropout")));
}

TEST(CommandLines, ASwitchOfAdaptersIsNoSwitchOfFourBits) {
  const auto packed = [](const std::string& value) {
    return read({"python", "train.py", "--model_name_or_path", "gpt2", "--use_lora", value, "--lora_r", "8",
                 "--load_in_4bit", "True"});
  };
  for (const char* off : {"False", "false", "no", "n", "f", "0"}) {
    EXPECT_EQ(use_of(packed(off), "lora_r"), "irrelevant") << off;
    EXPECT_THAT(refusal_of([&] { (void)config_beside(packed(off), {}); }), HasSubstr("/load_in_4bit: what a script"))
        << off;
  }
  for (const char* on : {"True", "yes", "y", "t", "1"}) {
    EXPECT_THAT(refusal_of([&] { (void)config_beside(packed(on), {}); }), HasSubstr("/use_lora: what a script")) << on;
  }
  EXPECT_THAT(refusal_of([&] { (void)packed("maybe"); }), HasSubstr("accepted: true or false"));
}

TEST(CommandLines, ABooleanOfAConfigurationIsReadAsTransformersDoes) {
  const auto tied = [](const std::string& value) {
    return options_of(
        {"python", "run_clm.py", "--model_type", "gpt2", "--config_overrides=tie_word_embeddings=" + value});
  };
  for (const char* value : {"True", "true", "1", "y", "YES"}) EXPECT_THAT(tied(value), HasSubstr("--tie")) << value;
  for (const char* value : {"False", "0", "n", "No"}) EXPECT_THAT(tied(value), HasSubstr("--no-tie")) << value;
  EXPECT_THAT(refusal_of([&] { (void)tied("maybe"); }), HasSubstr("accepted: tie_word_embeddings with true or false"));
}

TEST(CommandLines, TasksOfSrunAreOneTrainingWhereTheLauncherSaysSo) {
  const auto behind = [](std::vector<std::string> words, std::vector<std::string> launcher) {
    words.insert(words.begin(), "srun");
    words.insert(words.end(), launcher.begin(), launcher.end());
    words.insert(words.end(), {"run_clm.py", "--model_name_or_path", "gpt2"});
    return words;
  };
  const std::vector<std::string> python = {"python"}, torchrun = {"torchrun", "--nproc_per_node", "8"};
  const std::vector<std::vector<std::string>> of_several = {
      {"-n", "8"}, {"-n8"}, {"--ntasks", "8"}, {"-N", "2", "--ntasks-per-node=4"}, {"--nodes", "8"}, {"-N8"}};
  for (const auto& words : of_several) {
    EXPECT_THAT(refused(behind(words, python)), HasSubstr("srun starts 8 tasks")) << words.back();
    EXPECT_THAT(refused(behind(words, torchrun)), HasSubstr("is told of one node")) << words.back();
  }
  EXPECT_THAT(options_of(behind({"-N", "2"}, {"torchrun", "--nnodes", "2", "--nproc_per_node", "8"})),
              HasSubstr("--gpus 16 --nodes 2"));
  EXPECT_THAT(
      options_of(behind({"--nodes=2"}, {"accelerate", "launch", "--num_machines", "2", "--num_processes", "16"})),
      HasSubstr("--gpus 16 --nodes 2"));
  // Options whose value is a word; one task sees the cards of its node.
  for (const char* option :
       {"--jobid", "-o", "-e", "-i", "-C", "-D", "-d", "-q", "-m", "-r", "--cpu-bind", "--accel-bind", "-F"}) {
    EXPECT_THAT(options_of(behind({option, "x", "-l", "--exclusive", "--label"}, torchrun)), HasSubstr("--gpus 8"))
        << option;
  }
  for (const char* cards : {"--gres=gpu:4", "--gres=gpu:a100:4", "--gpus-per-node=4"}) {
    EXPECT_THAT(options_of(behind({cards}, python)), HasSubstr("--parallel dp --gpus 4")) << cards;
  }
}

TEST(CommandLines, FlagsOfALauncherTakeNoWord) {
  const auto behind = [](std::vector<std::string> launcher, const char* flag) {
    launcher.insert(launcher.end(), {flag, "run_clm.py", "--model_name_or_path", "gpt2"});
    return launcher;
  };
  EXPECT_THAT(options_of(behind({"torchrun", "--nproc_per_node", "8"}, "--virtual-local-rank")), HasSubstr("--gpus 8"));
  EXPECT_THAT(options_of(behind({"deepspeed", "--num_gpus", "8"}, "--bind_cores_to_rank")), HasSubstr("--gpus 8"));
  EXPECT_THAT(options_of(behind({"deepspeed", "--enable_each_rank_log", "logs", "--num_gpus", "8"}, "--no_ssh")),
              HasSubstr("--gpus 8"));
  for (const char* flag : {"--dynamo_use_fullgraph", "-q"}) {
    EXPECT_THAT(options_of(behind({"accelerate", "launch", "--num_processes", "8"}, flag)), HasSubstr("--gpus 8"));
  }
  EXPECT_THAT(options_of(behind({"srun", "-n", "1", "--oom-kill-step"}, "python")), HasSubstr("gpt2"));
}

TEST(CommandLines, NamesOfDataAreIrrelevant) {
  const ConfigFile file = read({"srun", "-n", "1", "--gres=gpu:1", "python", "train.py", "--model_name_or_path", "gpt2",
                                "--train_data_path", "a", "--my_eval_file", "b"});
  EXPECT_THAT(use_of(file, "train_data_path"), HasSubstr("irrelevant"));
  EXPECT_THAT(use_of(file, "my_eval_file"), HasSubstr("irrelevant"));
  EXPECT_THAT(use_of(file, "srun"), HasSubstr("irrelevant"));
  EXPECT_THAT(refused({"python", "train.py", "--model_name_or_path", "gpt2", "--train_config_path", "a"}),
              HasSubstr("/train_config_path: unknown key"));
}

TEST(CommandLines, OfAKnownScriptKeysOfOthersSayNothing) {
  // run_xnli.py has a language, too, and hears nothing.
  const ConfigFile xnli = read({"python", "run_xnli.py", "--model_name_or_path", "bert-base-multilingual-cased",
                                "--language", "de", "--train_language", "en", "--do_train"});
  EXPECT_THAT(text_of(xnli.options), HasSubstr("--task seqcls --seq 128"));
  EXPECT_EQ(use_of(xnli, "language"), "irrelevant");
  EXPECT_THAT(options_of({"python", "run_seq2seq_qa.py", "--model_name_or_path", "t5-small", "--doc_stride", "128",
                          "--max_answer_length", "40"}),
              HasSubstr("--task seq2seq --seq 384 --padding --target-seq 40"));
}

TEST(CommandLines, TextsOfAScriptArePaddedUnlessTheirLengthsAreKnown) {
  const ConfigFile ner = read({"python", "run_ner.py", "--model_name_or_path", "bert-base-cased"});
  EXPECT_THAT(text_of(config_beside(ner, {}).options), HasSubstr("--padding"));
  const std::vector<ConfigOption> typed = {{"--lengths", "l.txt", ""}};
  EXPECT_THAT(text_of(config_beside(ner, typed).options), Not(HasSubstr("--padding")));
  EXPECT_THAT(options_of({"python", "run_clm.py", "--model_name_or_path", "gpt2"}), Not(HasSubstr("--padding")));
  // Lines of run_mlm.py, each a sequence
  EXPECT_THAT(options_of({"python", "run_mlm.py", "--model_name_or_path", "bert-base-cased"}),
              Not(HasSubstr("--padding")));
  EXPECT_THAT(options_of({"python", "run_mlm.py", "--model_name_or_path", "bert-base-cased", "--line_by_line"}),
              HasSubstr("--padding"));
}

TEST(CommandLines, TextsThatAreAllPaddedToOneLengthHaveNoLengthsOfTheirOwn) {
  const std::vector<ConfigOption> typed = {{"--lengths", "l.txt", ""}};
  const auto refusal_beside = [&](std::vector<std::string> words) {
    return refusal_of([&] { (void)config_beside(read(words), typed); });
  };
  for (const std::string script : {"run_glue.py", "run_xnli.py", "run_classification.py", "run_qa.py"}) {
    const std::vector<std::string> words = {"python", script, "--model_name_or_path", "bert-base-cased"};
    EXPECT_THAT(refusal_beside(words), HasSubstr("--lengths: " + script + " pads every text")) << script;
    EXPECT_THAT(read(words).notes, testing::Contains(HasSubstr("every text is padded"))) << script;
  }
  EXPECT_EQ(refusal_beside(
                {"python", "run_glue.py", "--model_name_or_path", "bert-base-cased", "--pad_to_max_length", "False"}),
            "no error");
  EXPECT_EQ(refusal_beside({"python", "run_ner.py", "--model_name_or_path", "bert-base-cased"}), "no error");
  EXPECT_EQ(refusal_beside({"python", "run_glue_no_trainer.py", "--model_name_or_path", "bert-base-cased"}),
            "no error");
  EXPECT_THAT(refusal_beside({"python", "run_glue_no_trainer.py", "--model_name_or_path", "bert-base-cased",
                              "--pad_to_max_length"}),
              HasSubstr("pads every text"));
}

TEST(CommandLines, ALengthByDefaultIsThatOfTheScript) {
  // Of its own loop run_ner_no_trainer.py has 128, of the Trainer what the model has.
  EXPECT_THAT(options_of({"python", "run_ner_no_trainer.py", "--model_name_or_path", "bert-base-cased"}),
              HasSubstr("--seq 128"));
  EXPECT_THAT(options_of({"python", "run_ner.py", "--model_name_or_path", "bert-base-cased"}), Not(HasSubstr("--seq")));
  // run_summarization_no_trainer.py has a max_length beside it, which cuts nothing.
  EXPECT_THAT(options_of({"python", "run_summarization_no_trainer.py", "--model_name_or_path", "t5-small",
                          "--max_source_length", "512", "--max_length", "128"}),
              HasSubstr("--seq 512"));
}

TEST(CommandLines, ALimitOfTheScriptHoldsWhereTheModelHasMorePositions) {
  const SpecRegistry registry(test::specs_dir().string());
  const auto of = [&](const std::string& script, const std::string& model) {
    return text_of(with_limited_length(read({"python", script, "--model_name_or_path", model}), {}, registry).options);
  };
  EXPECT_THAT(of("run_mlm.py", "answerdotai/ModernBERT-base"), HasSubstr("--seq 1024"));
  EXPECT_THAT(of("run_mlm.py", "bert-base-cased"), HasSubstr("--seq 512"));
  EXPECT_THAT(of("run_clm.py", "gpt2"), HasSubstr("--seq 1024"));
  EXPECT_THAT(of("run_clm.py", "meta-llama/Llama-3.2-1B"), HasSubstr("--seq 1024"));
  EXPECT_THAT(of("run_clm.py", "facebook/opt-125m"), HasSubstr("--seq 1024"));
  EXPECT_THAT(of("run_language_modeling.py", "facebook/opt-125m"), Not(HasSubstr("--seq")));
}

TEST(CommandLines, AnswersThatAreGeneratedHaveTheLengthOfTheScript) {
  std::vector<std::string> words = {
      "python", "run_seq2seq_qa.py",      "--model_name_or_path", "t5-small", "--do_eval", "--eval_strategy",
      "steps",  "--predict_with_generate"};
  EXPECT_THAT(options_of(words), HasSubstr("--eval-generate 29"));
  words.insert(words.end(), {"--val_max_answer_length", "50"});
  EXPECT_THAT(options_of(words), HasSubstr("--eval-generate 49"));
}

// All arguments of their own, as the scripts of transformers 4.2x to 5.x have them.
TEST(CommandLines, NoArgumentOfAKnownScriptIsUnknown) {
  const std::string of_all =
      "model_name_or_path config_name tokenizer_name cache_dir use_fast_tokenizer model_revision token "
      "trust_remote_code dataset_name dataset_config_name train_file validation_file preprocessing_num_workers "
      "overwrite_cache max_train_samples max_eval_samples ";
  const std::string of_own_loops =
      "dataset_name dataset_config_name train_file validation_file model_name_or_path config_name tokenizer_name "
      "use_slow_tokenizer per_device_train_batch_size per_device_eval_batch_size learning_rate weight_decay "
      "num_train_epochs max_train_steps gradient_accumulation_steps lr_scheduler_type num_warmup_steps output_dir seed "
      "push_to_hub hub_model_id hub_token trust_remote_code checkpointing_steps resume_from_checkpoint with_tracking "
      "report_to pad_to_max_length ";
  const std::pair<std::string, std::string> scripts[] = {
      {"run_classification.py",
       of_all + "do_regression text_column_names text_column_delimiter train_split_name validation_split_name "
                "test_split_name remove_splits remove_columns label_column_name max_seq_length pad_to_max_length "
                "shuffle_train_dataset shuffle_seed max_predict_samples metric_name test_file ignore_mismatched_sizes"},
      {"run_xnli.py", of_all + "max_seq_length pad_to_max_length max_predict_samples server_ip server_port language "
                               "train_language do_lower_case use_auth_token"},
      {"run_fim.py", of_all + "model_type torch_dtype low_cpu_mem_usage pad_to_multiple_of attn_implementation "
                              "streaming block_size fim_rate fim_spm_rate truncate_or_pad fim_prefix_token "
                              "fim_middle_token fim_suffix_token pad_token validation_split_percentage "
                              "keep_linebreaks"},
      {"run_summarization.py",
       of_all + "resize_position_embeddings lang text_column summary_column test_file max_source_length "
                "max_target_length val_max_target_length pad_to_max_length max_predict_samples num_beams "
                "ignore_pad_token_for_loss source_prefix forced_bos_token"},
      {"run_image_classification.py",
       "model_name_or_path model_type cache_dir model_revision image_processor_name token "
       "trust_remote_code ignore_mismatched_sizes dataset_name dataset_config_name "
       "train_dir validation_dir train_val_split max_train_samples max_eval_samples "
       "image_column_name label_column_name"},
      {"run_ner_no_trainer.py", of_own_loops + "text_column_name label_column_name max_length label_all_tokens "
                                               "return_entity_level_metrics task_name debug ignore_mismatched_sizes"},
      {"run_mlm_no_trainer.py", of_own_loops + "validation_split_percentage model_type max_seq_length line_by_line "
                                               "preprocessing_num_workers overwrite_cache mlm_probability"},
      {"run_summarization_no_trainer.py",
       of_own_loops + "ignore_pad_token_for_loss max_source_length source_prefix preprocessing_num_workers "
                      "overwrite_cache max_target_length val_max_target_length max_length num_beams text_column "
                      "summary_column model_type"},
      {"run_translation_no_trainer.py",
       of_own_loops + "predict_with_generate num_beams max_source_length max_target_length val_max_target_length "
                      "ignore_pad_token_for_loss source_lang target_lang source_prefix preprocessing_num_workers "
                      "overwrite_cache max_length model_type"}};
  for (const auto& [script, keys] : scripts) {
    std::vector<std::string> words = {"python", script};
    std::istringstream names(keys);
    for (std::string name; names >> name;) words.insert(words.end(), {"--" + name, "1"});
    EXPECT_THAT(refused(words), Not(HasSubstr("unknown key"))) << script;
  }
}

TEST(CommandLines, OneProcessOfALoopOfItsOwnTakesOneCard) {
  const auto visible = [](const std::string& script) {
    return read({"CUDA_VISIBLE_DEVICES=0,1", "python", script, "--model_name_or_path", "bert-base-cased"});
  };
  EXPECT_EQ(use_of(visible("run_glue_no_trainer.py"), "CUDA_VISIBLE_DEVICES"), "irrelevant");
  EXPECT_THAT(text_of(visible("run_glue_no_trainer.py").options), Not(HasSubstr("--gpus")));
  EXPECT_THAT(text_of(visible("run_glue.py").options), HasSubstr("--parallel dp --gpus 2"));
}

TEST(CommandLines, AScriptWithALoopOfItsOwnHasNoTrainer) {
  const std::string options = options_of({"accelerate", "launch", "run_glue_no_trainer.py", "--model_name_or_path",
                                          "bert-base-cased", "--max_length", "96"});
  EXPECT_THAT(options, HasSubstr("--loop bare"));
  EXPECT_THAT(options, HasSubstr("--optimizer adamw"));
  EXPECT_THAT(options, HasSubstr("--seq 96"));
}

TEST(CommandLines, AScriptThatIsNotModelledIsRefusedByItsName) {
  EXPECT_THAT(refused({"python", "run_plm.py", "--model_name_or_path", "xlnet-base-cased"}),
              HasSubstr("permutation language modelling (run_plm.py) is not modelled"));
  EXPECT_THAT(refused({"python", "run_swag.py", "--model_name_or_path", "roberta-base"}), HasSubstr("multiple choice"));
  EXPECT_THAT(refused({"python", "cpo.py", "--model_name_or_path", "gpt2"}),
              HasSubstr("cpo.py is taken for TRL's script of that name, which is not modelled"));
  for (const char* name : {"distillation.py", "sft_tiny_aya_tool_calling.py", "grpo_2048.py", "sft_diffusion_gemma.py"})
    EXPECT_THAT(refused({"python", name, "--model_name_or_path", "gpt2"}), HasSubstr("another name in its place"));
}

TEST(CommandLines, AModelThatAScriptHasByDefaultIsTaken) {
  EXPECT_THAT(options_of({"python", "run_image_classification.py", "--dataset_name", "beans", "--do_train"}),
              HasSubstr("--model google/vit-base-patch16-224-in21k"));
}

TEST(CommandLines, TrlsScriptsAreKnownByAllTheirNames) {
  const auto loop_of = [](const std::string& script) {
    return options_of({"python", script, "--model_name_or_path", "gpt2"});
  };
  EXPECT_THAT(loop_of("examples/scripts/reward_modeling.py"), HasSubstr("--loop trl-reward"));
  EXPECT_THAT(loop_of("examples/scripts/gspo.py"), HasSubstr("--loop trl-grpo"));
  EXPECT_THAT(loop_of("run_sft.py"), HasSubstr("--loop trl-sft"));
  EXPECT_THAT(loop_of("online_dpo.py"), HasSubstr("--loop trl-online-dpo"));
}

TEST(CommandLines, UnknownArgumentsStandInOneLine) {
  EXPECT_THAT(refused({"python", "train.py", "--model_name_or_path", "gpt2", "--zzz_one", "1", "--zzz_two", "2"}),
              HasSubstr("unknown keys: zzz_one, zzz_two; accepted: --config-without zzz_one,zzz_two, for the "
                        "answer without them"));
}

TEST(CommandLines, AScriptOfYourOwnSaysItsLengthAsMostDo) {
  // stanford_alpaca's and FastChat's train.py
  EXPECT_THAT(options_of({"torchrun", "--nproc_per_node=4", "train.py", "--model_name_or_path", "gpt2", "--data_path",
                          "./alpaca_data.json", "--model_max_length", "512", "--lazy_preprocess", "True"}),
              HasSubstr("--seq 512"));
}

TEST(CommandLines, DeepSpeedsListOfCardsSaysHowMany) {
  EXPECT_THAT(options_of({"deepspeed", "--include", "localhost:0,1,2,3", "train.py", "--model_name_or_path", "gpt2"}),
              HasSubstr("--gpus 4"));
  EXPECT_THAT(options_of({"deepspeed", "--include", "a:0,1@b:0,1", "train.py", "--model_name_or_path", "gpt2"}),
              HasSubstr("--gpus 4 --nodes 2"));
  for (const char* hosts : {"a@b:0,2", "a:0,1,2,3@b", "a:0@b:0,1", "a@b"}) {
    EXPECT_THAT(refused({"deepspeed", "--include", hosts, "train.py", "--model_name_or_path", "gpt2"}),
                HasSubstr("accepted: HOST:0,1@HOST:0,1"))
        << hosts;
  }
}

// TRL's page of its command line
TEST(CommandLines, TrlsProgramHandsOnWhatAccelerateTakes) {
  EXPECT_THAT(options_of({"trl", "sft", "--model_name_or_path", "gpt2", "--num_processes", "4"}),
              HasSubstr("--gpus 4"));
  const std::string sharded = options_of(
      {"trl", "sft", "--model_name_or_path", "gpt2", "--accelerate_config", "zero2", "--num_processes", "4"});
  EXPECT_THAT(sharded, HasSubstr("--parallel ds-zero2"));
  EXPECT_THAT(sharded, HasSubstr("--gpus 4"));
  EXPECT_THAT(options_of({"trl", "dpo", "--model_name_or_path", "gpt2", "--accelerate_config", "fsdp2"}),
              HasSubstr("--parallel fsdp2"));
  EXPECT_THAT(refused({"trl", "sft", "--model_name_or_path", "gpt2", "--accelerate_config", "zero9"}),
              HasSubstr("zero9"));
}

TEST(CommandLines, ANameWithACommaIsNoModule) {
  // examples/scripts/gspo.py: --lora_target_modules "q_proj", "v_proj"
  const ConfigFile file = read({"python", "gspo.py", "--model_name_or_path", "gpt2", "--use_peft",
                                "--lora_target_modules", "q_proj,", "v_proj"});
  EXPECT_THAT(text_of(file.options), HasSubstr("--lora-targets v_proj"));
  EXPECT_THAT(file.notes, testing::Contains(HasSubstr("names that end in a comma")));
}

// peft's examples/sft/run_peft_qlora_fsdp.sh, in part; open-r1's keys beside TRL's.
TEST(CommandLines, ScriptsThatAddToTrlAreRead) {
  const std::string options = options_of({"python",
                                          "train.py",
                                          "--model_name_or_path",
                                          "gpt2",
                                          "--packing",
                                          "True",
                                          "--max_length",
                                          "2048",
                                          "--splits",
                                          "train,test",
                                          "--gradient_checkpointing",
                                          "True",
                                          "--use_reentrant",
                                          "True",
                                          "--use_peft_lora",
                                          "True",
                                          "--lora_target_modules",
                                          "all-linear",
                                          "--use_4bit_quantization",
                                          "True",
                                          "--use_nested_quant",
                                          "True",
                                          "--bnb_4bit_quant_storage_dtype",
                                          "bfloat16",
                                          "--use_flash_attn",
                                          "True"});
  EXPECT_THAT(options, HasSubstr("--loop trl-sft"));
  EXPECT_THAT(options, HasSubstr("--attn flash --reentrant --lora 64 --lora-dropout 0.1 --lora-targets all-linear "
                                 "--quantize nf4-double --quant-storage bf16"));
  EXPECT_THAT(options, HasSubstr("--weights-dtype bf16"));  // utils.py: in the type that 4 bits are stored in
  const std::string by_default = options_of(
      {"python", "train.py", "--model_name_or_path", "gpt2", "--use_peft_lora", "True", "--packing", "True"});
  EXPECT_THAT(by_default, HasSubstr("--lora-targets q_proj,k_proj,v_proj,o_proj,down_proj,up_proj,gate_proj"));
  EXPECT_THAT(by_default, HasSubstr("--weights-dtype fp32"));
  EXPECT_THAT(options_of({"python", "sft.py", "--model_name_or_path", "gpt2", "--chat_template", "x",
                          "--dataset_mixture", "y"}),
              HasSubstr("--loop trl-sft"));
}

}  // namespace
}  // namespace memcalc
