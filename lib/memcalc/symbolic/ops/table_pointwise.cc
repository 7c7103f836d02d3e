// Rows of the operator table that go element by element. Derivatives: tools/autograd/derivatives.yaml and
// torch/csrc/autograd/FunctionsManual.cpp of torch 2.11; autocast's lists: aten/src/ATen/autocast_mode.h.
// MIRRORS(torch, "torch/csrc/autograd/FunctionsManual.cpp", "2.11.0")
#include <algorithm>
#include <array>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/complex.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/in_place.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/logarithm.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/rsub.h"
#include "memcalc/symbolic/ops/variance.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/recorded_input.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {
namespace {

Tensor pw(const Operator& op, std::initializer_list<const Tensor*> inputs, int flops = 1) {
  return pointwise(op, inputs, flops);
}

// --- operators of one tensor ---------------------------------------------------------------------------------------

enum class Saves : std::uint8_t { kNothing, kInput, kResult };

struct Unary {
  const AtenOperator* op;
  BackwardFunction backward;
  Saves saves;
  int flops;
};

Tensor apply(const Unary& rule, const Tensor& operand) {
  const Tensor x = autocast(*rule.op, operand);
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(*rule.op, rule.backward, inputs, 1);
  if (node != nullptr && rule.saves == Saves::kInput) tape.autograd.save(*node, x);
  Tensor result;
  if (rule.op == &aten::kAbs && is_complex(x)) {
    // UnaryOps.cpp, unary_op_impl_with_complex_to_float_out: complex at first, the real part of which is copied
    result = pointwise(*rule.op, {&x}, rule.flops, DType::kFloat32);
    tape.memory.scratch(x.bytes(), *rule.op);
  } else {
    result = pw(*rule.op, {&x}, rule.flops);
  }
  tape.autograd.set_history(node, result);
  if (node != nullptr && rule.saves == Saves::kResult) tape.autograd.save(*node, result);
  return result;
}

void abs_backward(BackwardCall& call) {
  Tensor sign = pw(aten::kSgn, {&call.saved(0)});
  const auto dtype = is_complex(sign) ? std::optional(DType::kComplex64) : std::nullopt;
  call.set(0, pointwise(aten::kMul, {&call.gradient(), &sign}, 1, dtype));
}
void sin_backward(BackwardCall& call) {
  Tensor cosine = pw(aten::kCos, {&call.saved(0)});
  call.set(0, pw(aten::kMul, {&call.gradient(), &cosine}));
}
void reciprocal_backward(BackwardCall& call) {  // -grad * (result * result)
  Tensor negative = pw(aten::kNeg, {&call.gradient()});
  Tensor squared = pw(aten::kMul, {&call.saved(0), &call.saved(0)});
  call.set(0, pw(aten::kMul, {&negative, &squared}));
  drop(squared, negative);
}
void erf_backward(BackwardCall& call) {  // 2 / sqrt(pi) * exp(-(self.pow(2))) * grad
  const Tensor squared = pw(aten::kPow, {&call.saved(0)});
  const Tensor negative = pw(aten::kNeg, {&squared});
  const Tensor exponential = pw(aten::kExp, {&negative});
  const Tensor scaled = pw(aten::kMul, {&exponential});
  call.set(0, pw(aten::kMul, {&scaled, &call.gradient()}));
}

constexpr Unary kAbsRule{&aten::kAbs, abs_backward, Saves::kInput, 1};
constexpr Unary kSinRule{&aten::kSin, sin_backward, Saves::kInput, 1};
constexpr Unary kReciprocalRule{&aten::kReciprocal, reciprocal_backward, Saves::kResult, 1};
constexpr Unary kErfRule{&aten::kErf, erf_backward, Saves::kInput, 8};

template <const Unary& rule>
void unary(RecordedCall& call) {
  call.returns(apply(rule, call.tensor(0)));
}

template <Tensor (*function)(Arg)>
void of_one(RecordedCall& call) {
  call.returns(function(call.tensor(0)));
}

template <Tensor (*function)(Arg), Tensor (*in_place)(const Tensor&)>
void of_one_or_in_place(RecordedCall& call) {
  call.returns(call.boolean_or(1, false) ? in_place(call.tensor(0)) : function(call.tensor(0)));
}

template <Tensor (*in_place)(const Tensor&)>
void in_place_of_one(RecordedCall& call) {
  call.returns(in_place(call.tensor(0)));
}

// --- numbers that nobody differentiates: comparisons, logic, rounding ----------------------------------------------

/// Operands that are tensors.
std::vector<const Tensor*> operands(RecordedCall& call, int count) {
  std::vector<const Tensor*> found;
  for (int i = 0; i < count; ++i) {
    if (call.is_tensor(i)) found.push_back(&call.tensor(i));
  }
  return found;
}

Tensor undifferentiated(RecordedCall& call, const Operator& op, std::optional<DType> dtype) {
  const std::vector<const Tensor*> found = operands(call, 2);
  if (found.empty()) call.refuse("no tensor");
  return found.size() == 1 ? pointwise(op, {found[0]}, 1, dtype) : pointwise(op, {found[0], found[1]}, 1, dtype);
}

void compare(RecordedCall& call) { call.returns(undifferentiated(call, aten::kLogical, DType::kBool)); }
/// Of floating-point numbers at::isinf and at::isfinite are made of others (native/TensorCompare.cpp).
template <Tensor (*of_numbers)(Arg)>
void extent_row(RecordedCall& call) {
  if (!is_floating(call.tensor(0).dtype())) return compare(call);
  call.returns(of_numbers(call.tensor(0)));
}
void round(RecordedCall& call) { call.returns(undifferentiated(call, aten::kRound, std::nullopt)); }

// --- operators of two ----------------------------------------------------------------------------------------------

/// A number in the place of a tensor is a scalar of the host's: it saves nothing and takes no memory.
bool needs_gradient(const Tensor& x) { return x.requires_grad(); }

/// int tensors divided give float32, and an integer tensor with a Python float gives float32.
std::optional<DType> promoted(const RecordedCall& call, const Tensor& x, int other) {
  if (is_floating(x.dtype()) || x.dtype() == DType::kComplex64) return std::nullopt;
  if (call.slot(other).kind == BoundArgument::Kind::kNumber) return DType::kFloat32;
  return x.dtype() == DType::kBool && call.slot(other).kind == BoundArgument::Kind::kInteger
             ? std::optional(DType::kInt64)
             : std::nullopt;
}

void add_row(RecordedCall& call) {
  if (call.is_tensor(0) && call.is_tensor(1)) return call.returns(add(call.tensor(0), call.tensor(1)));
  const Tensor& x = call.tensor(call.is_tensor(0) ? 0 : 1);
  if (const auto dtype = promoted(call, x, call.is_tensor(0) ? 1 : 0)) {
    return call.returns(pointwise(aten::kAdd, {&x}, 1, dtype));
  }
  call.returns(add_scalar(x));
}

void subtract_row(RecordedCall& call) {
  if (call.is_tensor(0) && call.is_tensor(1)) return call.returns(subtract(call.tensor(0), call.tensor(1)));
  if (!call.is_tensor(0)) return call.returns(subtract_from_number(call.tensor(1)));
  const Tensor& x = call.tensor(0);
  if (const auto dtype = promoted(call, x, 1)) return call.returns(pointwise(aten::kSub, {&x}, 1, dtype));
  call.returns(add_scalar(x));
}

void reversed_subtract_row(RecordedCall& call) {  // other - self
  if (call.is_tensor(1)) return call.returns(subtract(call.tensor(1), call.tensor(0)));
  call.returns(subtract_from_number(call.tensor(0)));
}

void multiply_row(RecordedCall& call) {
  if (call.is_tensor(0) && call.is_tensor(1)) {
    const Tensor &a = call.tensor(0), &b = call.tensor(1);
    if (is_complex(a) && is_complex(b) && !needs_gradient(b)) return call.returns(multiply_complex(a, b));
    if (is_complex(a) && is_complex(b) && !needs_gradient(a)) return call.returns(multiply_complex(b, a));
    return call.returns(multiply(a, b));
  }
  const Tensor& x = call.tensor(call.is_tensor(0) ? 0 : 1);
  if (const auto dtype = promoted(call, x, call.is_tensor(0) ? 1 : 0)) {
    return call.returns(pointwise(aten::kMul, {&x}, 1, dtype));
  }
  call.returns(multiply_scalar(x));
}

/// Of whole numbers in the default type.
Tensor reciprocal_of(const Tensor& x) {
  const bool is_whole = !is_floating(x.dtype()) && !is_complex(x);
  return is_whole ? no_grad::reciprocal(x) : apply(kReciprocalRule, x);
}
void reciprocal_row(RecordedCall& call) { call.returns(reciprocal_of(call.tensor(0))); }

/// number / x: aten::reciprocal, then aten::mul (Tensor.__rtruediv__).
Tensor number_divided_by(const Tensor& x) { return multiply_scalar(reciprocal_of(x)); }

/// grad for the divisor alone: -grad * ((self / other) / other).
void divisor_backward(BackwardCall& call) {
  const Tensor& other = call.saved(0);
  Tensor quotient = pw(aten::kDiv, {&call.saved(1), &other});
  Tensor again = pw(aten::kDiv, {&quotient, &other});
  Tensor negative = pw(aten::kNeg, {&call.gradient()});
  call.set(0, pw(aten::kMul, {&negative, &again}));
  drop(negative, again, quotient);
}

Tensor divide_by_differentiated(const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  const Tensor* inputs[] = {&b};
  Node* node = tape.autograd.record(aten::kDiv, divisor_backward, inputs, 1);
  if (node != nullptr) {
    tape.autograd.save(*node, b);
    tape.autograd.save(*node, a);
  }
  Tensor result = pw(aten::kDiv, {&a, &b});
  tape.autograd.set_history(node, result);
  return result;
}

void divide_row(RecordedCall& call) {
  if (call.has(3)) {  // out=, of what nobody differentiates
    const Tensor& out = call.tensor(3);
    call.tape.kernels.add(aten::kDiv, OperatorClass::kElementwise, out.dtype(), static_cast<double>(out.elements()),
                          2.0 * static_cast<double>(out.bytes()));
    return call.returns(out);
  }
  if (!call.is_tensor(0)) return call.returns(number_divided_by(call.tensor(1)));
  const Tensor& a = call.tensor(0);
  const bool rounds = call.has(2);  // rounding_mode
  const bool whole = !is_floating(a.dtype()) && !is_complex(a);
  if (rounds || whole) {
    const std::optional<DType> dtype = rounds ? std::nullopt : std::optional(DType::kFloat32);
    if (!call.is_tensor(1)) return call.returns(pointwise(aten::kDiv, {&a}, 1, dtype));
    const bool both = whole && !is_floating(call.tensor(1).dtype());
    return call.returns(pointwise(aten::kDiv, {&a, &call.tensor(1)}, 1, both ? dtype : std::nullopt));
  }
  if (!call.is_tensor(1)) return call.returns(divide_scalar(a));
  const Tensor& b = call.tensor(1);
  if (!needs_gradient(b)) return call.returns(divide(a, b));
  call.returns(needs_gradient(a) ? divide_both(a, b) : divide_by_differentiated(a, b));
}

/// grad * other ** … and grad * result * log(self), as pow_backward_self and pow_backward_exponent.
void power_tensor_backward(BackwardCall& call) {  // saved: self, exponent, result
  const Tensor& exponent = call.saved(1);
  if (call.needs(0)) {
    Tensor lower_exponent = pw(aten::kSub, {&exponent});
    Tensor lower = pw(aten::kPow, {&call.saved(0), &lower_exponent});
    lower_exponent.reset();
    Tensor scaled = pw(aten::kMul, {&exponent, &lower});
    lower.reset();
    call.set(0, pw(aten::kMul, {&call.gradient(), &scaled}));
  }
  if (call.needs(1)) {
    Tensor logarithm = pw(aten::kLog, {&call.saved(0)});
    Tensor scaled = pw(aten::kMul, {&call.saved(2), &logarithm});
    call.set(1, pw(aten::kMul, {&call.gradient(), &scaled}));
  }
}

void power_row(RecordedCall& call) {
  if (call.is_tensor(0) && !call.is_tensor(1)) {
    const Tensor& x = call.tensor(0);
    if (!is_floating(x.dtype())) return call.returns(pw(aten::kPow, {&x}));
    return call.returns(power(x));
  }
  Tape& tape = call.tape;
  if (!call.is_tensor(0)) {  // number ** tensor
    if (is_followed(call.tensor(1))) return power_of_number(call);
    const Tensor exponent = autocast(aten::kPow, call.tensor(1));
    const auto dtype = is_floating(exponent.dtype()) ? std::nullopt : std::optional(DType::kFloat32);
    const bool fractional = call.slot(0).kind == BoundArgument::Kind::kNumber;
    Tensor result = pointwise(aten::kPow, {&exponent}, 1, fractional ? dtype : std::nullopt);
    tape.memory.scratch(8, aten::kPow);  // native/Pow.cpp, pow(Scalar, Tensor): the number becomes a scalar on the card
    return call.returns(std::move(result));
  }
  const Tensor self = autocast(aten::kPowTensor, call.tensor(0));
  const Tensor exponent = autocast(aten::kPowTensor, call.tensor(1));
  const Tensor* inputs[] = {&self, &exponent};
  Node* node = tape.autograd.record(aten::kPowTensor, power_tensor_backward, inputs, 2);
  if (node != nullptr) {
    tape.autograd.save(*node, self);
    tape.autograd.save(*node, exponent);
  }
  Tensor result = pw(aten::kPow, {&self, &exponent});
  tape.autograd.set_history(node, result);
  if (node != nullptr) tape.autograd.save(*node, result);
  call.returns(std::move(result));
}

void sqrt_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (!is_floating(x.dtype())) return call.returns(pointwise(aten::kSqrt, {&x}, 1, DType::kFloat32));
  call.returns(square_root(x));
}

