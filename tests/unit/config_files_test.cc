// spec/config_files: what keys, files and command lines become, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "memcalc/spec/config_files/trainer.h"
#include "support/config_answers.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::path_of;
using test::refusal_of;
using test::text_of;
using test::use_of;
using test::Written;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(ConfigFiles, ATypedOptionWinsOverTheFile) {
  const ConfigFile file = read_config({path_of("axolotl-lora-1b.yml"), "", {}});
  const ConfigFile beside = config_beside(file, std::vector<ConfigOption>{{"--bs", "7", ""}, {"--fp16", "", ""}});
  EXPECT_THAT(text_of(beside.options), Not(HasSubstr("--bs 2 ")));
  EXPECT_THAT(text_of(beside.options), Not(HasSubstr("--precision")));
  EXPECT_THAT(beside.notes, testing::Contains(HasSubstr("micro_batch_size, bf16")));
}

TEST(ConfigFiles, GradientsAreReducedInTheirOwnType) {
  const auto refusal = [](const std::string& precision, const std::string& type) {
    return Written("{" + precision + R"("train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2},
        "communication_data_type": ")" +
                       type + "\"}",
                   "ds.json")
        .refusal();
  };
  const std::string bf16 = R"("bf16": {"enabled": true}, )", fp16 = R"("fp16": {"enabled": true}, )";
  EXPECT_EQ(refusal(bf16, "bf16"), "no error");
  EXPECT_EQ(refusal(fp16, "fp16"), "no error");
  EXPECT_EQ(refusal("", "fp32"), "no error");
  for (const auto& [precision, type] :
       {std::pair{bf16, "fp16"}, {bf16, "fp32"}, {fp16, "bf16"}, {std::string(), "fp16"}})
    EXPECT_THAT(refusal(precision, type), HasSubstr("in another type than theirs")) << precision << type;
  EXPECT_THAT(refusal(bf16, "bfp16"), HasSubstr("accepted: fp32, fp16 or bf16"));
}

TEST(ConfigFiles, WhatGrpoIsModelledWithIsIrrelevantAndTheRestIsNot) {
  const auto use = [](const std::string& key, const std::string& value) {
    return use_of(Written("model_name_or_path: gpt2\nnum_generations: 8\n" + key + ": " + value + "\n").read(), key);
  };
  EXPECT_EQ(use("use_bias_correction_kl", "true"), "irrelevant");
  EXPECT_EQ(use("use_bias_correction_kl", "false"), "approximated");
  EXPECT_EQ(use("scale_rewards", "group"), "irrelevant");
  EXPECT_EQ(use("scale_rewards", "true"), "irrelevant");
  for (const char* other : {"batch", "none", "false"}) EXPECT_EQ(use("scale_rewards", other), "approximated") << other;
}

TEST(ConfigFiles, AReportOfMemcalcIsItsRun) {
  const Written report(R"({"schema_version": 2, "needed_bytes": 5, "run": {"model": "gpt2", "batch_size": 8,
      "max_grad_norm": 0.0, "compile": false, "tie": false, "padding": true, "lora_targets": ["c_attn", "c_proj"],
      "deepspeed": {"overlap_comm": true}}})",
                       "report.json");
  EXPECT_EQ(text_of(report.read().options),
            "--model gpt2 --bs 8 --clip-grad 0.0 --no-tie --padding --lora-targets c_attn,c_proj --deepspeed "
            "overlap_comm=true");
  EXPECT_EQ(use_of(report.read(), "needed_bytes"), "irrelevant");
  EXPECT_THAT(Written(R"({"needed_bytes": 5, "run": {"batchsize": 8}})", "report.json").refusal(),
              HasSubstr("/run/batchsize: an option of no run"));
}

TEST(ConfigFiles, AReportWhoseRunIsMisshapenIsRefusedByItsPlace) {
  const auto refusal = [](const std::string& run) {
    return Written(R"({"needed_bytes": 5, "run": )" + run + "}", "report.json").refusal();
  };
  EXPECT_THAT(refusal("[]"), HasSubstr("report.json: /run: it is no object"));
  EXPECT_THAT(refusal(R"("gpt2")"), HasSubstr("/run: it is no object"));
  EXPECT_THAT(refusal(R"({"model": "gpt2", "batch_size": {"a": 1}})"), HasSubstr("/run/batch_size: an object"));
  EXPECT_THAT(refusal(R"({"model": "gpt2", "padding": {}})"), HasSubstr("/run/padding: an object"));
  EXPECT_THAT(refusal(R"({"model": "gpt2", "lora_targets": [{"a": 1}]})"), HasSubstr("/run/lora_targets: its values"));
}

TEST(ConfigFiles, OfAReportWhatDoesNotExistInTheNewRunIsLeftOut) {
  const Written report(R"({"needed_bytes": 5, "run": {"model": "gpt2", "batch_size": 8, "loop": "trainer",
      "optimizer": "adamw-fused", "accumulation_steps": 1, "accelerate": "1.15.0"}})",
                       "report.json");
  const auto beside = [&](const std::vector<ConfigOption>& typed) {
    return without_absent(config_beside(report.read(), typed), typed, test::registry());
  };
  const ConfigFile same = beside({});
  EXPECT_THAT(text_of(same.options), HasSubstr("--accelerate 1.15.0"));
  EXPECT_TRUE(keys_of(same, KeyUse::kLeftOut).empty());
  const ConfigFile bare = beside({{"--loop", "bare", ""}});
  EXPECT_THAT(text_of(bare.options), Not(HasSubstr("--accelerate")));
  EXPECT_EQ(use_of(bare, "run/accelerate"), "left out");
  EXPECT_THAT(bare.notes, testing::Contains(HasSubstr("run/accelerate")));
  const ConfigFile inference = beside({{"--infer", "", ""}});
  EXPECT_EQ(text_of(inference.options), "--model gpt2 --bs 8");
}

TEST(ConfigFiles, AKeyThatIsLeftOutIsAsIfItWereNotThere) {
  const ConfigFile file = read_config({path_of("axolotl-lora-1b.yml"), "", {"val_set_size", "datasets"}});
  EXPECT_THAT(text_of(file.options), Not(HasSubstr("--eval-bs")));
  EXPECT_EQ(use_of(file, "val_set_size"), "left out");
  EXPECT_THAT(refusal_of([&] {
                (void)read_config({path_of("axolotl-lora-1b.yml"), "", {"val_set_siz"}});
              }),
              HasSubstr("did you mean 'val_set_size'?"));
}

