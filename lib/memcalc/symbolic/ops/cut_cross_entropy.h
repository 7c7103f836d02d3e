// The loss of a causal language model by cut_cross_entropy's Triton kernels, which multiply by the head's matrix a
// block at a time and keep a number for each row (axolotl's fork of apple/ml-cross-entropy, as of 2026-07). Covered by
// tests/unit/cut_cross_entropy_test.cc.
#pragma once

#include <cstdint>

#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

namespace rules {
extern const BuiltRule kCutCrossEntropyTypes;  // built_rules.cc
}

/// linear_cross_entropy(..., shift=True, impl="cce"): the loss of hidden [batch, sequence, width] @ weight.T (+ bias),
/// a scalar. `targets`: labels that count. `softcap`: logits are capped (Gemma).
/// Throws Error(kUnsupported) where states or weight are float32: the kernels of backward refuse them.
[[nodiscard]] Tensor cut_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                                       const Tensor& labels, std::int64_t targets, bool softcap);

}  // namespace memcalc
