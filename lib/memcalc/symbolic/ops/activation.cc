#include "memcalc/symbolic/ops/activation.h"

#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kRelu{"aten::relu_"}, kReluBackward{"ReluBackward0"};
constexpr Operator kThresholdBackward{"aten::threshold_backward"};
constexpr Operator kSilu{"aten::silu_"}, kSiluBackward{"SiluBackward0"}, kSiluBackwardOp{"aten::silu_backward"};
constexpr Operator kHardswish{"aten::hardswish_"}, kHardswishBackward{"HardswishBackward0"};
constexpr Operator kHardswishBackwardOp{"aten::hardswish_backward"};
constexpr Operator kHardtanh{"aten::hardtanh_"}, kHardtanhBackward{"HardtanhBackward0"};
constexpr Operator kHardtanhBackwardOp{"aten::hardtanh_backward"};
constexpr Operator kHardswishOut{"aten::hardswish"}, kHardtanhOut{"aten::hardtanh"};
constexpr Operator kLeakyRelu{"aten::leaky_relu"}, kLeakyReluBackward{"LeakyReluBackward0"};
constexpr Operator kLeakyReluBackwardOp{"aten::leaky_relu_backward"};
constexpr Operator kElu{"aten::elu"}, kEluBackward{"EluBackward0"}, kEluBackwardOp{"aten::elu_backward"};
constexpr Operator kMish{"aten::mish"}, kMishBackward{"MishBackward0"}, kMishBackwardOp{"aten::mish_backward"};
constexpr Operator kSoftplus{"aten::softplus"}, kSoftplusBackward{"SoftplusBackward0"};
constexpr Operator kSoftplusBackwardOp{"aten::softplus_backward"};
constexpr Operator kHardsigmoid{"aten::hardsigmoid"}, kHardsigmoidBackward{"HardsigmoidBackward0"};
constexpr Operator kHardsigmoidBackwardOp{"aten::hardsigmoid_backward"};
constexpr Operator kSigmoid{"aten::sigmoid"}, kSigmoidBackward{"SigmoidBackward0"};
constexpr Operator kSigmoidBackwardOp{"aten::sigmoid_backward"};
constexpr Operator kExp{"aten::exp"}, kExpBackward{"ExpBackward0"};
constexpr Operator kAdd{"aten::add_"}, kAddBackward{"AddBackward0"};
constexpr Operator kDropout{"aten::dropout_"}, kMulBackward{"MulBackward0"}, kMul{"aten::mul"};
constexpr Operator kCopySlices{"CopySlices"}, kNewZeros{"aten::new_zeros"}, kClone{"aten::clone"};
constexpr Operator kBernoulli{"aten::empty"};

template <const Operator& op>
void backward_from_saved(BackwardCall& call) {
  const Tensor& saved = call.saved(0);
  call.set(0, pointwise(op, {&call.gradient(), &saved}, 3));
}

void exponential_backward(BackwardCall& call) {  // grad * result
  call.set(0, pointwise(kMul, {&call.gradient(), &call.saved(0)}, 1));
}

void in_place_kernel(const Operator& op, const Tensor& x, int tensors) {
  x.tape().kernels.add(op, OperatorClass::kElementwise, x.dtype(), static_cast<double>(x.elements()),
                       tensors * static_cast<double>(x.bytes()));
}

Tensor in_place_with_copy(const Operator& op, const Operator& node_name, BackwardFunction backward, const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(node_name, backward, inputs, 1);
  if (node != nullptr) {
    // VariableType: an in-place operator whose derivative reads its operand clones it first.
    tape.autograd.save(*node, tape.empty_strided(x.shape(), like_strides(x.shape(), x.strides()), x.dtype(), op));
  }
  Tensor result = tape.detach(x);
  in_place_kernel(op, x, 2);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor saving(const Operator& op, const Operator& node_name, BackwardFunction backward, const Tensor& x,
              bool saves_result) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(node_name, backward, inputs, 1);
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

constexpr int kOfView = 1;  // attribute: the operand was a view of a larger graph's tensor

/// grad * noise. Under a view the engine goes through CopySlices, which works on copies of the gradient.
void dropout_in_place_backward(BackwardCall& call) {
  const Tensor& noise = call.saved(0);
  if (call.node.attributes[kOfView] == 0) {
    call.set(0, pointwise(kMul, {&call.gradient(), &noise}, 1));
    return;
  }
  Tape& tape = call.tape;
  Tensor base = tape.empty(noise.shape(), noise.dtype(), kNewZeros);
  call.gradients[0].reset();
  Tensor result = tape.empty(noise.shape(), noise.dtype(), kCopySlices);
  Tensor slice = tape.empty(noise.shape(), noise.dtype(), kClone);
  Tensor product = pointwise(kMul, {&slice, &noise}, 1);
  drop(slice, product);
  call.set(0, std::move(result));
}

}  // namespace

