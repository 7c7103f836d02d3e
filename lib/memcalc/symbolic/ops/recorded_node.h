// How an operator is recorded, in two steps: record() before its kernel, finish() behind it. For operators that only
// programs call (aten_programs.h).
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/recorded_call.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// The node over `inputs` with what it saves before the kernel runs, in this order; null where nothing is
/// differentiated. A null pointer among `saved` is left out.
[[nodiscard]] inline Node* record(const AtenOperator& op, BackwardFunction backward,
                                  std::initializer_list<const Tensor*> inputs,
                                  std::initializer_list<const Tensor*> saved = {}) {
  Tape& tape = (*inputs.begin())->tape();
  Node* node = tape.autograd.record(op, backward, inputs.begin(), static_cast<int>(inputs.size()));
  if (node == nullptr) return nullptr;
  for (const Tensor* each : saved) {
    if (each != nullptr) tape.autograd.save(*node, *each);
  }
  return node;
}

/// `result` as an output of the node, which may save it too.
[[nodiscard]] inline Tensor finish(Node* node, Tensor result, bool saves_result = false) {
  Tape& tape = result.tape();
  tape.autograd.set_history(node, result);
  if (node != nullptr && saves_result) tape.autograd.save(*node, result);
  return result;
}

/// A gradient that one node makes and another hands on: a node has no more than four edges (kMaxEdges).
using Handed = std::shared_ptr<Tensor>;

/// Two inputs of a node that get a gradient each, as one: that of the first arrives, that of the second is put aside.
[[nodiscard]] inline Tensor with_aside(const Tensor& first, const Tensor& second, const Handed& aside) {
  static constexpr AtenOperator kBoth{{"both"}, {"both"}};
  Node* node = record(kBoth,
                      [](BackwardCall& call) {
                        call.set(0, call.gradient());
                        call.set(1, std::move(*call.payload<Handed>()));
                      },
                      {&first, &second});
  if (node != nullptr) node->payload.set(aside);
  return finish(node, first.tape().detach(first));
}

/// A new tensor laid out as `x` (at::empty_like), moved by a kernel of `op` that reads as much.
[[nodiscard]] inline Tensor moved_like(const Tensor& x, const Operator& op) {
  Tensor result = x.tape().empty_strided(x.shape(), like_strides(x.shape(), x.strides()), x.dtype(), op);
  x.tape().kernels.add(op, OperatorClass::kMovement, x.dtype(), 0, 2.0 * static_cast<double>(x.bytes()),
                       KernelKind::kVectorized, static_cast<double>(x.elements()));
  return result;
}

/// A row-major tensor that a kernel of `op` fills.
[[nodiscard]] inline Tensor filled(Tape& tape, const Shape& shape, DType dtype, const Operator& op) {
  Tensor result = tape.empty(shape, dtype, op);
  tape.kernels.add(op, OperatorClass::kMovement, dtype, 0, static_cast<double>(result.bytes()));
  return result;
}

/// Whether autograd follows it here.
[[nodiscard]] inline bool is_followed(const Tensor& x) { return x.requires_grad() && x.tape().modes.grad_enabled; }

/// nn.Embedding(sparse=True): a gradient of torch.sparse holds rows and their places, which no optimizer of memcalc
/// knows.
inline void refuse_sparse_gradient(const RecordedCall& call, const Tensor& table, int sparse) {
  if (!is_followed(table) || !call.boolean_or(sparse, false)) return;
  throw Error(ErrorCode::kUnsupported,
              "the program trains a table with sparse=True, and gradients of torch.sparse are "
              "not modelled; accepted: sparse=False");
}

}  // namespace memcalc
