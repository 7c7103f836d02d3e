// Rows of the operator table that go element by element, beyond those that families call (table_pointwise.cc).
// Derivatives: tools/autograd/derivatives.yaml and torch/csrc/autograd/FunctionsManual.cpp of torch 2.11. A formula's
// temporaries live until its statement ends, so here until the function does.
// MIRRORS(torch, "torch/csrc/autograd/FunctionsManual.cpp", "2.11.0")
#include <array>

#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/recorded_input.h"

namespace memcalc {
namespace {

Tensor pw(const Operator& op, std::initializer_list<const Tensor*> inputs) { return pointwise(op, inputs, 1); }
Tensor mask(const Operator& op, std::initializer_list<const Tensor*> inputs) {
  return pointwise(op, inputs, 1, DType::kBool);
}

// --- functions of one tensor -----------------------------------------------------------------------------------------

enum class Saves : std::uint8_t { kNothing, kInput, kResult };

struct Function {
  const AtenOperator* op;
  BackwardFunction backward;
  Saves saves;
};

void pass_backward(BackwardCall& call) { call.set(0, call.gradient()); }
void zeros_backward(BackwardCall& call) { call.set(0, moved_like(call.gradient(), aten::kZerosLike)); }
void scaled_backward(BackwardCall& call) { call.set(0, pw(aten::kMul, {&call.gradient()})); }

template <const AtenOperator& op>
void kernel_backward(BackwardCall& call) {  // one kernel of the gradient and what was saved
  call.set(0, pointwise(op, {&call.gradient(), &call.saved(0)}, 3));
}
template <const AtenOperator& op>
void factor_backward(BackwardCall& call) {  // grad * op(self)
  const Tensor factor = pw(op, {&call.saved(0)});
  call.set(0, pw(aten::kMul, {&call.gradient(), &factor}));
}
void log_of_base_backward(BackwardCall& call) {  // grad / (self * log(base))
  const Tensor scaled = pw(aten::kMul, {&call.saved(0)});
  call.set(0, pw(aten::kDiv, {&call.gradient(), &scaled}));
}
void exp2_backward(BackwardCall& call) {  // grad * result * log(2)
  const Tensor product = pw(aten::kMul, {&call.gradient(), &call.saved(0)});
  call.set(0, pw(aten::kMul, {&product}));
}
void erfc_backward(BackwardCall& call) {  // -2 / sqrt(pi) * exp(-(self.pow(2))) * grad
  const Tensor squared = pw(aten::kPow, {&call.saved(0)});
  const Tensor negative = pw(aten::kNeg, {&squared});
  const Tensor exponential = pw(aten::kExp, {&negative});
  const Tensor scaled = pw(aten::kMul, {&exponential});
  call.set(0, pw(aten::kMul, {&scaled, &call.gradient()}));
}
void erfinv_backward(BackwardCall& call) {  // 0.5 * sqrt(pi) * exp(self.erfinv().pow(2)) * grad
  const Tensor inverse = pw(aten::kErfinv, {&call.saved(0)});
  const Tensor squared = pw(aten::kPow, {&inverse});
  const Tensor exponential = pw(aten::kExp, {&squared});
  const Tensor scaled = pw(aten::kMul, {&exponential});
  call.set(0, pw(aten::kMul, {&scaled, &call.gradient()}));
}
void tan_backward(BackwardCall& call) {  // grad * (1 + result.pow(2))
  const Tensor squared = pw(aten::kPow, {&call.saved(0)});
  const Tensor more = pw(aten::kAdd, {&squared});
  call.set(0, pw(aten::kMul, {&call.gradient(), &more}));
}
void atan_backward(BackwardCall& call) {  // grad / (self * self + 1)
  const Tensor squared = pw(aten::kMul, {&call.saved(0), &call.saved(0)});
  const Tensor more = pw(aten::kAdd, {&squared});
  call.set(0, pw(aten::kDiv, {&call.gradient(), &more}));
}
void asin_backward(BackwardCall& call) {  // grad * (-self * self + 1).rsqrt()
  const Tensor negative = pw(aten::kNeg, {&call.saved(0)});
  const Tensor product = pw(aten::kMul, {&negative, &call.saved(0)});
  const Tensor more = pw(aten::kAdd, {&product});
  const Tensor root = pw(aten::kRsqrt, {&more});
  call.set(0, pw(aten::kMul, {&call.gradient(), &root}));
}
void acos_backward(BackwardCall& call) {  // grad * -((-self * self + 1).rsqrt())
  const Tensor negative = pw(aten::kNeg, {&call.saved(0)});
  const Tensor product = pw(aten::kMul, {&negative, &call.saved(0)});
  const Tensor more = pw(aten::kAdd, {&product});
  const Tensor root = pw(aten::kRsqrt, {&more});
  const Tensor opposite = pw(aten::kNeg, {&root});
  call.set(0, pw(aten::kMul, {&call.gradient(), &opposite}));
}
void asinh_backward(BackwardCall& call) {  // grad * (self.pow(2) + 1).rsqrt(); acosh: - 1
  const Tensor squared = pw(aten::kPow, {&call.saved(0)});
  const Tensor more = pw(aten::kAdd, {&squared});
  const Tensor root = pw(aten::kRsqrt, {&more});
  call.set(0, pw(aten::kMul, {&call.gradient(), &root}));
}
void atanh_backward(BackwardCall& call) {  // grad * 1 / (1 - self.pow(2))
  const Tensor squared = pw(aten::kPow, {&call.saved(0)});
  const Tensor less = pw(aten::kRsub, {&squared});
  const Tensor product = pw(aten::kMul, {&call.gradient()});
  call.set(0, pw(aten::kDiv, {&product, &less}));
}
void nan_to_num_backward(BackwardCall& call) {  // grad * at::isfinite(self): (self == self) * (abs(self) != inf)
  Tensor finite;
  {
    const Tensor size = pw(aten::kAbs, {&call.saved(0)});
    const Tensor not_infinite = mask(aten::kNe, {&size}), number = mask(aten::kEq, {&call.saved(0)});
    finite = mask(aten::kMul, {&number, &not_infinite});
  }
  call.set(0, pw(aten::kMul, {&call.gradient(), &finite}));
}
void sinc_backward(BackwardCall& call) {  // sinc_backward of FunctionsManual.cpp
  const Tensor& self = call.saved(0);
  const Tensor self_pi = pw(aten::kMul, {&self});
  Tensor squared_pi;
  {
    const Tensor squared = pw(aten::kMul, {&self, &self});
    squared_pi = pw(aten::kMul, {&squared});
  }
  Tensor out;
  {
    const Tensor cosine = pw(aten::kCos, {&self_pi}), product = pw(aten::kMul, {&self_pi, &cosine});
    const Tensor sine = pw(aten::kSin, {&self_pi}), difference = pw(aten::kSub, {&product, &sine});
    const Tensor quotient = pw(aten::kDiv, {&difference, &squared_pi});
    out = pw(aten::kMul, {&call.gradient(), &quotient});
  }
  const Tensor zero = call.tape.empty({}, out.dtype(), aten::kZeros), is_zero = mask(aten::kEq, {&squared_pi});
  call.set(0, pw(aten::kWhere, {&is_zero, &out}));
}
void abs_backward(BackwardCall& call) {  // grad * self.sgn()
  const Tensor sign = pw(aten::kSgn, {&call.saved(0)});
  call.set(0, pw(aten::kMul, {&call.gradient(), &sign}));
}
void cos_backward(BackwardCall& call) {  // grad * -self.sin()
  const Tensor sine = pw(aten::kSin, {&call.saved(0)}), negative = pw(aten::kNeg, {&sine});
  call.set(0, pw(aten::kMul, {&call.gradient(), &negative}));
}
void sqrt_backward(BackwardCall& call) {  // grad / (2 * result)
  const Tensor twice = pw(aten::kMul, {&call.saved(0)});
  call.set(0, pw(aten::kDiv, {&call.gradient(), &twice}));
}
void rsqrt_backward(BackwardCall& call) {  // -0.5 * grad * result.pow(3)
  const Tensor cube = pw(aten::kPow, {&call.saved(0)}), scaled = pw(aten::kMul, {&call.gradient()});
  call.set(0, pw(aten::kMul, {&scaled, &cube}));
}
void reciprocal_backward(BackwardCall& call) {  // -grad * (result * result)
  const Tensor negative = pw(aten::kNeg, {&call.gradient()});
  const Tensor squared = pw(aten::kMul, {&call.saved(0), &call.saved(0)});
  call.set(0, pw(aten::kMul, {&negative, &squared}));
}
void power_backward(BackwardCall& call) {  // grad * (exponent * self.pow(exponent - 1))
  const Tensor lower = pw(aten::kPow, {&call.saved(0)}), scaled = pw(aten::kMul, {&lower});
  call.set(0, pw(aten::kMul, {&call.gradient(), &scaled}));
}
void log_backward(BackwardCall& call) { call.set(0, pw(aten::kDiv, {&call.gradient(), &call.saved(0)})); }
void exp_backward(BackwardCall& call) { call.set(0, pw(aten::kMul, {&call.gradient(), &call.saved(0)})); }
void neg_backward(BackwardCall& call) { call.set(0, pw(aten::kNeg, {&call.gradient()})); }

template <BackwardFunction backward, const AtenOperator& op, Saves saves>
void function_row(RecordedCall& call) {
  const Tensor& given = call.tensor(0);
  const DType dtype = is_floating(given.dtype()) ? given.dtype() : DType::kFloat32;
  const Tensor x = is_floating(given.dtype()) ? autocast(op, given) : given;
  Node* node = record(op, backward, {&x}, {saves == Saves::kInput ? &x : nullptr});
  const bool keeps_type = &op == &aten::kTrunc || &op == &aten::kRoundOf || is_floating(given.dtype());
  call.returns(finish(node, pointwise(op, {&x}, 1, keeps_type ? x.dtype() : dtype), saves == Saves::kResult));
}

/// x.f_(): an operator whose derivative reads its operand clones it first (VariableType); autocast keeps out. On a part
/// of a tensor it becomes CopySlices, inside of which the derivative makes one tensor more.
template <BackwardFunction backward, const AtenOperator& op, Saves saves>
Tensor changed_in_place(RecordedCall& call, const Tensor& x) {
  Tensor before;
  if (saves == Saves::kInput && is_followed(x)) before = moved_like(x, aten::kClone);
  if (is_followed(x) && x.impl()->is_view) {
    const InPlace change = backward == zeros_backward ? InPlace::kCopy
                           : saves == Saves::kResult  ? InPlace::kOfResult
                                                      : InPlace::kMultiply;
    const std::span<const Tensor> kept(&before, before.defined() ? 1 : 0);
    if (Tensor view = call.change_view_of(x, x, {}, change, kept); view.defined()) return view;
  }
  Node* node = record(op, backward, {&x}, {before.defined() ? &before : nullptr});
  x.tape().kernels.add(op, OperatorClass::kElementwise, x.dtype(), static_cast<double>(x.elements()),
                       2.0 * static_cast<double>(x.bytes()));
  return finish(node, x.tape().detach(x), saves == Saves::kResult);
}

template <BackwardFunction backward, const AtenOperator& op, Saves saves>
void in_place_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (is_followed(x)) return call.returns(changed_in_place<backward, op, saves>(call, x));
  x.tape().kernels.add(aten::kFill, OperatorClass::kMovement, x.dtype(), 0, static_cast<double>(x.bytes()));
  call.returns(x);
}

/// F.elu(x, inplace=True) and its like: in place they save their result, which tells the sign of the operand.
template <BackwardFunction backward, const AtenOperator& op, Saves saves, Saves saves_in_place, int slot>
void activation_row(RecordedCall& call) {
  if (call.boolean_or(slot, false)) return in_place_row<backward, op, saves_in_place>(call);
  function_row<backward, op, saves>(call);
}

// --- of two and three ------------------------------------------------------------------------------------------------

void atan2_backward(BackwardCall& call) {  // saved: self, other
  const Tensor &self = call.saved(0), &other = call.saved(1);
  Tensor sum;
  {
    const Tensor first = pw(aten::kMul, {&self, &self}), second = pw(aten::kMul, {&other, &other});
    sum = pw(aten::kAdd, {&first, &second});
  }
  const Tensor reciprocal = pw(aten::kReciprocal, {&sum});
  { const Tensor zero = mask(aten::kEq, {&sum}); }
  Tensor product, negative, opposite;
  if (call.needs(0)) {
    product = pw(aten::kMul, {&call.gradient(), &other});
    call.set(0, pw(aten::kMul, {&product, &reciprocal}));
  }
  if (call.needs(1)) {
    negative = pw(aten::kNeg, {&self});
    opposite = pw(aten::kMul, {&call.gradient(), &negative});
    call.set(1, pw(aten::kMul, {&opposite, &reciprocal}));
  }
}

void xlogy_backward(BackwardCall& call) {  // saved: self, other
  const Tensor &self = call.saved(0), &other = call.saved(1);
  if (call.needs(1)) {  // grad * self / other
    const Tensor product = pw(aten::kMul, {&call.gradient(), &self});
    call.set(1, pw(aten::kDiv, {&product, &other}));
  }
  if (call.needs(0)) {  // at::xlogy(grad, other).masked_fill((self == 0.) & (other <= 0.), 0.)
    const Tensor value = pw(aten::kXlogy, {&call.gradient(), &other});
    const Tensor zero = mask(aten::kEq, {&self}), below = mask(aten::kLe, {&other});
    const Tensor both = mask(aten::kBitwiseAnd, {&zero, &below});
    call.set(0, pw(aten::kMaskedFill, {&value, &both}));
  }
}

void logaddexp_backward(BackwardCall& call) {  // grad / (1 + exp(other - self)), and with the two exchanged
  for (const int i : {1, 0}) {
    if (!call.needs(i)) continue;
    const Tensor difference = pw(aten::kSub, {&call.saved(0), &call.saved(1)});
    const Tensor exponential = pw(aten::kExp, {&difference}), more = pw(aten::kAdd, {&exponential});
    call.set(i, pw(aten::kDiv, {&call.gradient(), &more}));
  }
}

void hypot_backward(BackwardCall& call) {  // saved: self, other, result; grad * self / result
  for (const int i : {1, 0}) {
    if (!call.needs(i)) continue;
    const Tensor product = pw(aten::kMul, {&call.gradient(), &call.saved(i)});
    call.set(i, pw(aten::kDiv, {&product, &call.saved(2)}));
  }
}

void copysign_backward(BackwardCall& call) {  // self: ratio = result / self, 0 where self is 0; grad * ratio
  if (call.needs(0)) {
    const Tensor ratio = pw(aten::kDiv, {&call.saved(1), &call.saved(0)});
    { const Tensor zero = mask(aten::kEq, {&call.saved(0)}); }
    call.set(0, pw(aten::kMul, {&call.gradient(), &ratio}));
  }
  if (call.node.edge_count > 1 && call.needs(1)) call.set(1, moved_like(call.gradient(), aten::kZerosLike));
}

/// fmod, remainder: grad; other: -grad * self.div(other, rounding_mode).
void modulus_backward(BackwardCall& call) {  // saved, where the other one is differentiated: self, other
  if (call.node.edge_count > 1 && call.needs(1)) {
    const Tensor negative = pw(aten::kNeg, {&call.gradient()});
    const Tensor quotient = pw(aten::kDiv, {&call.saved(0), &call.saved(1)});
    call.set(1, pw(aten::kMul, {&negative, &quotient}));
  }
  if (call.needs(0)) call.set(0, call.gradient());
}

template <BackwardFunction backward, const AtenOperator& op>
void binary_row(RecordedCall& call) {
  std::array<Tensor, 2> operands{call.tensor(0), call.tensor(1)};
  autocast_promote(op, operands);
  Node* node = record(op, backward, {&operands[0], &operands[1]}, {&operands[0], &operands[1]});
  const bool saves_result = backward == hypot_backward;
  call.returns(finish(node, pw(op, {&operands[0], &operands[1]}), saves_result));
}

void copysign_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  Node* node = call.is_tensor(1) ? record(aten::kCopysign, copysign_backward, {&x, &call.tensor(1)}, {&x})
                                 : record(aten::kCopysign, copysign_backward, {&x}, {&x});
  call.returns(
      finish(node, call.is_tensor(1) ? pw(aten::kCopysign, {&x, &call.tensor(1)}) : pw(aten::kCopysign, {&x}), true));
}

