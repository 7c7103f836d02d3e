#include "memcalc/symbolic/ops/elementwise.h"

#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/recorded_input.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kAdd{"aten::add"}, kAddBackward{"AddBackward0"};
constexpr Operator kSub{"aten::sub"}, kSubBackward{"SubBackward0"};
constexpr Operator kClone{"aten::clone"};
constexpr Operator kMul{"aten::mul"}, kMulBackward{"MulBackward0"};
constexpr Operator kDiv{"aten::div"}, kDivBackward{"DivBackward0"};
constexpr Operator kWhere{"aten::where"}, kWhereBackward{"WhereBackward0"}, kScalarTensor{"aten::scalar_tensor"};
constexpr Operator kClamp{"aten::clamp"}, kClampBackward{"ClampBackward1"}, kGe{"aten::ge"}, kLe{"aten::le"};
constexpr Operator kNeg{"aten::neg"}, kNegBackward{"NegBackward0"};
constexpr Operator kPow{"aten::pow"}, kPowBackward{"PowBackward0"};
constexpr Operator kRsqrt{"aten::rsqrt"}, kRsqrtBackward{"RsqrtBackward0"};
constexpr Operator kCos{"aten::cos"}, kSin{"aten::sin"};
constexpr Operator kTanh{"aten::tanh"}, kTanhBackward{"TanhBackward0"}, kTanhBackwardOp{"aten::tanh_backward"};
constexpr Operator kRelu{"aten::relu"}, kReluBackward{"ReluBackward0"};
constexpr Operator kThresholdBackward{"aten::threshold_backward"};
constexpr Operator kSilu{"aten::silu"}, kSiluBackward{"SiluBackward0"}, kSiluBackwardOp{"aten::silu_backward"};
constexpr Operator kGelu{"aten::gelu"}, kGeluBackward{"GeluBackward0"}, kGeluBackwardOp{"aten::gelu_backward"};
constexpr Operator kDropout{"aten::native_dropout"}, kDropoutBackward{"NativeDropoutBackward0"};
constexpr Operator kDropoutBackwardOp{"aten::native_dropout_backward"};
constexpr Operator kToCopy{"aten::_to_copy"}, kToCopyBackward{"ToCopyBackward0"};

// --- backward functions

void pass_gradient(BackwardCall& call) {
  for (int i = 0; i < call.node.edge_count; ++i) {
    if (call.needs(i)) call.set(i, call.gradient());
  }
}

void multiply_backward(BackwardCall& call) {
  // Alphabetical: `other` before `self`. saved: other's factor first (self), then self's (other).
  int next = 0;
  const int other = was_recorded(call, 0) ? next++ : -1;
  const int self = was_recorded(call, 1) ? next++ : -1;
  if (call.needs(1)) call.set(1, multiply(call.gradient(), call.saved(self)));
  if (call.needs(0)) call.set(0, multiply(call.gradient(), call.saved(other)));
}

void multiply_scalar_backward(BackwardCall& call) { call.set(0, pointwise(kMul, {&call.gradient()}, 1)); }
void divide_scalar_backward(BackwardCall& call) { call.set(0, pointwise(kDiv, {&call.gradient()}, 1)); }
void divide_backward(BackwardCall& call) {  // grad / other
  const Tensor& other = call.saved(0);
  call.set(0, pointwise(kDiv, {&call.gradient(), &other}, 1, call.gradient().dtype()));
}

void subtract_backward(BackwardCall& call) {
  if (call.needs(1)) call.set(1, pointwise(kNeg, {&call.gradient()}, 1));
  if (call.needs(0)) call.set(0, call.gradient());
}

/// saved: other, self; grad / other, and for the divisor -grad * ((self / other) / other).
void divide_both_backward(BackwardCall& call) {
  const Tensor& gradient = call.gradient();
  const Tensor& other = call.saved(0);
  if (call.needs(1)) {
    Tensor quotient = pointwise(kDiv, {&call.saved(1), &other}, 1);
    Tensor again = pointwise(kDiv, {&quotient, &other}, 1);
    Tensor negative = pointwise(kNeg, {&gradient}, 1);
    call.set(1, pointwise(kMul, {&negative, &again}, 1));
    drop(negative, again, quotient);
  }
  call.set(0, pointwise(kDiv, {&gradient, &other}, 1));
}

Tensor where_kernel(const Tensor& condition, const Tensor& x) {
  const Tensor number = x.tape().empty({}, x.dtype(), kScalarTensor);
  return pointwise(kWhere, {&condition, &x}, 1, x.dtype());
}

