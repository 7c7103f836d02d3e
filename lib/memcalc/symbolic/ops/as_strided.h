// torch.as_strided: sizes and strides of one's own on a tensor's storage. Autograd also puts it in the place of a view
// whose base was changed in place. Covered by tests/unit/selection_test.cc.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// How the operand lay in its storage, and how the result does.
struct AsStridedPayload {
  Shape operand, operand_strides;
  Shape shape, strides;
};

/// Strides in elements; starts where `x` starts. Pre: as many strides as sizes.
[[nodiscard]] Tensor as_strided(const Tensor& x, const Shape& shape, const Shape& strides);

}  // namespace memcalc