template <const AtenOperator& op>
void modulus_row(RecordedCall& call) {
  if (!call.is_tensor(0)) return call.returns(pw(op, {&call.tensor(1)}));
  const Tensor& x = call.tensor(0);
  if (!call.is_tensor(1)) return call.returns(finish(record(op, modulus_backward, {&x}), pw(op, {&x})));
  const Tensor& other = call.tensor(1);
  const bool follows = other.requires_grad();
  Node* node = record(op, modulus_backward, {&x, &other}, {follows ? &x : nullptr, follows ? &other : nullptr});
  call.returns(finish(node, pw(op, {&x, &other})));
}

void addcdiv_backward(BackwardCall& call) {  // saved: tensor1 where tensor2 is differentiated, tensor2
  int next = 0;
  const int first = was_recorded(call, 2) ? next++ : -1;
  const int second = was_recorded(call, 1) || was_recorded(call, 2) ? next++ : -1;
  if (call.needs(0)) call.set(0, call.gradient());
  if (call.needs(1)) {  // grad * (value / tensor2)
    const Tensor quotient = pw(aten::kReciprocal, {&call.saved(second)});
    call.set(1, pw(aten::kMul, {&call.gradient(), &quotient}));
  }
  if (call.needs(2)) {  // -grad * (value * tensor1 / (tensor2 * tensor2))
    const Tensor squared = pw(aten::kMul, {&call.saved(second), &call.saved(second)});
    const Tensor scaled = pw(aten::kMul, {&call.saved(first)});
    const Tensor quotient = pw(aten::kDiv, {&scaled, &squared});
    const Tensor negative = pw(aten::kNeg, {&call.gradient()});
    call.set(2, pw(aten::kMul, {&negative, &quotient}));
  }
}

