// What people change about a model before they train it: adapters, a quantised base, frozen parts, fused kernels. The
// option names of the command line are in comments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/base/dtype.h"

namespace memcalc {

/// --quantize: how the weights of linear layers are stored. bitsandbytes, from a 16-bit checkpoint: kNf4Double
/// quantises the block scales again. The others were quantised beforehand, for inference only: kGptq4, kAwq4: 4 bits;
/// kGptq8: 8; kMxfp4: gpt-oss' experts, 4 bits in blocks of 32; kFp8: 8 bits in blocks of 128 x 128, as DeepSeek-V3 is
/// stored. Of a frozen denoising network: kFp8Cast: float8_e4m3fn that autocast casts (sd-scripts' --fp8_base);
/// kFp8Scaled: with a scale for 64 numbers of a row (musubi-tuner's --fp8_base --fp8_scaled).
enum class Quantization : std::uint8_t {
  kNone,
  kNf4,
  kNf4Double,
  kInt8,
  kGptq4,
  kAwq4,
  kMxfp4,
  kFp8,
  kGptq8,
  kFp8Cast,
  kFp8Scaled
};

/// In gptqmodel's Marlin kernel.
[[nodiscard]] constexpr bool is_marlin(Quantization kind) {
  return kind == Quantization::kGptq4 || kind == Quantization::kGptq8 || kind == Quantization::kAwq4;
}

/// Quantised beforehand: loaded packed.
[[nodiscard]] constexpr bool is_prequantized(Quantization kind) {
  return is_marlin(kind) || kind == Quantization::kMxfp4 || kind == Quantization::kFp8;
}

/// Formats in which authors publish a model itself, so that from_pretrained loads it packed without being asked.
[[nodiscard]] constexpr bool is_native(Quantization kind) {
  return kind == Quantization::kMxfp4 || kind == Quantization::kFp8;
}

/// The weight is in float8 and each product makes a 16-bit copy of it, which autograd keeps.
[[nodiscard]] constexpr bool is_fp8_base(Quantization kind) {
  return kind == Quantization::kFp8Cast || kind == Quantization::kFp8Scaled;
}

/// By bitsandbytes, as the model is loaded.
[[nodiscard]] constexpr bool is_packed_by_bitsandbytes(Quantization kind) {
  return kind == Quantization::kNf4 || kind == Quantization::kNf4Double || kind == Quantization::kInt8;
}

/// --lora: peft's LoraConfig, as get_peft_model applies it.
struct Lora {
  std::int64_t rank = 0;             // --lora
  std::vector<std::string> targets;  // --lora-targets: ends of module names; empty: all but a language model's head
  std::vector<std::string> saved;    // --lora-modules-to-save: ends of names of modules that are trained in full
  double dropout = 0;                // --lora-dropout
  bool dora = false;                 // --dora: use_dora: rows of the adapted weights have lengths that train
  bool in_base_dtype = false;  // --lora-dtype base: autocast_adapter_dtype=False; else 16-bit adapters become fp32
  bool in_bf16 = false;        // TRL casts the adapters of a packed base
  bool trains_head = true;     // task_type SEQ_CLS, TOKEN_CLS, QUESTION_ANS: the head is trained, not adapted
};

struct FineTuning {
  std::optional<Lora> lora;
  Quantization quantization = Quantization::kNone;
  std::int64_t group_size = 128;       // --group-size: GPTQ and AWQ: numbers of a column that share a scale
  bool packs_head = false;             // --quantize-head: the output head is packed, too; transformers leaves it
  bool packs_experts = false;          // --quantize-experts: the matrices of experts are packed, too (axolotl)
  std::optional<DType> quant_storage;  // bnb_4bit_quant_storage; absent: bytes; --quant-storage
  bool prepares_for_kbit = false;      // --prepare-kbit: peft's prepare_model_for_kbit_training
  std::int64_t blocks_to_swap = 0;     // --blocks-to-swap: of a denoising network, whose weights wait on the host
  // --freeze: parameters whose names contain one of these get no gradient; behind kFreezeExcept all but some
  std::vector<std::string> frozen;
  bool liger = false;              // --liger: Liger's kernels for norms, rotary positions, SwiGLU, the loss
  bool cut_cross_entropy = false;  // --cut-cross-entropy: the loss of Apple's kernels, without logits
  bool unsloth = false;            // --unsloth: FastLanguageModel's functions, loss and checkpoints

  [[nodiscard]] bool replaces_linear_layers() const { return lora.has_value() || quantization != Quantization::kNone; }
};

}  // namespace memcalc
