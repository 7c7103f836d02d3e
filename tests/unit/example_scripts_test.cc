// spec/config_files: command lines of scripts that are known by their names, transformers' examples and TRL's, as
// their READMEs have them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "memcalc/spec/config_files/example_scripts.h"
#include "support/config_answers.h"

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
  EXPECT_EQ(config::find_example_script("run_glue_no_trainer.py")->name, "run_glue");
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
  EXPECT_THAT(of("run_clm.py"), HasSubstr("--task causal --seq 1024"));
  EXPECT_THAT(of("run_ner.py"), HasSubstr("--task tokcls"));
  EXPECT_THAT(of("run_glue.py"), HasSubstr("--task seqcls --seq 128 --padding"));
  EXPECT_THAT(of("run_qa.py"), HasSubstr("--task qa --seq 384"));
  EXPECT_THAT(of("run_summarization.py"), HasSubstr("--task seq2seq --seq 1024 --padding --target-seq 128"));
  EXPECT_THAT(of("run_seq2seq_qa.py"), HasSubstr("--task seq2seq --seq 384 --padding --target-seq 30"));
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
  const ConfigFile glue = read({"python", "run_glue.py", "--model_name_or_path", "bert-base-cased"});
  EXPECT_THAT(text_of(config_beside(glue, {}).options), HasSubstr("--padding"));
  const std::vector<ConfigOption> typed = {{"--lengths", "l.txt", ""}};
  EXPECT_THAT(text_of(config_beside(glue, typed).options), Not(HasSubstr("--padding")));
  EXPECT_THAT(options_of({"python", "run_clm.py", "--model_name_or_path", "gpt2"}), Not(HasSubstr("--padding")));
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
              HasSubstr("the trainer of cpo.py is not modelled"));
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
              HasSubstr("/zzz_one: unknown key (nor zzz_two); accepted: --config-without zzz_one,zzz_two, for the "
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
  EXPECT_THAT(options_of({"python", "sft.py", "--model_name_or_path", "gpt2", "--chat_template", "x",
                          "--dataset_mixture", "y"}),
              HasSubstr("--loop trl-sft"));
}

}  // namespace
}  // namespace memcalc
