// torch.einsum of one or two tensors.
// MIRRORS(torch, "native/Linear.cpp", "2.11.0")
#pragma once

#include <span>
#include <string_view>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// native/Linear.cpp, einsum: operands are permuted to one order of dimensions, then multiplied pair by pair. 16-bit
/// under autocast. Nothing where `equation` says what is not modelled: repeated letters within an operand, more than
/// two operands, more dimensions than kMaxDims.
[[nodiscard]] Tensor einsum(std::string_view equation, std::span<const Tensor> operands);

}  // namespace memcalc
