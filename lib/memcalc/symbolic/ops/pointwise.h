// The bare element-wise kernel, without autograd: what the operators in this folder are made of.
// MIRRORS(torch, "cuda/CUDALoops.cuh", "2.11.0")
// MIRRORS(torch, "cuda/Copy.cu", "2.11.0")
#pragma once

#include <initializer_list>
#include <optional>
#include <span>

#include "memcalc/symbolic/kernel_list.h"
#include "memcalc/symbolic/tensor.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// native/TypeProperties.cpp, result_type: a tensor without dimensions counts only where the others are of a lower
/// kind.
[[nodiscard]] DType result_type(std::initializer_list<const Tensor*> inputs);

/// Allocates the broadcast, type-promoted result of `op` in the layout TensorIterator gives it.
/// `flops` per output element; `dtype` overrides the promoted type.
[[nodiscard]] Tensor pointwise(const Operator& op, std::initializer_list<const Tensor*> inputs, int flops,
                               std::optional<DType> dtype = std::nullopt);

/// Which of TensorIterator's kernels runs (cuda/CUDALoops.cuh, gpu_kernel_impl): vectorised over contiguous operands,
/// converting where types differ, and with an index calculation for each element where layouts do.
[[nodiscard]] KernelKind elementwise_kind(const Tensor& result, std::initializer_list<const Tensor*> inputs);
/// What is read of a tensor from memory: of an expanded one each element once.
[[nodiscard]] double read_bytes(const Tensor& tensor);
/// Of parts that are joined (cuda/Shape.cu, cat_out_cuda): kVectorized if all are contiguous; else kStrided, or kTurned
/// where one part is most of the result, so that the blocks of the others soon have nothing to do.
[[nodiscard]] KernelKind joined_kind(std::span<const Tensor* const> parts);
[[nodiscard]] inline KernelKind joined_kind(std::initializer_list<const Tensor*> parts) {
  return joined_kind(std::span<const Tensor* const>(parts.begin(), parts.size()));
}
/// The same of a copy between types (cuda/Copy.cu: to bfloat16 and float16 from float32 it is vectorised).
[[nodiscard]] KernelKind copy_kind(const Tensor& from, const Tensor& to);

}  // namespace memcalc
