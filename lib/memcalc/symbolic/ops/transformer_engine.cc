// module/{rmsnorm,layernorm_linear,linear}.py, attention/rope.py, triton/cross_entropy.py.
// MIRRORS(transformer_engine, "pytorch/attention/rope.py", "2.11.0")
// MIRRORS(transformer_engine, "pytorch/module/layernorm_linear.py", "2.11.0")
// MIRRORS(transformer_engine, "pytorch/module/linear.py", "2.11.0")
// MIRRORS(transformer_engine, "pytorch/module/rmsnorm.py", "2.11.0")
// MIRRORS(transformer_engine, "pytorch/triton/cross_entropy.py", "2.11.0")
#include "memcalc/symbolic/ops/transformer_engine.h"

#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kNorm{"transformer_engine::norm_fwd"}, kNormBackward{"transformer_engine::norm_bwd"};
constexpr Operator kGemm{"transformer_engine::generic_gemm"};
constexpr Operator kGather{"c10d::_allgather_base_"}, kReduceScatter{"c10d::_reduce_scatter_base_"};
constexpr Operator kAllReduce{"c10d::allreduce_"};
constexpr Operator kNormNode{"_RMSNormBackward"}, kNormLinearNode{"_LayerNormLinearBackward"};
constexpr Operator kLinearNode{"_LinearBackward"}, kRopeNode{"FusedRoPEFuncBackward"};
constexpr Operator kRope{"transformer_engine::fused_rope"};
constexpr Operator kLoss{"transformer_engine::cross_entropy"}, kLossNode{"CrossEntropyFunctionBackward"};

std::int64_t rows_of(const Tensor& x) { return x.elements() / x.size(-1); }

Shape with_sequence_and_width(Shape shape, std::int64_t sequence, std::int64_t width) {
  shape[0] = sequence;
  shape[-1] = width;
  return shape;
}

double real(std::int64_t value) { return static_cast<double>(value); }

struct Normalized {
  Tensor output, mean, reciprocal;
};

Normalized normalize(Tape& tape, const Tensor& x, bool rms) {
  Normalized result;
  result.output = tape.empty(x.shape(), x.dtype(), kNorm);
  if (!rms) result.mean = tape.empty({rows_of(x)}, DType::kFloat32, kNorm);
  result.reciprocal = tape.empty({rows_of(x)}, DType::kFloat32, kNorm);
  tape.kernels.add(kNorm, OperatorClass::kNormalization, x.dtype(), 4 * real(x.elements()), 2 * real(x.bytes()));
  return result;
}

/// dx, with the gradients of the norm's own weights, which die in their accumulation into main_grad.
Tensor normalize_backward(Tape& tape, const Tensor& x, bool rms) {
  Tensor dx = tape.empty(x.shape(), x.dtype(), kNormBackward);
  const Tensor dgamma = tape.empty({x.size(-1)}, x.dtype(), kNormBackward);
  Tensor dbeta;
  if (!rms) dbeta = tape.empty({x.size(-1)}, x.dtype(), kNormBackward);
  // Partial sums of dgamma (and dbeta) for each thread block.
  tape.memory.scratch(tape.device.multiprocessors * x.size(-1) * 4 * (rms ? 1 : 2), kNormBackward,
                      Category::kWorkspaces);
  tape.kernels.add(kNormBackward, OperatorClass::kNormalization, x.dtype(), 8 * real(x.elements()),
                   4 * real(x.bytes()));
  return dx;
}

Tensor gather_sequence(const MegatronMemory& memory, const Tensor& x) {
  Tape& tape = memory.tape;
  const std::int64_t ranks = memory.tensor_parallel;
  const Shape shape = with_sequence_and_width(x.shape(), x.size(0) * ranks, x.size(-1));
  Tensor whole = tape.empty(shape, x.dtype(), kGather, Category::kCommunication);
  tape.kernels.collective(kGather, Collective::kAllGather, x.dtype(), whole.bytes(), ranks);
  return whole;
}

Tensor scatter_sequence(const MegatronMemory& memory, const Tensor& x) {
  Tape& tape = memory.tape;
  const std::int64_t ranks = memory.tensor_parallel;
  tape.kernels.collective(kReduceScatter, Collective::kReduceScatter, x.dtype(), x.bytes(), ranks);
  return tape.empty(with_sequence_and_width(x.shape(), x.size(0) / ranks, x.size(-1)), x.dtype(), kReduceScatter);
}

/// Without sequence parallelism partial results are summed in place.
void all_reduce(const TeLinear& layer, const Tensor& x) {
  const MegatronMemory& memory = *layer.memory;
  if (!layer.split_ranks || memory.tensor_parallel == 1 || memory.sequence_parallel) return;
  memory.tape.kernels.collective(kAllReduce, Collective::kAllReduce, x.dtype(), x.bytes(), memory.tensor_parallel);
}

