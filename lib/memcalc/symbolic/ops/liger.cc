// liger_kernel 0.8 ops/: rms_norm.py, rope.py, swiglu.py, fused_linear_cross_entropy.py.
// MIRRORS(liger_kernel, "ops/fused_linear_cross_entropy.py", "0.8.0")
// MIRRORS(liger_kernel, "ops/rms_norm.py", "0.8.0")
// MIRRORS(liger_kernel, "ops/rope.py", "0.8.0")
// MIRRORS(liger_kernel, "ops/swiglu.py", "0.8.0")
#include "memcalc/symbolic/ops/liger.h"

#include <algorithm>
#include <bit>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kRmsNorm{"liger::rms_norm"}, kRmsNormBackward{"LigerRMSNormFunctionBackward"};
constexpr Operator kRope{"liger::rope"}, kRopeBackward{"LigerRopeFunctionBackward"};
constexpr Operator kSwiGlu{"liger::swiglu"}, kSwiGluBackward{"LigerSiLUMulFunctionBackward"};
constexpr Operator kLoss{"liger::fused_linear_cross_entropy"};
constexpr Operator kLossBackward{"LigerFusedLinearCrossEntropyFunctionBackward"};

void rms_norm_backward(BackwardCall& call) {  // saved: x, weight, rstd; dX takes dY's place
  if (call.needs(1)) {
    const Tensor& weight = call.saved(1);
    const std::int64_t width = weight.size(0);
    const Tensor partial =
        call.tape.empty({call.tape.device.multiprocessors, width}, DType::kFloat32, kRmsNormBackward);
    Tensor sum = call.tape.empty({width}, DType::kFloat32, aten::kSum);
    reduction_scratch(partial, 0b01, 4, aten::kSum);
    call.set(1, to_dtype(sum, weight.dtype()));
  }
  call.set(0, call.take_gradient());
}

void rope_backward(BackwardCall& call) {  // in place, in the row-major layout
  call.set(0, transpose(contiguous(transpose(call.take_gradient(), 1, 2)), 1, 2));
}

void silu_multiply_backward(BackwardCall& call) {  // saved: gate, up, which become their gradients
  call.set(0, call.saved(0));
  call.set(1, call.saved(1));
}

void linear_cross_entropy_backward(BackwardCall& call) {  // saved: the gradients
  {
    // torch.equal(grad_output, torch.tensor(1.0, device=...))
    const Tensor one = call.tape.empty({}, DType::kFloat32, aten::kToCopy);
    const Tensor same = call.tape.empty({}, DType::kBool, aten::kEqual);
    call.tape.memory.scratch(1, aten::kEqual);
  }
  call.set(0, call.saved(0));
  if (call.needs(1)) call.set(1, call.saved(1));
}

/// One chunk of rows: logits, their gradient in place, and what it adds to the gradients of hidden and weight.
void loss_of_chunk(const Tensor& hidden, const Tensor& weight, std::int64_t rows, bool weight_gradient) {
  Tape& tape = hidden.tape();
  const std::int64_t width = weight.size(1);
  const std::int64_t vocabulary = weight.size(0);
  const int products = weight_gradient ? 3 : 2;
  const DType dtype = tape.modes.autocast.dtype.value_or(hidden.dtype());
  for (int i = 0; i < products; ++i) tape.kernels.product(aten::kMm, dtype, 1, rows, vocabulary, width);
  if (!tape.modes.autocast.dtype) {  // torch.mm(..., out=...)
    if (weight_gradient && weight.dtype() == DType::kFloat32) tape.memory.scratch(weight.bytes(), aten::kMm);
    return;
  }
  const bool mixed = hidden.dtype() == DType::kFloat32;
  const auto rows_of = [&](std::int64_t columns) { return Shape{rows, columns}; };
  Tensor logits;
  {
    Tensor weight_cast, rows_cast;  // weight.t() is a view, which autocast does not cache
    if (mixed) {
      weight_cast = tape.empty(weight.shape(), dtype, aten::kToCopy, Category::kAutocastCopies);
      rows_cast = tape.empty(rows_of(width), dtype, aten::kToCopy);
    }
    logits = tape.empty(rows_of(vocabulary), dtype, aten::kMm);
    drop(rows_cast, weight_cast);
  }
  const Tensor cached = autocast(aten::kMatmul, weight);
  tape.memory.scratch(rows * width * size_of(dtype), aten::kMm);
  if (weight_gradient && mixed) tape.memory.scratch(rows * width * size_of(dtype), aten::kToCopy);
}

}  // namespace

