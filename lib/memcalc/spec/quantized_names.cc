#include "memcalc/spec/quantized_names.h"

#include "memcalc/spec/names.h"

namespace memcalc {
namespace {

struct Ending {
  std::string_view text;  // in small letters
  std::string_view format;
  std::optional<Quantization> quantization;
  std::string_view beside{};  // what else is to be told; of a format that is not modelled: why
  std::string_view owner{};   // whose names alone end so, in small letters; empty: anybody's
};

/// compressed-tensors 0.20 (quantization/lifecycle/forward.py, set_forward_quantized, fake_quantize) unpacks such
/// weights to 16 bits before the first forward pass (add_decompress_hook) and rounds the input of each layer under
/// no_grad.
constexpr std::string_view kRounded =
    "compressed-tensors rounds the input of each layer without a gradient, so that adapters would learn from the "
    "residual stream alone";

/// As the authors of quantised checkpoints on the hub end their names; a longer ending before one that it ends in.
/// Of bitsandbytes: unsloth's quantization_config has bnb_4bit_use_double_quant and bfloat16 to compute in; its dynamic
/// ones name layers in llm_int8_skip_modules that stay in 16 bits, others in each model. Of FP8 from the authors of
/// Qwen, GLM and DeepSeek: weight_block_size [128, 128]; that of llm-compressor's (RedHatAI, neuralmagic) scales
/// otherwise and is called dynamic or block. -4bits and -8bits: 01-ai's. Of -int4 and -int8 Qwen's own are GPTQ's and
/// InternVL's bitsandbytes' (the model cards of Qwen-7B-Chat-Int4 and InternVL-Chat-V1-5-int8); others' can be
/// anything. XuanYuan's -4bit are GPTQ's and its -8bit bitsandbytes', Command R's -4bit and
/// Baichuan's -4bits bitsandbytes' (their cards,
/// recalled).
constexpr Ending kEndings[] = {
    {"-unsloth-bnb-4bit", "bitsandbytes' NF4 with double quantisation", Quantization::kNf4Double,
     "the layers that unsloth's dynamic quantisation leaves in 16 bits are counted in 4"},
    {"-bnb-4bit", "bitsandbytes' NF4 with double quantisation", Quantization::kNf4Double},
    {"-bnb-nf4-bf16", "bitsandbytes' NF4 with double quantisation", Quantization::kNf4Double},
    {"-bnb-nf4", "bitsandbytes' NF4 with double quantisation", Quantization::kNf4Double},
    {"-bnb-8bit", "bitsandbytes' LLM.int8", Quantization::kInt8},
    {"-gptq-int4", "GPTQ in 4 bits", Quantization::kGptq4},
    {"-gptq-4bit", "GPTQ in 4 bits", Quantization::kGptq4},
    {"-int4-gptq", "GPTQ in 4 bits", Quantization::kGptq4},
    {"-gptq", "GPTQ in 4 bits", Quantization::kGptq4},
    {"-awq-int4", "AWQ in 4 bits", Quantization::kAwq4},
    {"-awq-4bit", "AWQ in 4 bits", Quantization::kAwq4},
    {"-int4-awq", "AWQ in 4 bits", Quantization::kAwq4},
    {"-awq", "AWQ in 4 bits", Quantization::kAwq4},
    {"-fp8-block", "FP8 of compressed-tensors", std::nullopt, kRounded},
    {"-quantized.w4a16", "4 bits of compressed-tensors, unpacked to 16 before the first forward pass",
     Quantization::kNone},
    {"-fp8-dynamic", "FP8 of compressed-tensors", std::nullopt, kRounded},
    {"-fp8", "FP8 in blocks of 128 x 128", Quantization::kFp8},
    {"-gptq-int8", "GPTQ in 8 bits", Quantization::kGptq8},
    {"-gptq-8bit", "GPTQ in 8 bits", Quantization::kGptq8},
    {"-int4", "GPTQ in 4 bits", Quantization::kGptq4, {}, "qwen/"},
    {"-int8", "GPTQ in 8 bits", Quantization::kGptq8, {}, "qwen/"},
    {"-int8", "bitsandbytes' LLM.int8", Quantization::kInt8, {}, "opengvlab/"},
    {"-4bits", "AWQ in 4 bits", Quantization::kAwq4, {}, "01-ai/"},
    {"-8bits", "GPTQ in 8 bits", Quantization::kGptq8, {}, "01-ai/"},
    {"-4bit", "GPTQ in 4 bits", Quantization::kGptq4, {}, "duxiaoman-di/"},
    {"-8bit", "bitsandbytes' LLM.int8", Quantization::kInt8, {}, "duxiaoman-di/"},
    {"-4bit", "bitsandbytes' NF4", Quantization::kNf4, {}, "cohereforai/"},
    {"-4bits", "bitsandbytes' NF4", Quantization::kNf4, {}, "baichuan-inc/"},
    {"-bf16", "bfloat16", Quantization::kNone},
    {"-gptq-int3", "GPTQ in 3 bits", std::nullopt},
    {"-aqlm-2bit-1x16-hf", "AQLM", std::nullopt},
    {"-aqlm-2bit-1x16", "AQLM", std::nullopt},
    {"-aqlm", "AQLM", std::nullopt},
    {"-nvfp4", "NVFP4", std::nullopt, "transformers 5.17 loads no checkpoint that is stored so"},
    {"-mxfp4", "MXFP4", std::nullopt},
    {"-gguf", "GGUF", std::nullopt},
    {"-mlx", "MLX", std::nullopt},
    {"-exl2", "EXL2", std::nullopt},
    {"-hqq", "HQQ", std::nullopt},
};

}  // namespace

std::optional<QuantizedName> quantized_name(std::string_view name) {
  const std::string lower = ascii_lower(name);
  for (const Ending& each : kEndings) {
    if (!lower.ends_with(each.text) || lower.size() == each.text.size()) continue;
    if (!lower.starts_with(each.owner)) continue;
    return QuantizedName{name.substr(0, name.size() - each.text.size()), each.format, each.quantization, each.beside};
  }
  return std::nullopt;
}

}  // namespace memcalc
