// liger_kernel 0.8 ops/: rms_norm.py, rope.py, swiglu.py, fused_linear_cross_entropy.py (from 0.6.2 on).
// MIRRORS(liger_kernel, "ops/fused_linear_cross_entropy.py", "0.8.5")
// MIRRORS(liger_kernel, "ops/rms_norm.py", "0.8.5")
// MIRRORS(liger_kernel, "ops/rope.py", "0.8.5")
// MIRRORS(liger_kernel, "ops/swiglu.py", "0.8.5")
#include "memcalc/symbolic/ops/liger.h"

#include <algorithm>
#include <bit>

#include "memcalc/spec/cuda_architecture.h"
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
  const Tensor gradient = call.take_gradient();
  call.set(0, view(gradient, gradient.shape()));  // dX.view(*shape): what autograd does not add to in place
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

/// Variables of the loop over chunks.
struct Chunk {
  Tensor logits, rows_cast;
  bool has_gradients = true;  // input_requires_grad: not where Trainer.evaluate() runs without them
};

/// _can_use_mm_out of 0.8.3: torch.mm(..., out=), which autocast does not reach.
bool writes_in_place(const Tensor& hidden, const Tensor& weight) {
  const Tape& tape = hidden.tape();
  return tape.behaviors.liger_loss == LigerLoss::kInPlace && hidden.dtype() == weight.dtype() &&
         tape.modes.autocast.dtype.value_or(hidden.dtype()) == hidden.dtype();
}

/// torch.addmm(..., out=grad_weight), from 0.8.1 on: of 16-bit logits.
bool adds_in_place(const Tensor& gradient, DType logits) {
  const Tape& tape = gradient.tape();
  const bool old_card = is_cuda(tape.device) && architecture_of(tape.device) < CudaArchitecture::kAmpere;
  if (logits == DType::kFloat32 || old_card) return false;
  switch (tape.behaviors.liger_loss) {
    case LigerLoss::kProducts: return false;
    case LigerLoss::kFloat32InPlace: return gradient.dtype() == DType::kFloat32;
    case LigerLoss::kInPlace: return gradient.dtype() == DType::kFloat32 || gradient.dtype() == logits;
  }
  return false;
}

/// Else grad_weight += torch.mm(grad_logits_chunk.t(), _input_chunk).float(): the product, and a copy of it in float32,
/// each as large as the weight.
void add_to_weight_gradient(const Tensor& hidden, std::int64_t rows, Tensor& gradient, Chunk& chunk) {
  Tape& tape = hidden.tape();
  const DType dtype = chunk.logits.dtype();
  const std::int64_t vocabulary = gradient.size(0), width = gradient.size(1);
  chunk.rows_cast.reset();
  if (hidden.dtype() != dtype) chunk.rows_cast = tape.empty({rows, width}, dtype, aten::kToCopy);
  const bool in_place = adds_in_place(gradient, dtype);
  Tensor product;
  if (!in_place) product = tape.empty(gradient.shape(), dtype, aten::kMm);
  tape.kernels.product(aten::kMm, dtype, 1, vocabulary, width, rows, KernelKind::kMatrixProduct, Transposed::kFirst);
  if (in_place) return;
  chunk.rows_cast.reset();  // autocast's
  const Tensor wide = to_dtype(product, DType::kFloat32);
  product.reset();
  gradient = add_in_place(gradient, wide);
}