struct NormPayload {
  bool rms = false;
};

struct LinearPayload {
  const TeLinear* layer = nullptr;  // outlives the graph
};

const TeLinear& layer_of(const BackwardCall& call) { return *call.payload<LinearPayload>().layer; }

bool splits_sequence(const TeLinear& layer) {
  return layer.split_ranks && layer.memory->sequence_parallel && layer.memory->tensor_parallel > 1;
}

/// `transposed`: the second in forward, where a weight is [out, in]; none for the gradient of the input.
Tensor gemm(const TeLinear& layer, const Tensor& x, std::int64_t out, Transposed transposed) {
  Tape& tape = layer.memory->tape;
  layer.memory->use_workspace();
  Tensor result = tape.empty(with_sequence_and_width(x.shape(), x.size(0), out), x.dtype(), kGemm);
  tape.kernels.product(kGemm, x.dtype(), 1, rows_of(x), out, x.size(-1), KernelKind::kMatrixProduct, transposed);
  return result;
}

/// The weight's gradient: into main_grad where fused, else a 16-bit tensor that dies in its accumulation.
void weight_gradient(const TeLinear& layer, const Tensor& x) {
  Tape& tape = layer.memory->tape;
  layer.memory->use_workspace();
  if (layer.memory->fuses_weight_gradients) {  // main_grad is in float32 beside bfloat16 (megatron_buffers.cc)
    const DType buffer = x.dtype() == DType::kBFloat16 ? DType::kFloat32 : x.dtype();
    tape.kernels.grouped_weight_gradient(kGemm, x.dtype(), 1, rows_of(x), layer.out, layer.in, buffer);
    return;
  }
  tape.kernels.product(kGemm, x.dtype(), 1, layer.out, layer.in, rows_of(x), KernelKind::kMatrixProduct,
                       Transposed::kFirst);
}

/// What a function returns for its weight, at its end.
Tensor returned_weight_gradient(const TeLinear& layer, DType dtype) {
  if (!layer.memory->fuses_weight_gradients) return layer.memory->tape.empty({layer.out, layer.in}, dtype, kGemm);
  return layer.memory->use_dummy_weight_gradient(layer.out, layer.in, dtype);
}

/// clear_tensor_data: of a tensor that autograd saved and this function alone knows.
void clear_saved(BackwardCall& call, int i) {
  call.unpacked[static_cast<std::size_t>(i)].reset();
  call.node.saved[static_cast<std::size_t>(i)].reset();
}

void norm_backward(BackwardCall& call) {  // saved: x, reciprocal, mean?
  call.set(0, normalize_backward(call.tape, call.saved(0), call.payload<NormPayload>().rms));
}

void layer_norm_linear_backward(BackwardCall& call) {  // saved: x, normalized, reciprocal, mean?
  const TeLinear& layer = layer_of(call);
  const bool gathers = splits_sequence(layer);
  Tensor gradient = contiguous(call.gradient());
  Tensor total;
  if (gathers) total = gather_sequence(*layer.memory, call.saved(1));
  Tensor gemm_out = gemm(layer, gradient, layer.in, Transposed::kNone);
  Tensor dgrad = gathers ? scatter_sequence(*layer.memory, gemm_out) : gemm_out;
  all_reduce(layer, dgrad);
  weight_gradient(layer, gathers ? total : call.saved(1));
  Tensor wgrad, bias;
  if (!layer.memory->fuses_weight_gradients) wgrad = returned_weight_gradient(layer, gradient.dtype());
  if (layer.bias) bias = call.tape.empty({layer.out}, gradient.dtype(), kGemm);
  clear_saved(call, 1);
  total.reset();
  dgrad = normalize_backward(call.tape, call.saved(0), layer.norm_rms);
  if (layer.memory->fuses_weight_gradients) wgrad = returned_weight_gradient(layer, gradient.dtype());
  call.set(0, std::move(dgrad));
}

void linear_backward(BackwardCall& call) {  // saved: x
  const TeLinear& layer = layer_of(call);
  MegatronMemory& memory = *layer.memory;
  const bool splits = splits_sequence(layer);
  Tensor gradient = contiguous(call.gradient());
  if (splits && layer.mode == ParallelMode::kRow) gradient = gather_sequence(memory, gradient);
  Tensor total;
  if (splits && layer.mode == ParallelMode::kColumn) total = gather_sequence(memory, call.saved(0));
  Tensor gemm_out = gemm(layer, gradient, layer.in, Transposed::kNone);
  Tensor dgrad = splits && layer.mode == ParallelMode::kColumn ? scatter_sequence(memory, gemm_out) : gemm_out;
  if (layer.mode == ParallelMode::kColumn) all_reduce(layer, dgrad);
  weight_gradient(layer, total.defined() ? total : call.saved(0));
  const Tensor wgrad = returned_weight_gradient(layer, gradient.dtype());
  Tensor bias;
  if (layer.bias) bias = call.tape.empty({layer.out}, gradient.dtype(), kGemm);
  call.set(0, std::move(dgrad));
}