void addcdiv_row(RecordedCall& call) {
  std::array<Tensor, 3> operands{call.tensor(0), call.tensor(1), call.tensor(2)};
  autocast_promote(aten::kAddcdiv, operands);
  const auto& [x, a, b] = operands;
  const bool of_b = b.requires_grad(), of_both = of_b || a.requires_grad();
  Node* node = record(aten::kAddcdiv, addcdiv_backward, {&x, &a, &b}, {of_b ? &a : nullptr, of_both ? &b : nullptr});
  call.returns(finish(node, pw(aten::kAddcdiv, {&x, &a, &b})));
}

/// x.addcmul_(a, b): grad; grad * (b * value); grad * (a * value). Its operands are saved, not x.
void addcmul_in_place_backward(BackwardCall& call) {  // saved: a where b is differentiated, b where a is
  int next = 0;
  const int first = was_recorded(call, 2) ? next++ : -1;
  const int second = was_recorded(call, 1) ? next++ : -1;
  if (call.needs(0)) call.set(0, call.gradient());
  for (const int i : {1, 2}) {
    if (!call.needs(i)) continue;
    const Tensor scaled = pw(aten::kMul, {&call.saved(i == 1 ? second : first)});
    call.set(i, pw(aten::kMul, {&call.gradient(), &scaled}));
  }
}

