// F.scaled_dot_product_attention with its four backends.
// MIRRORS(torch, "native/transformers/cuda/sdp_utils.cpp", "2.11.0")
#pragma once

#include <string_view>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

enum class SdpaBackend { kCudnn, kFlash, kEfficient, kMath };

[[nodiscard]] std::string_view name_of(SdpaBackend backend);

struct SdpaOptions {
  double dropout = 0;
  bool causal = false;
  bool grouped_heads = false;    // enable_gqa: key and value have fewer heads than query
  bool memory_efficient = true;  // else the model has switched that kernel off for the process
  bool broadcast_heads = false;  // they have one, without enable_gqa: no fused kernel takes that
};

/// The kernel torch 2.11 takes (native/transformers/cuda/sdp_utils.cpp): cuDNN first on compute capability 9.0 and
/// 10.0, then flash, memory-efficient, math.
[[nodiscard]] SdpaBackend choose_sdpa_backend(const Tensor& query, const Tensor& key, const Tensor& value,
                                              const Tensor& mask, const SdpaOptions& options);

/// query [B, Hq, Sq, D], key and value [B, Hkv, Skv, D]; mask [B, 1, Sq, Skv] bool, or added to the scores
/// ([1 or B, 1 or Hq, Sq, Skv]), or undefined.
/// 16-bit under autocast.
[[nodiscard]] Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                                  const Tensor& mask, const SdpaOptions& options);

/// The flash-attention-2 package: its kernels allocate as PyTorch's own flash kernels do. 16-bit operands only.
[[nodiscard]] Tensor flash_attention_2(const Tensor& query, const Tensor& key, const Tensor& value, double dropout,
                                       bool causal);

}  // namespace memcalc
