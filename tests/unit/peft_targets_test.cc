// spec/peft_targets: which names of transformers 4 peft reads as parameters of transformers 5, and what LoRA of a
// mixture trains because of that.
#include "memcalc/spec/peft_targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "memcalc/memcalc.h"
#include "memcalc/spec/program.h"
#include "memcalc/train/step.h"
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

TEST(PeftTargets, APatternIsOfWholeNames) {
  const NamePattern pattern(R"(model\.layers\.[\d]+\.(mlp|self_attn)\.(up|down|q)_proj)");
  EXPECT_TRUE(pattern.matches("model.layers.11.mlp.up_proj"));
  EXPECT_TRUE(pattern.matches("model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(pattern.matches("model.layers.0.mlp.gate_proj"));
  EXPECT_FALSE(pattern.matches("base.model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(pattern.matches("model.layers.0.mlp.up_proj.weight"));
  EXPECT_FALSE(pattern_of({"q_proj"}).has_value());
  EXPECT_TRUE(pattern_of({"re:.*"})->matches("lm_head"));
  for (const char* wrong : {"(", "(?P<name>x)", "(?<=x)y"}) EXPECT_THROW(NamePattern{wrong}, Error) << wrong;
  EXPECT_THROW(NamePattern(std::string(1001, 'x')), Error);
  EXPECT_FALSE(NamePattern("(a*)*b").matches(std::string(200, 'a'))) << "in polynomial time";
}

std::int64_t trained(const std::string& words) {
  return estimate(test::question_of(test::words_in(words))).parameters_trainable;
}

/// 2 layers, 4 experts; hidden 64, the experts' width 128, 4 heads of 16, 2 of them for keys and values.
std::string mixtral(const std::string& words, const std::string& file = "mixtral.json") {
  return "--model " + (test::measured_dir() / "programs" / file).string() + " --lora 2 " + words;
}

// axolotl's lora_target_linear: neither the router nor the experts are linear layers.
TEST(PeftTargets, NamesOfLinearLayersAreNoneOfAMixturesParameters) {
  EXPECT_EQ(trained(mixtral("--lora-targets linear")), trained(mixtral("--lora-targets q_proj,k_proj,v_proj,o_proj")));
  EXPECT_LT(trained(mixtral("--lora-targets linear")), trained(mixtral("--lora-targets all-linear")));
  const std::string dense = "--model llama-3.2-1b --lora 2 --lora-targets ";
  EXPECT_EQ(trained(dense + "linear"), trained(dense + "all-linear"));
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

TEST(PeftTargets, FollowTheReleaseOfPeft) {
  // The adapters that peft made on torch 2.11 with transformers 5.17: no names are converted, those of a list, all.
  EXPECT_EQ(trained(mixtral("--peft 0.18.1")), 2 * kAttention);
  EXPECT_EQ(trained(mixtral("--peft 0.18.1 --lora-targets experts.gate_up_proj")), 2 * kGateUp);
  EXPECT_EQ(trained(mixtral("--peft 0.19.1 --lora-targets w2,w1,w3")), 2 * (2 * kGateUp + kDown));
  EXPECT_EQ(trained(mixtral("--peft 0.20.0")), trained(mixtral("")));
  // Before transformers 5 there is nothing to convert.
  EXPECT_EQ(trained(mixtral("--peft 0.19.1 --transformers 4.57.6")), trained(mixtral("--transformers 4.57.6")));
  const auto rule = [](const std::string& words) { return error_rule([&] { (void)trained(mixtral(words)); }); };
  EXPECT_EQ(rule("--peft 0.19.1"), "lora-all-linear-of-version");
  EXPECT_EQ(rule("--peft 0.18.1 --lora-targets w2,w1,w3"), "lora-target-is-a-layer");
}

/// How many requests of these bytes the training makes.
std::int64_t requests(const std::string& words, Bytes bytes) {
  const Question question = test::question_of(test::words_in(words));
  const SymbolicRun run = run_symbolically(question.model, question.run.run, question.device);
  return std::count_if(run.trace.events.begin(), run.trace.events.end(), [&](const Event& event) {
    return event.kind == EventKind::kAllocate && event.step == 1 && run.trace.blocks[event.block].requested == bytes;
  });
}

// peft's own operators of one layer, on a processor: before 0.21 the adapter of gate_up_proj is made in float32
// [4, 256, 64] by einsum, multiplied, and cast; its gradient is cast and multiplied.
TEST(PeftTargets, OfExpertsAreAddedAsTheReleaseDoes) {
  const std::string words =
      mixtral("--bs 1 --seq 16 --precision bf16 --loop bare --lora-targets experts.gate_up_proj --peft ");
  constexpr Bytes kWhole = 4 * 4 * 256 * 64;
  EXPECT_EQ(requests(words + "0.21.2", kWhole), 0);
  EXPECT_EQ(requests(words + "0.20.0", kWhole), 2 * 4);
  EXPECT_EQ(requests(words + "0.18.1", kWhole), 2 * 4);
}

TEST(PeftTargets, OfAPatternAreTheLayersThatItMatches) {
  const std::string gpt2 = "--model gpt2 --bs 1 --seq 64 --lora 8 --lora-targets ";
  EXPECT_EQ(trained(gpt2 + R"(re:transformer\.h\.\d{1,2}\.attn\.c_attn)"), trained(gpt2 + "c_attn"));
  EXPECT_EQ(trained(gpt2 + R"(re:transformer\.h\.[01]\.attn\.c_attn)") * 6, trained(gpt2 + "c_attn"));
  EXPECT_EQ(error_rule([&] { (void)trained(gpt2 + "re:c_attn"); }), "lora-target-is-a-layer") << "the whole name";
}

// axolotl's examples of models of images and text, which the hub's name answers by their text model.
TEST(PeftTargets, APatternMayNameTheTextModelsLayersAsAModelOfImagesDoes) {
  const std::string gemma = "--model gemma-3-4b --layers 2 --bs 1 --seq 64 --lora 8 --lora-targets ";
  const std::int64_t text = trained(gemma + R"(re:model.layers.[\d]+.(mlp|self_attn).(up|down|q)_proj)");
  EXPECT_EQ(trained(gemma + R"(re:model.language_model.layers.[\d]+.(mlp|self_attn).(up|down|q)_proj)"), text);
  EXPECT_EQ(trained(gemma + R"(re:language_model.model.layers.[\d]+.(mlp|self_attn).(up|down|q)_proj)"), text);
  EXPECT_EQ(error_rule([&] { (void)trained(gemma + "re:model.vision_tower.*"); }), "lora-target-is-a-layer");
}

TEST(PeftTargets, ANameThatNoLayerHasIsPassedOverBesideOthers) {
  const std::string gpt2 = "--model gpt2 --bs 1 --seq 64 --lora 8 --lora-targets ";
  const Report report = estimate(test::question_of(test::words_in(gpt2 + "c_attn,gate_up_proj")));
  EXPECT_EQ(report.parameters_trainable, trained(gpt2 + "c_attn"));
  EXPECT_EQ(std::count(report.assumptions.begin(), report.assumptions.end(),
                       "no layer's name ends in the LoRA target 'gate_up_proj': peft passes over it"),
            1);
  EXPECT_EQ(error_rule([&] { (void)trained(gpt2 + "c_attn,c_prog"); }), "lora-target-is-a-layer") << "a slip";
  const std::string latent = "--model deepseek-v2-lite --layers 2 --lora 2 --lora-targets ";  // k_proj is near o_proj
  EXPECT_EQ(trained(latent + "k_proj,v_proj,o_proj"), trained(latent + "o_proj"));
}

TEST(PeftTargets, ModulesToSaveAreCopiedAndTrain) {
  const std::string words = "--model tinyllama-1.1b --layers 2 --bs 1 --seq 64 --bf16 --weights-dtype bf16 --lora 8";
  const auto report = [&](const std::string& more) {
    return estimate(test::question_of(test::words_in(words + more)));
  };
  const Report plain = report(""), saved = report(" --lora-modules-to-save embed_tokens,lm_head");
  constexpr std::int64_t kEach = 32'000 * 2'048;
  EXPECT_EQ(saved.parameters_trainable - plain.parameters_trainable, 2 * kEach);
  // Of each a copy and a gradient in bfloat16, and two states like it.
  EXPECT_GE(saved.memory.peak_allocated - plain.memory.peak_allocated, 2 * kEach * 2 * 3);
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
