// MIRRORS(torch, "autocast_mode.cpp", "2.11.0")
#include "memcalc/symbolic/ops/elementwise.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/recorded_input.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/symbolic/within_call.h"

namespace memcalc {

namespace {

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

void multiply_scalar_backward(BackwardCall& call) { call.set(0, pointwise(aten::kMul, {&call.gradient()}, 1)); }
void divide_scalar_backward(BackwardCall& call) { call.set(0, pointwise(aten::kDiv, {&call.gradient()}, 1)); }
void divide_backward(BackwardCall& call) {  // grad / other
  const Tensor& other = call.saved(0);
  call.set(0, pointwise(aten::kDiv, {&call.gradient(), &other}, 1, call.gradient().dtype()));
}

void subtract_backward(BackwardCall& call) {
  if (call.needs(1)) call.set(1, pointwise(aten::kNeg, {&call.gradient()}, 1));
  if (call.needs(0)) call.set(0, call.gradient());
}

/// saved: other, self; grad / other, and for the divisor -grad * ((self / other) / other).
void divide_both_backward(BackwardCall& call) {
  const Tensor& gradient = call.gradient();
  const Tensor& other = call.saved(0);
  if (call.needs(1)) {
    Tensor quotient = pointwise(aten::kDiv, {&call.saved(1), &other}, 1);
    Tensor again = pointwise(aten::kDiv, {&quotient, &other}, 1);
    Tensor negative = pointwise(aten::kNeg, {&gradient}, 1);
    call.set(1, pointwise(aten::kMul, {&negative, &again}, 1));
    drop(negative, again, quotient);
  }
  call.set(0, pointwise(aten::kDiv, {&gradient, &other}, 1));
}

Tensor where_kernel(const Tensor& condition, const Tensor& x) {
  const Tensor number = x.tape().empty({}, x.dtype(), aten::kScalarTensor);
  return pointwise(aten::kWhere, {&condition, &x}, 1, x.dtype());
}

/// maximum, minimum: equal values share the gradient (derivatives.yaml): at::where(self == other, grad / 2,
/// grad).masked_fill_(self < other, 0)
void extremum_backward(BackwardCall& call) {  // saved: other, self
  for (int i = 0; i < 2; ++i) {
    if (!call.needs(i)) continue;
    const Tensor halved = pointwise(aten::kDiv, {&call.gradient()}, 1);
    const Tensor equal = pointwise(aten::kEq, {&call.saved(0), &call.saved(1)}, 1, DType::kBool);
    Tensor where = pointwise(aten::kWhere, {&equal, &halved, &call.gradient()}, 1);
    const Tensor less = pointwise(aten::kEq, {&call.saved(0), &call.saved(1)}, 1, DType::kBool);  // masked_fill_
    call.set(i, std::move(where));
  }
}

void where_backward(BackwardCall& call) { call.set(0, where_kernel(call.saved(0), call.gradient())); }

/// clamp_backward for numbers: where(x >= lowest and x <= highest, grad, 0); the second comparison is joined in place.
void clamp_numbers_backward(BackwardCall& call) {
  const Tensor& gradient = call.gradient();
  Tensor zero = call.tape.empty({}, gradient.dtype(), aten::kScalarTensor);
  Tensor above = pointwise(aten::kGe, {&call.saved(0)}, 1, DType::kBool);
  Tensor below = pointwise(aten::kLe, {&call.saved(0)}, 1, DType::kBool);
  call.set(0, pointwise(aten::kWhere, {&above, &gradient}, 1, gradient.dtype()));
  drop(below, above, zero);
}

void clamp_above_backward(BackwardCall& call) {
  const Tensor& gradient = call.gradient();
  Tensor zero = call.tape.empty({}, gradient.dtype(), aten::kScalarTensor);
  Tensor below = pointwise(aten::kLe, {&call.saved(0)}, 1, DType::kBool);
  call.set(0, pointwise(aten::kWhere, {&below, &gradient}, 1, gradient.dtype()));
  drop(below, zero);
}

void clamp_backward(BackwardCall& call) {  // where(x >= lowest and x <= highest, grad, 0)
  const Tensor& gradient = call.gradient();
  Tensor zero = call.tape.empty({}, gradient.dtype(), aten::kScalarTensor);
  Tensor above = pointwise(aten::kGe, {&call.saved(2)}, 1, DType::kBool);
  Tensor below = pointwise(aten::kLe, {&call.saved(2)}, 1, DType::kBool);
  call.set(0, pointwise(aten::kWhere, {&above, &gradient}, 1, gradient.dtype()));
  drop(below, above, zero);
}

void negate_backward(BackwardCall& call) { call.set(0, pointwise(aten::kNeg, {&call.gradient()}, 1)); }

void power_backward(BackwardCall& call) {  // grad * (exponent * self.pow(exponent - 1))
  const Tensor& self = call.saved(0);
  Tensor lower = pointwise(aten::kPow, {&self}, 1);
  Tensor scaled = pointwise(aten::kMul, {&lower}, 1);
  call.set(0, pointwise(aten::kMul, {&call.gradient(), &scaled}, 1));
  drop(scaled, lower);
}

void reciprocal_sqrt_backward(BackwardCall& call) {  // (-0.5 * grad) * result.pow(3)
  const Tensor& result = call.saved(0);
  Tensor cube = pointwise(aten::kPow, {&result}, 1);
  Tensor scaled = pointwise(aten::kMul, {&call.gradient()}, 1);
  call.set(0, pointwise(aten::kMul, {&scaled, &cube}, 1));
  drop(cube, scaled);
}

template <const AtenOperator& op, int flops>
void activation_backward(BackwardCall& call) {
  const Tensor& saved = call.saved(0);
  call.set(0, pointwise(op, {&call.gradient(), &saved}, flops));
}

void dropout_backward(BackwardCall& call) {
  const Tensor& mask = call.saved(0);
  const Tensor& gradient = call.gradient();
  Tensor result = call.tape.empty_strided(gradient.shape(), like_strides(gradient.shape(), gradient.strides()),
                                          gradient.dtype(), aten::kNativeDropoutBackward);
  call.tape.kernels.add(aten::kNativeDropoutBackward, OperatorClass::kElementwise, gradient.dtype(),
                        2.0 * static_cast<double>(gradient.elements()),
                        static_cast<double>(2 * gradient.bytes() + mask.bytes()), KernelKind::kVectorized,
                        static_cast<double>(gradient.elements()));
  call.set(0, std::move(result));
}

void to_copy_backward(BackwardCall& call) { call.set(0, to_dtype(call.gradient(), call.payload<InputDType>().dtype)); }

// --- helpers of the forward

/// One operand, a gradient that needs nothing saved.
Tensor unary(const AtenOperator& op, BackwardFunction backward, Arg x) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(op, backward, inputs, 1);
  Tensor result = pointwise(op, {&*x}, 1);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor converted(const Tensor& x, DType dtype, const Shape& strides) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kToCopy, to_copy_backward, inputs, 1);
  if (node != nullptr) node->payload.set(InputDType{x.dtype()});
  Tensor result = tape.empty_strided(x.shape(), strides, dtype, aten::kToCopy);
  tape.kernels.add(aten::kToCopy, OperatorClass::kMovement, dtype, 0, static_cast<double>(x.bytes() + result.bytes()),
                   copy_kind(x, result), static_cast<double>(x.elements()));
  tape.autograd.set_history(node, result);
  return result;
}

