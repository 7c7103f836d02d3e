// MIRRORS(torch, "cuda/SoftMax.cu", "2.11.0")
// MIRRORS(torch, "cuda/group_norm_kernel.cu", "2.11.0")
// MIRRORS(torch, "cuda/layer_norm_kernel.cu", "2.11.0")
// MIRRORS(torch, "group_norm.cpp", "2.11.0")
// MIRRORS(torch, "layer_norm.cpp", "2.11.0")
#include "memcalc/symbolic/ops/norm.h"

#include <algorithm>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/symbolic/within_call.h"

namespace memcalc {

namespace {

/// The statistics of a normalisation are float32 for 16-bit inputs.
DType statistics_dtype(DType dtype) { return is_half(dtype) ? DType::kFloat32 : dtype; }

work::Rows rows_of(const Tensor& x) {
  const std::int64_t width = x.rank() > 0 ? x.size(-1) : 1;
  return {.count = width > 0 ? x.elements() / width : 0, .width = width};
}

void rowwise_kernel(const Operator& op, const Tensor& x, double flops, double tensors, const work::Rows& rows) {
  x.tape().kernels.add(op, OperatorClass::kNormalization, x.dtype(), flops * static_cast<double>(x.elements()),
                       tensors * static_cast<double>(x.bytes()), KernelKind::kRowwise,
                       static_cast<double>(x.elements()));
  x.tape().kernels.describe(rows);
}

void normalization_kernel(const Operator& op, const Tensor& x, double flops, double tensors) {
  rowwise_kernel(op, x, flops, tensors, rows_of(x));
}

/// `result`: in forward, as it is written. Of float16 it can be float32 (SoftMax.cu, half_to_float).
void softmax_kernel(const Operator& op, const Tensor& x, double flops, bool backward, const Tensor& result) {
  work::Rows rows = rows_of(x);
  rows.softmax = true;
  rows.backward = backward;
  const double written = static_cast<double>(result.bytes()) / static_cast<double>(std::max<Bytes>(x.bytes(), 1));
  rowwise_kernel(op, x, flops, backward ? 3 : 1 + written, rows);
}

/// The gradients of weight and bias: a second pass over x and dy (cuda/layer_norm_kernel.cu, GammaBetaBackward).
void weight_gradient_kernel(const Operator& op, const Tensor& x) {
  x.tape().kernels.add(op, OperatorClass::kNormalization, x.dtype(), 0, 2.0 * static_cast<double>(x.bytes()),
                       KernelKind::kColumnSum, static_cast<double>(x.elements()));
  work::Rows rows = rows_of(x);
  rows.backward = true;
  x.tape().kernels.describe(rows);
}

/// cuda/layer_norm_kernel.cu, LaunchGammaBetaBackwardCUDAKernel: with many rows and few columns the gradients of
/// weight and bias are summed by blocks of rows first, then over the blocks.
void partial_weight_gradients(const Tensor& input, std::int64_t width, Tensor& dweight, Tensor& dbias) {
  Tape& tape = input.tape();
  const std::int64_t rows = input.elements() / width;
  const std::int64_t column_blocks = ceil_div(width, 32);
  if (rows <= 65536 || column_blocks >= tape.device.multiprocessors / 2) return;
  const std::int64_t parts = std::min(32768 / column_blocks, ceil_div(rows, 32));
  const DType dtype = input.dtype();
  Tensor weight_parts, bias_parts;
  if (dweight.defined()) weight_parts = tape.empty({parts, width}, dtype, aten::kNativeLayerNormBackward);
  if (dbias.defined()) bias_parts = tape.empty({parts, width}, dtype, aten::kNativeLayerNormBackward);
  const auto total = [&](const Tensor& parts_of, Tensor& gradient) {
    const Shape shape = gradient.shape();
    gradient = sum_to(parts_of, {width});
    if (shape.rank != 1) gradient = tape.alias(gradient, shape, contiguous_strides(shape), false);
  };
  if (dweight.defined()) total(weight_parts, dweight);
  if (dbias.defined()) total(bias_parts, dbias);
  drop(weight_parts, bias_parts);
}

struct LayerNormPayload {
  std::int64_t width = 1;
  bool has_weight = false, has_bias = false;
};

/// inputs: x, weight and bias where they are; saved: bias, input, weight, mean, rstd.
void layer_norm_backward(BackwardCall& call) {
  const Tensor& gradient = call.gradient();
  Tape& tape = call.tape;
  const auto& [width, has_weight, has_bias] = call.payload<LayerNormPayload>();
  const Tensor& input = call.saved(has_bias ? 1 : 0);
  const bool of_weight = has_weight && call.needs(1), of_bias = has_bias && call.needs(2);
  const Tensor x = contiguous(input);
  Tensor dx = tape.empty(input.shape(), input.dtype(), aten::kNativeLayerNormBackward);
  Tensor dweight, dbias;
  Tensor dy;
  if (of_weight || of_bias) {
    const Tensor& weight = call.saved(has_bias ? 2 : 1);
    if (of_weight) dweight = tape.empty(weight.shape(), weight.dtype(), aten::kNativeLayerNormBackward);
    if (of_bias) dbias = tape.empty(weight.shape(), weight.dtype(), aten::kNativeLayerNormBackward);
  }
  dy = contiguous(gradient);
  if (of_weight || of_bias) partial_weight_gradients(input, width, dweight, dbias);
  normalization_kernel(aten::kNativeLayerNormBackward, gradient, 14, 3);
  if (of_weight || of_bias) weight_gradient_kernel(aten::kNativeLayerNormBackward, gradient);
  if (call.needs(0)) call.set(0, std::move(dx));
  if (has_weight) call.set(1, std::move(dweight));
  if (has_bias) call.set(2, std::move(dbias));
}

void rms_norm_backward(BackwardCall& call) {  // inputs: x, weight where there is one; saved: input, weight, rstd
  Tape& tape = call.tape;
  const Tensor& input = call.saved(0);
  const Tensor x = contiguous(input);
  const Tensor dy = contiguous(call.gradient());
  Tensor dx = tape.empty(input.shape(), input.dtype(), aten::kFusedRmsNormBackward);
  Tensor dweight, no_bias;
  const bool has_weight = call.node.edge_count > 1 && call.needs(1);
  if (has_weight) {
    const Tensor& weight = call.saved(1);
    dweight = tape.empty(weight.shape(), weight.dtype(), aten::kFusedRmsNormBackward);
    partial_weight_gradients(input, input.size(-1), dweight, no_bias);
  }
  normalization_kernel(aten::kFusedRmsNormBackward, dy, 11, 3);
  if (has_weight) weight_gradient_kernel(aten::kFusedRmsNormBackward, dy);
  if (call.needs(0)) call.set(0, std::move(dx));
  if (has_weight) call.set(1, std::move(dweight));
}

struct GroupNormPayload {
  std::int64_t groups = 1;
};

/// cuda/group_norm_kernel.cu, GroupNormBackwardKernelImplInternal: sums over each channel, then three factors a group.
/// inputs: x, weight and bias where they are; saved: input, weight, mean, rstd.
void group_norm_backward(BackwardCall& call) {
  Tape& tape = call.tape;
  const Tensor& input = call.saved(0);
  const bool has_weight = call.node.edge_count > 1;
  const Tensor dy = contiguous(call.gradient());
  Tensor dx = tape.empty(input.shape(), input.dtype(), aten::kNativeGroupNormBackward);
  for (int i = 1; i < call.node.edge_count; ++i) {
    if (!call.needs(i)) continue;  // grad_input_mask
    call.set(i, tape.empty(call.saved(1).shape(), call.saved(1).dtype(), aten::kNativeGroupNormBackward));
  }
  const std::int64_t batch = input.size(0), channels = input.size(1);
  const std::int64_t groups = call.payload<GroupNormPayload>().groups;
  const auto factors = [&](std::int64_t count) {
    return tape.empty({batch, count}, statistics_dtype(input.dtype()), aten::kNativeGroupNormBackward);
  };
  if (input.elements() > batch * channels) {
    Tensor ds = factors(channels), db = factors(channels);
    Tensor c2 = factors(groups), c3 = factors(groups), c1;
    if (has_weight) c1 = factors(channels);
    drop(c3, c2, c1, db, ds);
  }
  // ds and db read dy and x, dx both again; the gradients of weight and bias are sums of ds and db.
  rowwise_kernel(aten::kNativeGroupNormBackward, dy, 14, 5,
                 {.count = batch * channels,
                  .width = dy.elements() / std::max<std::int64_t>(batch * channels, 1),
                  .backward = true});
  if (call.needs(0)) call.set(0, std::move(dx));
}

template <const AtenOperator& op>
void softmax_backward(BackwardCall& call) {
  const Tensor& result = call.saved(0);
  const Tensor& gradient = call.gradient();
  const DType input_dtype = call.payload<InputDType>().dtype;
  Tensor dx = call.tape.empty(gradient.shape(), input_dtype, op);
  // cuda/SoftMax.cu: the product of gradient and result is made first, except for log_softmax; host_softmax_backward
  // copies what is not row-major.
  Tensor product;
  if (&op == &aten::kSoftmaxBackwardData) product = pointwise(op, {&gradient, &result}, 1);
  const Tensor& read = product.defined() ? product : gradient;
  if (!read.is_contiguous()) call.tape.memory.scratch(read.bytes(), aten::kClone);
  product.reset();
  softmax_kernel(op, gradient, 4, true, dx);
  call.set(0, std::move(dx));
}

Tensor softmax_like(const AtenOperator& op, const AtenOperator& called, BackwardFunction backward, const Tensor& x,
                    DType dtype) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(op, backward, inputs, 1);
  if (node != nullptr) node->payload.set(InputDType{x.dtype()});
  Tensor result = tape.empty(x.shape(), dtype, called);
  if (!x.is_contiguous())
    tape.memory.scratch(x.bytes(), aten::kClone);  // cuda/SoftMax.cu, host_softmax: input_.contiguous()
  softmax_kernel(called, x, 5, false, result);
  tape.autograd.set_history(node, result);
  if (node != nullptr) tape.autograd.save(*node, result);
  return result;
}

}  // namespace