void where_backward(BackwardCall& call) { call.set(0, where_kernel(call.saved(0), call.gradient())); }

/// clamp_backward for numbers: where(x >= lowest and x <= highest, grad, 0); the second comparison is joined in place.
void clamp_numbers_backward(BackwardCall& call) {
  const Tensor& gradient = call.gradient();
  Tensor zero = call.tape.empty({}, gradient.dtype(), kScalarTensor);
  Tensor above = pointwise(kGe, {&call.saved(0)}, 1, DType::kBool);
  Tensor below = pointwise(kLe, {&call.saved(0)}, 1, DType::kBool);
  call.set(0, pointwise(kWhere, {&above, &gradient}, 1, gradient.dtype()));
  drop(below, above, zero);
}

void clamp_above_backward(BackwardCall& call) {
  const Tensor& gradient = call.gradient();
  Tensor zero = call.tape.empty({}, gradient.dtype(), kScalarTensor);
  Tensor below = pointwise(kLe, {&call.saved(0)}, 1, DType::kBool);
  call.set(0, pointwise(kWhere, {&below, &gradient}, 1, gradient.dtype()));
  drop(below, zero);
}

void clamp_backward(BackwardCall& call) {  // where(x >= lowest and x <= highest, grad, 0)
  const Tensor& gradient = call.gradient();
  Tensor zero = call.tape.empty({}, gradient.dtype(), kScalarTensor);
  Tensor above = pointwise(kGe, {&call.saved(2)}, 1, DType::kBool);
  Tensor below = pointwise(kLe, {&call.saved(2)}, 1, DType::kBool);
  call.set(0, pointwise(kWhere, {&above, &gradient}, 1, gradient.dtype()));
  drop(below, above, zero);
}

void negate_backward(BackwardCall& call) { call.set(0, pointwise(kNeg, {&call.gradient()}, 1)); }

void power_backward(BackwardCall& call) {  // grad * (exponent * self.pow(exponent - 1))
  const Tensor& self = call.saved(0);
  Tensor lower = pointwise(kPow, {&self}, 1);
  Tensor scaled = pointwise(kMul, {&lower}, 1);
  call.set(0, pointwise(kMul, {&call.gradient(), &scaled}, 1));
  drop(scaled, lower);
}

void reciprocal_sqrt_backward(BackwardCall& call) {  // (-0.5 * grad) * result.pow(3)
  const Tensor& result = call.saved(0);
  Tensor cube = pointwise(kPow, {&result}, 1);
  Tensor scaled = pointwise(kMul, {&call.gradient()}, 1);
  call.set(0, pointwise(kMul, {&scaled, &cube}, 1));
  drop(cube, scaled);
}

template <const Operator& op, int flops>
void activation_backward(BackwardCall& call) {
  const Tensor& saved = call.saved(0);
  call.set(0, pointwise(op, {&call.gradient(), &saved}, flops));
}

void dropout_backward(BackwardCall& call) {
  const Tensor& mask = call.saved(0);
  const Tensor& gradient = call.gradient();
  Tensor result = call.tape.empty_strided(gradient.shape(), like_strides(gradient.shape(), gradient.strides()),
                                          gradient.dtype(), kDropoutBackwardOp);
  call.tape.kernels.add(kDropoutBackwardOp, OperatorClass::kElementwise, gradient.dtype(),
                        2.0 * static_cast<double>(gradient.elements()),
                        static_cast<double>(2 * gradient.bytes() + mask.bytes()), KernelKind::kVectorized,
                        static_cast<double>(gradient.elements()));
  call.set(0, std::move(result));
}

void to_copy_backward(BackwardCall& call) {
  call.set(0, to_dtype(call.gradient(), static_cast<DType>(call.node.attributes[1])));
}

// --- helpers of the forward

/// One operand, a gradient that needs nothing saved.
Tensor unary(const Operator& op, const Operator& node_name, BackwardFunction backward, Arg x) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(node_name, backward, inputs, 1);
  Tensor result = pointwise(op, {&*x}, 1);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor converted(const Tensor& x, DType dtype, const Shape& strides) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kToCopyBackward, to_copy_backward, inputs, 1);
  if (node != nullptr) node->attributes[1] = static_cast<std::int64_t>(x.dtype());
  Tensor result = tape.empty_strided(x.shape(), strides, dtype, kToCopy);
  tape.kernels.add(kToCopy, OperatorClass::kMovement, dtype, 0, static_cast<double>(x.bytes() + result.bytes()),
                   copy_kind(x, result), static_cast<double>(x.elements()));
  tape.autograd.set_history(node, result);
  return result;
}