void addcmul_in_place_row(RecordedCall& call) {
  const Tensor &x = call.tensor(0), &a = call.tensor(1), &b = call.tensor(2);
  if (is_followed(x) && x.impl()->is_view) {
    if (!b.requires_grad() || a.requires_grad() || b.shape() != x.shape()) {
      call.refuse("a part of a tensor that is differentiated");
    }
    const std::array<Tensor, 1> kept{a};
    Tensor view = call.change_view_of(x, x, b, InPlace::kAdd, kept);
    if (!view.defined()) call.refuse("a part of a tensor that is differentiated");
    return call.returns(std::move(view));
  }
  Node* node = record(aten::kAddcmul, addcmul_in_place_backward, {&x, &a, &b},
                      {b.requires_grad() ? &a : nullptr, a.requires_grad() ? &b : nullptr});
  x.tape().kernels.add(aten::kAddcmul, OperatorClass::kElementwise, x.dtype(), 3.0 * static_cast<double>(x.elements()),
                       2.0 * static_cast<double>(x.bytes()));
  call.returns(finish(node, x.tape().detach(x)));
}

/// x.sub_(y), x.lerp_(end, number): both gradients pass, scaled.
void subtract_in_place_backward(BackwardCall& call) {
  if (call.needs(1)) call.set(1, pw(aten::kNeg, {&call.gradient()}));
  if (call.needs(0)) call.set(0, call.gradient());
}
void lerp_in_place_backward(BackwardCall& call) {
  for (const int i : {1, 0}) {
    if (call.needs(i)) call.set(i, pw(aten::kMul, {&call.gradient()}));
  }
}

