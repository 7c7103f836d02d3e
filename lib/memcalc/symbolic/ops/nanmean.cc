#include "memcalc/symbolic/ops/nanmean.h"

#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/symbolic/unlisted.h"

namespace memcalc {

namespace {

constexpr Operator kNansumBackward{"NansumBackward0"};

void kernel_over(const Tensor& x, const Operator& op) {
  x.tape().kernels.add(op, OperatorClass::kElementwise, x.dtype(), static_cast<double>(x.elements()),
                       static_cast<double>(x.bytes()));
}

// The kernels are those of sums and of ~x.

/// FunctionsManual.cpp, nansum_backward: the gradient of a sum times self.isnan().logical_not().
void nansum_backward(BackwardCall& call) {  // saved: self
  const Tensor& self = call.saved(0);
  Tensor is_nan = call.tape.empty(self.shape(), DType::kBool, aten::kIsnan);
  Tensor is_number = call.tape.empty(self.shape(), DType::kBool, aten::kBitwiseNot);
  Tensor result = call.tape.empty(self.shape(), self.dtype(), aten::kMul);
  kernel_over(self, aten::kIsnan);
  kernel_over(self, aten::kBitwiseNot);
  kernel_over(self, aten::kMul);
  drop(is_number, is_nan);
  call.set(0, std::move(result));
}

}  // namespace

Tensor nansum(const Tensor& x, unsigned dims, bool keep_dims, std::optional<DType> dtype) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kNansumBackward, nansum_backward, inputs, 1);
  Tensor total;
  {
    const NoGrad no_grad(tape.modes);
    total = reduced(aten::kSum, x, dims, keep_dims, dtype);
  }
  if (node != nullptr) tape.autograd.save(*node, x);
  tape.autograd.set_history(node, total);
  return total;
}

Tensor nanmean(const Tensor& x) {
  Tape& tape = x.tape();
  Tensor factor;
  {
    const NoGrad no_grad(tape.modes);
    const Tensor is_number = tape.empty(x.shape(), DType::kBool, aten::kIsnan);
    kernel_over(x, aten::kIsnan);
    factor = no_grad::sum(is_number);
  }
  return divide(nansum(x, 1, false), factor);
}

namespace no_grad {

namespace {

Tensor unlisted(const Operator& op, const Tensor& x) {
  const Unlisted unlisted(x.tape());
  return pointwise(op, {&x}, 1);
}

/// sum() of booleans: numbers of what is true.
Tensor count(const Tensor& x, unsigned dims, bool keep_dims) {
  const Unlisted unlisted(x.tape());
  return reduced(aten::kSum, x, dims, keep_dims, DType::kInt64);
}

}  // namespace

Tensor nansum(const Tensor& x, unsigned dims, bool keep_dims) {
  const Unlisted unlisted(x.tape());
  return reduced(aten::kSum, x, dims, keep_dims);
}

Tensor nanmean(const Tensor& x, unsigned dims, bool keep_dims) {
  Tensor is_number = no_grad::isnan(x);  // logical_not_() is in place
  const Tensor factor = count(is_number, dims, keep_dims);
  is_number.reset();
  return no_grad::divide(no_grad::nansum(x, dims, keep_dims), factor);
}

Tensor nanstd(const Tensor& x, unsigned dims) {
  const Tensor mean = no_grad::nanmean(x, dims, true);
  const Tensor variance = [&] {
    const Tensor squares = [&] {
      const Tensor difference = no_grad::subtract(x, mean);
      return unlisted(aten::kPow, difference);
    }();
    return no_grad::nanmean(squares, dims, true);
  }();
  const Tensor numbers = [&] {
    const Tensor is_number = no_grad::bitwise_not(no_grad::isnan(x));
    return count(is_number, dims, true);
  }();
  Tensor correction = no_grad::divide(numbers, no_grad::subtract(numbers));
  {
    const Tensor several = no_grad::greater(numbers), no_number = no_grad::full_like(correction);
    correction = no_grad::where(several, correction, no_number);
  }
  return unlisted(aten::kSqrt, variance);  // variance *= correction is in place
}

}  // namespace no_grad

}  // namespace memcalc
