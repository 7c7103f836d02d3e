#include "memcalc/symbolic/ops/embedding.h"

#include <algorithm>

#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kIndexSelect{"aten::index_select"}, kEmbeddingBackward{"EmbeddingBackward0"};
constexpr Operator kDenseBackward{"aten::embedding_dense_backward"};

/// cuda/Embedding.cu: up to this many indices one kernel scatters; beyond, the indices are sorted first.
constexpr std::int64_t kSortAbove = 3072;
/// cuda/EmbeddingBackwardKernel.cu
constexpr std::int64_t kRowsPerPartialSegment = 10;

/// Temporary storage of cub::DeviceRadixSort::SortPairs<int64, int64> for n pairs.
Bytes radix_sort_bytes(std::int64_t n) { return n; }
/// Temporary storage of cub's unique and of its exclusive sum over n items.
Bytes scan_bytes(std::int64_t n) { return n > 0 ? 1279 : 0; }

/// The sorted path: gradients of equal indices are summed in partial segments before they reach the table.
Tensor sorted_backward(BackwardCall& call, const Tensor& indices, const Shape& table) {
  Tape& tape = call.tape;
  const std::int64_t n = indices.elements();
  const DType index = DType::kInt64;
  Tensor sorted = tape.empty({n}, index, kDenseBackward);
  Tensor original = tape.empty({n}, index, kDenseBackward);
  {
    const Tensor range = tape.empty({n}, index, kDenseBackward);
    tape.scratch(radix_sort_bytes(n), kDenseBackward);
  }
  Tensor result = tape.empty(table, call.gradient().dtype(), kDenseBackward);
  Tensor segment_offsets = tape.empty({n}, index, kDenseBackward);
  Tensor segment_count = tape.empty({1}, index, kDenseBackward);
  {
    const Tensor counting = tape.empty({n}, index, kDenseBackward);
    tape.scratch(scan_bytes(n), kDenseBackward);
  }
  Tensor partials = tape.empty({n}, index, kDenseBackward);
  Tensor partial_offsets = tape.empty({n}, index, kDenseBackward);
  tape.scratch(scan_bytes(n), kDenseBackward);
  Tensor partial_count = tape.empty({1}, index, kDenseBackward);
  const std::int64_t segments = n / kRowsPerPartialSegment + std::min(n, table[0]);
  Tensor partial_segment_offset = tape.empty({segments}, index, kDenseBackward);
  const DType accumulator = is_half(call.gradient().dtype()) ? DType::kFloat32 : call.gradient().dtype();
  Tensor partial_sums = tape.empty({segments, table[1]}, accumulator, kDenseBackward);
  drop(partial_sums, partial_segment_offset, partial_count, partial_offsets, partials, segment_count, segment_offsets,
       original, sorted);
  return result;
}

void embedding_backward(BackwardCall& call) {
  const Tensor saved = call.saved(0);
  Tensor indices = contiguous(saved);
  const Shape table = call.node.shape;
  Tensor result;
  if (indices.elements() <= kSortAbove) {
    result = call.tape.empty(table, call.gradient().dtype(), kDenseBackward);
  } else {
    result = sorted_backward(call, indices, table);
  }
  call.tape.kernel(kDenseBackward, OperatorClass::kMovement, result.dtype(), 0,
                   static_cast<double>(result.bytes() + 2 * call.gradient().bytes()));
  call.set(0, std::move(result));
}

}  // namespace

Tensor embedding(const Tensor& weight, Arg indices) {
  const OperatorCall call(indices);
  Tape& tape = weight.tape();
  const Tensor* inputs[] = {&weight};
  Node* node = tape.record(kEmbeddingBackward, embedding_backward, inputs, 1);
  if (node != nullptr) {
    node->shape = weight.shape();
    tape.save(*node, *indices);
  }
  Shape shape = indices->shape();
  shape.dims[static_cast<std::size_t>(shape.rank++)] = weight.size(1);
  // aten::embedding: index_select by the flattened indices, which are copied where they are no plain row.
  Tensor result, flat;
  if (indices->is_contiguous()) {
    result = tape.empty(shape, weight.dtype(), kIndexSelect);
  } else {
    const NoGrad no_grad(tape);
    flat = reshape(*indices, {indices->elements()});
    result = tape.empty(shape, weight.dtype(), kIndexSelect);
  }
  tape.kernel(kIndexSelect, OperatorClass::kMovement, weight.dtype(), 0, 2.0 * static_cast<double>(result.bytes()));
  tape.set_history(node, result);
  return result;
}

}  // namespace memcalc
