// MIRRORS(torch, "native/TypeProperties.cpp", "2.11.0")
#include "memcalc/symbolic/ops/pointwise.h"

#include <algorithm>

#include "memcalc/symbolic/channels_last.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (a == DType::kFloat64 || b == DType::kFloat64) return DType::kFloat64;
  if (is_floating(a)) return DType::kFloat32;  // float32 with a 16-bit type, or the two 16-bit types
  return size_of(a) >= size_of(b) ? a : b;
}

/// Of the same rank: 0 where one element is repeated.
Shape broadcast_strides(const Tensor& input, const Shape& shape) {
  Shape strides = input.strides();
  for (int dim = 0; dim < shape.rank; ++dim) {
    if (input.size(dim) == 1 && shape[dim] > 1) strides[dim] = 0;
  }
  return strides;
}

}  // namespace

double read_bytes(const Tensor& tensor) {
  auto bytes = static_cast<double>(tensor.bytes());
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    if (tensor.strides()[dim] == 0 && tensor.shape()[dim] > 1) bytes /= static_cast<double>(tensor.shape()[dim]);
  }
  return bytes;
}

DType result_type(std::initializer_list<const Tensor*> inputs) {
  std::optional<DType> of_dimensions, of_scalars;
  for (const Tensor* input : inputs) {
    std::optional<DType>& type = input->rank() > 0 ? of_dimensions : of_scalars;
    type = type ? promote(*type, input->dtype()) : input->dtype();
  }
  if (!of_dimensions) return *of_scalars;
  const bool scalar_decides = of_scalars && is_floating(*of_scalars) && !is_floating(*of_dimensions);
  return scalar_decides ? *of_scalars : *of_dimensions;
}

KernelKind elementwise_kind(const Tensor& result, std::initializer_list<const Tensor*> inputs) {
  bool converts = false, strided = false;
  for (const Tensor* input : inputs) {
    if (result.elements() > 1) {
      if (input->elements() == 1) return KernelKind::kStrided;  // a scalar on the card
      const bool same = input->shape() == result.shape();
      if (!same || !(input->strides() == result.strides())) {
        const bool turned = input->rank() == result.rank() &&
                            is_turned(result.shape(), result.strides(), broadcast_strides(*input, result.shape()));
        if (turned) return KernelKind::kTurned;
        strided = true;
      }
    }
    converts =
        converts || (input->dtype() != result.dtype() && is_floating(input->dtype()) && is_floating(result.dtype()));
  }
  if (strided) return KernelKind::kStrided;
  return converts ? KernelKind::kConverting : KernelKind::kVectorized;
}

KernelKind joined_kind(std::span<const Tensor* const> parts) {
  const bool whole = std::all_of(parts.begin(), parts.end(), [](const Tensor* part) { return part->is_contiguous(); });
  const bool last = std::all_of(parts.begin(), parts.end(), [](const Tensor* part) { return is_channels_last(*part); });
  if (whole || last) return KernelKind::kVectorized;
  // Each part has as many blocks, together as many as the card holds (getCatGrid): those of a short one, or of one that
  // is empty, end at once. So in a cache to which a token of a fused projection is added.
  std::int64_t all = 0, most = 0;
  for (const Tensor* part : parts) {
    all += part->elements();
    most = std::max(most, part->elements());
  }
  return 4 * most > 3 * all ? KernelKind::kTurned : KernelKind::kStrided;
}

KernelKind copy_kind(const Tensor& from, const Tensor& to) {
  if (from.elements() > 1 && !(from.strides() == to.strides())) {
    const bool turned = from.shape() == to.shape() && is_turned(to.shape(), to.strides(), from.strides());
    return turned ? KernelKind::kTurned : KernelKind::kStrided;
  }
  const bool narrows = from.dtype() == DType::kFloat32 && is_half(to.dtype());
  return narrows || from.dtype() == to.dtype() ? KernelKind::kVectorized : KernelKind::kConverting;
}

Tensor pointwise(const Operator& op, std::initializer_list<const Tensor*> inputs, int flops,
                 std::optional<DType> dtype) {
  const Tensor& first = **inputs.begin();
  Shape shape = first.shape();
  const DType type = result_type(inputs);
  double bytes = 0;
  for (const Tensor* input : inputs) {
    if (!(input->shape() == shape)) shape = broadcast_shapes(shape, input->shape());
    bytes += read_bytes(*input);
  }
  Tape& tape = first.tape();
  Tensor result = tape.empty_strided(shape, elementwise_strides(shape, inputs.begin(), static_cast<int>(inputs.size())),
                                     dtype.value_or(type), op);
  tape.kernels.add(op, OperatorClass::kElementwise, type, flops * static_cast<double>(result.elements()),
                   bytes + static_cast<double>(result.bytes()), elementwise_kind(result, inputs),
                   static_cast<double>(result.elements()));
  return result;
}

}  // namespace memcalc
