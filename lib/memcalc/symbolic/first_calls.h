// What libraries prepare for a size that they have not seen, and keep: cuDNN builds a plan of an attention, cuBLAS
// chooses a kernel for a product in 16 bits. Where each batch is as wide as its longest text (--lengths), that takes
// most of a step. Seen in the list of kernels that each step leaves; cost/ says how long it takes.
// Covered by tests/unit/first_calls_test.cc.
// MIRRORS(torch, "native/cudnn/MHA.cpp", "2.11.0")
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_set>

#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

enum class FirstCall : std::uint8_t { kAttention, kAttentionBackward, kProduct };
inline constexpr std::size_t kFirstCallKinds = 3;

/// How many of each kind. Fractions: of an average step.
using FirstCallCounts = std::array<double, kFirstCallKinds>;

/// Of cuDNN's attention in a forward pass that keeps nothing for a backward pass, which is a plan of its own.
inline constexpr Operator kCudnnAttentionWithoutSums{"_cudnn_attention_forward (no sums)"};

/// The sizes that a process has called its libraries with.
class FirstCalls {
 public:
  /// Nothing where the library has seen the size, or keeps nothing for such a kernel.
  [[nodiscard]] std::optional<FirstCall> call(const Kernel& kernel);

  /// How many of the kernels were first calls.
  FirstCallCounts add(const KernelList& kernels);

 private:
  std::unordered_set<std::uint64_t> seen_;
};

}  // namespace memcalc