enum class Saves { kInput, kResult };

Tensor activation(const Operator& op, const Operator& node_name, BackwardFunction backward, const Arg& x, Saves saves,
                  int flops) {
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(node_name, backward, inputs, 1);
  if (node != nullptr && saves == Saves::kInput) tape.autograd.save(*node, *x);
  Tensor result = pointwise(op, {&*x}, flops);
  tape.autograd.set_history(node, result);
  if (node != nullptr && saves == Saves::kResult) tape.autograd.save(*node, result);
  return result;
}

}  // namespace

Tensor add(Arg a, Arg b) {
  const OperatorCall call(a, b);
  Tape& tape = a->tape();
  const Tensor* inputs[] = {&*a, &*b};
  Node* node = tape.autograd.record(kAddBackward, pass_gradient, inputs, 2);
  Tensor result = pointwise(kAdd, {&*a, &*b}, 1);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor multiply(Arg a, Arg b) {
  const OperatorCall call(a, b);
  Tape& tape = a->tape();
  const Tensor* inputs[] = {&*a, &*b};
  Node* node = tape.autograd.record(kMulBackward, multiply_backward, inputs, 2);
  if (node != nullptr) {
    if (a->requires_grad()) tape.autograd.save(*node, *b);
    if (b->requires_grad()) tape.autograd.save(*node, *a);
  }
  Tensor result = pointwise(kMul, {&*a, &*b}, 1);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor divide(Arg a, Arg b) {
  const OperatorCall call(a, b);
  Tape& tape = a->tape();
  const Tensor* inputs[] = {&*a};
  Node* node = tape.autograd.record(kDivBackward, divide_backward, inputs, 1);
  if (node != nullptr) tape.autograd.save(*node, *b);
  Tensor result = pointwise(kDiv, {&*a, &*b}, 1, a->dtype());
  tape.autograd.set_history(node, result);
  return result;
}

Tensor divide_both(Arg a, Arg b) {
  const OperatorCall call(a, b);
  Tape& tape = a->tape();
  const Tensor* inputs[] = {&*a, &*b};
  Node* node = tape.autograd.record(kDivBackward, divide_both_backward, inputs, 2);
  if (node != nullptr) {
    tape.autograd.save(*node, *b);
    tape.autograd.save(*node, *a);
  }
  Tensor result = pointwise(kDiv, {&*a, &*b}, 1);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor subtract(Arg a, Arg b) {
  const OperatorCall call(a, b);
  Tape& tape = a->tape();
  const Tensor* inputs[] = {&*a, &*b};
  Node* node = tape.autograd.record(kSubBackward, subtract_backward, inputs, 2);
  Tensor result = pointwise(kSub, {&*a, &*b}, 1);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor divide_in_place(const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  const Tensor* inputs[] = {&a, &b};
  Node* node = tape.autograd.record(kDivBackward, divide_both_backward, inputs, 2);
  if (node != nullptr) {
    tape.autograd.save(*node, b);
    // VariableType: an in-place operator whose derivative reads its operand clones it first.
    tape.autograd.save(*node, tape.empty(a.shape(), a.dtype(), kClone));
  }
  Tensor result = tape.detach(a);
  tape.kernels.add(kDiv, OperatorClass::kElementwise, a.dtype(), static_cast<double>(a.elements()),
                   static_cast<double>(2 * a.bytes() + b.bytes()));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor multiply_in_place(const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kMulBackward, multiply_scalar_backward, inputs, 1);
  Tensor result = tape.detach(x);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor add_scalar_in_place(const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kAddBackward, pass_gradient, inputs, 1);
  Tensor result = tape.detach(x);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor where(const Tensor& condition, Arg x) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(kWhereBackward, where_backward, inputs, 1);
  if (node != nullptr) tape.autograd.save(*node, condition);
  Tensor result = where_kernel(condition, *x);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor clamp(Arg x) {
  const OperatorCall call(x);
  return activation(kClamp, kClampBackward, clamp_numbers_backward, x, Saves::kInput, 2);
}

Tensor clamp_above(Arg x) {
  const OperatorCall call(x);
  return activation(kClamp, kClampBackward, clamp_above_backward, x, Saves::kInput, 1);
}

Tensor clamp(Arg x, const Tensor& lowest, const Tensor& highest) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(kClampBackward, clamp_backward, inputs, 1);
  if (node != nullptr) {  // alphabetical: max, min, self
    for (const Tensor* saved : {&highest, &lowest, &*x}) tape.autograd.save(*node, *saved);
  }
  Tensor result = pointwise(kClamp, {&*x}, 2);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor add_scalar(Arg x) { return unary(kAdd, kAddBackward, pass_gradient, std::move(x)); }
Tensor multiply_scalar(Arg x) { return unary(kMul, kMulBackward, multiply_scalar_backward, std::move(x)); }
Tensor divide_scalar(Arg x) { return unary(kDiv, kDivBackward, divide_scalar_backward, std::move(x)); }
Tensor negate(Arg x) { return unary(kNeg, kNegBackward, negate_backward, std::move(x)); }

Tensor cosine(Arg x) {
  const OperatorCall call(x);
  return pointwise(kCos, {&*x}, 1);  // of positions: never differentiated
}

Tensor sine(Arg x) {
  const OperatorCall call(x);
  return pointwise(kSin, {&*x}, 1);
}

Tensor power(Arg x) {
  const OperatorCall call(x);
  return activation(kPow, kPowBackward, power_backward, autocast_float32(*x), Saves::kInput, 1);
}

Tensor reciprocal_sqrt(Arg x) {
  const OperatorCall call(x);
  return activation(kRsqrt, kRsqrtBackward, reciprocal_sqrt_backward, autocast_float32(*x), Saves::kResult, 1);
}

Tensor tanh(Arg x) {
  const OperatorCall call(x);
  return activation(kTanh, kTanhBackward, activation_backward<kTanhBackwardOp, 3>, x, Saves::kResult, 1);
}

Tensor relu(Arg x) {
  const OperatorCall call(x);
  return activation(kRelu, kReluBackward, activation_backward<kThresholdBackward, 1>, x, Saves::kResult, 1);
}

Tensor silu(Arg x) {
  const OperatorCall call(x);
  return activation(kSilu, kSiluBackward, activation_backward<kSiluBackwardOp, 6>, x, Saves::kInput, 4);
}

Tensor gelu(Arg x) {
  const OperatorCall call(x);
  return activation(kGelu, kGeluBackward, activation_backward<kGeluBackwardOp, 12>, x, Saves::kInput, 8);
}

Tensor dropout(Arg x, double probability) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  if (probability == 0 || !tape.modes.training) return *x;
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(kDropoutBackward, dropout_backward, inputs, 1);
  const Shape strides = like_strides(x->shape(), x->strides());
  const Tensor mask = tape.empty_strided(x->shape(), strides, DType::kBool, kDropout);
  Tensor result = tape.empty_strided(x->shape(), strides, x->dtype(), kDropout);
  tape.kernels.add(kDropout, OperatorClass::kElementwise, x->dtype(), 2.0 * static_cast<double>(x->elements()),
                   static_cast<double>(2 * x->bytes() + mask.bytes()), KernelKind::kRandom,
                   static_cast<double>(x->elements()));
  tape.autograd.set_history(node, result);
  if (node != nullptr) tape.autograd.save(*node, mask);
  return result;
}

Tensor to_dtype(Arg x, DType dtype) {
  const OperatorCall call(x);
  return x->dtype() == dtype ? *x : converted(*x, dtype, like_strides(x->shape(), x->strides()));
}

Tensor to_dtype_row_major(Arg x, DType dtype) {
  const OperatorCall call(x);
  return x->dtype() == dtype ? *x : converted(*x, dtype, contiguous_strides(x->shape()));
}

Tensor autocast_operand(const Tensor& x) {
  Tape& tape = x.tape();
  if (!tape.modes.autocast.dtype || x.dtype() != DType::kFloat32) {
    // The 16-bit list also brings the other 16-bit type to autocast's.
    return tape.modes.autocast.dtype && is_half(x.dtype()) ? to_dtype(x, *tape.modes.autocast.dtype) : x;
  }
  // autocast_mode.cpp, cached_cast: leaves that require a gradient and are no views.
  const bool cacheable = x.impl()->is_parameter && x.requires_grad();
  if (!cacheable) return to_dtype(x, *tape.modes.autocast.dtype);
  if (const Tensor* cached = tape.modes.autocast.find(*x.impl())) return *cached;
  const EnableGrad enable_grad(tape.modes);  // it may be used where gradients are on
  Tensor copy = to_dtype(x, *tape.modes.autocast.dtype);
  tape.memory.set_category(copy.block(), Category::kAutocastCopies);
  tape.modes.autocast.add(*x.impl(), copy);
  return copy;
}

Tensor autocast_float32(const Tensor& x) {
  return x.tape().modes.autocast.dtype && is_half(x.dtype()) ? to_dtype(x, DType::kFloat32) : x;
}

}  // namespace memcalc