template <const AtenOperator& op>
void extremum_row(RecordedCall& call) {
  call.returns(extremum(op, call.tensor(0), call.tensor(1)));
}

// --- of three ------------------------------------------------------------------------------------------------------

void where_row(RecordedCall& call) {
  if (!call.has(1)) {  // condition.nonzero(as_tuple=True)
    const Tensor places = nonzero(call.tensor(0), call.given().shape[0]);
    for (Tensor& each : unbind(places, 1)) call.returns(std::move(each));
    return;
  }
  // x.where(condition, other) is torch.where(condition, x, other).
  const bool method =
      call.tensor(0).dtype() != DType::kBool && call.is_tensor(1) && call.tensor(1).dtype() == DType::kBool;
  const int chosen = method ? 0 : 1;
  const Tensor& condition = call.tensor(method ? 1 : 0);
  Tape& tape = call.tape;
  const bool first = call.is_tensor(chosen), second = call.is_tensor(2);
  if (!first && !second) {
    // Both numbers become scalars on the card.
    const DType dtype = call.slot(1).kind == BoundArgument::Kind::kNumber ? DType::kFloat32 : DType::kInt64;
    const Tensor a = tape.empty({}, dtype, aten::kScalarTensor), b = tape.empty({}, dtype, aten::kScalarTensor);
    return call.returns(pointwise(aten::kWhere, {&condition, &a, &b}, 1, dtype));
  }
  if (first != second) {
    const Tensor& x = call.tensor(first ? chosen : 2);
    return call.returns(where(condition, x));
  }
  call.returns(where(condition, call.tensor(chosen), call.tensor(2)));
}