template <BackwardFunction backward, const AtenOperator& op>
void changed_by_another_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (!call.is_tensor(1)) return in_place_row<pass_backward, op, Saves::kNothing>(call);
  if (is_followed(x) && x.impl()->is_view) call.refuse("a part of a tensor that is differentiated");
  const Tensor& y = call.tensor(1);
  Node* node = record(op, backward, {&x, &y});
  x.tape().kernels.add(op, OperatorClass::kElementwise, x.dtype(), static_cast<double>(x.elements()),
                       3.0 * static_cast<double>(x.bytes()));
  call.returns(finish(node, x.tape().detach(x)));
}

/// where(self >= min, grad, 0) and where(self < min, grad, 0).
void clamp_by_tensor_backward(BackwardCall& call) {  // saved: self, the bound
  for (int i = 0; i < 2; ++i) {
    if (!call.needs(i)) continue;
    const Tensor zero = call.tape.empty({}, call.gradient().dtype(), aten::kScalarTensor);
    const Tensor inside = mask(aten::kGe, {&call.saved(0), &call.saved(1)});
    call.set(i, pointwise(aten::kWhere, {&inside, &call.gradient()}, 1, call.gradient().dtype()));
  }
}

/// clamp_backward: of a change in place, of which the operand was cloned.
void clamp_in_place_backward(BackwardCall& call) {
  const Tensor zero = call.tape.empty({}, call.gradient().dtype(), aten::kScalarTensor);
  const Tensor inside = mask(aten::kGe, {&call.saved(0)});
  call.set(0, pointwise(aten::kWhere, {&inside, &call.gradient()}, 1, call.gradient().dtype()));
}
void clamp_both_in_place_backward(BackwardCall& call) {
  const Tensor zero = call.tape.empty({}, call.gradient().dtype(), aten::kScalarTensor);
  const Tensor above = mask(aten::kGe, {&call.saved(0)}), below = mask(aten::kLe, {&call.saved(0)});
  call.set(0, pointwise(aten::kWhere, {&above, &call.gradient()}, 1, call.gradient().dtype()));
}

void clamp_in_place_row(RecordedCall& call) {
  if (call.is_tensor(1) || call.is_tensor(2)) call.refuse("bounds that are tensors");
  if (call.has(1) && call.has(2)) return in_place_row<clamp_both_in_place_backward, aten::kClamp, Saves::kInput>(call);
  in_place_row<clamp_in_place_backward, aten::kClamp, Saves::kInput>(call);
}

/// FunctionsManual.cpp, pow_backward_exponent: grad * (result * log(base)).
void power_of_number_backward(BackwardCall& call) {  // saved: exponent, result
  const Tensor scaled = pw(aten::kMul, {&call.saved(1)});
  call.set(0, pw(aten::kMul, {&call.gradient(), &scaled}));
}

void lerp_tensor_backward(BackwardCall& call) {  // saved: end, self, weight as far as read
  int next = 0;
  const bool weighs = was_recorded(call, 2), moves = was_recorded(call, 0) || was_recorded(call, 1);
  const int end = weighs ? next++ : -1, self = weighs ? next++ : -1, weight = moves ? next++ : -1;
  if (call.needs(1)) call.set(1, pw(aten::kMul, {&call.gradient(), &call.saved(weight)}));
  if (call.needs(0)) {
    const Tensor rest = pw(aten::kRsub, {&call.saved(weight)});
    call.set(0, pw(aten::kMul, {&call.gradient(), &rest}));
  }
  if (call.needs(2)) {
    const Tensor way = pw(aten::kSub, {&call.saved(end), &call.saved(self)});
    call.set(2, pw(aten::kMul, {&call.gradient(), &way}));
  }
}

// --- gates and noise -------------------------------------------------------------------------------------------------

