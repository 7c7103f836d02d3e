// spec/rules_inference: a run that breaks each rule.
#include "memcalc/spec/rule_tables.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

const RunOptions kOnePass{.inference = Inference{}};
const RunOptions kGenerates{.sequence_length = 100, .inference = Inference{.new_tokens = 3}};
const RunOptions kDraws{.sequence_length = 100, .inference = Inference{.new_tokens = 3, .sampling = Sampling{}}};

const test::RuleCase kCases[] = {
    {"infer-contrastive", "clip-vit-base-patch32", [](RunSpec& run) { run.purpose = Inference{}; }},
    {"infer-ids-of-the-decoder", "t5-small", [](RunSpec& run) { run.inference()->new_tokens = 0; }, kGenerates},
    {"infer-one-gpu", "gpt2", [](RunSpec& run) { run.parallel.gpus = 2; }, kOnePass},
    {"infer-one-gpu", "gpt2",
     [](RunSpec& run) {
       run.parallel.layout = DeepSpeedZero{};
       run.parallel.data_parallel = DataParallel::kDsZero3;
     },
     kOnePass},
    {"kv-cache-dtype-of-activations", "gpt2",
     [](RunSpec& run) { run.inference()->key_value_cache_dtype = DType::kFloat16; }, kOnePass},
    {"infer-unsloth", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.unsloth = true; }, kOnePass},
    {"infer-liger", "llama-3.2-1b", [](RunSpec& run) { run.fine_tuning.liger = true; }, kOnePass},
    {"new-tokens-of-language-models", "bert-base", [](RunSpec& run) { run.inference()->new_tokens = 5; }, kOnePass},
    {"new-tokens-of-language-models",
     "gpt2",
     [](RunSpec& run) { run.inference()->new_tokens = 5; },
     {.task = Task::kSequenceClassification, .inference = Inference{}}},
    {"generation-without-cache", "t5-small", [](RunSpec& run) { run.generation_cache = false; }, kGenerates},
    {"new-tokens-within-positions", "gpt2",
     [](RunSpec& run) { run.inference()->new_tokens = 925; },  // 924 after a prompt of 100 end at 1024
     kGenerates},
    {"new-tokens-within-decoder-positions", "bart-base", [](RunSpec& run) { run.inference()->new_tokens = 1024; },
     kGenerates},
    {"beams-need-new-tokens", "gpt2", [](RunSpec& run) { run.inference()->beams = 2; }, kOnePass},
    {"beams-of-experts", "mixtral-8x7b", [](RunSpec& run) { run.inference()->beams = 2; }, kGenerates},
    {"sampling-or-beams", "gpt2", [](RunSpec& run) { run.inference()->beams = 2; }, kDraws},
    {"sampling-of-speech", "whisper-tiny", [](RunSpec& run) { run.inference()->sampling = Sampling{}; }, kGenerates},
    {"return-sequences-of-greedy", "gpt2", [](RunSpec& run) { run.inference()->return_sequences = 2; }, kGenerates},
    {"return-sequences-within-beams",
     "gpt2",
     [](RunSpec& run) { run.inference()->return_sequences = 5; },
     {.sequence_length = 100, .inference = Inference{.new_tokens = 3, .beams = 4}}},
    {"return-sequences-of-speech",
     "whisper-tiny",
     [](RunSpec& run) { run.inference()->return_sequences = 2; },
     {.inference = Inference{.new_tokens = 3, .beams = 2}}},
};

TEST(RulesOfInference, EachIsBrokenByARun) { test::expect_each_rule_broken(rules_of_inference(), kCases); }

TEST(RulesOfInference, TokensMayFillThePositions) {
  for (const auto& [name, tokens] : {std::pair{"gpt2", 924}, std::pair{"bart-base", 1023}}) {
    const ModelSpec model = test::model_of(name);
    RunSpec run = resolve(model, kGenerates).run;
    run.inference()->new_tokens = tokens;
    EXPECT_EQ(test::first_broken(model, run).rule(), "") << name;
  }
}

}  // namespace
}  // namespace memcalc
