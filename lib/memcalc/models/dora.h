// DoRA (LoraConfig's use_dora): the rows of weight + lora_B lora_A are brought to lengths that train. What peft adds to
// a linear layer's output instead of lora_B(lora_A(x)), and the lengths that it starts with.
// Covered by tests/unit/dora_test.cc and by seven recorded runs of an H200 (tests/measured/histories/bare-*dora*).
#pragma once

#include "memcalc/models/fine_tuned_linear.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// DoraLinearLayer.update_layer: a parameter [out] in the adapter's type, when lora_a and lora_b have been made.
[[nodiscard]] Tensor lengths_of_rows(Tape& tape, const FineTunedLinear& layer);

/// DoraLinearVariant.forward: `result` is the layer's own product of `x` as the layer was given it, `input` the same in
/// the adapter's type. `bias` may be undefined.
[[nodiscard]] Tensor with_trained_lengths(const FineTunedLinear& layer, const Tensor& input, const Tensor& result,
                                          const Tensor& bias);

}  // namespace memcalc