void glu_row(RecordedCall& call) {  // input dim
  const Tensor& x = call.tensor(0);
  const int dim = call.dimension(1, x.rank(), -1);
  Node* node = record(
      aten::kGlu, [](BackwardCall& back) { back.set(0, moved_like(back.saved(0), aten::kGluBackward)); }, {&x}, {&x});
  const NoGrad no_grad(x.tape().modes);
  const Tensor half = slice(x, dim, 0, x.size(dim) / 2);
  call.returns(finish(node, pointwise(aten::kGlu, {&half}, 5)));
}

/// _prelu_kernel_backward: both gradients are as large as the input; the weight's is then summed to its shape.
void prelu_backward(BackwardCall& call) {  // saved: self, weight
  for (int i = 0; i < 2; ++i) {
    if (was_recorded(call, i)) call.set(i, moved_like(call.gradient(), aten::kPreluKernelBackward));
  }
}

void prelu_row(RecordedCall& call) {  // input weight
  Tensor weight = autocast(aten::kPreluKernel, call.tensor(1));
  const Tensor x = autocast(aten::kPreluKernel, call.tensor(0));
  Shape shape;  // Activation.cpp: the weight along the channels
  for (int i = 0; i < x.rank(); ++i) shape.dims[static_cast<std::size_t>(shape.rank++)] = 1;
  if (x.rank() > 0) shape[x.rank() > 1 ? 1 : 0] = weight.elements();
  if (!(weight.shape() == shape)) weight = view(weight, shape);
  Node* node = record(aten::kPreluKernel, prelu_backward, {&x, &weight}, {&x, &weight});
  call.returns(finish(node, pw(aten::kPreluKernel, {&x, &weight})));
}

void rrelu_row(RecordedCall& call) {  // input lower upper training inplace
  if (call.boolean_or(4, false)) call.refuse("inplace");
  const Tensor& x = call.tensor(0);
  const Tensor noise = moved_like(x, aten::kEmptyLike);
  Node* node = record(aten::kRreluWithNoise, kernel_backward<aten::kRreluWithNoiseBackward>, {&x}, {&x, &noise});
  call.returns(finish(node, pw(aten::kRreluWithNoise, {&x, &noise})));
}

/// Dropout.cpp, _dropout_impl of features: noise for each channel of each sample.
Tensor feature_noise(const Tensor& x) {
  Shape shape = x.shape();
  for (int i = 2; i < shape.rank; ++i) shape[i] = 1;
  return filled(x.tape(), shape, x.dtype(), aten::kFeatureDropout);
}

bool drops_nothing(const RecordedCall& call) {  // input p training inplace
  return !call.tape.modes.training || !call.boolean_or(2, true) || call.number_or(1, 0.5) == 0;
}

void feature_dropout_row(RecordedCall& call) {
  if (drops_nothing(call)) return call.returns(call.tensor(0));
  if (call.boolean_or(3, false)) call.refuse("inplace");
  call.returns(multiply(call.tensor(0), feature_noise(call.tensor(0))));
}

/// The same, then what was dropped is set to a number: input * noise + b, with b of the noise.
template <bool features>
void alpha_dropout_row(RecordedCall& call) {
  if (drops_nothing(call)) return call.returns(call.tensor(0));
  if (call.boolean_or(3, false)) call.refuse("inplace");
  const Tensor& x = call.tensor(0);
  const Tensor noise = features ? feature_noise(x) : moved_like(x, aten::kFeatureDropout);
  const Tensor shift = pw(aten::kAdd, {&noise});
  call.returns(add_in_place(multiply(x, noise), shift));
}

void positive_row(RecordedCall& call) { call.returns(call.tensor(0)); }

