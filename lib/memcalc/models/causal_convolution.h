// The convolution over a sequence before a recurrence, or in its place: gated DeltaNet, Mamba-2, LFM2.
// MIRRORS(transformers, "models/qwen3_next/modeling_qwen3_next.py", "5.17.0")
#pragma once

#include <cstdint>
#include <string_view>

#include "memcalc/models/linear_states.h"
#include "memcalc/models/module.h"

namespace memcalc {

/// A depthwise nn.Conv1d, whose weight causal_conv1d_fn reads: transformers' own code, which runs where the package
/// causal_conv1d is not installed.
struct CausalConvolution {
  Tensor weight, bias;  // [channels, 1, kernel], [channels]

  CausalConvolution(ModuleBuilder& b, std::string_view name, std::int64_t channels, std::int64_t kernel,
                    bool with_bias);
  /// x [B, channels, tokens], whose end becomes the state; null: there is no cache. `activation`: empty: none.
  [[nodiscard]] Tensor operator()(const Tensor& x, std::string_view activation, LinearStates* states) const;
};

/// A parameter of a mixer itself, a number for each of its heads: it is made behind the convolution `conv1d` and
/// registered before it. A bias does not decay.
[[nodiscard]] Tensor head_parameter(ModuleBuilder& b, std::string_view name, std::int64_t heads);

/// apply_mask_to_padding_states: (x * attention_mask[:, :, None]).to(dtype); x itself without a mask.
[[nodiscard]] Tensor without_padding(const Tensor& x, const Tensor& attention_mask);

}  // namespace memcalc