TEST(ConfigFiles, AnUnknownKeyIsRefusedWithTheNearestOne) {
  EXPECT_THAT(Written("base_model: gpt2\nmicro_batch_sise: 4\n").refusal(),
              HasSubstr("run.yml: /micro_batch_sise: unknown key; did you mean 'micro_batch_size'?"));
  EXPECT_THAT(Written("distributed_type: FSDP\nfsdp_config:\n  fsdp_offload_parms: true\n").refusal(),
              HasSubstr("/fsdp_config/fsdp_offload_parms: unknown key"));
  EXPECT_THAT(Written("train_micro_batch_size_per_gpu: 2\nzero_optimisation:\n  stage: 2\n").refusal(),
              HasSubstr("unknown key; did you mean 'zero_optimization'?"));
}

TEST(ConfigFiles, AValueOfAnotherTypeIsRefusedInOneLine) {
  EXPECT_THAT(Written("base_model: gpt2\nsequence_len: long\n").refusal(),
              HasSubstr("/sequence_len: found 'long'; accepted: a whole number below 2^63"));
  EXPECT_THAT(Written("base_model: gpt2\nsequence_len: 99999999999999999999\n").refusal(),
              HasSubstr("/sequence_len: found '99999999999999999999'"));
  EXPECT_THAT(Written("base_model: [gpt2]\n").refusal(), HasSubstr("/base_model: found 'gpt2'; accepted: a single"));
  EXPECT_THAT(Written("base_model: gpt2\nmicro_batch_size: {a: 1}\n").refusal(), HasSubstr("/micro_batch_size: found"));
  EXPECT_THAT(Written("base_model: gpt2\nfsdp_config: 3\n").refusal(), HasSubstr("accepted: a mapping of keys"));
  EXPECT_THAT(Written("base_model: gpt2\nbf16: sometimes\n").refusal(), HasSubstr("true, false, auto or full"));
  EXPECT_THAT(Written("stage: sft\ndo_train: true\nflash_attn: fa4\n").refusal(), HasSubstr("one of auto, disabled"));
}

TEST(ConfigFiles, AllThatIsNotModelledStandsInOneLine) {
  const std::string refusal = Written("base_model: gpt2\nqat: {weight_dtype: int8}\nrelora: true\n").refusal();
  EXPECT_THAT(refusal, HasSubstr("/qat: weights packed in this way are not modelled (also refused: relora)"));
  EXPECT_THAT(refusal, HasSubstr("--config-without qat,relora"));
}

TEST(ConfigFiles, WhatIsSwitchedOffIsNotRefused) {
  const ConfigFile file =
      Written("base_model: gpt2\nqat:\nrelora: false\nlora_modules_to_save: []\nddp_bucket_cap_mb: 25\n").read();
  EXPECT_EQ(use_of(file, "qat"), "irrelevant");
  EXPECT_EQ(use_of(file, "relora"), "irrelevant");
  EXPECT_EQ(use_of(file, "lora_modules_to_save"), "irrelevant");
  EXPECT_EQ(use_of(file, "ddp_bucket_cap_mb"), "irrelevant");
}

TEST(ConfigFiles, WhatIsOnByDefaultIsToldWhereItIsSwitchedOff) {
  const ConfigFile off = Written("base_model: gpt2\ndataloader_pin_memory: false\n").read();
  EXPECT_EQ(use_of(off, "dataloader_pin_memory"), "approximated");
  const ConfigFile on = Written("base_model: gpt2\ndataloader_pin_memory: true\n").read();
  EXPECT_EQ(use_of(on, "dataloader_pin_memory"), "irrelevant");
}

TEST(ConfigFiles, KeysOfAMethodThatIsNotInUseAreIrrelevant) {
  const ConfigFile file = Written("base_model: gpt2\nlora_r: 8\nlora_target_linear: true\n").read();
  EXPECT_EQ(use_of(file, "lora_r"), "irrelevant");
  EXPECT_THAT(text_of(file.options), Not(HasSubstr("--lora")));
}

TEST(ConfigFiles, AxolotlsTypesOfWeights) {
  const auto options = [](const std::string& lines) {
    return text_of(Written("base_model: gpt2\n" + lines).read().options);
  };
  EXPECT_THAT(options(""), HasSubstr("--precision amp-bf16 --weights-dtype bf16"));  // bf16: auto
  EXPECT_THAT(options("bf16: full\n"), HasSubstr("--precision bf16"));
  EXPECT_THAT(options("bf16: full\n"), Not(HasSubstr("--weights-dtype")));
  EXPECT_THAT(options("fp16: true\n"), HasSubstr("--precision amp-fp16 --weights-dtype fp16"));
  EXPECT_THAT(options("bf16: false\n"), HasSubstr("--precision fp32 --weights-dtype fp32"));
  EXPECT_THAT(options("bf16: false\ntf32: true\n"), HasSubstr("--precision tf32"));
}

TEST(ConfigFiles, AxolotlsNormsInFloat32AreTold) {
  const auto notes = [](const std::string& lines) { return Written("base_model: gpt2\n" + lines).read().notes; };
  EXPECT_THAT(notes(""), testing::Contains(HasSubstr("norms and embeddings")));
  EXPECT_THAT(notes("flash_attention: true\n"), Not(testing::Contains(HasSubstr("norms and embeddings"))));
}

TEST(ConfigFiles, LlamaFactorysTypesOfWeights) {
  const auto options = [](const std::string& lines) {
    return text_of(Written("stage: sft\ndo_train: true\nmodel_name_or_path: gpt2\n" + lines).read().options);
  };
  EXPECT_THAT(options("finetuning_type: full\nbf16: true\n"), HasSubstr("--weights-dtype fp32"));
  EXPECT_THAT(options("finetuning_type: full\npure_bf16: true\n"), HasSubstr("--precision bf16"));
  EXPECT_THAT(options("bf16: true\n"), HasSubstr("--lora 8 --weights-dtype bf16"));
  EXPECT_THAT(options("disable_gradient_checkpointing: true\n"), HasSubstr("--checkpointing none"));
}

TEST(ConfigFiles, WhatCheckpointsAreToldIsHonouredOrRefused) {
  const auto written = [](const std::string& lines) {
    return Written("model_name_or_path: gpt2\nper_device_train_batch_size: 1\n" + lines);
  };
  const auto options = [&](const std::string& lines) {
    return text_of(written(lines).read("training-arguments").options);
  };
  EXPECT_THAT(options("gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: true}\n"),
              HasSubstr("--checkpointing full --reentrant"));
  EXPECT_THAT(options("gradient_checkpointing: true\ngradient_checkpointing_kwargs: {every_n_layers: 2}\n"),
              HasSubstr("--checkpointing every-2"));
  EXPECT_THAT(written("gradient_checkpointing: true\ngradient_checkpointing_kwargs: {offload: true}\n")
                  .refusal("training-arguments"),
              HasSubstr("offloaded one by one"));
  // transformers 5.23: the new name stands for the old one.
  EXPECT_THAT(options("activation_checkpointing: true\nactivation_checkpointing_kwargs: {use_reentrant: false}\n"),
              HasSubstr("--checkpointing full --no-reentrant"));
  EXPECT_THAT(options("activation_checkpointing: false\ngradient_checkpointing: true\n"),
              HasSubstr("--checkpointing none"));
}

