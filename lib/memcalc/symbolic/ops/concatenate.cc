#include "memcalc/symbolic/ops/concatenate.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/channels_last.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr std::size_t kEdges = kMaxEdges;

struct ConcatenatePayload {
  int dim = 0;
  std::array<std::int64_t, kEdges> sizes{};  // of the parts, along `dim`
};

void concatenate_backward(BackwardCall& call) {
  const auto& [dim, sizes] = call.payload<ConcatenatePayload>();
  std::int64_t start = 0;
  for (int i = 0; i < call.node.edge_count; ++i) {
    const std::int64_t size = sizes[static_cast<std::size_t>(i)];
    if (call.needs(i)) call.set(i, slice(call.gradient(), dim, start, size));
    start += size;
  }
}

Shape joined(std::span<const Tensor> parts, int dim) {
  Shape shape = parts.front().shape();
  for (const Tensor& part : parts.subspan(1)) shape[dim] += part.size(dim);
  return shape;
}

/// A node has few edges, so many parts hang below it by groups: nodes that only cut their view of the gradient. The
/// engine runs the node that was recorded last, so the last group is recorded first, and all parts get their
/// gradients in order, as from one node. A group has the type of the result, `dtype`: each part converts for itself.
Node* record(std::span<const Tensor> parts, int dim, DType dtype) {
  std::vector<Tensor> groups;
  std::array<std::size_t, kEdges + 1> bounds{};
  const std::size_t count = std::min(parts.size(), kEdges);
  for (std::size_t i = 0; i <= count; ++i) bounds[i] = i * parts.size() / count;
  groups.resize(count);
  for (std::size_t i = count; i-- > 0;) {
    const auto group = parts.subspan(bounds[i], bounds[i + 1] - bounds[i]);
    if (group.size() == 1) {
      groups[i] = group.front();
      continue;
    }
    Node* node = record(group, dim, dtype);
    const Shape shape = joined(group, dim);
    groups[i] = group.front().tape().alias(group.front(), shape, contiguous_strides(shape), true);
    groups[i].impl()->dtype = dtype;
    group.front().tape().autograd.set_history(node, groups[i]);
  }
  std::array<const Tensor*, kEdges> inputs{};
  ConcatenatePayload payload{.dim = dim};
  for (std::size_t i = 0; i < count; ++i) {
    inputs[i] = &groups[i];
    payload.sizes[i] = groups[i].size(dim);
  }
  Node* node =
      parts.front().tape().autograd.record(aten::kCat, concatenate_backward, inputs.data(), static_cast<int>(count));
  if (node != nullptr) node->payload.set(payload);
  return node;
}

}  // namespace

Tensor concatenate(std::span<const Tensor> parts, int dim) { return concatenate(parts, dim, parts.front().dtype()); }

Tensor concatenate(std::span<const Tensor> parts, int dim, DType dtype) {
  Tape& tape = parts.front().tape();
  Node* node = record(parts, dim, dtype);
  const bool channels_last = std::all_of(parts.begin(), parts.end(), is_channels_last);
  Tensor result = empty_in_layout(tape, joined(parts, dim), dtype, channels_last, aten::kCat);
  const bool whole = std::all_of(parts.begin(), parts.end(), [](const Tensor& part) { return part.is_contiguous(); });
  tape.kernels.add(aten::kCat, OperatorClass::kMovement, result.dtype(), 0, 2.0 * static_cast<double>(result.bytes()),
                   whole || channels_last ? KernelKind::kVectorized : KernelKind::kStrided,
                   static_cast<double>(result.elements()));
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