void clamp_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (call.is_tensor(1) && call.is_tensor(2)) return call.returns(clamp(x, call.tensor(1), call.tensor(2)));
  if (call.is_tensor(1) || call.is_tensor(2)) return clamp_by_tensor(call, call.is_tensor(1) ? 1 : 2);
  call.returns(call.has(1) && call.has(2) ? clamp(x) : clamp_above(x));
}

/// grad * (other factor * value), each factor's sum over what was broadcast comes behind.
void addcmul_backward(BackwardCall& call) {
  int next = 0;
  const int second = was_recorded(call, 1) ? next++ : -1;
  const int first = was_recorded(call, 2) ? next++ : -1;
  if (call.needs(0)) call.set(0, call.gradient());
  if (call.needs(1)) {
    const Tensor scaled = pw(aten::kMul, {&call.saved(second)});
    call.set(1, pw(aten::kMul, {&call.gradient(), &scaled}));
  }
  if (call.needs(2)) {
    const Tensor scaled = pw(aten::kMul, {&call.saved(first)});
    call.set(2, pw(aten::kMul, {&call.gradient(), &scaled}));
  }
}

/// input + value * tensor1 * tensor2. On autocast's "promote" list: all become the widest type.
void addcmul_row(RecordedCall& call) {
  Tape& tape = call.tape;
  std::array<Tensor, 3> operands{call.tensor(0), call.tensor(1), call.tensor(2)};
  autocast_promote(aten::kAddcmul, operands);
  const Tensor* inputs[] = {&operands[0], &operands[1], &operands[2]};
  Node* node = tape.autograd.record(aten::kAddcmul, addcmul_backward, inputs, 3);
  if (node != nullptr) {
    if (operands[1].requires_grad()) tape.autograd.save(*node, operands[2]);
    if (operands[2].requires_grad()) tape.autograd.save(*node, operands[1]);
  }
  Tensor result = pw(aten::kAddcmul, {&operands[0], &operands[1], &operands[2]}, 3);
  tape.autograd.set_history(node, result);
  call.returns(std::move(result));
}