Tensor layer_norm(Arg x, const Tensor& given_weight, const Tensor& given_bias, int dims) {
  const OperatorCall call(x);
  const auto cast = [](const Tensor& each) {
    return each.defined() ? autocast(aten::kNativeLayerNorm, each) : Tensor();
  };
  const Tensor bias = cast(given_bias), weight = cast(given_weight);  // the dispatcher's last argument first
  const Tensor input = autocast(aten::kNativeLayerNorm, *x);
  Tape& tape = input.tape();
  const Tensor* inputs[] = {&input, &weight, &bias};
  const int count = bias.defined() ? 3 : weight.defined() ? 2 : 1;
  Node* node = tape.autograd.record(aten::kNativeLayerNorm, layer_norm_backward, inputs, count);
  std::int64_t width = 1;
  for (int i = 1; i <= dims; ++i) width *= input.size(-i);
  if (node != nullptr) {
    node->payload.set(LayerNormPayload{width, weight.defined(), bias.defined()});
    if (bias.defined()) tape.autograd.save(*node, bias);
    tape.autograd.save(*node, input);
    if (weight.defined()) tape.autograd.save(*node, weight);
  }
  const std::int64_t rows = width > 0 ? input.elements() / width : 0;
  Tensor row_major;
  {
    const NoGrad no_grad(tape.modes);
    row_major = contiguous(input);
  }
  Tensor result = tape.empty(input.shape(), input.dtype(), aten::kNativeLayerNorm);
  const Tensor mean = tape.empty({rows}, statistics_dtype(input.dtype()), aten::kNativeLayerNorm);
  const Tensor rstd = tape.empty({rows}, statistics_dtype(input.dtype()), aten::kNativeLayerNorm);
  normalization_kernel(aten::kNativeLayerNorm, input, 8, 2);
  row_major.reset();
  tape.autograd.set_history(node, result);
  if (node != nullptr) {
    tape.autograd.save(*node, mean);
    tape.autograd.save(*node, rstd);
  }
  return result;
}

