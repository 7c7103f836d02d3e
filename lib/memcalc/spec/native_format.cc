// MIRRORS(transformers, "utils/quantization_config.py", "5.17.0")
#include "memcalc/spec/native_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/spec/parallel.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

/// What else than the experts and linear layers of every FP8 checkpoint may be named as not converted: parts that are
/// no nn.Linear, or that transformers leaves out by itself.
constexpr std::string_view kNeverConverted[] = {"lm_head", "norm", "embed_tokens", "gate", "router"};

bool is_never_converted(std::string_view name) {
  return std::any_of(std::begin(kNeverConverted), std::end(kNeverConverted),
                     [&](std::string_view part) { return name.ends_with(part); });
}

Quantization block_fp8(const JsonObject& config) {
  constexpr std::int64_t kBlock = 128;  // symbolic/ops/block_fp8.h
  constexpr IntRange kRange{1, 1 << 20};
  if (config.required_ints("weight_block_size", kRange) != std::vector<std::int64_t>{kBlock, kBlock}) {
    throw config.error("weight_block_size", "FP8 is modelled in blocks of 128 x 128 alone", ErrorCode::kUnsupported);
  }
  if (config.nullable_string("activation_scheme").value_or("dynamic") != "dynamic") {
    throw config.error("activation_scheme", "FP8 is modelled with dynamic activations alone", ErrorCode::kUnsupported);
  }
  if (config.has("modules_to_not_convert") && !config.is_null("modules_to_not_convert")) {
    for (const std::string& name : config.optional_strings("modules_to_not_convert")) {
      if (is_never_converted(name)) continue;
      throw config.error("modules_to_not_convert", "FP8 beside " + name + " in 16 bits is not modelled",
                         ErrorCode::kUnsupported);
    }
  }
  return Quantization::kFp8;
}

/// transformers' BitsAndBytesConfig: what it means where a key is absent (utils/quantization_config.py, 5.17.0).
Quantization bitsandbytes(const JsonObject& config) {
  if (config.optional_bool("load_in_8bit").value_or(false)) return Quantization::kInt8;
  if (!config.optional_bool("load_in_4bit").value_or(false)) {
    throw config.error("load_in_4bit", "bitsandbytes is modelled with load_in_4bit or load_in_8bit",
                       ErrorCode::kUnsupported);
  }
  if (const auto type = config.nullable_string("bnb_4bit_quant_type").value_or("fp4"); type != "nf4") {
    throw config.error("bnb_4bit_quant_type", "4 bits are modelled as nf4 alone", ErrorCode::kUnsupported);
  }
  if (config.nullable_string("bnb_4bit_quant_storage").value_or("uint8") != "uint8") {
    throw config.error("bnb_4bit_quant_storage", "a checkpoint in 4 bits is modelled in uint8 alone",
                       ErrorCode::kUnsupported);
  }
  return config.optional_bool("bnb_4bit_use_double_quant").value_or(false) ? Quantization::kNf4Double
                                                                           : Quantization::kNf4;
}

/// gptqmodel's and AutoAWQ's: what --quantize gptq4, gptq8 and awq4 mean.
Quantization marlin(const JsonObject& config, std::string_view method) {
  constexpr IntRange kBits{1, 16}, kGroup{-1, 1 << 20};
  const std::int64_t bits = config.optional_int("bits", kBits).value_or(4);
  if (bits != 4 && (bits != 8 || method != "gptq")) {
    throw config.error("bits", "4 bits are modelled, and GPTQ's 8", ErrorCode::kUnsupported);
  }
  if (config.optional_int("group_size", kGroup).value_or(128) != 128) {
    throw config.error("group_size", "a checkpoint is modelled with groups of 128 alone", ErrorCode::kUnsupported);
  }
  if (config.optional_bool("desc_act").value_or(false)) {
    throw config.error("desc_act", "act-order is not modelled", ErrorCode::kUnsupported);
  }
  if (method == "awq") return Quantization::kAwq4;
  return bits == 8 ? Quantization::kGptq8 : Quantization::kGptq4;
}

