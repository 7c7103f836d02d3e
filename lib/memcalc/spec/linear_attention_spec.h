// Sizes of layers whose state does not grow with the sequence: gated DeltaNet, Mamba-2, short convolutions.
#pragma once

#include <cstdint>

namespace memcalc {

/// linear_num_key_heads, linear_key_head_dim and so on of Qwen3-Next's and Qwen3.5's config.json.
struct GatedDeltaNetSpec {
  std::int64_t num_key_heads = 0;
  std::int64_t num_value_heads = 0;
  std::int64_t key_head_dim = 0;
  std::int64_t value_head_dim = 0;
  std::int64_t conv_kernel = 0;
  bool projects_separately = false;  // Qwen3.5: four projections where Qwen3-Next has two

  [[nodiscard]] std::int64_t key_dim() const { return num_key_heads * key_head_dim; }
  [[nodiscard]] std::int64_t value_dim() const { return num_value_heads * value_head_dim; }
};

/// Sizes of a Mamba-2 mixer, whose keys differ from family to family.
struct Mamba2MixerSpec {
  std::int64_t num_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t state_size = 0;  // ssm_state_size, mamba_d_state
  std::int64_t n_groups = 0;
  std::int64_t conv_kernel = 0;
  std::int64_t chunk_size = 0;
  bool conv_bias = true;
  bool projection_bias = false;
  bool norm_by_group = false;  // Zamba2RMSNormGated: each group has a variance of its own
  bool has_norm = true;        // else what the scan gives is multiplied by the gate alone (Falcon-H1)
  bool output_bias = false;    // of out_proj

  [[nodiscard]] std::int64_t intermediate_size() const { return num_heads * head_dim; }
  [[nodiscard]] std::int64_t conv_dim() const { return intermediate_size() + 2 * n_groups * state_size; }
};

}  // namespace memcalc
