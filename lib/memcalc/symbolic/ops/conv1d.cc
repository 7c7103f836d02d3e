#include "memcalc/symbolic/ops/conv1d.h"

#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kConvolution{"aten::cudnn_convolution"}, kConvolutionBackward{"ConvolutionBackward0"};
constexpr Operator kConvolutionBackwardOp{"aten::convolution_backward"};

void count_kernel(Tape& tape, const Operator& op, const Shape& result, const Tensor& weight, DType dtype) {
  tape.contraction(op, dtype, 1, result[0] * result[2], weight.size(0), weight.size(1) * weight.size(2));
}

void convolution_backward(BackwardCall& call) {  // inputs: x, weight, bias; saved: x, weight
  Tape& tape = call.tape;
  const Tensor& x = call.saved(0);
  const Tensor& weight = call.saved(1);
  {
    const Tensor dy = contiguous(call.gradient());
    if (call.needs(0)) {
      call.set(0, tape.empty(x.shape(), x.dtype(), kConvolutionBackwardOp));
      count_kernel(tape, kConvolutionBackwardOp, dy.shape(), weight, x.dtype());
    }
    if (call.needs(1)) {
      call.set(1, tape.empty(weight.shape(), weight.dtype(), kConvolutionBackwardOp));
      count_kernel(tape, kConvolutionBackwardOp, dy.shape(), weight, x.dtype());
    }
  }
  if (call.needs(2)) {
    Tensor sum = sum_to(call.gradient(), {1, weight.size(0), 1});
    call.set(2, tape.alias(sum, {weight.size(0)}, {1}, false));
  }
}

}  // namespace

Tensor conv1d(Arg x, const Tensor& weight, const Tensor& bias, std::int64_t stride, std::int64_t padding) {
  const OperatorCall call(x);
  Tensor vector;
  if (bias.defined()) vector = autocast_operand(bias);
  const Tensor filter = autocast_operand(weight);
  const Tensor input = autocast_operand(*x);
  Tape& tape = input.tape();
  const Tensor* inputs[] = {&input, &filter, &vector};
  Node* node = tape.record(kConvolutionBackward, convolution_backward, inputs, bias.defined() ? 3 : 2);
  if (node != nullptr) {
    tape.save(*node, input);
    tape.save(*node, filter);
  }
  const std::int64_t length = (input.size(2) + 2 * padding - filter.size(2)) / stride + 1;
  Tensor row_major;
  {
    const NoGrad no_grad(tape);
    row_major = contiguous(input);
  }
  Tensor result = tape.empty({input.size(0), filter.size(0), length}, input.dtype(), kConvolution);
  count_kernel(tape, kConvolution, result.shape(), filter, input.dtype());
  tape.set_history(node, result);
  return result;
}

}  // namespace memcalc