Tensor liger_rms_norm(const Tensor& x, const Tensor& weight) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x, &weight};
  Node* node = tape.autograd.record(kRmsNormBackward, rms_norm_backward, inputs, 2);
  Tensor result = tape.empty(x.shape(), x.dtype(), kRmsNorm);
  const Tensor reciprocal = tape.empty({x.elements() / x.size(-1)}, DType::kFloat32, kRmsNorm);
  tape.kernels.add(kRmsNorm, OperatorClass::kNormalization, x.dtype(), 4.0 * static_cast<double>(x.elements()),
                   2.0 * static_cast<double>(x.bytes()));
  if (node != nullptr) {
    for (const Tensor* tensor : {&x, &weight, &reciprocal}) tape.autograd.save(*node, *tensor);
  }
  tape.autograd.set_history(node, result);
  return result;
}

Tensor liger_rotate(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kRopeBackward, rope_backward, inputs, 1);
  if (node != nullptr) {
    tape.autograd.save(*node, cos);
    tape.autograd.save(*node, sin);
  }
  Tensor result;
  {
    const NoGrad no_grad(tape.modes);
    result = transpose(contiguous(transpose(x, 1, 2)), 1, 2);
  }
  tape.kernels.add(kRope, OperatorClass::kElementwise, x.dtype(), 3.0 * static_cast<double>(x.elements()),
                   2.0 * static_cast<double>(x.bytes()));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor liger_silu_multiply(Arg gate, Arg up) {
  const OperatorCall call(gate, up);
  Tape& tape = gate->tape();
  const Tensor* inputs[] = {&*gate, &*up};
  Node* node = tape.autograd.record(kSwiGluBackward, silu_multiply_backward, inputs, 2);
  if (node != nullptr) {
    tape.autograd.save(*node, *gate);
    tape.autograd.save(*node, *up);
  }
  Tensor result = tape.empty(gate->shape(), gate->dtype(), kSwiGlu);
  tape.kernels.add(kSwiGlu, OperatorClass::kElementwise, gate->dtype(), 6.0 * static_cast<double>(result.elements()),
                   3.0 * static_cast<double>(result.bytes()));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor liger_linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets) {
  Tape& tape = hidden.tape();
  const Tensor* inputs[] = {&hidden, &weight};
  Node* node = tape.autograd.record(kLossBackward, linear_cross_entropy_backward, inputs, 2);
  const std::int64_t rows = hidden.size(0);
  const std::int64_t chunks = ceil_div(weight.size(0), weight.size(1));
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(ceil_div(rows, chunks))));
  const std::int64_t chunk = std::min(power, rows);
  Tensor loss, hidden_gradient, weight_gradient;
  {
    const NoGrad no_grad(tape.modes);
    hidden_gradient = tape.empty(hidden.shape(), hidden.dtype(), aten::kZerosLike);
    if (weight.requires_grad()) weight_gradient = tape.empty(weight.shape(), weight.dtype(), aten::kZerosLike);
    Tensor losses = tape.empty({rows}, DType::kFloat32, kLoss);
    Tensor present = tape.empty({rows}, DType::kBool, aten::kNe);
    no_grad::sum(present).reset();
    {
      Tensor logits;
      if (!tape.modes.autocast.dtype) logits = tape.empty({chunk, weight.size(0)}, hidden.dtype(), kLoss);
      for (std::int64_t begin = 0; begin < rows; begin += chunk) {
        loss_of_chunk(hidden, weight, std::min(chunk, rows - begin), weight_gradient.defined());
      }
    }
    loss = sum_all(losses);
    drop(present, losses);
  }
  (void)targets;
  if (node != nullptr) {
    tape.autograd.save(*node, hidden_gradient);
    if (weight_gradient.defined()) tape.autograd.save(*node, weight_gradient);
  }
  tape.autograd.set_history(node, loss);
  return loss;
}

}  // namespace memcalc
