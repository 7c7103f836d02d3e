#include "memcalc/symbolic/ops/activation.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kCopySlices{"CopySlices"};

template <const AtenOperator& op>
void backward_from_saved(BackwardCall& call) {
  const Tensor& saved = call.saved(0);
  call.set(0, pointwise(op, {&call.gradient(), &saved}, 3));
}

void exponential_backward(BackwardCall& call) {  // grad * result
  call.set(0, pointwise(aten::kMul, {&call.gradient(), &call.saved(0)}, 1));
}

void in_place_kernel(const Operator& op, const Tensor& x, int tensors) {
  x.tape().kernels.add(op, OperatorClass::kElementwise, x.dtype(), static_cast<double>(x.elements()),
                       tensors * static_cast<double>(x.bytes()));
}

Tensor in_place_with_copy(const Operator& in_place, const AtenOperator& op, BackwardFunction backward,
                          const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(op, backward, inputs, 1);
  if (node != nullptr) {
    // VariableType: an in-place operator whose derivative reads its operand clones it first.
    tape.autograd.save(*node, tape.empty_strided(x.shape(), like_strides(x.shape(), x.strides()), x.dtype(), in_place));
  }
  Tensor result = tape.detach(x);
  in_place_kernel(in_place, x, 2);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor saving(const AtenOperator& op, BackwardFunction backward, const Tensor& x, bool saves_result) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(op, backward, inputs, 1);
  if (node != nullptr && !saves_result) tape.autograd.save(*node, x);
  Tensor result = pointwise(op, {&x}, 3);
  tape.autograd.set_history(node, result);
  if (node != nullptr && saves_result) tape.autograd.save(*node, result);
  return result;
}

void add_in_place_backward(BackwardCall& call) {
  for (int i = 0; i < 2; ++i) {
    if (call.needs(i)) call.set(i, call.gradient());
  }
}

struct DropoutPayload {
  bool of_view = false;  // the operand was a view of a larger graph's tensor
};

/// grad * noise. Under a view the engine goes through CopySlices, which works on copies of the gradient.
void dropout_in_place_backward(BackwardCall& call) {
  const Tensor& noise = call.saved(0);
  if (!call.payload<DropoutPayload>().of_view) {
    call.set(0, pointwise(aten::kMul, {&call.gradient(), &noise}, 1));
    return;
  }
  Tape& tape = call.tape;
  Tensor base = tape.empty(noise.shape(), noise.dtype(), aten::kNewZeros);
  call.gradients[0].reset();
  Tensor result = tape.empty(noise.shape(), noise.dtype(), kCopySlices);
  Tensor slice = tape.empty(noise.shape(), noise.dtype(), aten::kClone);
  Tensor product = pointwise(aten::kMul, {&slice, &noise}, 1);
  drop(slice, product);
  call.set(0, std::move(result));
}

}  // namespace

Tensor relu_in_place(const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kRelu, backward_from_saved<aten::kThresholdBackward>, inputs, 1);
  Tensor result = tape.detach(x);
  in_place_kernel(aten::kReluInPlace, x, 2);
  tape.autograd.set_history(node, result);
  if (node != nullptr) tape.autograd.save(*node, result);
  return result;
}

Tensor silu_in_place(const Tensor& x) {
  return in_place_with_copy(aten::kSiluInPlace, aten::kSilu, backward_from_saved<aten::kSiluBackward>, x);
}

Tensor hardswish_in_place(const Tensor& x) {
  return in_place_with_copy(aten::kHardswishInPlace, aten::kHardswish, backward_from_saved<aten::kHardswishBackward>,
                            x);
}

Tensor relu6_in_place(const Tensor& x) {
  return in_place_with_copy(aten::kHardtanhInPlace, aten::kHardtanh, backward_from_saved<aten::kHardtanhBackward>, x);
}

Tensor hardswish(Arg x) {
  const OperatorCall call(x);
  return saving(aten::kHardswish, backward_from_saved<aten::kHardswishBackward>, *x, false);
}

Tensor relu6(Arg x) {
  const OperatorCall call(x);
  return saving(aten::kHardtanh, backward_from_saved<aten::kHardtanhBackward>, *x, false);
}

Tensor leaky_relu(Arg x) {
  const OperatorCall call(x);
  return saving(aten::kLeakyRelu, backward_from_saved<aten::kLeakyReluBackward>, *x, false);
}

Tensor elu(Arg x) {
  const OperatorCall call(x);
  return saving(aten::kElu, backward_from_saved<aten::kEluBackward>, *x, false);
}

Tensor mish(Arg x) {
  const OperatorCall call(x);
  return saving(aten::kMish, backward_from_saved<aten::kMishBackward>, *x, false);
}

Tensor softplus(Arg x) {
  const OperatorCall call(x);
  return saving(aten::kSoftplus, backward_from_saved<aten::kSoftplusBackward>, autocast(aten::kSoftplus, *x), false);
}

Tensor hardsigmoid(Arg x) {
  const OperatorCall call(x);
  return saving(aten::kHardsigmoid, backward_from_saved<aten::kHardsigmoidBackward>, *x, false);
}

Tensor sigmoid(Arg x) {
  const OperatorCall call(x);
  return saving(aten::kSigmoid, backward_from_saved<aten::kSigmoidBackward>, *x, true);
}

Tensor exponential(Arg x) {
  const OperatorCall call(x);
  return saving(aten::kExp, exponential_backward, autocast(aten::kExp, *x), true);
}

Tensor add_in_place(const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  const Tensor* inputs[] = {&a, &b};
  Node* node = tape.autograd.record(aten::kAdd, add_in_place_backward, inputs, 2);
  Tensor result = tape.detach(a);
  tape.kernels.add(aten::kAddInPlace, OperatorClass::kElementwise, a.dtype(), static_cast<double>(a.elements()),
                   static_cast<double>(2 * a.bytes()) + read_bytes(b), elementwise_kind(a, {&a, &b}),
                   static_cast<double>(a.elements()));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor dropout_in_place(const Tensor& x, double probability) {
  Tape& tape = x.tape();
  if (probability == 0 || !tape.modes.training) return x;
  const Tensor noise =
      tape.empty_strided(x.shape(), like_strides(x.shape(), x.strides()), x.dtype(), aten::kFusedDropout);
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kMul, dropout_in_place_backward, inputs, 1);
  if (node != nullptr) {
    node->payload.set(DropoutPayload{.of_view = x.impl()->is_view});
    tape.autograd.save(*node, noise);
  }
  Tensor result = tape.detach(x);
  in_place_kernel(aten::kFusedDropout, x, 3);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor stochastic_depth(const Tensor& x, double probability) {
  if (probability == 0 || !x.tape().modes.training) return x;
  Shape rows = x.shape();
  for (int i = 1; i < rows.rank; ++i) rows[i] = 1;
  const Tensor noise = x.tape().empty(rows, x.dtype(), aten::kEmpty);
  return multiply(x, noise);
}

namespace {

void log_sigmoid_backward(BackwardCall& call) {
  call.set(0, pointwise(aten::kLogSigmoidBackward, {&call.gradient(), &call.saved(0)}, 4));
}

}  // namespace

Tensor log_sigmoid(Arg x) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(aten::kLogSigmoidForward, log_sigmoid_backward, inputs, 1);
  if (node != nullptr) tape.autograd.save(*node, *x);
  Tensor result = pointwise(aten::kLogSigmoidForward, {&*x}, 4);
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
