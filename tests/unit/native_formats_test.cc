// Weights as they are published in 4 and 8 bits: gpt-oss in MXFP4, DeepSeek-V3 in FP8; and which weights of a mixture
// of experts bitsandbytes leaves as they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/native_format.h"
#include "memcalc/spec/run_options.h"
#include "support/error_text.h"
#include "support/measured_report.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

using test::registry;

Report report_of(std::string_view model, RunOptions options, std::string_view gpu = "h200-sxm") {
  options.sequence_length = 128;
  options.batch_size = 1;
  const ModelSpec spec = registry().model(std::string(model));
  return estimate(spec, resolve(spec, options), registry().device(std::string(gpu)));
}

RunOptions inference() { return {.inference = Inference{}}; }

RunOptions inference(Quantization kind) {
  RunOptions options = inference();
  options.quantization = kind;
  return options;
}

Bytes weights_of(const Report& report) {
  return report.memory.categories_at_peak[static_cast<std::size_t>(Category::kWeights)];
}

/// Bytes of the checkpoints' files, which hold a little beside the weights.
TEST(NativeFormats, WeightsTakeWhatTheCheckpointsFilesTake) {
  // openai/gpt-oss-20b: 13.8 GB, gpt-oss-120b: 65.2 GB of safetensors.
  EXPECT_NEAR(static_cast<double>(weights_of(report_of("gpt-oss-20b", inference(), "b200"))) / 1e9, 13.77, 0.05);
  EXPECT_NEAR(static_cast<double>(weights_of(report_of("gpt-oss-120b", inference(), "b200"))) / 1e9, 65.26, 0.1);
  // deepseek-ai/DeepSeek-V3: 688.6 GB, of which the multi-token-prediction layer, which transformers leaves out, is a
  // layer of experts (11.5 GB) with an embedding, a head and a projection of its own in 16 bits (3.9 GB).
  EXPECT_NEAR(static_cast<double>(weights_of(report_of("deepseek-v3", inference()))) / 1e9, 688.6 - 11.5 - 3.9, 1.0);
}

// Mxfp4GptOssExperts: 17 bytes for 32 numbers, and float32 biases.
TEST(NativeFormats, Mxfp4PacksTheExpertsAlone) {
  const Report packed = report_of("gpt-oss-20b", inference(), "b200");
  const Report unpacked = report_of("gpt-oss-20b", inference(Quantization::kNone), "b200");
  constexpr Bytes kMatrices = Bytes{24} * 32 * (5760 + 2880) * 2880;
  constexpr Bytes kBiases = Bytes{24} * 32 * (5760 + 2880);
  EXPECT_EQ(weights_of(unpacked) - weights_of(packed), 2 * kMatrices - kMatrices * 17 / 32 - 2 * kBiases);
  EXPECT_EQ(packed.parameters_total, unpacked.parameters_total);
}

// A byte each, float32 for 128 x 128 of them; embeddings, head, norms and routers in bfloat16.
TEST(NativeFormats, Fp8PacksLinearLayersAndExperts) {
  const Report packed = report_of("qwen3-30b-a3b", inference(Quantization::kFp8));
  const Report unpacked = report_of("qwen3-30b-a3b", inference());
  constexpr Bytes kAttention = Bytes{2048} * (4096 + 512 + 512 + 4096);
  constexpr Bytes kExperts = Bytes{128} * 3 * 2048 * 768;
  constexpr Bytes kPacked = 48 * (kAttention + kExperts);
  EXPECT_EQ(weights_of(unpacked) - weights_of(packed), kPacked - kPacked / (128 * 128) * 4);
}