Tensor relu_in_place(const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kReluBackward, backward_from_saved<kThresholdBackward>, inputs, 1);
  Tensor result = tape.detach(x);
  in_place_kernel(kRelu, x, 2);
  tape.autograd.set_history(node, result);
  if (node != nullptr) tape.autograd.save(*node, result);
  return result;
}

Tensor silu_in_place(const Tensor& x) {
  return in_place_with_copy(kSilu, kSiluBackward, backward_from_saved<kSiluBackwardOp>, x);
}

Tensor hardswish_in_place(const Tensor& x) {
  return in_place_with_copy(kHardswish, kHardswishBackward, backward_from_saved<kHardswishBackwardOp>, x);
}

Tensor relu6_in_place(const Tensor& x) {
  return in_place_with_copy(kHardtanh, kHardtanhBackward, backward_from_saved<kHardtanhBackwardOp>, x);
}

Tensor hardswish(Arg x) {
  const OperatorCall call(x);
  return saving(kHardswishOut, kHardswishBackward, backward_from_saved<kHardswishBackwardOp>, *x, false);
}

Tensor relu6(Arg x) {
  const OperatorCall call(x);
  return saving(kHardtanhOut, kHardtanhBackward, backward_from_saved<kHardtanhBackwardOp>, *x, false);
}

Tensor leaky_relu(Arg x) {
  const OperatorCall call(x);
  return saving(kLeakyRelu, kLeakyReluBackward, backward_from_saved<kLeakyReluBackwardOp>, *x, false);
}

Tensor elu(Arg x) {
  const OperatorCall call(x);
  return saving(kElu, kEluBackward, backward_from_saved<kEluBackwardOp>, *x, false);
}

Tensor mish(Arg x) {
  const OperatorCall call(x);
  return saving(kMish, kMishBackward, backward_from_saved<kMishBackwardOp>, *x, false);
}

Tensor softplus(Arg x) {
  const OperatorCall call(x);
  return saving(kSoftplus, kSoftplusBackward, backward_from_saved<kSoftplusBackwardOp>, autocast_float32(*x), false);
}

Tensor hardsigmoid(Arg x) {
  const OperatorCall call(x);
  return saving(kHardsigmoid, kHardsigmoidBackward, backward_from_saved<kHardsigmoidBackwardOp>, *x, false);
}

Tensor sigmoid(Arg x) {
  const OperatorCall call(x);
  return saving(kSigmoid, kSigmoidBackward, backward_from_saved<kSigmoidBackwardOp>, *x, true);
}

Tensor exponential(Arg x) {
  const OperatorCall call(x);
  return saving(kExp, kExpBackward, exponential_backward, *x, true);
}

Tensor add_in_place(const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  const Tensor* inputs[] = {&a, &b};
  Node* node = tape.autograd.record(kAddBackward, add_in_place_backward, inputs, 2);
  Tensor result = tape.detach(a);
  in_place_kernel(kAdd, a, 3);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor dropout_in_place(const Tensor& x, double probability) {
  Tape& tape = x.tape();
  if (probability == 0 || !tape.modes.training) return x;
  const Tensor noise = tape.empty_strided(x.shape(), like_strides(x.shape(), x.strides()), x.dtype(), kDropout);
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kMulBackward, dropout_in_place_backward, inputs, 1);
  if (node != nullptr) {
    node->attributes[kOfView] = x.impl()->is_view ? 1 : 0;
    tape.autograd.save(*node, noise);
  }
  Tensor result = tape.detach(x);
  in_place_kernel(kDropout, x, 3);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor stochastic_depth(const Tensor& x, double probability) {
  if (probability == 0 || !x.tape().modes.training) return x;
  Shape rows = x.shape();
  for (int i = 1; i < rows.rank; ++i) rows[i] = 1;
  const Tensor noise = x.tape().empty(rows, x.dtype(), kBernoulli);
  return multiply(x, noise);
}

}  // namespace memcalc
