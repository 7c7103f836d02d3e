// mamba-ssm's Triton kernels, as Megatron-core's Mamba mixer calls them in training: convolution, scan and gate in one
// autograd function that keeps its input and computes the rest again, and the norm of each group behind it.
// MIRRORS(mamba_ssm, "ops/triton/layernorm_gated.py", "2.3.2")
// MIRRORS(mamba_ssm, "ops/triton/ssd_combined.py", "2.3.2")
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// This rank's part of a Mamba-2 mixer.
struct MambaScan {
  std::int64_t heads = 0, head_dim = 0;
  std::int64_t groups = 0, state = 0;
  std::int64_t chunk = 0;  // tokens that a block of the scan takes

  [[nodiscard]] std::int64_t width() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t conv_width() const { return width() + 2 * groups * state; }
};

/// mamba_split_conv1d_scan_combined without a norm: zxbcdt [b, l, 2 width + 2 groups state + heads] to [b, l, width].
[[nodiscard]] Tensor mamba_split_conv_scan(const MambaScan& scan, const Tensor& zxbcdt);
/// layernorm_fn(is_rms_norm=True) without a gate: x [.., width], of groups.
[[nodiscard]] Tensor mamba_group_norm(const Tensor& x, std::int64_t groups);

}  // namespace memcalc
