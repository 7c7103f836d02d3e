// Mamba-2's mixer, as transformers' own code computes it where mamba-ssm and causal-conv1d are not installed: the state
// space in chunks, float32, by products that are summed.
// MIRRORS(transformers, "models/mamba2/modeling_mamba2.py", "5.17.0")
// MIRRORS(transformers, "models/nemotron_h/modeling_nemotron_h.py", "5.17.0")
// MIRRORS(transformers, "models/falcon_h1/modeling_falcon_h1.py", "5.17.0")
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "memcalc/models/causal_convolution.h"
#include "memcalc/models/module.h"
#include "memcalc/spec/linear_attention_spec.h"

namespace memcalc {

/// MambaRMSNormGated, and Zamba2RMSNormGated where groups are normalised by themselves: x times the SiLU of the gate,
/// normalised.
struct GateFirstRmsNorm {
  Tensor weight;
  std::int64_t groups = 1;
  GateFirstRmsNorm() = default;
  GateFirstRmsNorm(ModuleBuilder& b, std::string_view name, std::int64_t width, std::int64_t groups)
      : weight(RmsNorm(b, name, width).weight), groups(groups) {}

  [[nodiscard]] Tensor operator()(const Tensor& x, const Tensor& gate) const;

 private:
  [[nodiscard]] Tensor normalize(const Tensor& x, const Tensor& gate) const;
};

/// Mamba2Mixer, NemotronHMamba2Mixer, GraniteMoeHybridMambaLayer, BambaMixer, FalconH1Mixer
class Mamba2Mixer {
 public:
  /// FalconH1Mixer's buffer mup_vector, made behind all layers: what is projected is multiplied by it, and what is to
  /// be projected by a number. Null: neither.
  std::shared_ptr<const Tensor> mup_vector;

  Mamba2Mixer(ModuleBuilder& b, const Mamba2MixerSpec& spec, std::int64_t hidden_size, const std::string& activation);

  /// x [B, tokens, hidden_size]; `attention_mask` where sequences are padded.
  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const;

 private:
  [[nodiscard]] Tensor mix(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const;

  Mamba2MixerSpec spec_;
  std::string activation_;
  CausalConvolution conv1d_;
  Linear in_proj_;
  Tensor dt_bias_, a_log_, d_;
  GateFirstRmsNorm norm_;
  Linear out_proj_;
};

}  // namespace memcalc