void lerp_backward(BackwardCall& call) {
  if (call.needs(0)) call.set(0, pw(aten::kMul, {&call.gradient()}));
  if (call.needs(1)) call.set(1, pw(aten::kMul, {&call.gradient()}));
}

void lerp_row(RecordedCall& call) {
  if (call.is_tensor(2)) return lerp_by_tensor(call);
  Tape& tape = call.tape;
  const Tensor &a = call.tensor(0), &b = call.tensor(1);
  const Tensor* inputs[] = {&a, &b};
  Node* node = tape.autograd.record(aten::kLerp, lerp_backward, inputs, 2);
  Tensor result = pw(aten::kLerp, {&a, &b}, 3);
  tape.autograd.set_history(node, result);
  call.returns(std::move(result));
}

// --- in place ------------------------------------------------------------------------------------------------------

/// Of a view that is differentiated, or becomes so: undefined where it is neither.
Tensor changed_view(RecordedCall& call, InPlace change) {
  const Tensor& x = call.tensor(0);
  const Tensor source = call.is_tensor(1) ? call.tensor(1) : Tensor{};
  const bool followed = x.requires_grad() || (source.defined() && source.requires_grad());
  if (!followed || !call.tape.modes.grad_enabled || !x.impl()->is_view) return {};
  return call.change_view_of(x, x, source, change);
}