Tensor rms_norm(Arg x, const Tensor& weight) {
  const OperatorCall call(x);
  if (weight.defined() && x->dtype() != weight.dtype()) {  // layer_norm.cpp, rms_norm_composite
    const Tensor upcast = to_dtype(*x, DType::kFloat32);
    Tensor squares = power(upcast);
    Tensor means = mean_last(squares);
    means = add_scalar_in_place(means);
    const Tensor scale = reciprocal_sqrt(means);
    drop(means, squares);
    Tensor result = upcast * scale;
    result = result * weight;
    return to_dtype(std::move(result), x->dtype());
  }
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x, &weight};
  Node* node = tape.autograd.record(aten::kFusedRmsNorm, rms_norm_backward, inputs, weight.defined() ? 2 : 1);
  if (node != nullptr) {
    tape.autograd.save(*node, *x);
    if (weight.defined()) tape.autograd.save(*node, weight);
  }
  Tensor row_major;
  {
    const NoGrad no_grad(tape.modes);
    row_major = contiguous(*x);
  }
  Tensor result = tape.empty(x->shape(), x->dtype(), aten::kFusedRmsNorm);
  const Tensor rstd = tape.empty({x->elements() / x->size(-1)}, statistics_dtype(x->dtype()), aten::kFusedRmsNorm);
  normalization_kernel(aten::kFusedRmsNorm, *x, 5, 2);
  tape.autograd.set_history(node, result);
  if (node != nullptr) tape.autograd.save(*node, rstd);
  return result;
}