/// Within an operator's call.
Tensor converted_by_autocast(const Tensor& x, DType dtype) {
  Tensor result = to_dtype(x, dtype);
  Kernel* kernel = x.dtype() != dtype ? x.tape().kernels.last() : nullptr;
  if (kernel != nullptr) kernel->node = &kAutocast;
  return result;
}

/// autocast_mode.cpp, cached_cast: of leaves that require a gradient and are no views the copy is kept.
Tensor through_cache(const Tensor& x, DType dtype) {
  Tape& tape = x.tape();
  const bool cacheable = x.impl()->is_parameter && x.requires_grad();
  if (!cacheable) return converted_by_autocast(x, dtype);
  if (const Tensor* cached = tape.modes.autocast.find(*x.impl())) return *cached;
  const EnableGrad enable_grad(tape.modes);  // it may be used where gradients are on
  Tensor copy = converted_by_autocast(x, dtype);
  tape.memory.set_category(copy.block(), Category::kAutocastCopies);
  tape.modes.autocast.add(*x.impl(), copy);
  return copy;
}

enum class Saves { kInput, kResult };

Tensor activation(const AtenOperator& op, BackwardFunction backward, const Arg& x, Saves saves, int flops) {
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(op, backward, inputs, 1);
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
  Node* node = tape.autograd.record(aten::kAdd, pass_gradient, inputs, 2);
  Tensor result = pointwise(aten::kAdd, {&*a, &*b}, 1);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor multiply(Arg a, Arg b) {
  const OperatorCall call(a, b);
  Tape& tape = a->tape();
  const Tensor* inputs[] = {&*a, &*b};
  Node* node = tape.autograd.record(aten::kMul, multiply_backward, inputs, 2);
  if (node != nullptr) {
    if (a->requires_grad()) tape.autograd.save(*node, *b);
    if (b->requires_grad()) tape.autograd.save(*node, *a);
  }
  Tensor result = pointwise(aten::kMul, {&*a, &*b}, 1);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor divide(Arg a, Arg b) {
  const OperatorCall call(a, b);
  Tape& tape = a->tape();
  const Tensor* inputs[] = {&*a};
  Node* node = tape.autograd.record(aten::kDiv, divide_backward, inputs, 1);
  if (node != nullptr) tape.autograd.save(*node, *b);
  Tensor result = pointwise(aten::kDiv, {&*a, &*b}, 1);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor divide_both(Arg a, Arg b) {
  const OperatorCall call(a, b);
  Tape& tape = a->tape();
  const Tensor* inputs[] = {&*a, &*b};
  Node* node = tape.autograd.record(aten::kDiv, divide_both_backward, inputs, 2);
  if (node != nullptr) {
    tape.autograd.save(*node, *b);
    tape.autograd.save(*node, *a);
  }
  Tensor result = pointwise(aten::kDiv, {&*a, &*b}, 1);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor subtract(Arg a, Arg b) {
  const OperatorCall call(a, b);
  Tape& tape = a->tape();
  const Tensor* inputs[] = {&*a, &*b};
  Node* node = tape.autograd.record(aten::kSub, subtract_backward, inputs, 2);
  Tensor result = pointwise(aten::kSub, {&*a, &*b}, 1);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor divide_in_place(const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  const Tensor* inputs[] = {&a, &b};
  Node* node = tape.autograd.record(aten::kDiv, divide_both_backward, inputs, 2);
  if (node != nullptr) {
    tape.autograd.save(*node, b);
    // VariableType: an in-place operator whose derivative reads its operand clones it first.
    tape.autograd.save(*node, tape.empty(a.shape(), a.dtype(), aten::kClone));
  }
  Tensor result = tape.detach(a);
  tape.kernels.add(aten::kDiv, OperatorClass::kElementwise, a.dtype(), static_cast<double>(a.elements()),
                   static_cast<double>(2 * a.bytes() + b.bytes()));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor multiply_in_place(const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kMul, multiply_scalar_backward, inputs, 1);
  Tensor result = tape.detach(x);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor add_scalar_in_place(const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kAdd, pass_gradient, inputs, 1);
  Tensor result = tape.detach(x);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor where(const Tensor& condition, Arg x) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(aten::kWhere, where_backward, inputs, 1);
  if (node != nullptr) tape.autograd.save(*node, condition);
  Tensor result = where_kernel(condition, *x);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor extremum(const AtenOperator& op, const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  const Tensor* inputs[] = {&a, &b};
  Node* node = tape.autograd.record(op, extremum_backward, inputs, 2);
  if (node != nullptr) {
    tape.autograd.save(*node, b);  // other before self, as they die
    tape.autograd.save(*node, a);
  }
  Tensor result = pointwise(op, {&a, &b}, 1);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor clamp(Arg x) {
  const OperatorCall call(x);
  return activation(aten::kClamp, clamp_numbers_backward, x, Saves::kInput, 2);
}

Tensor clamp_above(Arg x) {
  const OperatorCall call(x);
  return activation(aten::kClamp, clamp_above_backward, x, Saves::kInput, 1);
}

Tensor clamp(Arg x, const Tensor& lowest, const Tensor& highest) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(aten::kClamp, clamp_backward, inputs, 1);
  if (node != nullptr) {  // alphabetical: max, min, self
    for (const Tensor* saved : {&highest, &lowest, &*x}) tape.autograd.save(*node, *saved);
  }
  Tensor result = pointwise(aten::kClamp, {&*x}, 2);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor add_scalar(Arg x) { return unary(aten::kAdd, pass_gradient, std::move(x)); }
Tensor subtract_scalar(Arg x) { return unary(aten::kSub, pass_gradient, std::move(x)); }
Tensor multiply_scalar(Arg x) { return unary(aten::kMul, multiply_scalar_backward, std::move(x)); }
Tensor divide_scalar(Arg x) { return unary(aten::kDiv, divide_scalar_backward, std::move(x)); }
Tensor negate(Arg x) { return unary(aten::kNeg, negate_backward, std::move(x)); }

Tensor cosine(Arg x) {
  const OperatorCall call(x);
  return pointwise(aten::kCos, {&*x}, 1);  // of positions: never differentiated
}

Tensor sine(Arg x) {
  const OperatorCall call(x);
  return pointwise(aten::kSin, {&*x}, 1);
}

Tensor power(Arg x) {
  const OperatorCall call(x);
  return activation(aten::kPow, power_backward, autocast(aten::kPow, *x), Saves::kInput, 1);
}

Tensor reciprocal_sqrt(Arg x) {
  const OperatorCall call(x);
  return activation(aten::kRsqrt, reciprocal_sqrt_backward, autocast(aten::kRsqrt, *x), Saves::kResult, 1);
}

Tensor tanh(Arg x) {
  const OperatorCall call(x);
  return activation(aten::kTanh, activation_backward<aten::kTanhBackward, 3>, x, Saves::kResult, 1);
}

Tensor relu(Arg x) {
  const OperatorCall call(x);
  return activation(aten::kRelu, activation_backward<aten::kThresholdBackward, 1>, x, Saves::kResult, 1);
}

Tensor silu(Arg x) {
  const OperatorCall call(x);
  return activation(aten::kSilu, activation_backward<aten::kSiluBackward, 6>, x, Saves::kInput, 4);
}

Tensor gelu(Arg x) {
  const OperatorCall call(x);
  return activation(aten::kGelu, activation_backward<aten::kGeluBackward, 12>, x, Saves::kInput, 8);
}

Tensor dropout(Arg x, double probability) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  if (probability == 0 || !tape.modes.training) return *x;
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(aten::kNativeDropout, dropout_backward, inputs, 1);
  const Shape strides = like_strides(x->shape(), x->strides());
  const Tensor mask = tape.empty_strided(x->shape(), strides, DType::kBool, aten::kNativeDropout);
  Tensor result = tape.empty_strided(x->shape(), strides, x->dtype(), aten::kNativeDropout);
  tape.kernels.add(aten::kNativeDropout, OperatorClass::kElementwise, x->dtype(),
                   2.0 * static_cast<double>(x->elements()), static_cast<double>(2 * x->bytes() + mask.bytes()),
                   KernelKind::kRandom, static_cast<double>(x->elements()));
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

Tensor autocast(const AtenOperator& op, const Tensor& x) {
  const std::optional<DType> region = x.tape().modes.autocast.dtype;
  if (!region) return x;
  if (op.autocast == AutocastList::kFloat32) return is_half(x.dtype()) ? converted_by_autocast(x, DType::kFloat32) : x;
  if (op.autocast != AutocastList::kHalf) return x;
  if (x.dtype() == DType::kFloat32) return through_cache(x, *region);
  return is_half(x.dtype()) ? converted_by_autocast(x, *region) : x;
}

DType autocast_result(const AtenOperator& op, const Tensor& x) {
  const bool widens = op.autocast == AutocastList::kFloat32Result && x.tape().modes.autocast.dtype;
  return widens && is_half(x.dtype()) ? DType::kFloat32 : x.dtype();
}

void autocast_promote(const AtenOperator& op, std::span<Tensor> operands) {
  if (op.autocast != AutocastList::kPromote || !operands[0].tape().modes.autocast.dtype) return;
  const bool widens =
      std::any_of(operands.begin(), operands.end(), [](const Tensor& each) { return each.dtype() == DType::kFloat32; });
  if (!widens) return;
  for (auto each = operands.rbegin(); each != operands.rend(); ++each) {  // the dispatcher's last argument first
    if (is_half(each->dtype())) *each = to_dtype(*each, DType::kFloat32);
  }
}

}  // namespace memcalc