/// "Mxfp4Config(dequantize=True)"
std::string_view dequantizing(Quantization kind) {
  return kind == Quantization::kMxfp4 ? "Mxfp4Config(dequantize=True)" : "FineGrainedFP8Config(dequantize=True)";
}

/// Why weights that are stored packed are not kept so by a run that does not ask for it; null where they are.
const char* why_unpacked(const RunOptions& options, const RunSpec& run) {
  if (!run.trains() && framework_asked(options) != Framework::kTorch) return "the framework is not transformers";
  if (run.trains()) return "transformers does not train packed weights";
  if (!is_half(weights_dtype_of(run))) return "the other weights are in float32, which its kernels do not take";
  if (options.gpus.value_or(1) > 1) return "packed weights are modelled on one GPU";
  if (options.parallel.offload_parameters == OffloadTo::kHost)
    return "accelerate's hooks around packed weights are not modelled";
  return nullptr;
}

}  // namespace

Quantization checkpoint_quantization(const HfReader& config, const std::string& model_type) {
  constexpr std::string_view kKey = "quantization_config";
  const std::optional<JsonObject> stored = config.json().nullable_object(kKey);
  if (!stored) return Quantization::kNone;
  const std::string method = stored->nullable_string("quant_method").value_or("");
  if (method == "bitsandbytes") return bitsandbytes(*stored);
  if (method == "gptq" || method == "awq") return marlin(*stored, method);
  if (method == "mxfp4" && model_type == "gpt_oss") return Quantization::kMxfp4;
  if (method == "fp8" && model_type != "gpt_oss") return block_fp8(*stored);
  config.only_absent(kKey);
  return Quantization::kNone;
}

Quantization resolve_quantization(const ModelSpec& model, const RunOptions& options, const RunSpec& run,
                                  std::vector<std::string>& assumptions) {
  const Quantization stored = model.checkpoint_quantization;
  const Quantization asked = options.quantization.value_or(stored);
  if (stored == Quantization::kNone) return asked;
  if (!is_native(stored)) {  // bitsandbytes' and gptqmodel's stay packed whatever the run does
    if (asked != stored) {
      assumptions.push_back(fmt::format("the weights are those of a checkpoint in 16 bits (--quantize {}), not in {}",
                                        name_of(asked), name_of(stored)));
    }
    return asked;
  }
  const std::string_view to = name_of(weights_dtype_of(run));
  if (!options.quantization) {
    const char* reason = why_unpacked(options, run);
    if (reason == nullptr) return stored;
    assumptions.push_back(fmt::format("the checkpoint's {} is dequantised to {}, {}: {}", name_of(stored), to,
                                      dequantizing(stored), reason));
    return Quantization::kNone;
  }
  if (asked == Quantization::kNone) {
    assumptions.push_back(
        fmt::format("the checkpoint's {} is dequantised to {}: {}", name_of(stored), to, dequantizing(stored)));
  } else if (asked != stored) {
    assumptions.push_back(fmt::format(
        "{} is made of a 16-bit copy of the checkpoint: its own is {}, and from_pretrained takes no second format",
        name_of(asked), name_of(stored)));
  }
  return asked;
}

bool keeps_packed(Quantization kind, const DeviceSpec& device) {
  if (!is_cuda(device)) return true;  // no such check
  const CudaArchitecture of_card = architecture_of(device);
  if (kind == Quantization::kMxfp4) return of_card >= CudaArchitecture::kTuring;
  return kind != Quantization::kFp8 || of_card >= CudaArchitecture::kAda;
}

RunSpec dequantized(RunSpec run) {
  run.fine_tuning.quantization = Quantization::kNone;
  return run;
}

}  // namespace memcalc