/// One chunk of rows: logits, their gradient in place, and what it adds to the gradients of hidden and weight.
void loss_of_chunk(const Tensor& hidden, const Tensor& weight, std::int64_t rows, Tensor& weight_gradient,
                   Chunk& chunk) {
  Tape& tape = hidden.tape();
  const std::int64_t width = weight.size(1), vocabulary = weight.size(0);
  const DType dtype = tape.modes.autocast.dtype.value_or(hidden.dtype());
  const bool in_place = writes_in_place(hidden, weight);
  if (!in_place) {
    Tensor weight_cast, rows_cast;  // weight.t() is a view, which autocast does not cache
    if (weight.dtype() != dtype) {
      weight_cast = tape.empty(weight.shape(), dtype, aten::kToCopy, Category::kAutocastCopies);
    }
    if (hidden.dtype() != dtype) rows_cast = tape.empty({rows, width}, dtype, aten::kToCopy);
    chunk.logits = tape.empty({rows, vocabulary}, dtype, aten::kMm);
    drop(rows_cast, weight_cast);
  }
  tape.kernels.product(aten::kMm, dtype, 1, rows, vocabulary, width, KernelKind::kMatrixProduct, Transposed::kSecond);
  // liger_cross_entropy_kernel: a program holds a row, which it reads twice and then writes as its gradient.
  const double elements = static_cast<double>(rows) * static_cast<double>(vocabulary);
  tape.kernels.add(kLoss, OperatorClass::kNormalization, dtype, 8 * elements,
                   3 * elements * static_cast<double>(size_of(dtype)), KernelKind::kRowwise, elements);
  tape.kernels.describe(work::Rows{.count = rows, .width = vocabulary, .softmax = true});
  if (!chunk.has_gradients) return;
  if (tape.modes.autocast.dtype && !in_place) (void)autocast(aten::kMatmul, weight);
  tape.kernels.product(aten::kMm, dtype, 1, rows, width, vocabulary);
  if (!in_place) {  // … which is copied into a slice of grad_input
    const std::int64_t bytes = rows * width * size_of(dtype);
    tape.memory.scratch(bytes, aten::kMm);
    tape.kernels.add(aten::kCopy, OperatorClass::kMovement, dtype, 0, 2.0 * static_cast<double>(bytes));
  }
  if (weight_gradient.defined()) add_to_weight_gradient(hidden, rows, weight_gradient, chunk);
}

/// Of all chunks. Before 0.8.3 the loop's variables live on in the next chunk, and the last one's until the caller lets
/// them go.
Chunk loss_of_chunks(const Tensor& hidden, const Tensor& weight, Tensor& weight_gradient, bool has_gradients) {
  Tape& tape = hidden.tape();
  const std::int64_t rows = hidden.size(0);
  const std::int64_t chunks = ceil_div(weight.size(0), weight.size(1));
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(ceil_div(rows, chunks))));
  const std::int64_t most = std::min(power, rows);
  const bool ends = tape.behaviors.liger_loss == LigerLoss::kInPlace;
  const bool in_place = writes_in_place(hidden, weight);
  Chunk chunk{.has_gradients = has_gradients};
  if (in_place) chunk.logits = tape.empty({most, weight.size(0)}, hidden.dtype(), kLoss);
  for (std::int64_t begin = 0; begin < rows; begin += most) {
    loss_of_chunk(hidden, weight, std::min(most, rows - begin), weight_gradient, chunk);
    if (ends) chunk.rows_cast.reset();
    if (ends && !in_place) chunk.logits.reset();
  }
  if (ends) chunk.logits.reset();
  return chunk;
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
  const bool has_gradients = node != nullptr && hidden.requires_grad();
  Tensor loss, hidden_gradient, weight_gradient;
  {
    const NoGrad no_grad(tape.modes);
    hidden_gradient = tape.empty(hidden.shape(), hidden.dtype(), aten::kZerosLike);
    if (has_gradients && weight.requires_grad())
      weight_gradient = tape.empty(weight.shape(), weight.dtype(), aten::kZerosLike);
    Tensor losses = tape.empty({rows}, DType::kFloat32, kLoss);
    Tensor present = tape.empty({rows}, DType::kBool, aten::kNe);
    no_grad::sum(present).reset();
    read_on_host(tape);  // total_n_non_ignore = target_mask.sum().item()
    const Chunk last = loss_of_chunks(hidden, weight, weight_gradient, has_gradients);
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
