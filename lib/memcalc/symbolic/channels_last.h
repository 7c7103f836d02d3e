// Channels last: torch.channels_last and channels_last_3d, the layouts in which the channels of an image lie innermost.
// Operators over images ask Tensor::suggest_memory_format which of the two layouts they compute in. Covered by
// tests/unit/images_test.cc.
// MIRRORS(torch, "native/TensorShape.cpp", "2.11.0")
#pragma once

#include <initializer_list>
#include <span>

#include "memcalc/symbolic/tensor.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// Of [N, C, (D,) H, W]. Others have no such layout and keep row-major strides.
[[nodiscard]] Shape channels_last_strides(const Shape& shape);

/// Tensor::suggest_memory_format is channels last (c10/core/MemoryFormat.h, is_channels_last_strides_2d and _3d): the
/// strides are in that order, whether or not the elements are without gaps.
[[nodiscard]] bool is_channels_last(const Tensor& x);

/// x.contiguous(memory_format) outside of autograd: itself where it has that layout, dimensions of size 1 aside.
[[nodiscard]] Tensor in_layout(const Tensor& x, bool channels_last, const Operator& op);

/// empty(shape, memory_format)
[[nodiscard]] Tensor empty_in_layout(Tape& tape, const Shape& shape, DType dtype, bool channels_last,
                                     const Operator& op);

/// What torch.cat makes of `parts`, which they alone decide (native/TensorShape.cpp, cat_compute_output_memory_format).
[[nodiscard]] Tensor empty_of_parts(std::span<const Tensor* const> parts, const Shape& shape, DType dtype,
                                    const Operator& op);
[[nodiscard]] inline Tensor empty_of_parts(std::initializer_list<const Tensor*> parts, const Shape& shape, DType dtype,
                                           const Operator& op) {
  return empty_of_parts(std::span<const Tensor* const>(parts.begin(), parts.size()), shape, dtype, op);
}

}  // namespace memcalc
