// The bare element-wise kernel, without autograd: what the operators in this folder are made of.
#pragma once

#include <initializer_list>
#include <optional>

#include "memcalc/symbolic/tensor.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// Allocates the broadcast, type-promoted result of `op` in the layout TensorIterator gives it.
/// `flops` per output element; `dtype` overrides the promoted type.
[[nodiscard]] Tensor pointwise(const Operator& op, std::initializer_list<const Tensor*> inputs, int flops,
                               std::optional<DType> dtype = std::nullopt);

}  // namespace memcalc