TEST(ConfigFiles, AxolotlSetsTheAllocator) {
  const ConfigFile file = Written("base_model: gpt2\n").read();
  EXPECT_THAT(text_of(file.options), HasSubstr("--expandable"));
  EXPECT_THAT(file.notes, testing::Contains(HasSubstr("expandable_segments:True")));
}

TEST(ConfigFiles, DeepSpeedsSizesOfStage3HaveTwoNames) {
  const std::string zero3 = R"({"zero_optimization": {"stage": 3, "use_multi_rank_bucket_allreduce": true, )";
  const ConfigFile file = Written(zero3 + R"("max_live_parameters": 5e8}})", "zero.json").read();
  EXPECT_THAT(text_of(file.options), HasSubstr("--deepspeed stage3_max_live_parameters=500000000"));
  EXPECT_THAT(Written(zero3 + R"("cpu_offload": true}})", "zero.json").refusal(), HasSubstr("of earlier versions"));
}

TEST(ConfigFiles, AFileWithoutATrainingIsRefused) {
  EXPECT_THAT(Written("stage: sft\nmodel_name_or_path: gpt2\n").refusal(), HasSubstr("it does not train"));
}

TEST(ConfigFiles, LigersKernelsWithoutTheirLossAreRefused) {
  const std::string plugin = "base_model: gpt2\nplugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rope: true\n";
  EXPECT_THAT(Written(plugin).refusal(), HasSubstr("without its fused linear cross entropy"));
  const ConfigFile some = Written(plugin + "liger_fused_linear_cross_entropy: true\n").read();
  EXPECT_EQ(use_of(some, "liger_fused_linear_cross_entropy"), "approximated");
}

TEST(ConfigFiles, AxolotlsCutCrossEntropyIsOnWithItsPlugin) {
  const std::string plugin =
      "base_model: gpt2\nplugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n";
  EXPECT_THAT(text_of(Written(plugin).read().options), HasSubstr("--cut-cross-entropy"));
  EXPECT_THAT(text_of(Written(plugin + "cut_cross_entropy: false\n").read().options),
              Not(HasSubstr("--cut-cross-entropy")));
}

TEST(ConfigFiles, APatternOfAxolotlIsOneOfWholeNames) {
  const std::string adapter = "base_model: gpt2\nadapter: lora\nlora_r: 8\nlora_target_modules: ";
  EXPECT_THAT(text_of(Written(adapter + "'transformer.h.[0-9]+.attn.c_attn'\n").read().options),
              HasSubstr("--lora-targets re:transformer.h.[0-9]+.attn.c_attn"));
  EXPECT_THAT(Written(adapter + "['.*attn']\n").refusal(), HasSubstr("a list of patterns"));
}

TEST(ConfigFiles, TrlsDefaultsAreItsOwn) {
  const ConfigFile sft = Written("model_name_or_path: gpt2\nuse_peft: true\npacking: false\n").read();
  EXPECT_EQ(sft.format, "trl-sft");
  EXPECT_EQ(text_of(sft.options),
            "--model gpt2 --loop trl-sft --bs 8 --precision amp-bf16 --checkpointing full --seq 1024 --weights-dtype "
            "fp32 --lora 16 --lora-dropout 0.05 --lora-targets q_proj,v_proj");
  const ConfigFile dpo = Written("model_name_or_path: gpt2\nbeta: 0.1\nfp16: true\nbf16: false\n").read();
  EXPECT_EQ(dpo.format, "trl-dpo");
  EXPECT_THAT(text_of(dpo.options), HasSubstr("--precision amp-fp16"));
}

TEST(ConfigFiles, PeftsTargetParametersAreTargetsToo) {
  const std::string parameters = "lora_target_parameters: [experts.gate_up_proj, experts.down_proj]\n";
  const std::string trl = "model_name_or_path: gpt2\nuse_peft: true\npacking: false\nlora_dropout: 0.0\n" + parameters;
  EXPECT_THAT(text_of(Written(trl).read().options), HasSubstr("--lora-targets experts.gate_up_proj,experts.down_proj"));
  EXPECT_THAT(text_of(Written(trl + "lora_target_modules: [q_proj]\n").read().options),
              HasSubstr("--lora-targets q_proj,experts.gate_up_proj,experts.down_proj"));
  const std::string axolotl = "base_model: gpt2\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n" + parameters;
  EXPECT_THAT(text_of(Written(axolotl).read().options),
              HasSubstr("--lora-targets linear,experts.gate_up_proj,experts.down_proj"));
}

TEST(ConfigFiles, TrlsPackingIsAnOptionBesideLengths) {
  const Written file("model_name_or_path: gpt2\npacking: true\npadding_free: true\n");
  const ConfigFile full = config_beside(file.read(), {});
  EXPECT_THAT(text_of(full.options), Not(HasSubstr("--packing")));
  EXPECT_THAT(keys_of(full, KeyUse::kApproximated), ElementsAre("packing", "padding_free"));
  const ConfigFile real =
      config_beside(file.read(), std::vector<ConfigOption>{{"--lengths", "lognormal:200,0.6,1024", ""}});
  EXPECT_THAT(text_of(real.options), HasSubstr("--packing bfd --padding-free"));
}

TEST(ConfigFiles, TheOrderOfSamplesIsAnOptionBesideLengths) {
  const Written file("model_name_or_path: gpt2\nuse_peft: true\ntrain_sampling_strategy: group_by_length\n");
  EXPECT_THAT(text_of(config_beside(file.read(), {}).options), Not(HasSubstr("--group-by-length")));
  const ConfigFile real =
      config_beside(file.read(), std::vector<ConfigOption>{{"--lengths", "lognormal:200,0.6,1024", ""}});
  EXPECT_THAT(text_of(real.options), HasSubstr("--group-by-length"));
}