TEST(NativeFormats, ModelsLoadAsTheyAreStored) {
  EXPECT_EQ(report_of("gpt-oss-20b", inference()).run.fine_tuning.quantization, Quantization::kMxfp4);
  EXPECT_EQ(report_of("deepseek-v3", inference()).run.fine_tuning.quantization, Quantization::kFp8);
  EXPECT_EQ(report_of("openai/gpt-oss-20b", inference()).run.fine_tuning.quantization, Quantization::kMxfp4);
  EXPECT_EQ(report_of("unsloth/gpt-oss-20b-BF16", inference()).run.fine_tuning.quantization, Quantization::kNone);
  EXPECT_EQ(report_of("llama-3.2-1b", inference()).run.fine_tuning.quantization, Quantization::kNone);
}

// Trainer: validate_quantization_for_training. is_trainable of both formats is False.
TEST(NativeFormats, TrainingDequantises) {
  const Report report = report_of("gpt-oss-20b", {.precision = Precision::kBf16, .lora_rank = 8});
  EXPECT_EQ(report.run.fine_tuning.quantization, Quantization::kNone);
  EXPECT_THAT(report.assumptions, Contains(HasSubstr("the checkpoint's mxfp4 is dequantised to bfloat16, "
                                                     "Mxfp4Config(dequantize=True)")));
}

TEST(NativeFormats, OlderCardsDequantise) {
  const Report a100 = report_of("deepseek-v3", inference(), "a100-sxm4-80gb");
  EXPECT_EQ(a100.run.fine_tuning.quantization, Quantization::kNone);
  EXPECT_THAT(a100.assumptions.front(), HasSubstr("fp8 are dequantised to bfloat16"));
  EXPECT_EQ(report_of("gpt-oss-20b", inference(), "a100-sxm4-80gb").run.fine_tuning.quantization, Quantization::kMxfp4);
  EXPECT_EQ(report_of("gpt-oss-20b", inference(), "v100-sxm2-32gb").run.fine_tuning.quantization, Quantization::kNone);
}

TEST(NativeFormats, TheFirstAssumptionSaysWhatStaysIn16Bits) {
  const auto first = [](const Report& report) { return report.assumptions.front(); };
  EXPECT_THAT(first(report_of("mixtral-8x7b", inference(Quantization::kNf4))),
              HasSubstr("experts stay in bfloat16, 84.0 GiB of the 85.2 GiB of weights: nf4 packs nn.Linear only"));
  EXPECT_THAT(first(report_of("mixtral-8x7b",
                              {.precision = Precision::kBf16, .lora_rank = 8, .quantization = Quantization::kNf4})),
              HasSubstr("experts stay in float32"));  // prepare_model_for_kbit_training
  EXPECT_THAT(first(report_of("gpt-oss-20b", inference())),
              HasSubstr("3.37 GiB of the 12.8 GiB of weights stay in bfloat16"));
  EXPECT_THAT(first(report_of("qwen3-8b", inference(Quantization::kFp8))), HasSubstr("embeddings, output head, norms"));
  EXPECT_THAT(report_of("llama-3.2-1b", inference(Quantization::kNf4)).assumptions,
              Not(Contains(HasSubstr("stay in"))));
}

/// The categories' sum is the peak in each way to load and to run; a closed form counts the same weights.
TEST(NativeFormats, SumsAndClosedFormAgree) {
  for (const std::string_view gpu : {"h200-sxm", "rtx-4090", "b200"}) {
    for (const std::int64_t tokens : {0, 4}) {
      for (const std::string_view model : {"gpt-oss-20b", "qwen3-30b-a3b", "qwen3-8b"}) {
        SCOPED_TRACE(std::string(model) + " on " + std::string(gpu));
        RunOptions options = inference(model == "gpt-oss-20b" ? Quantization::kMxfp4 : Quantization::kFp8);
        options.inference->new_tokens = tokens;
        const Report report = report_of(model, options, gpu);
        EXPECT_EQ(measured::sum_of_categories(report), report.memory.peak_allocated);
        const Bytes counted = report.accounting.profile[0].total_bytes + report.accounting.profile[1].total_bytes;
        EXPECT_NEAR(static_cast<double>(weights_of(report)), static_cast<double>(counted), 1e5);  // buffers
      }
    }
  }
}