void add_in_place_row(RecordedCall& call) {
  if (Tensor view = changed_view(call, InPlace::kAdd); view.defined()) return call.returns(std::move(view));
  call.returns(call.is_tensor(1) ? add_in_place(call.tensor(0), call.tensor(1)) : add_scalar_in_place(call.tensor(0)));
}

void multiply_in_place_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (!call.is_tensor(1)) {
    Tensor view = changed_view(call, InPlace::kMultiply);
    return call.returns(view.defined() ? std::move(view) : multiply_in_place(x));
  }
  Tape& tape = call.tape;
  const Tensor& y = call.tensor(1);
  if (tape.modes.grad_enabled && x.impl()->is_view && (x.requires_grad() || y.requires_grad())) {
    std::vector<Tensor> kept;  // what x was only where y is differentiated
    if (x.requires_grad()) kept.push_back(y);
    if (y.requires_grad()) kept.push_back(moved_like(x, aten::kClone));
    if (Tensor view = call.change_view_of(x, x, y, InPlace::kMultiply, kept); view.defined()) {
      return call.returns(std::move(view));
    }
  }
  call.returns(multiply_in_place(x, y));
}

void divide_in_place_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (call.is_tensor(1) && x.impl()->is_view && (is_followed(x) || is_followed(call.tensor(1)))) {
    const Tensor& y = call.tensor(1);
    std::vector<Tensor> kept{y};
    if (y.requires_grad()) kept.push_back(moved_like(x, aten::kClone));
    if (Tensor view = call.change_view_of(x, x, y, InPlace::kMultiply, kept); view.defined()) {
      return call.returns(std::move(view));
    }
  }
  if (call.is_tensor(1)) return call.returns(divide_in_place(call.tensor(0), call.tensor(1)));
  Tensor view = changed_view(call, InPlace::kMultiply);
  call.returns(view.defined() ? std::move(view) : multiply_in_place(call.tensor(0)));
}