TEST(ConfigFiles, TrainersThatGenerateHavePromptsAndCompletions) {
  const ConfigFile grpo = Written("model_name_or_path: gpt2\nnum_generations: 8\nmax_completion_length: 100\n").read();
  EXPECT_EQ(grpo.format, "trl-grpo");
  EXPECT_THAT(text_of(grpo.options), HasSubstr("--completion 100 --seq 200 --ref-model none"));
  const ConfigFile rloo =
      Written("model_name_or_path: gpt2\nnormalize_advantages: true\nmax_prompt_length: 28\n").read();
  EXPECT_THAT(text_of(rloo.options), HasSubstr("--loop trl-rloo"));
  EXPECT_THAT(text_of(rloo.options), HasSubstr("--completion 512 --seq 540"));
  EXPECT_THAT(text_of(Written("num_generations: 8\nbeta: 0.1\n").read().options), HasSubstr("--ref-model own"));
}

TEST(ConfigFiles, TrlsVllmIsReadByItsMode) {
  const ConfigFile beside = Written(
                                "num_generations: 8\nuse_vllm: true\nvllm_enable_sleep_mode: true\n"
                                "vllm_gpu_memory_utilization: 0.45\nvllm_max_model_length: 4096\n")
                                .read();
  EXPECT_THAT(text_of(beside.options), HasSubstr("--vllm colocate --vllm-utilization 0.45 --vllm-sleep "
                                                 "--vllm-max-length 4096"));
  const ConfigFile server =
      Written("num_generations: 8\nuse_vllm: true\nvllm_mode: server\nvllm_server_port: 8000\n").read();
  EXPECT_THAT(text_of(server.options), HasSubstr("--vllm server"));
  EXPECT_THAT(text_of(server.options), Not(HasSubstr("--vllm-utilization")));
  EXPECT_THAT(text_of(Written("num_generations: 8\nvllm_mode: server\n").read().options), Not(HasSubstr("--vllm")));
  EXPECT_THAT(Written("num_generations: 8\nuse_vllm: true\nvllm_tensor_parallel_size: 2\n").refusal(),
              HasSubstr("/vllm_tensor_parallel_size: vLLM over several cards"));
}

TEST(ConfigFiles, RewardModelsAreTrlsAndAxolotls) {
  const Written trl("model_name_or_path: gpt2\ncenter_rewards_coefficient: 0.01\nmax_length: 512\n");
  EXPECT_EQ(trl.read().format, "trl-reward");
  EXPECT_EQ(text_of(trl.read().options),
            "--model gpt2 --loop trl-reward --bs 8 --precision amp-bf16 --checkpointing full --seq 512 "
            "--weights-dtype fp32");
  EXPECT_EQ(use_of(trl.read(), "center_rewards_coefficient"), "irrelevant");
  EXPECT_THAT(Written("center_rewards_coefficient: 0.01\ndisable_dropout: false\n").refusal(),
              HasSubstr("/disable_dropout: this trainer with dropout"));
  const ConfigFile axolotl = Written("base_model: gpt2\nreward_model: true\nnum_labels: 1\n").read();
  EXPECT_THAT(text_of(axolotl.options), HasSubstr("--loop trl-reward"));
  EXPECT_THAT(text_of(axolotl.options), Not(HasSubstr("--task")));
}

TEST(ConfigFiles, EvaluationThatTheRulesDoNotTakeIsLeftOutOfThePeak) {
  for (const char* size : {"", "per_device_eval_batch_size: 4\n"}) {
    const Written grpo("model_name_or_path: gpt2\nnum_generations: 8\neval_strategy: steps\n" + std::string(size));
    const ConfigFile beside = config_beside(grpo.read(), {});
    EXPECT_THAT(text_of(beside.options), Not(HasSubstr("--eval-bs")));
    EXPECT_EQ(use_of(beside, "eval_strategy"), "approximated");
  }
  const Written kto("model_name_or_path: gpt2\ndesirable_weight: 1.0\neval_strategy: steps\n");
  const ConfigFile beside = config_beside(kto.read(), {});
  EXPECT_EQ(beside.format, "trl-kto");
  EXPECT_THAT(text_of(beside.options), HasSubstr("--eval-bs 8"));
}

TEST(ConfigFiles, LossesOfTrlAreOptionsWhereTheyHoldOtherTensors) {
  EXPECT_THAT(text_of(Written("packing: false\nloss_type: dft\n").read().options), HasSubstr("--sft-loss dft"));
  EXPECT_THAT(text_of(Written("packing: false\nloss_type: chunked_nll\n").read().options),
              Not(HasSubstr("--sft-loss")));
  EXPECT_THAT(Written("packing: false\nloss_type: chunked\n").refusal(), HasSubstr("accepted: one of nll"));
  EXPECT_THAT(text_of(Written("desirable_weight: 1.0\nloss_type: apo_zero_unpaired\n").read().options),
              HasSubstr("--kto-loss apo_zero_unpaired"));
  EXPECT_EQ(use_of(Written("beta: 0.1\nloss_type: ipo\n").read(), "loss_type"), "irrelevant");
  EXPECT_EQ(use_of(Written("num_generations: 8\nloss_type: grpo\n").read(), "loss_type"), "used");
  EXPECT_EQ(use_of(Written("num_generations: 8\ntop_entropy_quantile: 0.2\n").read(), "top_entropy_quantile"),
            "approximated");
  EXPECT_THAT(text_of(Written("num_generations: 8\nnum_iterations: 2\ngeneration_batch_size: 32\n").read().options),
              HasSubstr("--steps-per-generation 4 --iterations 2"));
  EXPECT_THAT(Written("num_generations: 8\ngeneration_batch_size: 30\n").refusal(), HasSubstr("a multiple of"));
  EXPECT_THAT(Written("num_generations: 8\ncache_implementation: static\n").refusal(),
              HasSubstr("caches of this kind"));
  EXPECT_EQ(use_of(Written("num_generations: 8\nloss_type: dapo\n").read(), "loss_type"), "used");
  EXPECT_THAT(text_of(Written("packing: false\nrouter_aux_loss_coef: 0.0\n").read().options),
              HasSubstr("--no-router-loss"));
}

TEST(ConfigFiles, AnswersAloneAreAnOptionBesideTheirLength) {
  const Written file("model_name_or_path: gpt2\nuse_peft: true\ncompletion_only_loss: true\n");
  EXPECT_EQ(use_of(config_beside(file.read(), {}), "completion_only_loss"), "approximated");
  const std::vector<ConfigOption> typed{{"--completion", "200", ""}};
  EXPECT_EQ(use_of(config_beside(file.read(), typed), "completion_only_loss"), "used");
}

