// LitGPT's modules: which lit_config.json is read as what, what a layer keeps for backward, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <variant>

#include "memcalc/families/gpt_neox/spec.h"
#include "memcalc/families/llama/spec.h"
#include "memcalc/families/phi/spec.h"
#include "memcalc/memcalc.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/json_reader.h"
#include "support/error_text.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

using ::testing::HasSubstr;

constexpr std::int64_t kTokens = 256, kWidth = 1024, kHeads = 8, kInner = 2816, kRank = 8;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string llama_config(std::int64_t layers = 2) {
  return R"({"n_layer": )" + std::to_string(layers) +
         R"(, "n_head": 8, "n_embd": 1024, "n_query_groups": 8, "intermediate_size": 2816, "block_size": 1024,
            "padded_vocab_size": 32000, "bias": false, "lm_head_bias": false, "parallel_residual": false,
            "shared_attention_norm": false, "_norm_class": "RMSNorm", "_mlp_class": "LLaMAMLP",
            "rotary_percentage": 1.0})";
}

ModelSpec model_of(const std::string& json) {
  const JsonDocument document = JsonDocument::parse(json, "lit_config.json");
  return model_from_hf_config(document.root(), "lit_config.json");
}

RunOptions options() {
  RunOptions options;
  options.batch_size = 1;
  options.sequence_length = kTokens;
  options.precision = Precision::kBf16;
  options.lora_rank = kRank;
  options.lora_dropout = 0.05;
  return options;
}

Report report_of(const std::string& json, const RunOptions& options) {
  const ModelSpec model = model_of(json);
  return estimate(model, resolve(model, options), registry().device("a100-sxm4-40gb"));
}

Bytes block(Bytes bytes) { return (bytes + 511) / 512 * 512; }

TEST(LitGpt, ReadsWhatItsScriptsWrite) {
  EXPECT_TRUE(model_of(llama_config()).architecture.is<LlamaSpec>());
  std::string neox = replaced(llama_config(), R"("bias": false)", R"("bias": true)");
  neox = replaced(replaced(neox, "RMSNorm", "LayerNorm"), "LLaMAMLP", "GptNeoxMLP");
  EXPECT_TRUE(model_of(neox).architecture.is<GptNeoxSpec>());
  std::string phi = replaced(neox, R"("lm_head_bias": false)", R"("lm_head_bias": true)");
  phi = replaced(phi, R"("parallel_residual": false)", R"("parallel_residual": true)");
  phi = replaced(phi, R"("shared_attention_norm": false)", R"("shared_attention_norm": true)");
  EXPECT_TRUE(model_of(phi).architecture.is<PhiSpec>());
}

struct Wrong {
  const char* from;
  const char* to;
  const char* message;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.to; }

class WrongLitConfig : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongLitConfig, IsOneLine) {
  const std::string text = error_text([] { (void)model_of(replaced(llama_config(), GetParam().from, GetParam().to)); });
  EXPECT_THAT(text, HasSubstr(GetParam().message));
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongLitConfig,
    ::testing::Values(Wrong{"RMSNorm", "LayerNorm", "mixture"}, Wrong{R"("n_head": 8)", R"("n_head": 7)", "n_head"},
                      Wrong{R"("n_layer": 2)", R"("n_layer": 0)", "n_layer"},
                      Wrong{"RMSNorm", "BatchNorm", "_norm_class"},
                      Wrong{R"("n_query_groups": 8)", R"("n_query_groups": 3)", "n_query_groups"},
                      Wrong{R"("rotary_percentage": 1.0)", R"("rotary_percentage": 0.5)", "mixture"}));

