// What people change about a model before they train it: adapters, a quantised base, frozen parts, fused kernels. The
// option names of the command line are in comments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace memcalc {

/// --quantize: how bitsandbytes stores the weights of linear layers. kNf4Double: block scales are quantised again.
enum class Quantization : std::uint8_t { kNone, kNf4, kNf4Double, kInt8 };

/// --lora: peft's LoraConfig, as get_peft_model applies it.
struct Lora {
  std::int64_t rank = 0;             // --lora
  std::vector<std::string> targets;  // --lora-targets: ends of module names; empty: every linear layer but the head
  double dropout = 0;                // --lora-dropout
  bool in_base_dtype = false;  // --lora-dtype base: autocast_adapter_dtype=False; else 16-bit adapters become fp32
  bool trains_head = true;     // task_type SEQ_CLS or TOKEN_CLS: a classifier is trained, not adapted
};

struct FineTuning {
  std::optional<Lora> lora;
  Quantization quantization = Quantization::kNone;
  bool prepares_for_kbit = false;   // --prepare-kbit: peft's prepare_model_for_kbit_training
  std::vector<std::string> frozen;  // --freeze: parameters whose names contain one of these get no gradient
  bool liger = false;               // --liger: Liger's kernels for norms, rotary positions, SwiGLU, the loss

  [[nodiscard]] bool replaces_linear_layers() const { return lora.has_value() || quantization != Quantization::kNone; }
};

}  // namespace memcalc
