// MIRRORS(torch, "cuda/Embedding.cu", "2.11.0")
// MIRRORS(torch, "cuda/EmbeddingBackwardKernel.cu", "2.11.0")
#include "memcalc/symbolic/ops/embedding.h"

#include <algorithm>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/embedding_rows.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// cuda/Embedding.cu: up to this many indices one kernel scatters; beyond, the indices are sorted first.
constexpr std::int64_t kSortAbove = 3072;
/// cuda/EmbeddingBackwardKernel.cu: rows that one thread sums before it starts a new partial segment.
constexpr std::int64_t kRowsPerThread = 10;

void embedding_backward(BackwardCall& call) {
  call.set(0, embedding_table_gradient(call.tape, call.saved(0), call.gradient(), call.payload<InputShape>().shape));
}

}  // namespace

Tensor sorted_table_gradient(Tape& tape, DType dtype, std::int64_t n, const Shape& table) {
  const auto integers = [&](std::int64_t count) {
    return tape.empty({count}, DType::kInt64, aten::kEmbeddingDenseBackward);
  };
  Tensor sorted = integers(n), original = integers(n);
  {
    const Tensor range = integers(n);
    tape.memory.scratch(radix_sort_bytes(n), aten::kEmbeddingDenseBackward);
  }
  Tensor result = tape.empty(table, dtype, aten::kEmbeddingDenseBackward);
  const std::int64_t segments = std::min(n, table[0]);  // distinct indices, at most
  Tensor segment_offsets = integers(n), segment_count = integers(1);
  {
    const Tensor positions = integers(n);
    tape.memory.scratch(unique_bytes(n), aten::kEmbeddingDenseBackward);
  }
  Tensor partials = integers(segments), partial_starts = integers(segments);
  tape.memory.scratch(scan_bytes(segments), aten::kEmbeddingDenseBackward);
  Tensor partial_count = integers(1);
  const std::int64_t partial_segments = n / kRowsPerThread + segments;
  Tensor partial_offsets = integers(partial_segments);

  const std::int64_t width = round_up(table[1], 32);
  const std::int64_t grid = ceil_div(segments * width, std::min<std::int64_t>(width, 1024));
  const bool fused = grid < 4 * tape.device.multiprocessors && partial_segments > 4 * grid;
  if (fused) {  // few rows: partial sums are added to the table by atomics, in float32
    const Tensor owners = integers(partial_segments);
    if (is_half(dtype)) tape.memory.scratch(4 * table.elements(), aten::kEmbeddingDenseBackward);
  } else {
    tape.memory.scratch(4 * partial_segments * table[1], aten::kEmbeddingDenseBackward);
  }
  drop(partial_offsets, partial_count, partial_starts, partials, segment_count, segment_offsets, original, sorted);
  return result;
}

Tensor embedding_table_gradient(Tape& tape, const Tensor& indices, const Tensor& gradient, const Shape& table) {
  const Tensor flat = contiguous(indices);
  const Tensor incoming = contiguous(gradient);  // T5's position bias: permuted
  const std::int64_t count = flat.elements();
  Tensor result = count <= kSortAbove ? tape.empty(table, gradient.dtype(), aten::kEmbeddingDenseBackward)
                                      : sorted_table_gradient(tape, gradient.dtype(), count, table);
  tape.kernels.add(aten::kEmbeddingDenseBackward, OperatorClass::kMovement, result.dtype(), 0,
                   static_cast<double>(result.bytes() + 2 * gradient.bytes()), KernelKind::kEmbeddingBackward);
  tape.kernels.describe(work::EmbeddingGradient{.indices = count, .width = table[1], .table_rows = table[0]});
  return result;
}

Tensor embedding(const Tensor& weight, Arg indices) {
  const OperatorCall call(indices);
  Tape& tape = weight.tape();
  const Tensor* inputs[] = {&weight};
  Node* node = tape.autograd.record(aten::kEmbedding, embedding_backward, inputs, 1);
  if (node != nullptr) {
    node->payload.set(InputShape{weight.shape()});
    tape.autograd.save(*node, *indices);
  }
  Shape shape = indices->shape();
  shape.dims[static_cast<std::size_t>(shape.rank++)] = weight.size(1);
  // aten::embedding: index_select by the flattened indices, which are copied where they are no plain row.
  Tensor result, flat;
  if (indices->is_contiguous()) {
    result = tape.empty(shape, weight.dtype(), aten::kIndexSelect);
  } else {
    const NoGrad no_grad(tape.modes);
    flat = reshape(*indices, {indices->elements()});
    result = tape.empty(shape, weight.dtype(), aten::kIndexSelect);
  }
  tape.kernels.add(aten::kIndexSelect, OperatorClass::kMovement, weight.dtype(), 0,
                   2.0 * static_cast<double>(result.bytes()), KernelKind::kIndexed,
                   static_cast<double>(result.elements()));
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