void rope_backward(BackwardCall& call) {
  Tensor gradient = call.tape.empty(call.payload<InputShape>().shape, call.gradient().dtype(), kRope);
  call.tape.kernels.add(kRope, OperatorClass::kElementwise, gradient.dtype(), 3 * real(gradient.elements()),
                        2 * real(gradient.bytes()));
  call.set(0, std::move(gradient));
}

void cross_entropy_backward(BackwardCall& call) {  // saved: the logits, which hold their gradient by now
  call.tape.kernels.add(kLoss, OperatorClass::kElementwise, call.saved(0).dtype(), real(call.saved(0).elements()),
                        2 * real(call.saved(0).bytes()));
  call.set(0, call.saved(0));
}

}  // namespace

Tensor te_norm(MegatronMemory& memory, const Tensor& x, bool rms) {
  Tape& tape = memory.tape;
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kNormNode, norm_backward, inputs, 1);
  Normalized normalized = normalize(tape, x, rms);
  if (node != nullptr) {
    node->payload.set(NormPayload{rms});
    tape.autograd.save(*node, x);
    tape.autograd.save(*node, normalized.reciprocal);
    if (normalized.mean.defined()) tape.autograd.save(*node, normalized.mean);
  }
  tape.autograd.set_history(node, normalized.output);
  return normalized.output;
}

Tensor te_layer_norm_linear(const TeLinear& layer, const Tensor& x) {
  MegatronMemory& memory = *layer.memory;
  Tape& tape = memory.tape;
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kNormLinearNode, layer_norm_linear_backward, inputs, 1);
  Normalized normalized = normalize(tape, x, layer.norm_rms);
  Tensor total = splits_sequence(layer) ? gather_sequence(memory, normalized.output) : normalized.output;
  Tensor result = gemm(layer, total, layer.out, Transposed::kSecond);
  total.reset();
  if (node != nullptr) {
    node->payload.set(LinearPayload{&layer});
    tape.autograd.save(*node, x);
    tape.autograd.save(*node, normalized.output);
    tape.autograd.save(*node, normalized.reciprocal);
    if (normalized.mean.defined()) tape.autograd.save(*node, normalized.mean);
  }
  tape.autograd.set_history(node, result);
  return result;
}

Tensor te_linear(const TeLinear& layer, const Tensor& x) {
  MegatronMemory& memory = *layer.memory;
  Tape& tape = memory.tape;
  const bool splits = splits_sequence(layer);
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kLinearNode, linear_backward, inputs, 1);
  Tensor total = splits && layer.mode == ParallelMode::kColumn ? gather_sequence(memory, x) : x;
  Tensor gemm_out = gemm(layer, total, layer.out, Transposed::kSecond);
  total.reset();
  Tensor result = splits && layer.mode == ParallelMode::kRow ? scatter_sequence(memory, gemm_out) : gemm_out;
  if (layer.mode == ParallelMode::kRow) all_reduce(layer, result);
  if (node != nullptr) {
    node->payload.set(LinearPayload{&layer});
    tape.autograd.save(*node, x);
  }
  gemm_out.reset();
  tape.autograd.set_history(node, result);
  return result;
}

Tensor te_fused_rope(const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kRopeNode, rope_backward, inputs, 1);
  if (node != nullptr) node->payload.set(InputShape{x.shape()});
  Tensor result = tape.empty(x.shape(), x.dtype(), kRope);
  tape.kernels.add(kRope, OperatorClass::kElementwise, x.dtype(), 3 * real(x.elements()), 2 * real(x.bytes()));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor te_cross_entropy(const Tensor& logits, std::int64_t tensor_parallel) {
  Tape& tape = logits.tape();
  const Tensor* inputs[] = {&logits};
  Node* node = tape.autograd.record(kLossNode, cross_entropy_backward, inputs, 1);
  const std::int64_t rows = rows_of(logits);
  Tensor loss = tape.empty({logits.size(1), logits.size(0)}, DType::kFloat32, kLoss);
  {
    const Tensor statistics = tape.empty({3 * rows}, DType::kFloat32, kLoss);  // maximum, denominator, logit of target
    Tensor gathered;
    if (tensor_parallel > 1) {
      gathered = tape.empty({3 * rows * tensor_parallel}, DType::kFloat32, kGather);
      tape.kernels.collective(kGather, Collective::kAllGather, DType::kFloat32, gathered.bytes(), tensor_parallel);
    }
  }
  tape.kernels.add(kLoss, OperatorClass::kElementwise, logits.dtype(), 6 * real(logits.elements()),
                   3 * real(logits.bytes()));
  if (node != nullptr) tape.autograd.save(*node, logits);
  tape.autograd.set_history(node, loss);
  return loss;
}

}  // namespace memcalc
