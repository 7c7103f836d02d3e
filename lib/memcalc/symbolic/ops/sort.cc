// MIRRORS(torch, "cuda/Sort.cpp", "2.11.0")
// MIRRORS(torch, "cuda/SortStable.cu", "2.11.0")
// MIRRORS(torch, "cuda/TensorTopK.cu", "2.11.0")
#include "memcalc/symbolic/ops/sort.h"

#include <algorithm>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort_rows.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/symbolic/topk_blocks.h"

namespace memcalc {

namespace {

/// Pairs of a key of 4 bytes and an int64 that one thread block of onesweep takes on sm_90: 384 threads, 14 each
/// (measured within cut_cross_entropy's backward: 32,000, 32,768 and 128,256 keys).
constexpr std::int64_t kTileOfNarrowKeys = 5376;

/// cuda/Sort.cpp, should_use_small_sort: up to this many values are sorted in place by one thread block.
constexpr std::int64_t kSmallSort = 4096;

/// value_selecting_reduction_backward: zeros, into which the gradients are scattered.
void select_backward(BackwardCall& call) {
  Tensor result = call.tape.empty(call.payload<InputShape>().shape, call.gradient().dtype(), aten::kZeros);
  call.tape.kernels.add(aten::kZeros, OperatorClass::kMovement, result.dtype(), 0, static_cast<double>(result.bytes()));
  call.set(0, std::move(result));
}

void selection_kernel(const Operator& op, const Tensor& x, const Selection& result) {
  x.tape().kernels.add(op, OperatorClass::kMovement, x.dtype(), 0,
                       static_cast<double>(x.bytes() + result.values.bytes() + result.indices.bytes()));
}

Selection empty_selection(const Tensor& x, const Shape& shape, const Operator& op) {
  Tensor values = x.tape().empty(shape, x.dtype(), op);
  return {std::move(values), x.tape().empty(shape, DType::kInt64, op)};
}

Node* record(const Tensor& x, const AtenOperator& op) {
  const Tensor* inputs[] = {&x};
  Node* node = x.tape().autograd.record(op, select_backward, inputs, 1);
  if (node != nullptr) node->payload.set(InputShape{x.shape()});
  return node;
}

void finish(Node* node, Selection& result) {
  Tape& tape = result.values.tape();
  tape.autograd.set_history(node, result.values);
  if (node != nullptr) tape.autograd.save(*node, result.indices);
}

/// mbtopk::launch: a radix select whose thread blocks count digits in memory, and two scans over the blocks.
void several_blocks_scratch(const Tensor& x, std::int64_t slices) {
  constexpr std::int64_t kThreads = 256, kBlocksAtOnce = 6, kDigits = 256;
  Tape& tape = x.tape();
  const std::int64_t size = x.size(-1);
  const std::int64_t at_once = tape.device.multiprocessors * kBlocksAtOnce * kThreads;
  const std::int64_t items = std::clamp<std::int64_t>(ceil_div(slices * size, at_once), 4, 64);
  const std::int64_t blocks = slices * ceil_div(size, items * kThreads);
  const auto part = [&](Bytes bytes) { return tape.empty({bytes}, DType::kUInt8, aten::kTopk); };
  Tensor values = part(size_of(x.dtype()) * slices), to_find = part(8 * slices), desired = part(8 * slices);
  Tensor counts = part(2 * blocks * kDigits), digit_sums = part(4 * slices * kDigits);
  Tensor within = part(4 * blocks), at = part(4 * blocks);
  tape.memory.scratch(scan_bytes(blocks), aten::kTopk);
  tape.memory.scratch(scan_bytes(blocks), aten::kTopk);
  drop(at, within, digit_sums, counts, desired, to_find, values);
}

/// cub's sort of n pairs, of a key of x's type and eight bytes. Returns its kernels.
std::int32_t sort_pairs(const Tensor& x, std::int64_t n) {
  const int bits = 8 * static_cast<int>(size_of(x.dtype()));
  const Bytes keys = static_cast<Bytes>(size_of(x.dtype())) * n;
  Bytes narrower = round_up(8 * n, kCubAlignment) - round_up(keys, kCubAlignment);  // radix_sort_bytes(): 8-byte keys
  if (bits == 32) narrower += 1024 * (ceil_div(n, kSortTile) - ceil_div(n, kTileOfNarrowKeys));  // look-backs
  x.tape().memory.scratch(radix_sort_bytes(n, bits) - narrower, aten::kSort);
  return radix_sort_launches(n, bits);
}

/// cuda/SortStable.cu of a vector: the positions are sorted along with the values.
std::int32_t sort_vector(const Tensor& x) {
  const std::int64_t n = x.elements();
  const Tensor positions = x.tape().empty({n}, DType::kInt64, aten::kSort);
  return 2 + (n > kSmallSort ? sort_pairs(x, n) : 1);  // a copy of the values, arange, the sort
}

/// Its segmented_sort_pairs_by_full_sort: fewer than 128 rows are sorted as one vector, each value with its row and
/// place, then by rows.
std::int32_t sort_few_rows(const Tensor& x, std::int64_t rows) {
  Tape& tape = x.tape();
  const std::int64_t n = x.elements();
  const Tensor places = tape.empty({n}, DType::kInt64, aten::kSort),
               others = tape.empty({n}, DType::kInt64, aten::kSort);
  Tensor keys = tape.empty({n}, x.dtype(), aten::kSort);
  const std::int32_t launches = sort_pairs(x, n);
  keys.reset();
  int bits = 1;
  while ((std::int64_t{1} << bits) < rows) ++bits;
  // This sort has keys and no values. Its tiles are as long as those of narrow keys with values: 8 rows of 8,064 asked
  // an H200 for 14,847 bytes (measured, not derived).
  const Bytes fewer = 1024 * (ceil_div(n, kSortTile) - ceil_div(n, kTileOfNarrowKeys));
  tape.memory.scratch(radix_sort_bytes(n, bits) - (n > kTileOfNarrowKeys ? fewer : 0), aten::kSort);
  return 2 + launches + radix_sort_launches(n, bits);  // and what makes the places, and what writes the result
}

/// Its segmented_sort_pairs: cub sorts each row, with a second buffer of keys and of places.
std::int32_t sort_many_rows(const Tensor& x) {
  Tape& tape = x.tape();
  const std::int64_t n = x.elements();
  const Tensor places = tape.empty({n}, DType::kInt64, aten::kSort);
  const Bytes keys = static_cast<Bytes>(size_of(x.dtype())) * n;
  tape.memory.scratch(round_up(keys, kCubAlignment) + round_up(8 * n, kCubAlignment) + kCubAlignment - 1, aten::kSort);
  return 2 + static_cast<std::int32_t>(size_of(x.dtype()));
}

}  // namespace

std::int32_t sort_rows(const Tensor& x, std::int64_t length) {
  constexpr std::int64_t kManyRows = 128, kLongRow = 1000000;
  const std::int64_t rows = x.elements() / std::max<std::int64_t>(length, 1);
  if (rows <= 1) return sort_vector(x);
  if (length >= kLongRow) return 1 + static_cast<std::int32_t>(rows) * sort_pairs(x, length);
  if (length > kSmallSort) return rows < kManyRows ? sort_few_rows(x, rows) : sort_many_rows(x);
  return 3;  // where a block sorts each row
}

Selection sort(const Tensor& x) {
  const std::int64_t rows = x.elements() / std::max<std::int64_t>(x.size(-1), 1);
  Selection result = empty_selection(x, x.shape(), aten::kSort);
  const std::int32_t launches = sort_rows(x, x.size(-1));
  selection_kernel(aten::kSort, x, result);
  if (rows > 1 && x.size(-1) > kSmallSort) {
    x.tape().kernels.describe(work::Rows{.count = rows, .width = x.size(-1)});
  }
  if (Kernel* kernel = x.tape().kernels.last()) kernel->launches = launches;
  return result;
}

Selection topk(const Tensor& x, std::int64_t k, bool sorted) {
  Node* node = record(x, aten::kTopk);
  Shape shape = x.shape();
  shape[-1] = k;
  Selection result = empty_selection(x, shape, aten::kTopk);
  const Tensor rows = x.is_contiguous() ? x : x.tape().empty(x.shape(), x.dtype(), aten::kTopk);
  const std::int64_t slices = x.elements() / x.size(-1);
  if (topk_shares_slices(slices, x.size(-1))) several_blocks_scratch(x, slices);
  selection_kernel(aten::kTopk, x, result);
  x.tape().kernels.describe(work::Rows{.count = slices, .width = x.size(-1)});
  if (Kernel* kernel = x.tape().kernels.last()) kernel->launches = sorted ? 2 : 1;  // the sort of what was selected
  finish(node, result);
  return result;
}

Selection max_along(const Tensor& x, int dimension, bool keep_dim) {
  Node* node = record(x, aten::kMax);
  Shape shape = x.shape();
  shape[dimension] = 1;
  if (!keep_dim) {
    for (int i = dimension; i + 1 < shape.rank; ++i) shape[i] = shape[i + 1];
    --shape.rank;
  }
  Selection result = empty_selection(x, shape, aten::kMax);
  constexpr std::int64_t kValueAndPosition = 16;  // what the reduction accumulates
  reduction_scratch(x, 1U << static_cast<unsigned>(dimension), kValueAndPosition, aten::kMax);
  selection_kernel(aten::kMax, x, result);
  finish(node, result);
  return result;
}

}  // namespace memcalc
