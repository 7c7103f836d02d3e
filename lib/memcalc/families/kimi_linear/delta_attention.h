// Kimi's delta attention, as transformers' own code computes it where flash-linear-attention is not installed: in
// chunks of 64 tokens, float32, with a decay for each channel.
// MIRRORS(transformers, "models/kimi_linear/modeling_kimi_linear.py", "5.17.0")
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/families/kimi_linear/spec.h"
#include "memcalc/models/causal_convolution.h"
#include "memcalc/models/module.h"

namespace memcalc {

/// KimiLinearDeltaAttention with its KimiLinearForgetGate and KimiLinearRMSNormGated.
class KimiDeltaAttention {
 public:
  KimiDeltaAttention(ModuleBuilder& b, const KimiLinearSpec& spec);

  /// x [B, tokens, hidden_size]; `attention_mask` where sequences are padded.
  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const;

 private:
  [[nodiscard]] Tensor forget(const Tensor& hidden_states) const;
  [[nodiscard]] Tensor gated_norm(const Tensor& x, const Tensor& gate) const;

  std::int64_t head_dim_, width_;
  std::string activation_;
  Linear q_proj_, k_proj_, v_proj_;
  CausalConvolution conv1d_;
  Linear f_a_proj_, f_b_proj_;
  Tensor dt_bias_, a_log_;
  Linear b_proj_, g_a_proj_, g_b_proj_;
  Tensor o_norm_;
  Linear o_proj_;
};

}  // namespace memcalc
