#include "memcalc/symbolic/ops/deepspeed_linear.h"

#include <cstddef>
#include <utility>

#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kBackward{"LinearFunctionForZeroStage3Backward"};

Tensor as_matrix(const Tensor& x) { return reshape(x, {x.elements() / x.size(-1), x.size(-1)}); }

/// gradient.matmul(weight), which makes a matrix of the gradient, whatever its strides, where the weight requires a
/// gradient (LinearAlgebra.cpp, should_fold); a saved one that a checkpoint has recomputed does so, too.
Tensor product(const Tensor& gradient, const Tensor& weight, bool is_trained) {
  if (!is_trained || gradient.rank() == 2) return matmul(gradient, weight);
  Shape shape = gradient.shape();
  shape.dims[static_cast<std::size_t>(shape.rank - 1)] = weight.size(1);
  return unsafe_view(matmul(as_matrix(gradient), weight), shape);
}

void linear_backward(BackwardCall& call) {  // inputs: x, weight, bias; saved: x, weight
  const NoGrad no_grad(call.tape.modes);
  const Tensor& x = call.saved(0);
  const Tensor& weight = call.saved(1);
  Tensor x_gradient, weight_gradient, bias_gradient;
  if (call.needs(0)) x_gradient = product(call.gradient(), weight, /*is_trained=*/call.needs(1));
  if (call.needs(1)) weight_gradient = matmul(t(as_matrix(call.gradient())), as_matrix(x));
  if (call.needs(2)) bias_gradient = sum_over(as_matrix(call.gradient()), 0, false);
  call.set(0, std::move(x_gradient));
  call.set(1, std::move(weight_gradient));
  call.set(2, std::move(bias_gradient));
}

Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const NoGrad no_grad(x.tape().modes);
  if (x.rank() == 2 && bias.defined()) return addmm(bias, x, t(weight));
  Tensor output = matmul(x, t(weight));
  return bias.defined() ? add_in_place(output, bias) : output;
}

}  // namespace

Tensor deepspeed_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x, &weight, &bias};
  Node* node = tape.autograd.record(kBackward, linear_backward, inputs, bias.defined() ? 3 : 2);
  if (node != nullptr) {
    tape.autograd.save(*node, x);
    tape.autograd.save(*node, weight);
  }
  Tensor output = forward(x, weight, bias);
  tape.autograd.set_history(node, output);
  return output;
}

}  // namespace memcalc
