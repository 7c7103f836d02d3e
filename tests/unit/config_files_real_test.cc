// The files in tests/config_files (rewritten from the examples of axolotl, LLaMA-Factory, TRL, torchtitan and
// torchtune: the same keys and values): what each becomes, and that each of its keys is accounted for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "memcalc/spec/config_files/trainer.h"
#include "support/config_answers.h"

namespace memcalc {
namespace {

using test::asked;
using test::path_of;
using test::refusal_of;
using test::text_of;
using test::use_of;
using testing::HasSubstr;

struct Case {
  std::string name;
  std::string format;
  std::vector<ConfigOption> typed;
  std::string options;  // in the order in which they are read
  std::vector<std::string> approximated;
};

const std::vector<Case>& cases() {
  static const std::vector<ConfigOption> eight = {{"--gpus", "8", ""}};
  static const std::vector<ConfigOption> model = {{"--model", "llama-3.2-1b", ""}, {"--seq", "1024", ""}};
  static const std::string qwen =
      "--model Qwen/Qwen3-4B-Instruct-2507 --loop trainer --task causal --seq 2048 --bs 1 "
      "--precision amp-bf16 --loader-workers 4 ";
  static const std::string linear = "gate_proj,down_proj,up_proj,q_proj,v_proj,k_proj,o_proj";
  static const std::vector<Case> all = {
      {"axolotl-lora-1b.yml",
       "",
       {},
       "--model NousResearch/Llama-3.2-1B --optimizer adamw_8bit --task causal --loop trainer --expandable --bs 2 "
       "--accum 2 --seq "
       "2048 --precision amp-bf16 --weights-dtype bf16 --eval-bs 2 --attn flash --checkpointing full --reentrant "
       "--lora 16 "
       "--lora-dropout 0.05 --lora-targets " +
           linear,
       {"sample_packing"}},
      {"axolotl-lora-1b-kernels.yml",
       "",
       {},
       "--model NousResearch/Llama-3.2-1B --optimizer adamw_8bit --task causal --loop trainer --expandable --bs 2 "
       "--accum 2 --seq "
       "2048 --precision amp-bf16 --weights-dtype bf16 --eval-bs 2 --attn flash --checkpointing full --reentrant "
       "--lora 16 "
       "--lora-targets " +
           linear,
       {"lora_mlp_kernel", "lora_o_kernel", "lora_qkv_kernel", "sample_packing"}},
      {"axolotl-qlora-8b.yml",
       "",
       {},
       "--model NousResearch/Meta-Llama-3-8B --optimizer paged_adamw_32bit --task causal --loop trainer --expandable "
       "--bs 2 --accum "
       "4 --seq 4096 --precision amp-bf16 --weights-dtype bf16 --attn flash --checkpointing full --reentrant --lora 32 "
       "--lora-dropout 0.05 --lora-targets linear --quantize nf4-double --no-prepare-kbit",
       {"sample_packing"}},
      {"axolotl-qlora-seed-36b.yml",
       "",
       {},
       "--model ByteDance-Seed/Seed-OSS-36B-Instruct --optimizer adamw_bnb_8bit --task causal --loop trainer "
       "--expandable --bs 2 --accum 4 --seq 2048 --precision amp-bf16 --weights-dtype bf16 --eval-bs 2 --attn flash "
       "--checkpointing full --reentrant --cut-cross-entropy --lora 32 --lora-dropout 0.05 --lora-targets linear "
       "--quantize nf4-double --no-prepare-kbit",
       {"sample_packing"}},
      {"axolotl-lora-mistral.yml",
       "",
       {},
       "--model mistralai/Mistral-7B-v0.1 --optimizer adamw_bnb_8bit --task causal --loop trainer --expandable --bs 2 "
       "--accum 4 "
       "--seq 8192 --precision amp-bf16 --weights-dtype bf16 --eval-bs 2 --attn flash --checkpointing full --reentrant "
       "--lora 32 "
       "--lora-dropout 0.05 --lora-targets linear --quantize int8 --no-prepare-kbit",
       {"sample_packing"}},
      {"axolotl-fft-8b.yml",
       "",
       {},
       "--model NousResearch/Meta-Llama-3.1-8B --optimizer paged_adamw_8bit --task causal --loop trainer --expandable "
       "--bs 1 "
       "--accum 8 --seq 8192 --precision amp-bf16 --weights-dtype bf16 --eval-bs 1 --attn flash --checkpointing full "
       "--no-reentrant",
       {"sample_packing"}},
      {"axolotl-fft-8b-liger-fsdp.yml",
       "",
       eight,
       "--model NousResearch/Meta-Llama-3.1-8B --optimizer adamw_torch_fused --task causal --loop "
       "trainer --expandable --bs 2 --accum 4 --seq 4096 --precision amp-bf16 --weights-dtype bf16 --eval-bs 2 "
       "--attn flash --checkpointing full --no-reentrant --liger --parallel fsdp2 --offload-parameters host",
       {"fsdp_config/fsdp_cpu_ram_efficient_loading", "sample_packing"}},
      {"axolotl-qlora-fsdp-qwen3-8b.yml",
       "",
       eight,
       "--model Qwen/Qwen3-8B --optimizer adamw_torch_fused --task causal --loop trainer --expandable --bs 1 --accum "
       "4 --seq 2048 --precision amp-bf16 --weights-dtype bf16 --eval-bs 1 --attn flash --checkpointing "
       "full --no-reentrant --lora 32 --lora-dropout 0.05 --lora-targets linear --quantize nf4 --quant-storage "
       "bf16 --no-prepare-kbit --parallel fsdp2 --offload-parameters host",
       {"fsdp_config/fsdp_cpu_ram_efficient_loading", "sample_packing"}},
      {"axolotl-dpo-lora-8b.yml",
       "",
       {},
       "--model meta-llama/Meta-Llama-3-8B-Instruct --optimizer adamw_bnb_8bit --task causal --loop trl-dpo "
       "--expandable --bs 2 "
       "--accum 4 --seq 4096 --precision amp-bf16 --weights-dtype bf16 --eval-bs 2 --attn flash --checkpointing full "
       "--reentrant "
       "--lora 32 "
       "--lora-dropout 0.05 --lora-targets linear --quantize int8 --no-prepare-kbit",
       {}},
      {"axolotl-kto-1b.yml",
       "",
       {},
       "--model meta-llama/Llama-3.2-1B --optimizer adamw_8bit --task causal --loop trl-kto --expandable --bs 2 "
       "--accum 1 --seq "
       "2048 "
       "--precision amp-bf16 --weights-dtype bf16 --attn flash --checkpointing full --no-reentrant --lora 32 "
       "--lora-dropout 0.05 "
       "--lora-targets linear --quantize nf4-double --no-prepare-kbit",
       {}},
      {"llama-factory-lora-sft.yaml",
       "",
       {},
       "--accum 8 " + qwen + "--checkpointing full --reentrant --lora 8 --weights-dtype bf16 --lora-targets all-linear",
       {}},
      {"llama-factory-lora-pretrain.yaml",
       "",
       {},
       "--accum 8 " + qwen + "--checkpointing full --reentrant --lora 8 --weights-dtype bf16 --lora-targets all-linear",
       {}},
      {"llama-factory-dpo.yaml",
       "",
       {},
       "--accum 8 --model Qwen/Qwen3-4B-Instruct-2507 --loop trl-dpo --whole-logits --ref-model adapters --task causal "
       "--seq 2048 --bs 1 --precision amp-bf16 --loader-workers 4 --checkpointing full --reentrant --lora 8 "
       "--weights-dtype bf16 --lora-targets all-linear",
       {}},
      {"llama-factory-qlora-sft.yaml",
       "",
       {},
       "--accum 8 " + qwen +
           "--checkpointing full --reentrant --lora 8 --weights-dtype bf16 --lora-targets all-linear "
           "--no-prepare-kbit --quantize nf4-double",
       {}},
      {"llama-factory-full-sft-zero3.yaml",
       "",
       eight,
       "--accum 2 " + qwen +
           "--parallel ds-zero3 --deepspeed "
           "overlap_comm=false,stage3_max_live_parameters=1000000000,stage3_max_reuse_distance=1000000000,sub_group_"
           "size="
           "1000000000 --checkpointing full --reentrant",
       {"deepspeed/zero_optimization/stage3_gather_16bit_weights_on_model_save"}},
      {"llama-factory-loraplus-llama3.yaml",
       "",
       {},
       "--accum 8 --model meta-llama/Meta-Llama-3-8B-Instruct --loop trainer --task causal --seq 2048 --bs 1 "
       "--precision amp-bf16 --loader-workers 4 --checkpointing full --reentrant --lora 8 --weights-dtype bf16 "
       "--lora-targets "
       "all-linear",
       {}},
      {"trl-cli.yaml",
       "trl-sft",
       {},
       "--model Qwen/Qwen2.5-0.5B --loop trl-sft --bs 8 --precision amp-bf16 --checkpointing full --seq 1024 "
       "--weights-dtype fp32",
       {}},
      {"accelerate-fsdp2.yaml",
       "",
       model,
       "--loop trainer --gpus 8 --precision amp-bf16 --parallel fsdp2",
       {"fsdp_config/fsdp_cpu_ram_efficient_loading"}},
      {"accelerate-fsdp1.yaml",
       "",
       model,
       "--loop trainer --gpus 8 --precision amp-bf16 --parallel fsdp1 --fsdp-backward-prefetch",
       {"fsdp_config/fsdp_cpu_ram_efficient_loading", "fsdp_config/fsdp_forward_prefetch"}},
      {"accelerate-zero3.yaml",
       "",
       model,
       "--loop trainer --gpus 8 --precision amp-bf16 --parallel ds-zero3",
       {"deepspeed_config/zero3_save_16bit_model"}},
      {"accelerate-multi-gpu.yaml", "", model, "--loop trainer --gpus 8 --precision amp-bf16", {}},
      {"deepspeed-zero2-offload.json",
       "",
       {{"--model", "llama-3.2-1b", ""}, {"--seq", "1024", ""}, {"--gpus", "8", ""}},
       "--loop trainer --parallel ds-zero2 --deepspeed overlap_comm=true --offload-states host",
       {}},
      {"torchtitan-llama3-8b.toml",
       "",
       {{"--gpus", "64", ""}},
       "--loop bare --task causal --loss-in-loop --bs 1 --seq 8192 --clip-grad 1 --model llama-3.1-8b --optimizer "
       "adamw-fused --parallel fsdp2 --keep-last-layer --checkpointing selective --precision fp32 --fsdp-param-dtype "
       "bf16 --fsdp-reduce-dtype fp32",
       {}},
      {"torchtitan-qwen3-32b.toml",
       "",
       {{"--gpus", "64", ""}},
       "--loop bare --task causal --loss-in-loop --bs 2 --seq 4096 --clip-grad 1 --model qwen3-32b --optimizer "
       "adamw-fused --parallel fsdp2 --keep-last-layer --checkpointing full --precision fp32 --fsdp-param-dtype bf16 "
       "--fsdp-reduce-dtype fp32",
       {}},
      {"axolotl-grpo-1.5b.yml",
       "",
       {},
       "--model Qwen/Qwen2.5-1.5B-Instruct --optimizer adamw_torch_fused --task causal --loop trl-grpo --completion "
       "256 "
       "--ref-model adapters --vllm colocate --vllm-utilization 0.4 --expandable --bs 8 --accum 2 --seq 1024 "
       "--precision amp-bf16 "
       "--weights-dtype bf16 --checkpointing full --no-reentrant --lora 8 --lora-targets linear",
       {}},
      {"axolotl-orpo-mistral.yml",
       "",
       {},
       "--model mistralai/Mistral-7B-v0.1 --optimizer adamw_bnb_8bit --task causal --loop trl-orpo --expandable --bs 2 "
       "--accum 4 "
       "--seq 4096 --precision amp-bf16 --weights-dtype bf16 --checkpointing full --reentrant --lora 32 --lora-dropout "
       "0.05 "
       "--lora-targets linear",
       {}},
      {"llama-factory-orpo.yaml",
       "",
       {},
       "--accum 8 --model Qwen/Qwen3-4B-Instruct-2507 --loop trl-orpo --task causal --seq 2048 --bs 1 --precision "
       "amp-bf16 --loader-workers 4 --checkpointing full --reentrant --lora 8 --weights-dtype bf16 --lora-targets "
       "all-linear",
       {"pref_loss"}},
      {"trl-grpo.yaml",
       "",
       {},
       "--model Qwen/Qwen2.5-1.5B-Instruct --accum 4 --loop trl-grpo --bs 8 --precision amp-bf16 --checkpointing full "
       "--completion 512 --seq 1024 --ref-model none --grpo-loss dapo --vllm colocate --vllm-utilization 0.3 "
       "--weights-dtype bf16",
       {}},
      {"trl-dpo.yaml",
       "",
       {},
       "--model Qwen/Qwen2.5-0.5B-Instruct --accum 2 --loop trl-dpo --bs 4 --precision amp-bf16 --checkpointing full "
       "--eval-bs 4 --seq 1024 --weights-dtype bf16 --attn sdpa --ref-model precomputed",
       {}},
      {"trl-sft-peft.yaml",
       "",
       {},
       "--model meta-llama/Llama-3.2-1B --accum 8 --loop trl-sft --bs 2 --precision amp-bf16 --checkpointing full "
       "--seq "
       "2048 --weights-dtype bf16 --lora 32 --lora-dropout 0.05 --lora-targets q_proj,k_proj,v_proj,o_proj --quantize "
       "nf4-double",
       {"packing"}},
      {"torchtune-lora-8b.yaml",
       "",
       {},
       "--loop bare --task causal --loss-in-loop --bs 2 --accum 8 --precision bf16 --model llama-3.1-8b --lora 8 "
       "--lora-targets q_proj,v_proj,o_proj,gate_proj,up_proj,down_proj --lora-dtype base --lora-dropout 0.0 "
       "--optimizer adamw-fused --checkpointing full",
       {"loss/_component_"}},
      {"torchtune-qlora-3b.yaml",
       "",
       {},
       "--loop bare --task causal --loss-in-loop --bs 4 --accum 8 --precision bf16 --model llama-3.2-3b --lora 64 "
       "--lora-targets q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj --lora-dtype base --lora-dropout 0.0 "
       "--quantize nf4-double --no-prepare-kbit --optimizer adamw-fused --checkpointing full --seq 1024",
       {"dataset", "loss/_component_", "model/_component_"}},
      {"torchtune-full-0.5b.yaml",
       "",
       {},
       "--loop bare --task causal --loss-in-loop --bs 2 --accum 8 --precision bf16 --model qwen2.5-0.5b --optimizer "
       "adamw-fused --checkpointing full",
       {"loss/_component_"}},
      {"torchtune-full-8b-distributed.yaml",
       "",
       eight,
       "--loop bare --task causal --loss-in-loop --bs 2 --accum 1 --precision bf16 --model llama-3.1-8b --optimizer "
       "adamw-fused --checkpointing full --parallel fsdp2 --seq 4096",
       {"custom_sharded_layers", "loss/_component_"}},
  };
  return all;
}

TEST(ConfigFiles, EachRealFileBecomesItsOptions) {
  for (const Case& each : cases()) {
    const ConfigFile file = config_beside(read_config({path_of(each.name), each.format, {}}), each.typed);
    EXPECT_EQ(text_of(file.options), each.options) << each.name;
    EXPECT_EQ(keys_of(file, KeyUse::kApproximated), each.approximated) << each.name;
  }
}

TEST(ConfigFiles, EachKeyOfEachRealFileIsAccountedForOnce) {
  for (const Case& each : cases()) {
    const JsonNode tree = config::read_config_tree(path_of(each.name));
    const ConfigFile file = read_config({path_of(each.name), each.format, {}});
    for (const JsonNode& child : tree.children) {
      const auto told = std::count_if(file.keys.begin(), file.keys.end(), [&](const ConfigKey& key) {
        return key.key == child.key || key.key.starts_with(child.key + "/");
      });
      // A mapping of known keys has as many entries as leaves; a file that is named has its own.
      const bool single = child.kind != JsonNode::Kind::kObject && child.key != "deepspeed";
      EXPECT_TRUE(single ? told == 1 : told >= 1) << each.name << ": " << child.key << " " << told;
    }
    for (const ConfigKey& key : file.keys) {
      EXPECT_TRUE(key.use == KeyUse::kUsed || !key.why.empty()) << each.name << ": " << key.key;
    }
  }
}

struct RefusedCase {
  std::string name;
  std::vector<std::string> without;  // what is refused
};

TEST(ConfigFiles, EachKeyOfEachRefusedFileIsAccountedForOnce) {
  const std::vector<RefusedCase> refused = {{"llama-factory-galore.yaml", {"use_galore"}},
                                            {"torchtitan-llama3-70b.toml", {}}};
  for (const RefusedCase& each : refused) {
    const JsonNode tree = config::read_config_tree(path_of(each.name));
    const ConfigFile file = read_config({path_of(each.name), "", each.without});
    for (const JsonNode& child : tree.children) {
      const auto told = std::count_if(file.keys.begin(), file.keys.end(), [&](const ConfigKey& key) {
        return key.key == child.key || key.key.starts_with(child.key + "/");
      });
      EXPECT_TRUE(child.kind == JsonNode::Kind::kObject ? told >= 1 : told == 1) << each.name << ": " << child.key;
    }
    for (const std::string& key : each.without) EXPECT_EQ(use_of(file, key), "left out") << each.name;
  }
}

TEST(ConfigFiles, EachRealFileIsARunThatTheRulesTake) {
  for (const Case& each : cases()) {
    const ConfigFile file = read_config({path_of(each.name), each.format, {}});
    EXPECT_NO_THROW((void)asked(file, each.typed)) << each.name;
  }
}

TEST(ConfigFiles, RealFilesOfWhatIsNotModelledAreRefusedByTheirKey) {
  const auto refusal = [](const std::string& name) {
    return refusal_of([&] { (void)read_config({path_of(name), "", {}}); });
  };
  EXPECT_THAT(refusal("llama-factory-galore.yaml"), HasSubstr("/use_galore: this method of LLaMA-Factory"));
  // torchtitan clips; memcalc's rule for --sp does not take it.
  const ConfigFile titan = read_config({path_of("torchtitan-llama3-70b.toml"), "", {}});
  EXPECT_THAT(refusal_of([&] {
                (void)asked(titan, {{"--gpus", "64", ""}});
              }),
              HasSubstr("gradient clipping beside --sp is not modelled"));
}

}  // namespace
}  // namespace memcalc