TEST(ConfigFiles, TheSeedIsAnOptionBesideLengths) {
  const Written file("model_name_or_path: gpt2\nuse_peft: true\nseed: 7\n");
  const ConfigFile full = config_beside(file.read(), {});
  EXPECT_THAT(text_of(full.options), Not(HasSubstr("--seed")));
  EXPECT_EQ(use_of(full, "seed"), "irrelevant");
  const ConfigFile real =
      config_beside(file.read(), std::vector<ConfigOption>{{"--lengths", "lognormal:200,0.6,1024", ""}});
  EXPECT_THAT(text_of(real.options), HasSubstr("--seed 7"));
}

TEST(ConfigFiles, WhatSavesAndLoadsIsToldToBeLeftOut) {
  const ConfigFile file = Written("model_name_or_path: gpt2\noutput_dir: out\nsave_strategy: epoch\n").read();
  EXPECT_EQ(use_of(file, "save_strategy"), "approximated");
  EXPECT_EQ(use_of(Written("output_dir: out\nsave_strategy: 'no'\n").read(), "save_strategy"), "irrelevant");
  const ConfigFile zero = read_config({path_of("accelerate-zero3.yaml"), "", {}});
  EXPECT_EQ(use_of(zero, "deepspeed_config/zero3_save_16bit_model"), "approximated");
}

TEST(ConfigFiles, TrainingArgumentsAreReadFromJson) {
  const ConfigFile file =
      Written(R"({"per_device_train_batch_size": 4, "fp16": true, "output_dir": "out", "optim": "adafactor",)"
              R"("eval_strategy": "steps", "per_device_eval_batch_size": 16, "model_name_or_path": "bert-base",)"
              R"("max_seq_length": 384})",
              "run.json")
          .read();
  EXPECT_EQ(text_of(file.options),
            "--optimizer adafactor --model bert-base --loop trainer --bs 4 --precision amp-fp16 --checkpointing none "
            "--eval-bs 16 --seq 384");
}

TEST(ConfigFiles, LlamaFactorysOwnTrainersOfPreferencesHoldWholeLogits) {
  const auto file = [](const std::string& more) {
    return Written("do_train: true\nmodel_name_or_path: gpt2\nfinetuning_type: lora\n" + more);
  };
  EXPECT_THAT(text_of(file("stage: dpo\n").read().options),
              HasSubstr("--loop trl-dpo --whole-logits --ref-model adapters"));
  EXPECT_THAT(text_of(file("stage: kto\n").read().options), HasSubstr("--loop trl-kto --whole-logits"));
  EXPECT_THAT(text_of(file("stage: dpo\npref_loss: simpo\n").read().options), Not(HasSubstr("--whole-logits")));
  const ConfigFile full =
      Written("stage: dpo\ndo_train: true\nmodel_name_or_path: gpt2\nfinetuning_type: full\nbf16: true\n").read();
  EXPECT_THAT(text_of(full.options), HasSubstr("--ref-model own"));
  EXPECT_EQ(use_of(full, "stage"), "approximated");
  EXPECT_THAT(file("stage: dpo\nref_model: other\n").refusal(), HasSubstr("/ref_model: a reference of other weights"));
  EXPECT_THAT(file("stage: dpo\nquantization_bit: 4\n").refusal(), HasSubstr("a packed base in LLaMA-Factory's own"));
}

TEST(ConfigFiles, AxolotlsUnfrozenParametersAloneTrain) {
  const std::string some =
      "base_model: gpt2\nunfrozen_parameters:\n  - ^lm_head.weight$[:32000]\n  - model.layers.4[4-9]+.mlp\n";
  EXPECT_THAT(text_of(Written(some).read().options),
              HasSubstr(R"(--freeze except:^lm_head\.weight$,model\.layers\.4[4-9]+\.mlp)"));
  EXPECT_THAT(Written(some + "adapter: lora\nlora_r: 8\nlora_target_linear: true\n").refusal(),
              HasSubstr("the adapters are frozen, too, and nothing trains"));
  EXPECT_THAT(text_of(Written("base_model: gpt2\nunfrozen_parameters:\n").read().options), Not(HasSubstr("--freeze")));
}

TEST(ConfigFiles, AxolotlsOutputRouterLogitsAddTheirLoss) {
  const std::string some = "base_model: mistralai/Mixtral-8x7B-v0.1\nmodel_config:\n";
  EXPECT_THAT(text_of(Written(some + "  output_router_logits: true\n").read().options), HasSubstr("--router-loss"));
  EXPECT_THAT(text_of(Written(some + "  output_router_logits: false\n").read().options), Not(HasSubstr("--router")));
  EXPECT_THAT(text_of(Written(some + "  output_router_logits:\n").read().options), Not(HasSubstr("--router")));
  EXPECT_THAT(Written(some + "  output_router_logits: 2\n").refusal(),
              HasSubstr("output_router_logits: true or false"));
  EXPECT_THAT(Written(some + "  sliding_window: 4096\n").refusal(), HasSubstr("another configuration of the model"));
}

TEST(ConfigFiles, AxolotlPacksExpertsAsItLoadsThem) {
  EXPECT_THAT(
      text_of(Written("base_model: gpt2\nadapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_target_linear: true\n"
                      "quantize_moe_experts: true\n")
                  .read()
                  .options),
      HasSubstr("--quantize-experts"));
}

TEST(ConfigFiles, StagesOfLlamaFactoryThatHoldMoreThanTrlsAreRefused) {
  const auto refusal = [](const std::string& stage) {
    return Written("stage: " + stage + "\ndo_train: true\nfinetuning_type: lora\nmodel_name_or_path: gpt2\n").refusal();
  };
  EXPECT_THAT(refusal("rm"), HasSubstr("/stage: LLaMA-Factory's rm puts a value head beside the language model's"));
  EXPECT_THAT(refusal("ppo"), HasSubstr("/stage: LLaMA-Factory's trainer of the stage ppo is not modelled"));
}

TEST(ConfigFiles, AxolotlsTrainersWithoutSupervision) {
  const std::string base = "base_model: gpt2\nmicro_batch_size: 1\nsequence_len: 512\n";
  EXPECT_THAT(text_of(Written(base + "rl: ipo\n").read().options), HasSubstr("--loop trl-dpo"));
  EXPECT_THAT(Written(base + "rl: simpo\n").refusal(), HasSubstr("/rl: the trainer simpo is not modelled"));
  EXPECT_THAT(Written(base + "rl: grpo\n").refusal(), HasSubstr("trl/max_completion_length"));
  EXPECT_THAT(Written(base + "rl: grpo\ntrl: {max_completion_length: 512}\n").refusal(), HasSubstr("/sequence_len"));
  const ConfigFile server =
      Written(base + "rl: gdpo\ntrl: {max_completion_length: 128, use_vllm: true}\nvllm: {port: 8001}\n").read();
  EXPECT_THAT(text_of(server.options), HasSubstr("--loop trl-grpo --completion 128 --ref-model none --vllm server"));
  EXPECT_EQ(use_of(server, "vllm/port"), "irrelevant");
  EXPECT_THAT(Written(base + "rl: grpo\ntrl: {max_completion_length: 128, sync_ref_model: true}\n").refusal(),
              HasSubstr("/trl/sync_ref_model: a reference that follows the model"));
}

