#include "memcalc/symbolic/ops/sort.h"

#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kSort{"aten::sort"};
constexpr Operator kTopk{"aten::topk"}, kTopkBackward{"TopkBackward0"};
constexpr Operator kMax{"aten::max"}, kMaxBackward{"MaxBackward0"};
constexpr Operator kZeros{"aten::zeros"};

/// cuda/Sort.cpp, should_use_small_sort: up to this many values are sorted in place by one thread block.
constexpr std::int64_t kSmallSort = 4096;

/// value_selecting_reduction_backward: zeros, into which the gradients are scattered.
void select_backward(BackwardCall& call) {
  Tensor result = call.tape.empty(call.node.shape, call.gradient().dtype(), kZeros);
  call.tape.kernel(kZeros, OperatorClass::kMovement, result.dtype(), 0, static_cast<double>(result.bytes()));
  call.set(0, std::move(result));
}

void selection_kernel(const Operator& op, const Tensor& x, const Selection& result) {
  x.tape().kernel(op, OperatorClass::kMovement, x.dtype(), 0,
                  static_cast<double>(x.bytes() + result.values.bytes() + result.indices.bytes()));
}

Selection empty_selection(const Tensor& x, const Shape& shape, const Operator& op) {
  Tensor values = x.tape().empty(shape, x.dtype(), op);
  return {std::move(values), x.tape().empty(shape, DType::kInt64, op)};
}

Node* record(const Tensor& x, const Operator& name) {
  const Tensor* inputs[] = {&x};
  Node* node = x.tape().record(name, select_backward, inputs, 1);
  if (node != nullptr) node->shape = x.shape();
  return node;
}

void finish(Node* node, Selection& result) {
  Tape& tape = result.values.tape();
  tape.set_history(node, result.values);
  if (node != nullptr) tape.save(*node, result.indices);
}

}  // namespace

Selection sort(const Tensor& x) {
  Tape& tape = x.tape();
  const std::int64_t n = x.elements();
  Selection result = empty_selection(x, x.shape(), kSort);
  // cuda/SortStable.cu: the positions are sorted along with the values.
  const Tensor positions = tape.empty({n}, DType::kInt64, kSort);
  if (n > kSmallSort) tape.scratch(radix_sort_bytes(n), kSort);
  selection_kernel(kSort, x, result);
  return result;
}

Selection topk(const Tensor& x, std::int64_t k) {
  Node* node = record(x, kTopkBackward);
  Shape shape = x.shape();
  shape[-1] = k;
  Selection result = empty_selection(x, shape, kTopk);
  selection_kernel(kTopk, x, result);
  finish(node, result);
  return result;
}

Selection max_last(const Tensor& x, bool keep_dim) {
  Node* node = record(x, kMaxBackward);
  Shape shape = x.shape();
  shape[-1] = 1;
  if (!keep_dim) --shape.rank;
  Selection result = empty_selection(x, shape, kMax);
  constexpr std::int64_t kValueAndPosition = 16;  // what the reduction accumulates
  reduction_scratch(x, 1U << (x.rank() - 1), kValueAndPosition, kMax);
  selection_kernel(kMax, x, result);
  finish(node, result);
  return result;
}

}  // namespace memcalc
