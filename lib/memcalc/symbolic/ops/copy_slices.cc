// torch/csrc/autograd/functions/tensor.cpp, CopySlices: the in-place operator on a view becomes part of the history of
// the tensor that is viewed.
// MIRRORS(torch, "torch/csrc/autograd/functions/tensor.cpp", "2.11.0")
#include "memcalc/symbolic/ops/copy_slices.h"

#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/as_strided.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// No operator of ATen: autograd puts it in the place of one that changes a view.
constexpr AtenOperator kCopySlices{{"CopySlices"}, {"CopySlices"}, AutocastList::kNone, CompileRule::kSliceScatter};

void move_kernel(const Tensor& x) {
  x.tape().kernels.add(aten::kCopy, OperatorClass::kMovement, x.dtype(), 0, 2.0 * static_cast<double>(x.bytes()));
}

/// What of a tensor a view shows, and what is done to it.
struct CopySlicesPayload {
  Shape base_strides;
  Shape shape, strides;  // of the view
  DType source = DType::kFloat32;
  InPlace change = InPlace::kCopy;
  bool is_product = false;  // addcmul_: what is added is `kept` times the source
};

struct CopyPayload {
  DType source = DType::kFloat32;
};

void copy_slices_backward(BackwardCall& call) {  // inputs: base, source
  Tape& tape = call.tape;
  const Tensor& gradient = call.gradient();
  const auto& slice = call.payload<CopySlicesPayload>();
  // A part of the whole is not dense, so its copy is laid out anew.
  const Shape layout = like_strides(slice.shape, slice.strides);
  Tensor whole = tape.empty_strided(gradient.shape(), slice.base_strides, gradient.dtype(), kCopySlices);
  const Tensor part = tape.empty_strided(slice.shape, layout, gradient.dtype(), aten::kClone);
  move_kernel(whole);
  Tensor before;  // the gradient of what the view was before, which is copied into the whole
  switch (slice.change) {
    case InPlace::kCopy:
      if (call.needs(0)) before = tape.empty_strided(slice.shape, layout, gradient.dtype(), aten::kZerosLike);
      break;
    case InPlace::kAdd: break;  // the same
    case InPlace::kMultiply:
    case InPlace::kOfResult: before = pointwise(aten::kMul, {&part}, 1); break;
  }
  if (call.needs(1) && slice.is_product) {  // grad * (kept * value)
    const Tensor scaled = pointwise(aten::kMul, {&call.saved(0)}, 1);
    call.set(1, pointwise(aten::kMul, {&part, &scaled}, 1));
  } else if (call.needs(1)) {
    const bool scales = slice.change == InPlace::kMultiply;
    call.set(1, to_dtype(scales ? pointwise(aten::kMul, {&part}, 1) : part, slice.source));
  }
  if (call.needs(0)) call.set(0, std::move(whole));
}

void copy_backward(BackwardCall& call) {  // torch/csrc/autograd/functions/tensor.cpp, CopyBackwards
  const Tensor& gradient = call.gradient();
  if (call.needs(0)) {
    call.set(0, call.tape.empty_strided(gradient.shape(), like_strides(gradient.shape(), gradient.strides()),
                                        gradient.dtype(), aten::kZerosLike));
  }
  if (call.needs(1)) call.set(1, to_dtype(gradient, call.payload<CopyPayload>().source));
}

Tensor change(const Tensor& base, const Shape& shape, const Shape& strides, const Tensor& source, InPlace change,
              std::span<const Tensor> kept = {}) {
  Tape& tape = base.tape();
  const Tensor* inputs[] = {&base, &source};
  Node* node = tape.autograd.record(kCopySlices, copy_slices_backward, inputs, source.defined() ? 2 : 1);
  if (node != nullptr) {
    node->payload.set(CopySlicesPayload{.base_strides = base.strides(),
                                        .shape = shape,
                                        .strides = strides,
                                        .source = source.defined() ? source.dtype() : base.dtype(),
                                        .change = change,
                                        .is_product = change == InPlace::kAdd && !kept.empty()});
    for (const Tensor& each : kept) tape.autograd.save(*node, each);
  }
  Tensor result = tape.detach(base);
  if (source.defined()) move_kernel(source);
  tape.autograd.set_history(node, result);
  if (node != nullptr && change == InPlace::kOfResult) tape.autograd.save(*node, result);
  return result;
}

/// Operators whose result autograd follows as a view of their operand. (Parts of a split may not be changed in place.)
bool is_view_node(const Node& node) { return node.op != nullptr && node.op->is_view; }

/// Sizes of the operand of such a node.
const Shape& viewed_shape(const Node& node) {
  if (const auto* transposed = node.payload.get_if<TransposePayload>()) return transposed->input;
  if (const auto* permuted = node.payload.get_if<PermutePayload>()) return permuted->input;
  if (const auto* strided = node.payload.get_if<AsStridedPayload>()) return strided->operand;
  return node.payload.get<InputShape>().shape;
}

}  // namespace

Tensor new_empty(const Tensor& x, const Shape& shape) { return x.tape().empty(shape, x.dtype(), aten::kNewEmpty); }

Tensor copy_into_columns(const Tensor& base, std::int64_t start, const Tensor& source) {
  if (start + source.size(-1) > base.size(-1)) throw Error(ErrorCode::kInternal, "copied columns do not fit");
  return change(base, source.shape(), base.strides(), source, InPlace::kCopy);
}

Tensor copy_into_view(const Tensor& base, const Tensor& view, const Tensor& source) {
  return change(base, view.shape(), view.strides(), source, InPlace::kCopy);
}

Tensor change_view(const Tensor& base, const Tensor& view, const Tensor& source, InPlace kind,
                   std::span<const Tensor> kept) {
  return change(base, view.shape(), view.strides(), source, kind, kept);
}

Tensor viewed_by(const Tensor& view) {
  const Autograd& autograd = view.tape().autograd;
  const Node* node = autograd.maker_of(view);
  if (node == nullptr || !is_view_node(*node)) return {};
  for (;;) {
    const Node* before = autograd.maker_of(node->edges[0]);
    if (before == nullptr || !is_view_node(*before)) break;
    node = before;
  }
  const Shape& shape = viewed_shape(*node);
  Tensor base = view.tape().alias(view, shape, contiguous_strides(shape), false);
  view.tape().autograd.set_edge(base, node->edges[0]);
  return base;
}

Tensor copy_in_place(const Tensor& x, const Tensor& source) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x, &source};
  Node* node = tape.autograd.record(aten::kCopy, copy_backward, inputs, 2);
  if (node != nullptr) node->payload.set(CopyPayload{source.dtype()});
  Tensor result = tape.detach(x);
  move_kernel(source);
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