TEST(ConfigFiles, TheTrainersModeOfTorchCompileSwitchesItOn) {
  const std::string base = "model_name_or_path: gpt2\nper_device_train_batch_size: 2\ntorch_compile_mode: ";
  EXPECT_THAT(text_of(Written(base + "default\n").read().options), HasSubstr("--compile"));
  EXPECT_THAT(text_of(Written(base + "reduce-overhead\n").read().options),
              HasSubstr("--compile-mode reduce-overhead --compile"));
  EXPECT_THAT(Written(base + "max-autotune\n").refusal(), HasSubstr("/torch_compile_mode: of torch.compile the modes"));
}

TEST(ConfigFiles, TrlsExperimentalTrainersAreReadByTheirFormat) {
  const std::string base = "model_name_or_path: gpt2\nper_device_train_batch_size: 2\n";
  EXPECT_THAT(text_of(Written(base + "max_length: 512\nbeta: 0.1\n").read("trl-orpo").options),
              HasSubstr("--loop trl-orpo --bs 2 --precision amp-bf16 --checkpointing full --seq 512"));
  const ConfigFile online = Written(base + "max_new_tokens: 53\nmissing_eos_penalty: 1.0\n").read();
  EXPECT_EQ(online.format, "trl-online-dpo");
  EXPECT_THAT(text_of(online.options), HasSubstr("--seq 512 --completion 53"));
  EXPECT_THAT(Written(base + "reward_model_path: x/y\n").refusal(),
              HasSubstr("/reward_model_path: a reward model on the card is not modelled"));
}

TEST(CommandLines, OfScriptsThatTheirOwnArgumentsTell) {
  const auto options_of = [](const std::vector<std::string>& words) {
    return text_of(read_command_line(words, {}).options);
  };
  const ConfigFile answers = read_command_line(
      std::vector<std::string>{"python", "run_qa.py", "--model_name_or_path", "bert-base-uncased", "--doc_stride",
                               "128", "--max_seq_length", "384", "--n_best_size", "20"},
      {});
  EXPECT_THAT(text_of(answers.options), HasSubstr("--task qa"));
  EXPECT_EQ(use_of(answers, "doc_stride"), "irrelevant");  // the script's name says it
  EXPECT_EQ(use_of(answers, "n_best_size"), "irrelevant");
  EXPECT_THAT(options_of({"python", "run_speech_recognition_seq2seq.py", "--model_name_or_path", "openai/whisper-small",
                          "--language", "hindi", "--max_duration_in_seconds", "30"}),
              HasSubstr("--task speech"));
  EXPECT_THAT(refusal_of([&] {
                (void)options_of({"python", "my_ctc.py", "--model_name_or_path", "x", "--mask_time_prob", "0.05"});
              }),
              HasSubstr("/mask_time_prob: training with CTC"));
  EXPECT_THAT(options_of({"python", "dpo_online.py", "--model_name_or_path", "gpt2"}), HasSubstr("trl-online-dpo"));
  EXPECT_THAT(options_of({"python", "orpo.py", "--model_name_or_path", "gpt2"}), HasSubstr("trl-orpo"));
}

TEST(ConfigFiles, TorchtunesOtherRecipesAreRefused) {
  const std::string tokenizer = "tokenizer: {path: x}\noptimizer: {_component_: torch.optim.AdamW}\n";
  const std::string loss = "loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}\n";
  const std::string model = "model: {_component_: torchtune.models.llama3.llama3_8b}\n";
  EXPECT_THAT(Written(model + tokenizer + loss + "teacher_model: {_component_: x}\n").refusal(),
              HasSubstr("/teacher_model: torchtune's distillation recipes"));
  EXPECT_THAT(Written(model + tokenizer + loss + "quantizer: {groupsize: 256}\n").refusal(),
              HasSubstr("quantisation-aware training"));
  EXPECT_THAT(text_of(Written(model + tokenizer + loss + "optimizer_in_bwd: true\n").read().options),
              HasSubstr("--optimizer-in-backward"));
  EXPECT_THAT(Written(model + tokenizer).refusal(), HasSubstr("it has no loss/_component_, which torchtune's"));
  EXPECT_THAT(Written(model + tokenizer + "loss: {_component_: torchtune.rlhf.loss.DPOLoss}\n").refusal(),
              HasSubstr("the loss torchtune.rlhf.loss.DPOLoss is not modelled"));
  EXPECT_THAT(Written("model: {_component_: torchtune.models.phi3.lora_phi3_mini}\n" + tokenizer + loss).refusal(),
              HasSubstr("adapters of Phi"));
  EXPECT_THAT(Written("model: {_component_: torchtune.models.clip.clip_l}\n" + tokenizer + loss).refusal(),
              HasSubstr("is no model of memcalc"));
}

TEST(ConfigFiles, TorchtunesRecipesShardOverSeveralGpus) {
  const ConfigFile file = read_config({path_of("torchtune-full-0.5b.yaml"), "", {}});
  const ConfigFile beside = config_beside(file, std::vector<ConfigOption>{{"--gpus", "2", ""}});
  EXPECT_THAT(text_of(beside.options), HasSubstr("--parallel fsdp2"));
  EXPECT_THAT(text_of(config_beside(file, {}).options), Not(HasSubstr("--parallel")));
}

TEST(ConfigFiles, ACommandOfTorchtuneIsRead) {
  const std::string path = path_of("torchtune-lora-8b.yaml");
  const auto read = [&](std::vector<std::string> words) { return read_command_line(words, {}); };
  const ConfigFile file = read({"tune", "run", "--nproc_per_node", "4", "lora_finetune_distributed", "--config", path,
                                "batch_size=3", "model.lora_rank=16", "tokenizer.max_seq_len=2048"});
  EXPECT_THAT(text_of(file.options), HasSubstr("--bs 3"));
  EXPECT_THAT(text_of(file.options), HasSubstr("--lora 16"));
  EXPECT_THAT(text_of(file.options), HasSubstr("--seq 2048"));
  EXPECT_THAT(text_of(config_beside(file, {}).options), HasSubstr("--parallel fsdp2"));
  EXPECT_THAT(refusal_of([&] {
                (void)read({"tune", "run", "qat_distributed", "--config", path});
              }),
              HasSubstr("torchtune's recipe 'qat_distributed' is not modelled; accepted: full_finetune_single_device"));
}