ModelSpec read(std::string_view json) {
  const JsonDocument document = JsonDocument::parse(std::string(json), "config.json");
  return model_from_hf_config(document.root(), "model");
}

TEST(NativeFormats, AConfigSaysHowItsCheckpointIsStored) {
  EXPECT_EQ(
      read(R"({"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}})").checkpoint_quantization,
      Quantization::kMxfp4);
  EXPECT_EQ(read(R"({"model_type": "qwen3", "quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
                     "activation_scheme": "dynamic", "weight_block_size": [128, 128],
                     "modules_to_not_convert": ["lm_head", "model.layers.0.input_layernorm"]}})")
                .checkpoint_quantization,
            Quantization::kFp8);
  EXPECT_EQ(read(R"({"model_type": "qwen3", "quantization_config": null})").checkpoint_quantization,
            Quantization::kNone);
}

Quantization stored(const std::string& format) {
  return read(R"({"model_type": "qwen3", "quantization_config": )" + format + "}").checkpoint_quantization;
}

TEST(NativeFormats, AConfigSaysWhatQuantisedItsCheckpoint) {
  EXPECT_EQ(stored(R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4",
                       "bnb_4bit_use_double_quant": true, "bnb_4bit_compute_dtype": "bfloat16"})"),
            Quantization::kNf4Double);
  EXPECT_EQ(stored(R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"})"),
            Quantization::kNf4);
  EXPECT_EQ(stored(R"({"quant_method": "bitsandbytes", "load_in_8bit": true})"), Quantization::kInt8);
  EXPECT_EQ(stored(R"({"quant_method": "gptq", "bits": 4, "group_size": 128})"), Quantization::kGptq4);
  EXPECT_EQ(stored(R"({"quant_method": "gptq", "bits": 8, "group_size": 128})"), Quantization::kGptq8);
  EXPECT_EQ(stored(R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"})"), Quantization::kAwq4);
}

TEST(NativeFormats, OtherFormatsAreRefused) {
  const auto refused = [](std::string_view format) {
    return error_text(
        [&] { (void)read(R"({"model_type": "qwen3", "quantization_config": )" + std::string(format) + "}"); });
  };
  EXPECT_THAT(refused(R"({"quant_method": "mxfp4"})"), HasSubstr("quantization_config"));
  EXPECT_THAT(refused(R"({"quant_method": "compressed-tensors"})"), HasSubstr("is not modelled"));
  EXPECT_THAT(refused(R"({"quant_method": "bitsandbytes", "load_in_4bit": true})"), HasSubstr("nf4 alone"));
  EXPECT_THAT(refused(R"({"quant_method": "awq", "bits": 8})"), HasSubstr("4 bits are modelled, and GPTQ's 8"));
  EXPECT_THAT(refused(R"({"quant_method": "awq", "group_size": 64})"), HasSubstr("groups of 128"));
  EXPECT_THAT(refused(R"({"quant_method": "fp8", "weight_block_size": [1, 32]})"), HasSubstr("blocks of 128 x 128"));
  EXPECT_THAT(refused(R"({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "static"})"),
              HasSubstr("dynamic"));
  EXPECT_THAT(refused(R"({"quant_method": "fp8", "weight_block_size": [128, 128],
                          "modules_to_not_convert": ["model.layers.0.self_attn.q_proj"]})"),
              HasSubstr("self_attn.q_proj"));
}

// Measured on an H200 (tests/measured/rows_native_formats_h200.jsonl): 75,497,472 bytes more than the weights.
TEST(NativeFormats, HopperReordersTheBlocksWhileTheyAreLoaded) {
  EXPECT_THAT(report_of("gpt-oss-20b", inference()).assumptions, Contains(HasSubstr("loading takes 2.22 GiB more")));
  EXPECT_THAT(report_of("gpt-oss-20b", inference(), "b200").assumptions, Not(Contains(HasSubstr("loading takes"))));
}

}  // namespace
}  // namespace memcalc
