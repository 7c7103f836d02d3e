// Gated DeltaNet, the linear attention of Qwen3-Next and Qwen3.5, as transformers' own code computes it where
// flash-linear-attention is not installed: in chunks of 64 tokens, float32.
// MIRRORS(transformers, "models/qwen3_next/modeling_qwen3_next.py", "5.17.0")
// MIRRORS(transformers, "models/qwen3_5/modeling_qwen3_5.py", "5.17.0")
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/models/causal_convolution.h"
#include "memcalc/models/gated_rms_norm.h"
#include "memcalc/models/module.h"
#include "memcalc/spec/linear_attention_spec.h"

namespace memcalc {

/// Qwen3NextGatedDeltaNet, and Qwen3_5GatedDeltaNet where the projections are separate.
class GatedDeltaNet {
 public:
  GatedDeltaNet(ModuleBuilder& b, const GatedDeltaNetSpec& spec, std::int64_t hidden_size,
                const std::string& activation);

  /// x [B, tokens, hidden_size]; `attention_mask` where sequences are padded.
  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const;

 private:
  struct Variables;

  [[nodiscard]] Tensor mix(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const;
  [[nodiscard]] Tensor run(Variables& v, LinearStates* states) const;
  void project_together(Variables& v) const;
  void project_separately(Variables& v) const;

  GatedDeltaNetSpec spec_;
  std::string activation_;
  CausalConvolution conv1d_;
  Linear in_proj_qkvz_, in_proj_ba_;                        // one projection for all
  Linear in_proj_qkv_, in_proj_z_, in_proj_b_, in_proj_a_;  // separate ones
  Tensor dt_bias_, a_log_;
  GatedRmsNorm norm_;
  Linear out_proj_;
};

}  // namespace memcalc