TEST(ConfigFiles, ShardsNeedANumberOfGpus) {
  const ConfigFile file = Written("base_model: gpt2\nfsdp_version: 2\nfsdp_config: {offload_params: false}\n").read();
  EXPECT_THAT(refusal_of([&] { (void)config_beside(file, {}); }), HasSubstr("nothing says how many; accepted: --gpus"));
  EXPECT_NO_THROW((void)config_beside(file, std::vector<ConfigOption>{{"--gpus", "4", ""}}));
}

TEST(ConfigFiles, AFileWithoutAModelAsksForOne) {
  const ConfigFile file = read_config({path_of("accelerate-fsdp2.yaml"), "", {}});
  EXPECT_THAT(refusal_of([&] { (void)config_beside(file, {}); }), HasSubstr("it names no model; accepted: --model"));
}

TEST(ConfigFiles, AFormatThatDoesNotExistIsRefused) {
  const Written file("base_model: gpt2\n");
  EXPECT_THAT(file.refusal("axolotle"), HasSubstr("did you mean 'axolotl'?"));
  EXPECT_THAT(Written("colour: blue\n").refusal(), HasSubstr("no key says whose file it is"));
}

TEST(ConfigFiles, ANamedFileIsLookedForInTheFoldersAbove) {
  const ConfigFile file = read_config({path_of("llama-factory-full-sft-zero3.yaml"), "", {}});
  EXPECT_EQ(use_of(file, "deepspeed/zero_optimization/stage"), "used");
  EXPECT_EQ(use_of(file, "deepspeed/zero_optimization/stage3_gather_16bit_weights_on_model_save"), "approximated");
  EXPECT_THAT(Written("base_model: gpt2\ndeepspeed: no/such.json\n").refusal(),
              HasSubstr("it names 'no/such.json', which is neither here"));
}

// --- command lines

std::string options_of(std::vector<std::string> words) { return text_of(read_command_line(words, {}).options); }

TEST(CommandLines, OfTheTrainersArguments) {
  EXPECT_EQ(options_of({"python", "-u", "train.py", "--model_name_or_path", "gpt2", "--per_device_train_batch_size=4",
                        "--bf16", "--gradient_checkpointing", "True", "--learning_rate", "-1e-5"}),
            "--model gpt2 --loop trainer --bs 4 --precision amp-bf16 --checkpointing full");
}

TEST(CommandLines, PredictionsThatAreGeneratedAreOfTheEvaluation) {
  const std::vector<std::string> script = {
      "python", "run_summarization.py",   "--model_name_or_path", "t5-base", "--num_beams",
      "4",      "--predict_with_generate"};
  EXPECT_THAT(options_of(script), Not(HasSubstr("--eval"))) << "it evaluates after the training";
  std::vector<std::string> evaluates = script;
  evaluates.insert(evaluates.end(), {"--eval_strategy", "steps", "--generation_max_length", "65"});
  EXPECT_THAT(options_of(evaluates), HasSubstr("--eval-bs 8"));
  EXPECT_THAT(options_of(evaluates), HasSubstr("--eval-generate 64 --eval-beams 4")) << "without the decoder's start";
}

TEST(CommandLines, LlamaFactoryGeneratesInItsEvaluationWithoutLabels) {
  std::vector<std::string> words = {"llamafactory-cli", "train", path_of("llama-factory-lora-sft.yaml"),
                                    "predict_with_generate=true"};
  words.insert(words.end(), {"eval_strategy=steps", "val_size=0.1", "max_new_tokens=256"});
  EXPECT_THAT(options_of(words), HasSubstr("--eval-generate 256"));
  EXPECT_THAT(options_of(words), HasSubstr("--no-eval-labels"));
}

TEST(CommandLines, OfWhisperTheLengthIsWithoutItsStart) {
  const std::vector<std::string> words = {"python",
                                          "run_speech_recognition_seq2seq.py",
                                          "--model_name_or_path",
                                          "openai/whisper-small",
                                          "--predict_with_generate",
                                          "--eval_strategy",
                                          "steps",
                                          "--language",
                                          "hindi",
                                          "--generation_max_length",
                                          "225"};
  EXPECT_THAT(options_of(words), HasSubstr("--eval-generate 225"));
}

TEST(CommandLines, ExamplesThatHaveMetricsKeepTheLogitsOfTheEvaluationSet) {
  const std::vector<std::string> glue = {"python",    "run_glue.py", "--model_name_or_path",
                                         "bert-base", "--do_train",  "--do_eval"};
  EXPECT_THAT(options_of(glue), HasSubstr("--eval-bs 8 --eval-logits"));
  std::vector<std::string> moves = glue;
  moves.insert(moves.end(), {"--eval_strategy", "epoch", "--eval_accumulation_steps", "4"});
  EXPECT_THAT(options_of(moves), HasSubstr("--eval-bs 8 --eval-logits --eval-accum 4"));
  std::vector<std::string> loss = glue;
  loss.insert(loss.end(), {"--prediction_loss_only", "True"});
  EXPECT_THAT(options_of(loss), HasSubstr("--eval-bs 8"));
  EXPECT_THAT(options_of(loss), Not(HasSubstr("--eval-logits")));
  std::vector<std::string> unknown = glue;
  unknown[1] = "train.py";
  EXPECT_THAT(options_of(unknown), Not(HasSubstr("--eval-bs"))) << "nobody knows what it does with do_eval";
  unknown.insert(unknown.end(), {"--eval_strategy", "steps", "--eval_accumulation_steps", "4"});
  EXPECT_THAT(options_of(unknown), HasSubstr("--eval-logits --eval-accum 4"));
}

TEST(CommandLines, TheAllocatorsConfigurationIsInTheEnvironment) {
  const std::vector<std::string> script = {"python", "train.py", "--model_name_or_path", "gpt2"};
  const auto behind = [&](std::vector<std::string> words) {
    words.insert(words.end(), script.begin(), script.end());
    return read_command_line(words, {});
  };
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
        std::vector<std::string>{"PYTORCH_ALLOC_CONF=expandable_segments:True"},
        std::vector<std::string>{"env", "-u", "DEBUG", "A=1", "PYTORCH_ALLOC_CONF=expandable_segments:True"},
        std::vector<std::string>{"nohup", "env", "PYTORCH_ALLOC_CONF=expandable_segments:True"}}) {
    EXPECT_THAT(text_of(behind(words).options), HasSubstr("--expandable"));
  }
  EXPECT_THAT(text_of(behind({"PYTORCH_ALLOC_CONF=expandable_segments:False"}).options),
              Not(HasSubstr("--expandable")));
  const ConfigFile others = behind({"PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128,expandable_segments:True"});
  EXPECT_THAT(text_of(others.options), HasSubstr("--expandable"));
  EXPECT_EQ(use_of(others, "PYTORCH_CUDA_ALLOC_CONF"), "approximated");
}

