#include "memcalc/symbolic/ops/batch_norm.h"

#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kCudnn{"aten::cudnn_batch_norm"}, kCudnnBackward{"CudnnBatchNormBackward0"};
constexpr Operator kCudnnBackwardOp{"aten::cudnn_batch_norm_backward"};
constexpr Operator kNative{"aten::native_batch_norm"}, kNativeBackward{"NativeBatchNormBackward0"};
constexpr Operator kNativeBackwardOp{"aten::native_batch_norm_backward"};

/// Both kernels ask for the same: the input's gradient, then those of weight and bias.
template <const Operator& op>
void batch_norm_backward(BackwardCall& call) {  // inputs: x, weight, bias; saved: x, weight, mean, invstd
  const Tensor& x = call.saved(0);
  const Tensor& weight = call.saved(1);
  Tape& tape = call.tape;
  Tensor dx = tape.empty_strided(x.shape(), like_strides(x.shape(), x.strides()), x.dtype(), op);
  call.set(1, tape.empty(weight.shape(), weight.dtype(), op));
  call.set(2, tape.empty(weight.shape(), weight.dtype(), op));
  tape.kernel(op, OperatorClass::kNormalization, x.dtype(), 14.0 * static_cast<double>(x.elements()),
              5.0 * static_cast<double>(x.bytes()));
  if (call.needs(0)) call.set(0, std::move(dx));
}

/// native/Normalization.cpp, _select_batch_norm_backend: cuDNN takes float32, and float16 with float32 weights.
bool uses_cudnn(const Tensor& x, const Tensor& weight) {
  if (weight.dtype() != DType::kFloat32) return false;
  return x.dtype() == DType::kFloat32 || x.dtype() == DType::kFloat16;
}

}  // namespace

Tensor batch_norm(Arg x, const Tensor& weight, const Tensor& bias) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  const bool cudnn = uses_cudnn(*x, weight);
  const Operator& op = cudnn ? kCudnn : kNative;
  const Tensor* inputs[] = {&*x, &weight, &bias};
  Node* node =
      tape.record(cudnn ? kCudnnBackward : kNativeBackward,
                  cudnn ? batch_norm_backward<kCudnnBackwardOp> : batch_norm_backward<kNativeBackwardOp>, inputs, 3);
  if (node != nullptr) {
    tape.save(*node, *x);
    tape.save(*node, weight);
  }
  Tensor result = tape.empty_strided(x->shape(), like_strides(x->shape(), x->strides()), x->dtype(), op);
  const Tensor mean = tape.empty({x->size(1)}, DType::kFloat32, op);
  const Tensor invstd = tape.empty({x->size(1)}, DType::kFloat32, op);
  tape.kernel(op, OperatorClass::kNormalization, x->dtype(), 8.0 * static_cast<double>(x->elements()),
              3.0 * static_cast<double>(x->bytes()));
  tape.set_history(node, result);
  if (node != nullptr) {
    tape.save(*node, mean);
    tape.save(*node, invstd);
  }
  return result;
}

}  // namespace memcalc
