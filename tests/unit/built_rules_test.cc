// spec/built_rules: what only the built model tells. Each row is broken by a run, but those of which no model of the
// registry is an example.
#include "memcalc/spec/built_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

#include "memcalc/memcalc.h"
#include "memcalc/spec/rules.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

Error refusal_of(const std::string& line) {
  try {
    (void)estimate(test::question_of(test::words_in(line)));
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kInternal, "answered"};
}

struct Case {
  std::string_view rule;
  const char* line;
};

constexpr Case kCases[] = {
    {"image-large-enough", "--model vgg16 --image 8"},
    {"batch-norm-of-several", "--model resnet50 --image 32"},
    {"lora-target-is-a-layer", "--model gpt2 --lora 8 --lora-targets nonsense"},
    {"lora-saved-is-a-module", "--model llama-3.2-1b --lora 8 --lora-modules-to-save embed_tokens"},
    {"cut-cross-entropy-types", "--model llama-3.2-1b --layers 2 --bf16 --weights-dtype fp32 --cut-cross-entropy"},
    {"lora-pattern", "--model gpt2 --lora 8 --lora-targets re:("},
    {"lora-targets-fused", "--model mixtral-8x7b --layers 2 --lora 8 --lora-targets q_proj,w1"},
    {"lora-all-linear-of-version", "--model mixtral-8x7b --layers 2 --lora 8 --peft 0.19.1"},
    {"lora-parameter-dropout", "--model mixtral-8x7b --layers 2 --lora 8 --lora-dropout 0.1"},
    {"lora-parameter-dora", "--model mixtral-8x7b --layers 2 --lora 8 --dora"},
    {"lora-parameter-compiled", "--model mixtral-8x7b --layers 2 --lora 8 --compile --loop bare --precision bf16"},
    {"freeze-names-a-parameter", "--model gpt2 --freeze nonsense"},
    {"freeze-leaves-some", "--model gpt2 --freeze ."},
    {"freeze-except-matches", "--model gpt2 --freeze except:nonsense"},
    {"freeze-pattern", "--model gpt2 --freeze except:("},
    {"quantize-experts-exist", "--model llama-3.2-1b --layers 2 --lora 8 --quantize nf4 --quantize-experts"},
    {"lora-parameter-packed",
     "--model qwen3-30b-a3b --layers 1 --lora 8 --lora-targets down_proj --quantize nf4 --quantize-experts"},
    {"quantize-head-exists", "--model gpt2 --quantize nf4 --lora 8 --quantize-head"},
    {"marlin-takes-layer", "--model llama-3.2-1b --hidden 2080 --infer --precision fp16 --quantize gptq4"},
    {"fp8-base-linear", "--model sdxl --lora 4 --quantize fp8-cast"},
    {"swap-has-blocks", "--model sdxl --lora 4 --blocks-to-swap 2"},
    {"swap-leaves-blocks", "--model qwen-image --lora 4 --blocks-to-swap 60"},
    {"fp8-takes-experts", "--model qwen3-30b-a3b --hidden 2112 --layers 2 --infer --quantize fp8"},
    {"tp-divides-weights",
     "--arch llama --heads 8 --kv-heads 8 --head-dim 8 --hidden 64 --ffn 90 --layers 2 --gpus 4 "
     "--tp 4 --loop bare --optimizer adamw-for"},
    {"tp-plan-of-layer", "--model gpt2 --gpus 2 --tp 2 --loop bare --optimizer adamw-for"},
    {"tp-norm-of-heads", "--model olmo2-7b --gpus 2 --tp 2 --loop bare --optimizer adamw-for"},
    {"cp-kernel", "--model llama-3.2-1b --gpus 2 --cp 2 --loop bare --parallel fsdp2 --precision fp32"},
    {"fsdp1-one-type", "--model hunyuan-a13b --layers 2 --gpus 2 --parallel fsdp1 --loop bare --precision bf16"},
    {"fsdp1-frozen", "--model llama-3.2-1b --layers 2 --gpus 2 --parallel fsdp1 --loop bare --freeze q_proj"},
    {"float32-head-of-model", "--model gpt2 --layers 2 --loop trl-grpo --float32-head"},
    {"deepspeed-buffers",
     "--model minimax-text-01 --layers 2 --gpus 2 --parallel ds-zero2 --loop bare --precision bf16"},
    {"classifier-of-family", "--arch granite --task seqcls"},
    {"compile-scripted-functions", "--model deberta-v3-small --compile --loop bare --precision bf16"},
    {"class-of-version", "--model modernbert-base --transformers 4.57.6"},
    {"megatron-mamba-divides", "--model nemotron-h-8b --gpus 16 --framework megatron --tp 8 --cp 2"},
    {"stages-of-family", "--model mistral-7b --gpus 2 --pp 2 --loop bare --precision bf16"},
};

TEST(BuiltRules, AreBrokenByARun) {
  for (const Case& each : kCases) {
    SCOPED_TRACE(each.line);
    const Error error = refusal_of(each.line);
    EXPECT_EQ(error.rule(), each.rule) << error.what();
    EXPECT_THAT(error.part(), HasSubstr("--"));
    EXPECT_THAT(error.what(), Not(ContainsRegex("[{}\n]")));
  }
}

TEST(BuiltRules, HaveANameOfTheirOwn) {
  std::set<std::string_view> seen;
  for (const RuleGroup& group : rule_groups()) {
    for (const Rule& rule : group.rules) seen.insert(rule.id);
  }
  for (const BuiltRule* rule : built_rules()) {
    EXPECT_THAT(std::string(rule->id), MatchesRegex("[a-z][a-z0-9]*(-[a-z0-9]+)+"));
    EXPECT_TRUE(seen.insert(rule->id).second) << rule->id << " stands twice";
    EXPECT_TRUE(rule->options.starts_with("--")) << rule->id;
    EXPECT_FALSE(rule->message.ends_with('.')) << rule->id;
  }
}

TEST(BuiltRules, FillInWhatWasFound) {
  const Error error = refusal(rules::kLoraTarget, {"foo", "a, b"});
  EXPECT_STREQ(error.what(), "no linear layer's name ends in the LoRA target 'foo'; accepted: a, b");
  EXPECT_EQ(error.part(), "--lora-targets");
  EXPECT_EQ(error.code(), ErrorCode::kUsage);
}

}  // namespace
}  // namespace memcalc
