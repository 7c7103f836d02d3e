#include "memcalc/symbolic/ops/bloom_gelu.h"

#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kGeluFunctionBackward{"GeLUFunctionBackward"};

/// torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))
Tensor tanh_of(const Tensor& x) {
  Tensor scaled = multiply_scalar(x);
  Tensor cubic = multiply_scalar(x) * x;
  cubic = add_scalar(std::move(cubic));
  return tanh(std::move(scaled) * std::move(cubic));
}

/// bloom_gelu_back
void gelu_function_backward(BackwardCall& call) {  // saved: input
  const NoGrad no_grad(call.tape.modes);
  const Tensor& x = call.saved(0);
  Tensor tanh_out = tanh_of(x);
  Tensor ff;
  {
    Tensor half = multiply_scalar(x);
    Tensor slope = add_scalar(tanh_out * tanh_out);  // 1 - tanh_out * tanh_out
    Tensor square = multiply_scalar(x) * x;
    square = add_scalar(std::move(square));
    slope = std::move(slope) * std::move(square);
    half = std::move(half) * std::move(slope);
    ff = std::move(half) + multiply_scalar(add_scalar(tanh_out));
  }
  call.set(0, ff * call.gradient());
  drop(tanh_out, ff);
}

}  // namespace

Tensor bloom_gelu(const Tensor& x) {
  Tape& tape = x.tape();
  if (tape.modes.capture != nullptr) {
    throw Error(ErrorCode::kUnsupported,
                "Dynamo traces through BLOOM's custom function GeLUFunction, whose graph is not modelled; accepted: no "
                "--compile");
  }
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kGeluFunctionBackward, gelu_function_backward, inputs, 1);
  Tensor result;
  {
    const NoGrad no_grad(tape.modes);
    Tensor half = multiply_scalar(x);
    result = std::move(half) * add_scalar(tanh_of(x));
  }
  tape.autograd.set_history(node, result);
  if (node != nullptr) tape.autograd.save(*node, x);
  return result;
}

}  // namespace memcalc