constexpr OperatorRow kRows[] = {
    {"log2", "input", function_row<log_of_base_backward, aten::kLog2, Saves::kInput>},
    {"log10", "input", function_row<log_of_base_backward, aten::kLog10, Saves::kInput>},
    {"exp2", "input", function_row<exp2_backward, aten::kExp2, Saves::kResult>},
    {"erfc", "input", function_row<erfc_backward, aten::kErfc, Saves::kInput>},
    {"erfinv", "input", function_row<erfinv_backward, aten::kErfinv, Saves::kInput>},
    {"sinh", "input", function_row<factor_backward<aten::kCosh>, aten::kSinh, Saves::kInput>},
    {"cosh", "input", function_row<factor_backward<aten::kSinh>, aten::kCosh, Saves::kInput>},
    {"tan", "input", function_row<tan_backward, aten::kTan, Saves::kResult>},
    {"asin", "input", function_row<asin_backward, aten::kAsin, Saves::kInput>},
    {"arcsin", "input", function_row<asin_backward, aten::kAsin, Saves::kInput>},
    {"acos", "input", function_row<acos_backward, aten::kAcos, Saves::kInput>},
    {"arccos", "input", function_row<acos_backward, aten::kAcos, Saves::kInput>},
    {"atan", "input", function_row<atan_backward, aten::kAtan, Saves::kInput>},
    {"arctan", "input", function_row<atan_backward, aten::kAtan, Saves::kInput>},
    {"asinh", "input", function_row<asinh_backward, aten::kAsinh, Saves::kInput>},
    {"acosh", "input", function_row<asinh_backward, aten::kAcosh, Saves::kInput>},
    {"atanh", "input", function_row<atanh_backward, aten::kAtanh, Saves::kInput>},
    {"lgamma", "input", function_row<factor_backward<aten::kDigamma>, aten::kLgamma, Saves::kInput>},
    {"sinc", "input", function_row<sinc_backward, aten::kSinc, Saves::kInput>},
    {"trunc", "input", function_row<zeros_backward, aten::kTrunc, Saves::kNothing>},
    {"fix", "input", function_row<zeros_backward, aten::kTrunc, Saves::kNothing>},
    {"frac", "input", function_row<pass_backward, aten::kTrunc, Saves::kNothing>},
    {"floor", "input", function_row<zeros_backward, aten::kRoundOf, Saves::kNothing>},
    {"ceil", "input", function_row<zeros_backward, aten::kRoundOf, Saves::kNothing>},
    {"round", "input decimals", function_row<zeros_backward, aten::kRoundOf, Saves::kNothing>},
    {"sign", "input", function_row<zeros_backward, aten::kRoundOf, Saves::kNothing>},
    {"deg2rad", "input", function_row<scaled_backward, aten::kMul, Saves::kNothing>},
    {"rad2deg", "input", function_row<scaled_backward, aten::kMul, Saves::kNothing>},
    {"positive", "input", positive_row},
    {"logit", "input eps", function_row<kernel_backward<aten::kLogitBackward>, aten::kLogit, Saves::kInput>},
    {"nan_to_num", "input nan posinf neginf", function_row<nan_to_num_backward, aten::kNanToNumOf, Saves::kInput>},
    {"hardshrink", "input lambd",
     function_row<kernel_backward<aten::kHardshrinkBackward>, aten::kHardshrink, Saves::kInput>},
    {"softshrink", "input lambd",
     function_row<kernel_backward<aten::kSoftshrinkBackward>, aten::kSoftshrink, Saves::kInput>},
    {"threshold", "input threshold value inplace",
     activation_row<kernel_backward<aten::kThresholdBackward>, aten::kThreshold, Saves::kInput, Saves::kInput, 3>},
    {"threshold_", "input threshold value",
     in_place_row<kernel_backward<aten::kThresholdBackward>, aten::kThreshold, Saves::kInput>},
    {"selu", "input inplace",
     activation_row<kernel_backward<aten::kEluBackward>, aten::kElu, Saves::kInput, Saves::kResult, 1>},
    {"selu_", "input", in_place_row<kernel_backward<aten::kEluBackward>, aten::kElu, Saves::kResult>},
    {"celu", "input alpha inplace",
     activation_row<kernel_backward<aten::kEluBackward>, aten::kCelu, Saves::kInput, Saves::kResult, 2>},
    {"celu_", "input alpha", in_place_row<kernel_backward<aten::kEluBackward>, aten::kCelu, Saves::kResult>},
    {"elu", "input alpha inplace",
     activation_row<kernel_backward<aten::kEluBackward>, aten::kElu, Saves::kInput, Saves::kResult, 2>},
    {"elu_", "input alpha", in_place_row<kernel_backward<aten::kEluBackward>, aten::kElu, Saves::kResult>},
    {"leaky_relu", "input negative_slope inplace",
     activation_row<kernel_backward<aten::kLeakyReluBackward>, aten::kLeakyRelu, Saves::kInput, Saves::kResult, 2>},
    {"leaky_relu_", "input negative_slope",
     in_place_row<kernel_backward<aten::kLeakyReluBackward>, aten::kLeakyRelu, Saves::kResult>},
    {"mish", "input inplace",
     activation_row<kernel_backward<aten::kMishBackward>, aten::kMish, Saves::kInput, Saves::kInput, 1>},
    {"hardsigmoid", "input inplace",
     activation_row<kernel_backward<aten::kHardsigmoidBackward>, aten::kHardsigmoid, Saves::kInput, Saves::kInput, 1>},
    {"hardtanh_", "input min_val max_val",
     in_place_row<kernel_backward<aten::kHardtanhBackward>, aten::kHardtanh, Saves::kInput>},
    {"glu", "input dim", glu_row},
    {"prelu", "input weight", prelu_row},
    {"rrelu", "input lower upper training inplace", rrelu_row},
    {"dropout1d", "input p training inplace", feature_dropout_row},
    {"dropout2d", "input p training inplace", feature_dropout_row},
    {"dropout3d", "input p training inplace", feature_dropout_row},
    {"alpha_dropout", "input p training inplace", alpha_dropout_row<false>},
    {"feature_alpha_dropout", "input p training inplace", alpha_dropout_row<true>},
    {"atan2", "input other", binary_row<atan2_backward, aten::kAtan2>},
    {"arctan2", "input other", binary_row<atan2_backward, aten::kAtan2>},
    {"xlogy", "input other", binary_row<xlogy_backward, aten::kXlogy>},
    {"logaddexp", "input other", binary_row<logaddexp_backward, aten::kLogaddexp>},
    {"hypot", "input other", binary_row<hypot_backward, aten::kHypot>},
    {"copysign", "input other", copysign_row},
    {"fmod", "input other", modulus_row<aten::kFmodOf>},
    {"remainder", "input other", modulus_row<aten::kRemainderOf>},
    {"addcdiv", "input tensor1 tensor2 value", addcdiv_row},
    {"addcmul_", "input tensor1 tensor2 value", addcmul_in_place_row},
    {"sub_", "input other alpha", changed_by_another_row<subtract_in_place_backward, aten::kSub>},
    {"lerp_", "input end weight", changed_by_another_row<lerp_in_place_backward, aten::kLerp>},
    {"sigmoid_", "input", in_place_row<kernel_backward<aten::kSigmoidBackward>, aten::kSigmoid, Saves::kResult>},
    {"tanh_", "input", in_place_row<kernel_backward<aten::kTanhBackward>, aten::kTanh, Saves::kResult>},
    {"exp_", "input", in_place_row<exp_backward, aten::kExp, Saves::kResult>},
    {"sqrt_", "input", in_place_row<sqrt_backward, aten::kSqrt, Saves::kResult>},
    {"rsqrt_", "input", in_place_row<rsqrt_backward, aten::kRsqrt, Saves::kResult>},
    {"reciprocal_", "input", in_place_row<reciprocal_backward, aten::kReciprocal, Saves::kResult>},
    {"neg_", "input", in_place_row<neg_backward, aten::kNeg, Saves::kNothing>},
    {"floor_", "input", in_place_row<zeros_backward, aten::kRoundOf, Saves::kNothing>},
    {"ceil_", "input", in_place_row<zeros_backward, aten::kRoundOf, Saves::kNothing>},
    {"round_", "input", in_place_row<zeros_backward, aten::kRoundOf, Saves::kNothing>},
    {"trunc_", "input", in_place_row<zeros_backward, aten::kTrunc, Saves::kNothing>},
    {"abs_", "input", in_place_row<abs_backward, aten::kAbs, Saves::kInput>},
    {"log_", "input", in_place_row<log_backward, aten::kLog, Saves::kInput>},
    {"sin_", "input", in_place_row<factor_backward<aten::kCos>, aten::kSin, Saves::kInput>},
    {"cos_", "input", in_place_row<cos_backward, aten::kCos, Saves::kInput>},
    {"pow_", "input exponent", in_place_row<power_backward, aten::kPow, Saves::kInput>},
    {"square_", "input", in_place_row<power_backward, aten::kPow, Saves::kInput>},
    {"cos", "input", function_row<cos_backward, aten::kCos, Saves::kInput>},
    {"clamp_", "input min max", clamp_in_place_row},
    {"clip_", "input min max", clamp_in_place_row},
    {"clamp_min_", "input min", in_place_row<clamp_in_place_backward, aten::kClamp, Saves::kInput>},
    {"clamp_max_", "input max", in_place_row<clamp_in_place_backward, aten::kClamp, Saves::kInput>},
    {"relu_", "input", in_place_row<kernel_backward<aten::kThresholdBackward>, aten::kRelu, Saves::kResult>},
    {"zero_", "input", in_place_row<zeros_backward, aten::kFillScalar, Saves::kNothing>},
    {"fill_", "input value", in_place_row<zeros_backward, aten::kFillScalar, Saves::kNothing>},
    {"bernoulli_", "input p generator", in_place_row<zeros_backward, aten::kFillScalar, Saves::kNothing>},
    {"uniform_", "input from to generator", in_place_row<zeros_backward, aten::kFillScalar, Saves::kNothing>},
    {"normal_", "input mean std generator", in_place_row<zeros_backward, aten::kFillScalar, Saves::kNothing>},
};

}  // namespace

