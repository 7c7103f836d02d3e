// spec/quantized_names, and models of the registry by names that nobody wrote down.
#include "memcalc/spec/quantized_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memcalc/memcalc.h"
#include "support/error_text.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

using test::registry;

TEST(QuantizedNames, AnEndingSaysTheFormat) {
  EXPECT_EQ(quantized_name("unsloth/Qwen3-8B-unsloth-bnb-4bit")->base, "unsloth/Qwen3-8B");
  EXPECT_EQ(quantized_name("unsloth/Qwen3-8B-bnb-4bit")->quantization, Quantization::kNf4Double);
  EXPECT_EQ(quantized_name("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4")->quantization, Quantization::kGptq4);
  EXPECT_EQ(quantized_name("Qwen/Qwen3-8B-FP8")->quantization, Quantization::kFp8);
  EXPECT_EQ(quantized_name("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8")->quantization, Quantization::kGptq8);
  EXPECT_EQ(quantized_name("Qwen/Qwen-7B-Chat-Int4")->quantization, Quantization::kGptq4);
  EXPECT_EQ(quantized_name("OpenGVLab/InternVL-Chat-V1-5-int8")->quantization, Quantization::kInt8);
  EXPECT_FALSE(quantized_name("somebody/model-int8").has_value());
  EXPECT_FALSE(quantized_name("nvidia/Qwen3-30B-A3B-NVFP4")->quantization.has_value());
  EXPECT_FALSE(quantized_name("Qwen/Qwen3-8B").has_value());
  EXPECT_FALSE(quantized_name("-awq").has_value());
}

TEST(QuantizedNames, AModelByANameThatSaysItsFormat) {
  const ModelSpec model = registry().model("unsloth/Qwen3-8B-unsloth-bnb-4bit");
  EXPECT_EQ(model.name, "qwen3-8b");
  EXPECT_EQ(model.checkpoint_quantization, Quantization::kNf4Double);
  EXPECT_THAT(model.assumptions, Contains(HasSubstr("by its name, qwen3-8b in bitsandbytes' NF4")));
  const ResolvedRun run = resolve(model, {.lora_rank = 8});
  EXPECT_EQ(run.run.fine_tuning.quantization, Quantization::kNf4Double);
}

TEST(QuantizedNames, AModelInBfloat16ThatItsAuthorsPublishedInFewerBits) {
  const ModelSpec model = registry().model("unsloth/DeepSeek-V3-bf16");
  EXPECT_EQ(model.name, "deepseek-v3");
  EXPECT_EQ(registry().model("deepseek-v3").checkpoint_quantization, Quantization::kFp8);
  EXPECT_EQ(model.checkpoint_quantization, Quantization::kNone);
  EXPECT_EQ(model.checkpoint_dtype, DType::kBFloat16);
}

TEST(QuantizedNames, AModelThatIsThereIsNotRefusedForWhatIsMissingOfItsFamily) {
  EXPECT_EQ(registry().model("zai-org/GLM-4.5-Air-FP8").name, "glm-4.5-air");
  EXPECT_EQ(registry().model("unsloth/LFM2-1.2B").name, "lfm2-1.2b");
  EXPECT_THAT(error_text([] { (void)registry().model("state-spaces/mamba2-130m"); }), HasSubstr("is not built yet"));
}

TEST(QuantizedNames, AFormatThatIsNotModelledIsNamed) {
  EXPECT_THAT(error_text([] { (void)registry().model("Qwen/Qwen3-8B-NVFP4"); }),
              HasSubstr("weights in NVFP4 are not modelled (transformers 5.17 loads no checkpoint that is stored so); "
                        "accepted: --model Qwen/Qwen3-8B"));
  EXPECT_THAT(error_text([] { (void)registry().model("nobody/knows-AWQ"); }), HasSubstr("unknown model"));
}

TEST(QuantizedNames, ANameUnderAnotherOwner) {
  const ModelSpec model = registry().model("somebody/Qwen3-8B");
  EXPECT_EQ(model.name, "qwen3-8b");
  EXPECT_THAT(model.assumptions, Contains(HasSubstr("somebody/Qwen3-8B is, by its name, a copy of qwen3-8b")));
  EXPECT_THAT(error_text([] { (void)registry().model("a/b/Qwen3-8B"); }), HasSubstr("unknown model"));
}

}  // namespace
}  // namespace memcalc