/// Fills, draws, copies and rounds of tensors that nobody differentiates.
void overwrite_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (x.requires_grad() && call.tape.modes.grad_enabled) call.refuse("a tensor that is differentiated, in place");
  call.tape.kernels.add(aten::kFill, OperatorClass::kMovement, x.dtype(), 0, static_cast<double>(x.bytes()));
  call.returns(x);
}

/// torch.polar(abs, angle): complex numbers of both.
void polar_row(RecordedCall& call) {
  const Tensor &abs = call.tensor(0), &angle = call.tensor(1);
  if (call.tape.modes.grad_enabled && (abs.requires_grad() || angle.requires_grad())) {
    call.refuse("what is differentiated");
  }
  call.returns(pointwise(aten::kPolar, {&abs, &angle}, 4, DType::kComplex64));
}

void dropout_row(RecordedCall& call) {
  const double probability = call.number_or(1, 0.5);
  if (!call.boolean_or(2, true)) return call.returns(call.tensor(0));
  call.returns(call.boolean_or(3, false) ? dropout_in_place(call.tensor(0), probability)
                                         : dropout(call.tensor(0), probability));
}

void relu_row(RecordedCall& call) {
  call.returns(call.boolean_or(1, false) ? relu_in_place(call.tensor(0)) : relu(call.tensor(0)));
}

void hardtanh_row(RecordedCall& call) {
  call.returns(call.boolean_or(3, false) ? relu6_in_place(call.tensor(0)) : relu6(call.tensor(0)));
}

void masked_fill_row(RecordedCall& call) { call.returns(masked_fill(call.tensor(0), call.tensor(1))); }
void masked_fill_in_place_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (is_followed(x) && x.impl()->is_view) {
    const std::span<const Tensor> kept(&call.tensor(1), 1);
    if (Tensor view = call.change_view_of(x, x, {}, InPlace::kMultiply, kept); view.defined()) {
      return call.returns(std::move(view));
    }
  }
  call.returns(masked_fill_in_place(call.tensor(0), call.tensor(1)));
}

/// cuda/Bucketization.cu: the result, then copies of what is not contiguous or of another type than both have together.
void bucketize_row(RecordedCall& call) {  // input boundaries out_int32 right
  const Tensor &x = call.tensor(0), &boundaries = call.tensor(1);
  if (x.dtype() != boundaries.dtype() && !(is_floating(x.dtype()) && is_floating(boundaries.dtype()))) {
    call.refuse("whole numbers and others");
  }
  const DType common = x.dtype() == boundaries.dtype() ? x.dtype() : DType::kFloat32;  // of both 16-bit types, too
  Tape& tape = call.tape;
  Tensor places = tape.empty(x.shape(), call.boolean_or(2, false) ? DType::kInt32 : DType::kInt64, aten::kBucketize);
  const auto copied = [&](const Tensor& each) {
    Tensor row = each.is_contiguous() ? Tensor() : tape.empty(each.shape(), each.dtype(), aten::kBucketize);
    return each.dtype() == common ? row : tape.empty(each.shape(), common, aten::kBucketize);
  };
  const Tensor input = copied(x), sorted = copied(boundaries);
  tape.kernels.add(aten::kBucketize, OperatorClass::kElementwise, common, 0,
                   static_cast<double>(x.bytes() + places.bytes()));
  call.returns(std::move(places));
}

