// MIRRORS(torch, "FunctionsManual.cpp", "2.11.0")
#include "memcalc/symbolic/ops/as_strided.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// Without dimensions of one element.
struct Geometry {
  Shape shape;
  Shape strides;
};

/// `summed`: dimensions that repeat one element have been summed.
Geometry geometry_of(const Shape& shape, const Shape& strides, bool summed) {
  Geometry found;
  for (int i = 0; i < shape.rank; ++i) {
    if (shape[i] == 1 || (summed && strides[i] == 0)) continue;
    found.shape.dims[static_cast<std::size_t>(found.shape.rank++)] = shape[i];
    found.strides.dims[static_cast<std::size_t>(found.strides.rank++)] = strides[i];
  }
  return found;
}

/// _maybe_overlapping_memory
bool may_overlap(const Geometry& geometry) {
  std::vector<int> order(static_cast<std::size_t>(geometry.shape.rank));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return geometry.strides[a] < geometry.strides[b]; });
  std::int64_t last = 0;
  for (const int i : order) {
    if (geometry.strides[i] <= last) return true;
    last += geometry.strides[i] * (geometry.shape[i] - 1);
  }
  return false;
}

/// _min_storage_size, in elements
std::int64_t storage_elements(const Geometry& geometry) {
  std::int64_t size = 1;
  for (int i = 0; i < geometry.shape.rank; ++i) size += (geometry.shape[i] - 1) * geometry.strides[i];
  return size;
}

/// The places of a view of `storage`, one after the other: a copy where the view does not lie so.
Tensor flat_places(const Tensor& storage, const Geometry& geometry) {
  const Shape flat{geometry.shape.elements()};
  const auto strides = view_strides(geometry.shape, geometry.strides, flat);
  if (strides) return storage.tape().alias(storage, flat, *strides, true);
  return storage.tape().empty(flat, storage.dtype(), aten::kClone);
}

void move_kernel(const Operator& op, const Tensor& moved) {
  moved.tape().kernels.add(op, OperatorClass::kMovement, moved.dtype(), 0, 2.0 * static_cast<double>(moved.bytes()),
                           KernelKind::kStrided, static_cast<double>(moved.elements()));
}

/// FunctionsManual.cpp, as_strided_backward: zeros as large as the storage that both see, to which the gradient is
/// copied, or added by place where the result shows an element twice. Where the operand showed one twice, each of its
/// elements gets an equal part.
void as_strided_backward(BackwardCall& call) {
  Tape& tape = call.tape;
  const auto& layouts = call.payload<AsStridedPayload>();
  Tensor gradient = call.gradient();
  for (int i = gradient.rank() - 1; i >= 0; --i) {
    if (layouts.shape[i] == 1) {
      gradient = squeeze(std::move(gradient), i);
    } else if (layouts.strides[i] == 0) {
      gradient = sum(gradient, 1U << i, false);
    }
  }
  const Geometry result = geometry_of(layouts.shape, layouts.strides, true);
  const Geometry operand = geometry_of(layouts.operand, layouts.operand_strides, false);
  const bool result_overlaps = may_overlap(result), operand_overlaps = may_overlap(operand);
  const std::int64_t elements = std::max(storage_elements(result), storage_elements(operand));
  const Tensor storage = tape.empty({elements}, gradient.dtype(), aten::kNewZeros);
  move_kernel(aten::kNewZeros, storage);
  {
    Tensor places, indices, parts;
    if (result_overlaps || operand_overlaps) places = tape.empty({elements}, DType::kInt64, aten::kArange);
    if (result_overlaps) {
      indices = flat_places(places, result);
      parts = reshape(gradient, {gradient.elements()});
      move_kernel(aten::kIndexAddInPlace, parts);
    } else {
      move_kernel(aten::kCopy, gradient);
    }
    drop(parts, indices);
    if (operand_overlaps) {
      const Tensor count = tape.empty({elements}, gradient.dtype(), aten::kZerosLike);
      Tensor seen = flat_places(places, operand);
      Tensor one = tape.empty({1}, gradient.dtype(), aten::kOnes);
      move_kernel(aten::kIndexAddInPlace, seen);
      drop(one);
      move_kernel(aten::kDivInPlace, storage);
    }
  }
  call.set(0, tape.alias(storage, layouts.operand, layouts.operand_strides, true));
}

}  // namespace

Tensor as_strided(const Tensor& x, const Shape& shape, const Shape& strides) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kAsStrided, as_strided_backward, inputs, 1);
  if (node != nullptr) node->payload.set(AsStridedPayload{x.shape(), x.strides(), shape, strides});
  Tensor result = tape.alias(x, shape, strides, true);
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
