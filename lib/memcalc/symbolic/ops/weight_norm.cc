// MIRRORS(torch, "cuda/WeightNorm.cu", "2.11.0")
#include "memcalc/symbolic/ops/weight_norm.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

void count_kernel(const Operator& op, const Tensor& v) {
  v.tape().kernels.add(op, OperatorClass::kElementwise, v.dtype(), 3.0 * static_cast<double>(v.elements()),
                       2.0 * static_cast<double>(v.bytes()));
}

void weight_norm_backward(BackwardCall& call) {  // saved: g, v, norms
  const Tensor &g = call.saved(0), &v = call.saved(1);
  const Tensor gradient = contiguous(call.gradient());
  call.set(0, call.tape.empty(v.shape(), v.dtype(), aten::kWeightNormInterfaceBackward));
  call.set(1, call.tape.empty(g.shape(), g.dtype(), aten::kWeightNormInterfaceBackward));
  count_kernel(aten::kWeightNormInterfaceBackward, v);
}

}  // namespace

/// cuda/WeightNorm.cu: beside the result the norms, in float32 for 16-bit weights.
Tensor weight_norm(const Tensor& v, const Tensor& g) {
  Tape& tape = v.tape();
  const Tensor* inputs[] = {&v, &g};
  Node* node = tape.autograd.record(aten::kWeightNormInterface, weight_norm_backward, inputs, 2);
  if (node != nullptr) {
    tape.autograd.save(*node, g);
    tape.autograd.save(*node, v);
  }
  Tensor result = tape.empty(v.shape(), v.dtype(), aten::kWeightNormInterface);
  const Tensor norms =
      tape.empty(g.shape(), is_half(g.dtype()) ? DType::kFloat32 : g.dtype(), aten::kWeightNormInterface);
  count_kernel(aten::kWeightNormInterface, v);
  tape.autograd.set_history(node, result);
  if (node != nullptr) tape.autograd.save(*node, norms);
  return result;
}

}  // namespace memcalc
