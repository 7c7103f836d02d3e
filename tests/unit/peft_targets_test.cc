// spec/peft_targets: which names of transformers 4 peft reads as parameters of transformers 5, and what LoRA of a
// mixture trains because of that.
#include "memcalc/spec/peft_targets.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "memcalc/memcalc.h"
#include "memcalc/spec/program.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

std::string_view became(std::string_view model_type, std::string_view target) {
  ModelSpec model;
  model.model_type = model_type;
  const ConvertedTargets* converted = converted_targets(model);
  return converted == nullptr ? "no mixture" : converted->parameter_of(target);
}

TEST(PeftTargets, AreConvertedByTheModelsType) {
  EXPECT_EQ(became("mixtral", "w1"), "gate_up_proj");
  EXPECT_EQ(became("mixtral", "block_sparse_moe.gate"), "gate.weight");
  EXPECT_EQ(became("mixtral", "gate_proj"), "");
  EXPECT_EQ(became("minimax_m2", "w2"), "down_proj");
  EXPECT_EQ(became("qwen3_moe", "mlp.up_proj"), "gate_up_proj");
  EXPECT_EQ(became("deepseek_v3", "q_a_proj"), "");
  // In neither list: peft takes its targets as they are.
  EXPECT_EQ(became("qwen2_moe", "gate_proj"), "no mixture");
  EXPECT_EQ(became("gpt_oss", "down_proj"), "no mixture");
  EXPECT_EQ(became("llama", "gate_proj"), "no mixture");
}

TEST(PeftTargets, OfAProgramFollowItsClass) {
  auto program = std::make_shared<Program>();
  program->source = "transformers.models.olmoe.modeling_olmoe.OlmoeForCausalLM, torch 2.11.0";
  ModelSpec model;
  model.model_type = kProgramType;
  model.architecture = Architecture(ProgramSpec{program});
  const ConvertedTargets* converted = converted_targets(model);
  ASSERT_NE(converted, nullptr);
  EXPECT_TRUE(converted->is_fused("gate_up_proj"));
  EXPECT_FALSE(converted->is_fused("down_proj"));
}

std::int64_t trained(const std::string& words) {
  return estimate(test::question_of(test::words_in(words))).parameters_trainable;
}

/// 2 layers, 4 experts; hidden 64, the experts' width 128, 4 heads of 16, 2 of them for keys and values.
std::string mixtral(const std::string& words, const std::string& file = "mixtral.json") {
  return "--model " + (test::measured_dir() / "programs" / file).string() + " --lora 2 " + words;
}

constexpr std::int64_t kAttention = 2 * (2 * (64 + 64) + 2 * (64 + 32));
constexpr std::int64_t kRouter = 2 * (64 + 4), kGateUp = 2 * 4 * (64 + 256), kDown = 2 * 4 * (128 + 64);

TEST(PeftTargets, OfAMixtureAreItsExpertsAndItsRouter) {
  EXPECT_EQ(trained(mixtral("")), 2 * (kAttention + kRouter + 2 * kGateUp + kDown));
  EXPECT_EQ(trained(mixtral("--lora-targets q_proj,o_proj")), 2 * 2 * 2 * (64 + 64));
  EXPECT_EQ(trained(mixtral("--lora-targets w2,w1,w3")), 2 * (2 * kGateUp + kDown));
  // target_parameters: the rank is the one that is asked for.
  EXPECT_EQ(trained(mixtral("--lora-targets experts.gate_up_proj")), 2 * kGateUp);
  EXPECT_EQ(trained(mixtral("--lora-targets all-linear,experts.gate_up_proj")), trained(mixtral("")));
  EXPECT_EQ(trained(mixtral("", "mixtral.json.gz")), trained(mixtral("")));
}

// Before transformers 5 each expert is an MLP of nn.Linear.
TEST(PeftTargets, OfALoopOverExpertsAreItsLayers) {
  EXPECT_EQ(trained(mixtral("--transformers 4.57.6")), 2 * (kAttention + kRouter + 4 * 3 * 2 * (64 + 128)));
}

TEST(PeftTargets, WhatPeftRefusesIsRefused) {
  const auto rule = [](const std::string& words) { return error_rule([&] { (void)trained(mixtral(words)); }); };
  EXPECT_EQ(rule("--lora-targets w1"), "lora-targets-fused");
  EXPECT_EQ(rule("--lora-dropout 0.05"), "lora-parameter-dropout");
  EXPECT_EQ(rule("--lora-targets q_proj --lora-dropout 0.05"), "");
  EXPECT_EQ(rule("--lora-targets norm.weight"), "lora-target-is-a-layer");
  const std::string gathered =
      mixtral("--gpus 2 --parallel ds-zero3 --loop trainer --precision amp-bf16", "mixtral.json.gz");
  EXPECT_EQ(error_rule([&] { (void)trained(gathered); }), "lora-parameter-gathered");
}

}  // namespace
}  // namespace memcalc
