// MIRRORS(torch, "FunctionsManual.cpp", "2.11.0")
// MIRRORS(torch, "cuda/IndexKernel.cu", "2.11.0")
#include "memcalc/symbolic/ops/scatter.h"

#include <array>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

void move_kernel(const Operator& op, const Tensor& x) {
  x.tape().kernels.add(op, OperatorClass::kMovement, x.dtype(), 0, 2.0 * static_cast<double>(x.bytes()),
                       KernelKind::kStrided, static_cast<double>(x.elements()));
}

Tensor made_like(const Tensor& x, const Operator& op) {
  Tensor result = x.tape().empty_strided(x.shape(), like_strides(x.shape(), x.strides()), x.dtype(), op);
  move_kernel(op, result);
  return result;
}

Tensor gathered(const Tensor& gradient, const Tensor& index) {
  Tensor result = gradient.tape().empty(index.shape(), gradient.dtype(), aten::kGather);
  move_kernel(aten::kGather, result);
  return result;
}

/// derivatives.yaml: self: grad.scatter(dim, index, 0); src: grad.gather(dim, index).
void scatter_backward(BackwardCall& call) {
  if (call.needs(0)) call.set(0, made_like(call.gradient(), aten::kScatter));
  if (call.node.edge_count > 1 && call.needs(1)) call.set(1, gathered(call.gradient(), call.saved(0)));
}

/// self: grad; src: grad.gather(dim, index).
void scatter_add_backward(BackwardCall& call) {
  if (call.needs(0)) call.set(0, call.gradient());
  if (call.needs(1)) call.set(1, gathered(call.gradient(), call.saved(0)));
}

Node* record_scatter(const Tensor& x, const Tensor& index, const Tensor& source, Scattered how) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x, &source};
  const bool adds = how == Scattered::kAdds;
  Node* node = tape.autograd.record(adds ? aten::kScatterAdd : aten::kScatter,
                                    adds ? scatter_add_backward : scatter_backward, inputs, source.defined() ? 2 : 1);
  if (node != nullptr) tape.autograd.save(*node, index);
  return node;
}

/// Whether a factor scales the source.
struct IndexAddPayload {
  bool scales = false;
};

/// self: grad; source: grad.index_select(dim, index).expand_as(source) * alpha, for which it keeps the source.
void index_add_backward(BackwardCall& call) {  // saved: index, source
  if (call.needs(0)) call.set(0, call.gradient());
  if (!call.needs(1)) return;
  Tensor result = call.tape.empty(call.saved(1).shape(), call.gradient().dtype(), aten::kIndexSelect);
  move_kernel(aten::kIndexSelect, result);
  if (call.payload<IndexAddPayload>().scales) result = made_like(result, aten::kMul);
  call.set(1, std::move(result));
}

Node* record_index_add(const Tensor& x, const Tensor& index, const Tensor& source, bool scales) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x, &source};
  Node* node = tape.autograd.record(aten::kIndexAdd, index_add_backward, inputs, 2);
  if (node != nullptr) node->payload.set(IndexAddPayload{scales});
  if (node != nullptr && source.requires_grad()) {
    tape.autograd.save(*node, index);
    tape.autograd.save(*node, source);
  }
  return node;
}

Tensor with_history(const Tensor& x, Node* node) {
  Tensor result = x.tape().detach(x);
  x.tape().autograd.set_history(node, result);
  return result;
}

struct MaskedScatterPayload {
  Shape source;
};

/// FunctionsManual.cpp, masked_scatter_backward: the gradient at the mask's places (masked_select, which is an index
/// by what nonzero finds). The source had as many values, so nothing is appended.
void masked_scatter_backward(BackwardCall& call) {  // saved: mask
  const Tensor& gradient = call.gradient();
  const Tensor& mask = call.saved(0);
  if (call.needs(0)) {
    call.set(0, call.tape.empty(gradient.shape(), gradient.dtype(), aten::kMaskedFill));
    move_kernel(aten::kMaskedFill, gradient);
  }
  if (!call.needs(1)) return;
  const Shape& source = call.payload<MaskedScatterPayload>().source;
  const std::int64_t count = source.elements();
  const Tensor places = nonzero(expand(mask, gradient.shape()), count);
  Tensor chosen = call.tape.empty({count}, gradient.dtype(), aten::kMaskedSelect);
  move_kernel(aten::kMaskedSelect, chosen);
  call.set(1, view(std::move(chosen), source));
}

}  // namespace

Tensor scatter(const Tensor& x, const Tensor& index, const Tensor& source, Scattered how) {
  std::array<Tensor, 2> operands{x, source};
  if (how == Scattered::kAdds) autocast_promote(aten::kScatterAdd, operands);
  Node* node = record_scatter(operands[0], index, operands[1], how);
  Tensor result = made_like(operands[0], aten::kScatter);
  x.tape().autograd.set_history(node, result);
  return result;
}

Tensor scatter_in_place(const Tensor& x, const Tensor& index, const Tensor& source, Scattered how) {
  Node* node = record_scatter(x, index, source, how);
  move_kernel(aten::kScatter, index);
  return with_history(x, node);
}

Tensor index_add(const Tensor& x, const Tensor& index, const Tensor& source, bool scales) {
  Node* node = record_index_add(x, index, source, scales);
  Tensor result = made_like(x, aten::kIndexAdd);
  x.tape().autograd.set_history(node, result);
  return result;
}

Tensor index_add_in_place(const Tensor& x, const Tensor& index, const Tensor& source, bool scales) {
  Node* node = record_index_add(x, index, source, scales);
  move_kernel(aten::kIndexAdd, source);
  return with_history(x, node);
}

namespace {

Node* record_masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  const Tensor* inputs[] = {&x, &source};
  Node* node = x.tape().autograd.record(aten::kMaskedScatter, masked_scatter_backward, inputs, 2);
  if (node != nullptr) {
    node->payload.set(MaskedScatterPayload{source.shape()});
    x.tape().autograd.save(*node, mask);
  }
  return node;
}

/// cuda/IndexKernel.cu, launch_masked_scatter_kernel: a running count of the mask's places.
void count_places(const Tensor& x, const Tensor& mask) {
  Tape& tape = x.tape();
  Tensor counts = tape.empty(x.shape(), DType::kInt64, aten::kMaskedScatter);
  const bool row_major = mask.shape() == x.shape() && mask.is_contiguous();
  Tensor rows;
  if (!row_major) rows = tape.empty(x.shape(), mask.dtype(), aten::kMaskedScatter);
  tape.memory.scratch(scan_bytes(x.elements()), aten::kMaskedScatter);
  rows.reset();
  counts.reset();
}

}  // namespace

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  Node* node = record_masked_scatter(x, mask, source);
  Tensor result = x.tape().empty(x.shape(), x.dtype(), aten::kMaskedScatter);
  count_places(x, mask);
  move_kernel(aten::kMaskedScatter, result);
  x.tape().autograd.set_history(node, result);
  return result;
}

Tensor masked_scatter_in_place(const Tensor& x, const Tensor& mask, const Tensor& source) {
  Node* node = record_masked_scatter(x, mask, source);
  count_places(x, mask);
  move_kernel(aten::kMaskedScatter, x);
  return with_history(x, node);
}

}  // namespace memcalc
