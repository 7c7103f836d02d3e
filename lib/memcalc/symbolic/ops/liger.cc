// liger_kernel 0.8 ops/: rms_norm.py, rope.py, swiglu.py, fused_linear_cross_entropy.py.
// MIRRORS(liger_kernel, "ops/fused_linear_cross_entropy.py", "0.8.0")
// MIRRORS(liger_kernel, "ops/rms_norm.py", "0.8.0")
// MIRRORS(liger_kernel, "ops/rope.py", "0.8.0")
// MIRRORS(liger_kernel, "ops/swiglu.py", "0.8.0")
#include "memcalc/symbolic/ops/liger.h"

#include <algorithm>
#include <bit>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
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
  read_on_host(call.tape, aten::kEqual);
  call.set(0, call.saved(0));
  if (call.needs(1)) call.set(1, call.saved(1));
}

/// grad_weight += torch.mm(grad_logits_chunk.t(), _input_chunk).float(): the product, and a copy of it in float32, each
/// as large as the weight. (liger-kernel before 0.6 added it in place.)
void add_to_weight_gradient(Tensor& gradient, const Tensor& weight, std::int64_t rows, DType dtype) {
  Tape& tape = gradient.tape();
  Tensor product = tape.empty(weight.shape(), dtype, aten::kMm);
  tape.kernels.product(aten::kMm, dtype, 1, weight.size(0), weight.size(1), rows, KernelKind::kMatrixProduct,
                       Transposed::kFirst);
  const Tensor wide = to_dtype(product, DType::kFloat32);
  product.reset();
  gradient = add_in_place(gradient, wide);
}

/// One chunk of rows: logits, their gradient in place, and what it adds to the gradients of hidden and weight. `logits`
/// is Python's variable, which holds the last chunk's until these are there.
void loss_of_chunk(const Tensor& hidden, const Tensor& weight, std::int64_t rows, Tensor& weight_gradient,
                   Tensor& logits) {
  Tape& tape = hidden.tape();
  const std::int64_t width = weight.size(1), vocabulary = weight.size(0);
  const DType dtype = tape.modes.autocast.dtype.value_or(hidden.dtype());
  const bool mixed = hidden.dtype() != dtype;
  const auto rows_of = [&](std::int64_t columns) { return Shape{rows, columns}; };
  {
    Tensor weight_cast, rows_cast;  // weight.t() is a view, which autocast does not cache
    if (mixed) {
      weight_cast = tape.empty(weight.shape(), dtype, aten::kToCopy, Category::kAutocastCopies);
      rows_cast = tape.empty(rows_of(width), dtype, aten::kToCopy);
    }
    tape.kernels.product(aten::kMm, dtype, 1, rows, vocabulary, width, KernelKind::kMatrixProduct, Transposed::kSecond);
    logits = tape.empty(rows_of(vocabulary), dtype, aten::kMm);
    drop(rows_cast, weight_cast);
  }
  // liger_cross_entropy_kernel: a program holds a row, which it reads twice and then writes as its gradient.
  const auto elements = static_cast<double>(logits.elements());
  tape.kernels.add(kLoss, OperatorClass::kNormalization, dtype, 8 * elements,
                   1.5 * static_cast<double>(logits.bytes()) * 2, KernelKind::kRowwise, elements);
  tape.kernels.describe(work::Rows{.count = rows, .width = vocabulary, .softmax = true});
  if (tape.modes.autocast.dtype) (void)autocast(aten::kMatmul, weight);
  tape.kernels.product(aten::kMm, dtype, 1, rows, width, vocabulary);
  tape.memory.scratch(rows * width * size_of(dtype), aten::kMm);  // … which is copied into a slice of grad_input
  tape.kernels.add(aten::kCopy, OperatorClass::kMovement, dtype, 0,
                   2.0 * static_cast<double>(rows * width * size_of(dtype)));
  if (!weight_gradient.defined()) return;
  if (mixed) tape.memory.scratch(rows * width * size_of(dtype), aten::kToCopy);
  add_to_weight_gradient(weight_gradient, weight, rows, dtype);
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
    read_on_host(tape);  // total_n_non_ignore = target_mask.sum().item()
    // From the second on all chunks ask for the same but the last: of many one stands for the others.
    constexpr std::int64_t kExecuted = 6;
    const std::int64_t count = ceil_div(rows, chunk);
    Tensor logits;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t stands_for = 1;
      if (count > kExecuted && i == 1) {
        stands_for = count - kExecuted + 1;
        i += stands_for - 1;
      }
      const Scoped repeated(tape.kernels.repeats, tape.kernels.repeats * stands_for);
      loss_of_chunk(hidden, weight, std::min(chunk, rows - i * chunk), weight_gradient, logits);
    }
    logits.reset();
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