// LitGPT's own code under torch's saved_tensors_hooks, on the CPU, keeps these of each layer (there the mask of dropout
// has the input's type, on the card one byte).
TEST(LitGpt, ALayerKeepsWhatItsCodeKeeps) {
  constexpr Bytes kHidden = kTokens * kWidth * 2;
  constexpr Bytes kStatistics = 4 * kTokens;
  const Bytes adapter_a = block(2 * kRank * kWidth * 2);
  const Bytes adapter_b = block(2 * kWidth * kRank * 2);
  const Bytes held = block(3 * kWidth * kWidth * 2) + block(kWidth * kWidth * 2) + 3 * block(kWidth * kInner * 2) +
                     2 * block(kWidth * 2) + 3 * (adapter_a + adapter_b);  // weights; each adapter and its two states
  const Bytes update = block(kTokens * kWidth) + kHidden                   // the mask of dropout, what it leaves
                       + block(kTokens * 2 * kRank * 2)                    // the input of the convolution
                       + block(2 * kWidth * 8) + 2 * kHidden;              // index_copy: the columns, its source
  const Bytes attention = 3 * kHidden                                      // query, key and value, for the value's sake
                          + 3 * kHidden + kHeads * kStatistics             // rotated query and key, the result
                          + 3 * 8;                                         // flash attention's seed, offset and mask
  const Bytes norms = 2 * (2 * kHidden + kStatistics);                     // the input in float32
  const Bytes mlp = 3 * kTokens * kInner * 2;  // both factors, and the one before its activation
  const Bytes three = report_of(llama_config(3), options()).memory.exact_peak;
  const Bytes two = report_of(llama_config(2), options()).memory.exact_peak;
  EXPECT_EQ(three - two, held + update + attention + norms + mlp);
}

TEST(LitGpt, AdaptsQueryAndValueWhereNothingElseIsSaid) {
  RunOptions run = options();
  EXPECT_EQ(report_of(llama_config(), run).parameters_trainable, 2 * (2 * kRank * kWidth + 2 * kWidth * kRank));
  run.lora_targets = {"projection"};
  EXPECT_EQ(report_of(llama_config(), run).parameters_trainable, 2 * 2 * kRank * kWidth);
  run.lora_targets = {"q_proj"};
  EXPECT_THAT(error_text([&] { (void)report_of(llama_config(), run); }), HasSubstr("query, key, value"));
}

// BitsandbytesPrecision packs by way of float16: backward of the head holds the weight in float16 and in bfloat16.
TEST(LitGpt, APackedHeadIsUnpackedTwice) {
  RunOptions run = options();
  run.quantization = Quantization::kNf4;
  run.profile.behaviors.keeps_packed_inputs = true;
  const auto peak = [&](std::int64_t vocabulary) {
    const std::string size = R"("padded_vocab_size": )";
    return report_of(replaced(llama_config(), size + "32000", size + std::to_string(vocabulary)), run)
        .memory.exact_peak;
  };
  constexpr std::int64_t kMore = 32000;
  const Bytes weight = kMore * kWidth;
  const Bytes packed = weight / 2 + weight / 64 * 4;
  const Bytes logits = kTokens * kMore * 4;     // in float32: the script's variable
  const Bytes gradients = kTokens * kMore * 2;  // of all pieces: their losses go back before any of their products
  EXPECT_EQ(peak(2 * kMore) - peak(kMore), 2 * weight + packed + 2 * 2 * weight + logits + gradients);
}

struct Refused {
  const char* rule;
  void (*apply)(RunOptions& options);
};
void PrintTo(const Refused& refused, std::ostream* out) { *out << refused.rule; }

class RefusedByLitGpt : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedByLitGpt, BreaksARule) {
  RunOptions run = options();
  GetParam().apply(run);
  EXPECT_EQ(error_rule([&] { (void)report_of(llama_config(), run); }), GetParam().rule);
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedByLitGpt,
    ::testing::Values(Refused{"litgpt-in-its-own-loop", [](RunOptions& o) { o.loop = Loop::kTrainer; }},
                      Refused{"litgpt-trains",
                              [](RunOptions& o) { o = {.sequence_length = 8, .inference = Inference{}}; }},
                      Refused{"litgpt-precision", [](RunOptions& o) { o.precision = Precision::kAmpBf16; }},
                      Refused{"litgpt-padding", [](RunOptions& o) { o.padding = true; }},
                      Refused{"litgpt-compile", [](RunOptions& o) { o.compile = true; }},
                      Refused{"litgpt-checkpointing", [](RunOptions& o) { o.checkpointing = Checkpointing::kFull; }},
                      Refused{"litgpt-quantize", [](RunOptions& o) { o.quantization = Quantization::kInt8; }},
                      Refused{"litgpt-liger", [](RunOptions& o) { o.liger = true; }},
                      Refused{"litgpt-of-two-tokens", [](RunOptions& o) { o.sequence_length = 1; }}));

}  // namespace
}  // namespace memcalc