TEST(CommandLines, PlainPythonUsesAllVisibleGpusInOneProcess) {
  const std::vector<std::string> script = {"python", "train.py", "--model_name_or_path", "gpt2"};
  const auto behind = [&](std::vector<std::string> words, const std::vector<std::string>& rest) {
    words.insert(words.end(), rest.begin(), rest.end());
    return read_command_line(words, {});
  };
  EXPECT_THAT(text_of(behind({"CUDA_VISIBLE_DEVICES=0,1"}, script).options), HasSubstr("--parallel dp --gpus 2"));
  EXPECT_THAT(text_of(behind({"CUDA_VISIBLE_DEVICES=3"}, script).options), Not(HasSubstr("--gpus")));
  const ConfigFile trl =
      behind({"CUDA_VISIBLE_DEVICES=0,1"}, {"python", "sft.py", "--model_name_or_path", "gpt2", "--use_peft"});
  EXPECT_THAT(text_of(trl.options), Not(HasSubstr("--gpus")));
  EXPECT_EQ(use_of(trl, "CUDA_VISIBLE_DEVICES"), "approximated");
  const ConfigFile launched = behind({"CUDA_VISIBLE_DEVICES=0,1,2"}, {"torchrun", "--nproc_per_node", "gpu", "train.py",
                                                                      "--model_name_or_path", "gpt2"});
  EXPECT_THAT(text_of(launched.options), HasSubstr("--gpus 3"));
  EXPECT_THAT(text_of(launched.options), Not(HasSubstr("--parallel")));
  EXPECT_THAT(refusal_of([&] { (void)behind({"CUDA_VISIBLE_DEVICES=-1"}, script); }), HasSubstr("without a GPU"));
}

TEST(CommandLines, OfTorchrunSayHowManyGpus) {
  const std::string options = options_of({"OMP_NUM_THREADS=4", "torchrun", "--nnodes", "2", "--nproc-per-node=4",
                                          "run_clm.py", "--model_name_or_path", "gpt2", "--do_train"});
  EXPECT_THAT(options, HasSubstr("--gpus 8 --nodes 2"));
}

TEST(CommandLines, OfAccelerateLaunch) {
  const std::string options =
      options_of({"accelerate", "launch", "--use_fsdp", "--fsdp_version", "2", "--num_processes", "4",
                  "--fsdp_offload_params", "true", "sft.py", "--model_name_or_path", "gpt2", "--use_peft"});
  EXPECT_THAT(options, HasSubstr("--loop trl-sft"));
  EXPECT_THAT(options, HasSubstr("--gpus 4 --parallel fsdp2 --offload-parameters host"));
  EXPECT_THAT(options_of({"accelerate", "launch", "--config_file", path_of("accelerate-zero3.yaml"), "train.py",
                          "--model_name_or_path", "gpt2", "--bf16"}),
              HasSubstr("--gpus 8 --parallel ds-zero3"));
}

TEST(CommandLines, TheLaunchersPrecisionHoldsWhereTheScriptSaysNone) {
  const std::vector<std::string> launch = {"accelerate",           "launch", "--mixed_precision", "bf16", "train.py",
                                           "--model_name_or_path", "gpt2"};
  EXPECT_THAT(options_of(launch), HasSubstr("--precision amp-bf16"));
  std::vector<std::string> own = launch;
  own.emplace_back("--fp16");
  EXPECT_THAT(options_of(own), HasSubstr("--precision amp-fp16"));
}

TEST(CommandLines, OfToolsWithAFileTakeItsKeysAndTheWordsBesideIt) {
  EXPECT_THAT(options_of({"llamafactory-cli", "train", path_of("llama-factory-lora-sft.yaml"), "lora_rank=64"}),
              HasSubstr("--lora 64"));
  EXPECT_THAT(options_of({"axolotl", "train", path_of("axolotl-lora-1b.yml"), "--micro-batch-size", "3"}),
              HasSubstr("--bs 3"));
  EXPECT_THAT(options_of({"trl", "sft", "--config", path_of("trl-cli.yaml"), "--max_length", "512"}),
              HasSubstr("--seq 512"));
  EXPECT_THAT(options_of({"torchrun", "--nproc_per_node=8", "-m", "torchtitan.train", "--job.config_file",
                          path_of("torchtitan-llama3-8b.toml"), "--training.seq_len", "4096"}),
              HasSubstr("--seq 4096"));
}

TEST(CommandLines, AnArgumentOfNobodyIsRefused) {
  EXPECT_THAT(refusal_of([] {
                (void)options_of({"python", "train.py", "--bf16", "--my_argument", "3"});
              }),
              HasSubstr("command line: /my_argument: unknown key"));
  const ConfigFile file = read_command_line(
      std::vector<std::string>{"python", "train.py", "--bf16", "--my_argument", "3"}, {"my_argument"});
  EXPECT_THAT(keys_of(file, KeyUse::kLeftOut), ElementsAre("my_argument"));
}

TEST(CommandLines, WhatIsNoneIsRefusedInOneLine) {
  const auto refusal = [](std::vector<std::string> words) {
    return refusal_of([&] { (void)read_command_line(words, {}); });
  };
  EXPECT_THAT(refusal({}), HasSubstr("it is empty"));
  EXPECT_THAT(refusal({"python"}), HasSubstr("it has no script"));
  EXPECT_THAT(refusal({"ls", "-la"}), HasSubstr("'ls' is no program that is known"));
  EXPECT_THAT(refusal({"python", "train.py"}), HasSubstr("it has no arguments"));
  EXPECT_THAT(refusal({"torchrun", "--nproc_per_node", "many", "train.py"}), HasSubstr("a number of processes"));
  EXPECT_THAT(refusal({"trl", "ppo", "--x", "1"}), HasSubstr("of TRL's trainers sft, dpo"));
  EXPECT_THAT(refusal({"python", "train.py", "--bf16", "--", "x"}), HasSubstr("'--' is no option"));
  EXPECT_THAT(refusal({"torchrun", "--=", "train.py"}), HasSubstr("'--' is no option"));
  EXPECT_THAT(refusal({"python", "train.py", "here"}), HasSubstr("unexpected word 'here'"));
  EXPECT_THAT(refusal({"accelerate", "launch", "--num_processes"}), HasSubstr("it ends where"));
}

}  // namespace
}  // namespace memcalc