std::span<const OperatorRow> function_rows() { return kRows; }

void clamp_by_tensor(RecordedCall& call, int bound) {
  const Tensor &x = call.tensor(0), &limit = call.tensor(bound);
  Node* node = record(aten::kClampTensor, clamp_by_tensor_backward, {&x, &limit}, {&x, &limit});
  call.returns(finish(node, pw(aten::kClampTensor, {&x, &limit})));
}

void power_of_number(RecordedCall& call) {
  const Tensor exponent = autocast(aten::kPowScalar, call.tensor(1));
  Node* node = record(aten::kPowScalar, power_of_number_backward, {&exponent}, {&exponent});
  Tensor result = pw(aten::kPowScalar, {&exponent});
  { const Tensor base = exponent.tape().empty({}, DType::kFloat64, aten::kScalarTensor); }  // Pow.cpp: fill_ of one
  call.returns(finish(node, std::move(result), true));
}

void lerp_by_tensor(RecordedCall& call) {
  const Tensor &a = call.tensor(0), &b = call.tensor(1), &weight = call.tensor(2);
  const bool weighs = weight.requires_grad(), moves = a.requires_grad() || b.requires_grad();
  Node* node = record(aten::kLerpTensor, lerp_tensor_backward, {&a, &b, &weight},
                      {weighs ? &b : nullptr, weighs ? &a : nullptr, moves ? &weight : nullptr});
  call.returns(finish(node, pw(aten::kLerpTensor, {&a, &b, &weight})));
}

}  // namespace memcalc