constexpr OperatorRow kRows[] = {
    {"abs", "input", unary<kAbsRule>},
    {"log", "input", of_one<logarithm>},
    {"log1p", "input", of_one<log1p>},
    {"expm1", "input", of_one<expm1>},
    {"exp", "input", of_one<exponential>},
    {"sqrt", "input", sqrt_row},
    {"rsqrt", "input", of_one<reciprocal_sqrt>},
    {"reciprocal", "input", reciprocal_row},
    {"sin", "input", unary<kSinRule>},
    {"erf", "input", unary<kErfRule>},
    {"neg", "input", of_one<negate>},
    {"tanh", "input", of_one<tanh>},
    {"sigmoid", "input", of_one<sigmoid>},
    {"relu", "input inplace", relu_row},
    {"silu", "input inplace", of_one_or_in_place<silu, silu_in_place>},
    {"silu_", "input", in_place_of_one<silu_in_place>},
    {"gelu", "input approximate", of_one<gelu>},
    {"softplus", "input beta threshold", of_one<softplus>},
    {"logsigmoid", "input", of_one<log_sigmoid>},
    {"hardswish", "input inplace", of_one_or_in_place<hardswish, hardswish_in_place>},
    {"hardswish_", "input", in_place_of_one<hardswish_in_place>},
    {"hardtanh", "input min_val max_val inplace", hardtanh_row},
    {"relu6", "input inplace", of_one_or_in_place<relu6, relu6_in_place>},
    {"dropout", "input p training inplace", dropout_row},
    {"add", "input other alpha", add_row},
    {"add_", "input other alpha", add_in_place_row},
    {"sub", "input other alpha", subtract_row},
    {"subtract", "input other alpha", subtract_row},
    {"rsub", "input other alpha", reversed_subtract_row},
    {"mul", "input other", multiply_row},
    {"multiply", "input other", multiply_row},
    {"mul_", "input other", multiply_in_place_row},
    {"div", "input other rounding_mode out", divide_row},
    {"divide", "input other rounding_mode out", divide_row},
    {"true_divide", "input other rounding_mode out", divide_row},
    {"div_", "input other rounding_mode", divide_in_place_row},
    {"pow", "input exponent", power_row},
    {"square", "input", of_one<power>},
    {"maximum", "input other", extremum_row<aten::kMaximum>},
    {"minimum", "input other", extremum_row<aten::kMinimum>},
    {"where", "condition input other", where_row},
    {"clamp", "input min max", clamp_row},
    {"clip", "input min max", clamp_row},
    {"clamp_min", "input min max", clamp_row},
    {"clamp_max", "input max", clamp_row},
    {"addcmul", "input tensor1 tensor2 value", addcmul_row},
    {"lerp", "input end weight", lerp_row},
    {"masked_fill", "input mask value", masked_fill_row},
    {"masked_fill_", "input mask value", masked_fill_in_place_row},
    {"eq", "input other", compare},
    {"ne", "input other", compare},
    {"lt", "input other", compare},
    {"le", "input other", compare},
    {"gt", "input other", compare},
    {"ge", "input other", compare},
    {"not_equal", "input other", compare},
    {"less", "input other", compare},
    {"less_equal", "input other", compare},
    {"greater", "input other", compare},
    {"greater_equal", "input other", compare},
    {"gt_", "input other", overwrite_row},
    {"ge_", "input other", overwrite_row},
    {"logical_not_", "input", overwrite_row},
    {"floor_divide_", "input other", overwrite_row},
    {"exponential_", "input lambd generator", overwrite_row},
    {"random_", "input from to generator", overwrite_row},
    {"triu_", "input diagonal", overwrite_row},
    {"tril_", "input diagonal", overwrite_row},
    {"cumsum_", "input dim dtype", overwrite_row},
    {"fill_diagonal_", "input fill_value wrap", overwrite_row},
    {"logical_and", "input other", compare},
    {"logical_or", "input other", compare},
    {"logical_xor", "input other", compare},
    {"logical_not", "input", compare},
    {"isnan", "input", compare},
    {"isinf", "input", extent_row<no_grad::isinf>},
    {"isfinite", "input", extent_row<no_grad::isfinite>},
    {"bitwise_and", "input other", round},
    {"bitwise_or", "input other", round},
    {"bitwise_xor", "input other", round},
    {"bitwise_not", "input", round},
    {"bitwise_and_", "input other", overwrite_row},
    {"bitwise_or_", "input other", overwrite_row},
    {"bucketize", "input boundaries out_int32 right", bucketize_row},
    {"floor_divide", "input other", round},
    {"polar", "abs angle", polar_row},
};

}  // namespace

std::span<const OperatorRow> pointwise_rows() { return kRows; }

Tensor subtract_from_number(const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(
      aten::kRsub, [](BackwardCall& call) { call.set(0, pw(aten::kNeg, {&call.gradient()})); }, inputs, 1);
  Tensor result = pw(aten::kRsub, {&x});
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