Tensor group_norm(Arg x, const Tensor& given_weight, const Tensor& given_bias, std::int64_t groups) {
  const OperatorCall call(x);
  const auto cast = [](const Tensor& each) {
    return each.defined() ? autocast(aten::kNativeGroupNorm, each) : Tensor();
  };
  const Tensor bias = cast(given_bias), weight = cast(given_weight);
  const Tensor converted = autocast(aten::kNativeGroupNorm, *x);
  const Tensor input = contiguous(converted);  // group_norm.cpp: before native_group_norm, which keeps the copy
  Tape& tape = input.tape();
  const Tensor* inputs[] = {&input, &weight, &bias};
  Node* node = tape.autograd.record(aten::kNativeGroupNorm, group_norm_backward, inputs,
                                    bias.defined()     ? 3
                                    : weight.defined() ? 2
                                                       : 1);
  if (node != nullptr) {
    node->payload.set(GroupNormPayload{groups});
    tape.autograd.save(*node, input);
    if (weight.defined()) tape.autograd.save(*node, weight);
  }
  Tensor result = tape.empty(input.shape(), input.dtype(), aten::kNativeGroupNorm);
  const std::int64_t batch = input.size(0), channels = input.size(1);
  const Tensor mean = tape.empty({batch, groups}, input.dtype(), aten::kNativeGroupNorm);
  const Tensor rstd = tape.empty({batch, groups}, input.dtype(), aten::kNativeGroupNorm);
  if (weight.defined() &&
      input.elements() > batch * channels) {  // weight, bias and statistics joined to one factor and one summand
    Tensor a = tape.empty({batch, channels}, statistics_dtype(input.dtype()), aten::kNativeGroupNorm);
    Tensor b = tape.empty({batch, channels}, statistics_dtype(input.dtype()), aten::kNativeGroupNorm);
    drop(b, a);
  }
  // Read for the moments, and again.
  rowwise_kernel(aten::kNativeGroupNorm, input, 8, 3,
                 {.count = batch * groups, .width = input.elements() / std::max<std::int64_t>(batch * groups, 1)});
  tape.autograd.set_history(node, result);
  if (node != nullptr) {
    tape.autograd.save(*node, mean);
    tape.autograd.save(*node, rstd);
  }
  return result;
}

Tensor softmax(Arg x) {
  const OperatorCall call(x);
  return softmax(*x, autocast_result(aten::kSoftmax, *x));
}

Tensor softmax(Arg x, DType dtype) {
  const OperatorCall call(x);
  // Only float16 is converted inside the kernel.
  if (x->dtype() != DType::kFloat16 && x->dtype() != dtype) return softmax(to_dtype(*x, dtype), dtype);
  return softmax_like(aten::kSoftmax, aten::kSoftmax, softmax_backward<aten::kSoftmaxBackwardData>, *x, dtype);
}

Tensor log_softmax(Arg x) {
  const OperatorCall call(x);
  return log_softmax(*x, x->dtype());
}

Tensor log_softmax(Arg x, DType dtype) {
  const OperatorCall call(x);
  // As softmax: only float16 is converted inside the kernel.
  if (x->dtype() != DType::kFloat16 && x->dtype() != dtype) return log_softmax(to_dtype(*x, dtype), dtype);
  return softmax_like(aten::kLogSoftmax, aten::kLogSoftmax, softmax_backward<aten::kLogSoftmaxBackwardData>, *x, dtype);
}

Tensor safe_softmax(Arg x) {
  const OperatorCall call(x);
  Tensor result =
      softmax_like(aten::kSafeSoftmax, aten::kSoftmax, softmax_backward<aten::kSoftmaxBackwardData>, *x, x->dtype());
  Tape& tape = x->tape();
  Tensor masked = pointwise(aten::kIsneginf, {&*x}, 1, DType::kBool);
  Shape rows = x->shape();
  rows[-1] = 1;
  Tensor fully_masked = tape.empty(rows, DType::kBool, aten::kAll);
  const auto elements = static_cast<double>(x->elements()), row_bytes = static_cast<double>(fully_masked.bytes());
  const auto within_operator = [&] {  // no Python precedes it
    if (Kernel* kernel = tape.kernels.last()) kernel->node = &kAroundModel;
  };
  tape.kernels.add(aten::kAll, OperatorClass::kNormalization, DType::kBool, elements, elements + row_bytes,
                   KernelKind::kRowSum, elements);
  within_operator();
  Tensor zero = tape.empty({}, x->dtype(), aten::kScalarTensor);
  // native/transformers/attention.cpp, _safe_softmax: into the result, by the rows' booleans
  tape.kernels.add(aten::kWhere, OperatorClass::kElementwise, x->dtype(), elements,
                   2 * static_cast<double>(result.bytes()) + row_bytes, KernelKind::kStrided, elements);
  within_operator();
  drop(zero, fully_masked, masked);
  return result;
}

}  // namespace memcalc
