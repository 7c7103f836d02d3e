#include "memcalc/symbolic/ops/index.h"

#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kIndex{"aten::index"}, kIndexBackward{"IndexBackward0"}, kIndexPut{"aten::_index_put_impl_"};
constexpr Operator kNewZeros{"aten::new_zeros"};
constexpr Operator kPad{"aten::constant_pad_nd"}, kPadBackward{"ConstantPadNdBackward0"};
constexpr Operator kRoll{"aten::roll"}, kRollBackward{"RollBackward0"};

// Sorting this many indices or fewer takes one thread block (measured: 49 x 49 of them).
constexpr Bytes kSmallSortBytes = 3583;

void move_kernel(const Operator& op, const Tensor& x) {
  x.tape().kernel(op, OperatorClass::kMovement, x.dtype(), 0, 2.0 * static_cast<double>(x.bytes()));
}

/// cuda/Indexing.cu, index_put_with_sort_kernel: indices are made linear and sorted, so that sums are in order.
void index_backward(BackwardCall& call) {  // saved: index
  Tape& tape = call.tape;
  const std::int64_t n = call.saved(0).elements();
  const auto indices = [&] { return tape.empty({n}, DType::kInt64, kIndexPut); };
  Tensor result = tape.empty(call.node.shape, call.gradient().dtype(), kNewZeros);
  Tensor remainder = indices();
  Tensor linear = indices();
  remainder.reset();
  Tensor values = contiguous(call.gradient());
  Tensor sorted = indices();
  Tensor order = indices();
  Tensor range = indices();
  tape.scratch(n <= kSortTile ? kSmallSortBytes : radix_sort_bytes(n), kIndexPut);
  range.reset();
  move_kernel(kIndexPut, values);
  drop(order, sorted, values, linear);
  call.set(0, std::move(result));
}

void pad_backward(BackwardCall& call) {
  Tensor result = call.tape.empty(call.node.shape, call.gradient().dtype(), kPad);
  move_kernel(kPad, result);
  call.set(0, std::move(result));
}

Tensor roll_twice(const Tensor& x) {
  const Tensor first = x.tape().empty(x.shape(), x.dtype(), kRoll);
  Tensor second = x.tape().empty(x.shape(), x.dtype(), kRoll);
  move_kernel(kRoll, first);
  move_kernel(kRoll, second);
  return second;
}

void roll_backward(BackwardCall& call) { call.set(0, roll_twice(call.gradient())); }

}  // namespace

Tensor index_rows(const Tensor& table, const Tensor& index) {
  Tape& tape = table.tape();
  const Tensor* inputs[] = {&table};
  Node* node = tape.record(kIndexBackward, index_backward, inputs, 1);
  if (node != nullptr) {
    node->shape = table.shape();
    tape.save(*node, index);
  }
  Tensor result = tape.empty({index.elements(), table.size(1)}, table.dtype(), kIndex);
  move_kernel(kIndex, result);
  tape.set_history(node, result);
  return result;
}

Tensor pad_to(const Tensor& x, const Shape& shape) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.record(kPadBackward, pad_backward, inputs, 1);
  if (node != nullptr) node->shape = x.shape();
  Tensor result = tape.empty(shape, x.dtype(), kPad);
  move_kernel(kPad, result);
  tape.set_history(node, result);
  return result;
}

Tensor roll(const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.record(kRollBackward, roll_backward, inputs, 1);
  Tensor result = roll_twice(x);
  tape.set_history(node, result);
  return result;
}

}  // namespace memcalc
