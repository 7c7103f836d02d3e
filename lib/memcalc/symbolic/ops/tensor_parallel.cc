#include "memcalc/symbolic/ops/tensor_parallel.h"

#include <algorithm>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kEmbedding{"megatron::VocabParallelEmbedding"}, kEmbeddingNode{"VocabParallelEmbeddingBackward"};
constexpr Operator kReduceScatter{"c10d::_reduce_scatter_base_"}, kGather{"c10d::_allgather_base_"};
constexpr Operator kHeadNode{"LinearWithGradAccumulationAndAsyncCommunicationBackward"};
constexpr Operator kUnsplitNode{"AddmmBackward0"};
constexpr Operator kLoss{"megatron::VocabParallelCrossEntropy"}, kLossNode{"_VocabParallelCrossEntropyBackward"};
constexpr Operator kSwiglu{"megatron::swiglu"}, kSwigluNode{"SwiGLUFunctionBackward"};
constexpr Operator kWeightedNode{"WeightedSwiGLUFunctionBackward"};
constexpr Operator kGelu{"megatron::bias_gelu"}, kGeluNode{"GeLUFunctionBackward"};
constexpr Operator kSquaredRelu{"megatron::squared_relu"}, kSquaredReluNode{"CompiledFunctionBackward"};
constexpr Operator kDropoutAdd{"megatron::bias_dropout_add"}, kDropoutAddNode{"CompiledFunctionBackward"};
constexpr Operator kSplitNode{"_SplitAlongDimBackward"};
constexpr Operator kRotary{"megatron::rotary_fwd_kv_kernel"}, kMlaNode{"ApplyMLARotaryEmbKVBackward"};
constexpr Operator kRotaryQuery{"megatron::rotary_fwd_q_kernel"};
constexpr Operator kExchangeNode{"ExchangeBackward"}, kExchange{"c10d::alltoall_base_"};
constexpr Operator kAllReduce{"c10d::allreduce_"};

double real(std::int64_t value) { return static_cast<double>(value); }
std::int64_t rows_of(const Tensor& x) { return x.elements() / x.size(-1); }

Shape with_last(Shape shape, std::int64_t last) {
  shape[-1] = last;
  return shape;
}

bool splits_sequence(const MegatronMemory& memory) { return memory.sequence_parallel && memory.tensor_parallel > 1; }

/// What moves between the tensor-parallel ranks. `bytes`: the whole that the ranks hold together.
void among_ranks(const MegatronMemory& memory, const Operator& op, Collective kind, DType dtype, Bytes bytes) {
  memory.tape.kernels.collective(op, kind, dtype, bytes, memory.tensor_parallel);
}

/// main_grad is float32 of bfloat16 (megatron_buffers.cc).
DType main_gradient_type(DType dtype) { return dtype == DType::kBFloat16 ? DType::kFloat32 : dtype; }

/// distributed_data_parallel.py, _make_backward_post_hook: param.main_grad.add_(param.grad.data) of what no product
/// has added to main_grad.
void add_to_main_gradient(Tape& tape, const Tensor& gradient) {
  const double of_main = real(size_of(main_gradient_type(gradient.dtype())));
  tape.kernels.add(aten::kAdd, OperatorClass::kElementwise, gradient.dtype(), real(gradient.elements()),
                   real(gradient.bytes()) + 2 * of_main * real(gradient.elements()), KernelKind::kConverting,
                   real(gradient.elements()));
}

struct EmbeddingPayload {
  MegatronMemory* memory = nullptr;  // outlives the graph
  Shape table;
};

/// The gradient of the whole table in 16 bits, which its hook adds to main_grad; under sequence parallelism it comes
/// from gradients gathered along the sequence.
void embedding_backward(BackwardCall& call) {  // saved: ids
  const auto& payload = call.payload<EmbeddingPayload>();
  const MegatronMemory& memory = *payload.memory;
  const Tensor& incoming = call.gradient();
  Tensor gathered = incoming;
  if (splits_sequence(memory)) {
    Shape whole = incoming.shape();
    whole[0] *= memory.tensor_parallel;
    gathered = call.tape.empty(whole, incoming.dtype(), kGather);
    among_ranks(memory, kGather, Collective::kAllGather, incoming.dtype(), gathered.bytes());
  }
  const Tensor by_batch = contiguous(transpose(gathered, 0, 1));
  const Tensor table = call.tape.empty(payload.table, incoming.dtype(), kEmbeddingNode);
  const Tensor sorted = call.tape.empty({2, call.saved(0).elements()}, DType::kInt64, kEmbeddingNode);
  call.tape.kernels.add(kEmbeddingNode, OperatorClass::kMovement, table.dtype(), 0,
                        real(table.bytes() + incoming.bytes()));
  add_to_main_gradient(call.tape, table);
}

struct HeadPayload {
  MegatronMemory* memory = nullptr;  // outlives the graph
  std::int64_t out = 0;
  bool bias = false;
};

/// Into main_grad where fused.
void head_weight_gradient(MegatronMemory& memory, DType dtype, std::int64_t out, std::int64_t in, std::int64_t rows) {
  if (memory.fuses_weight_gradients) {
    return memory.tape.kernels.grouped_weight_gradient(aten::kMm, dtype, 1, rows, out, in, main_gradient_type(dtype));
  }
  memory.tape.kernels.product(aten::kMm, dtype, 1, out, in, rows, KernelKind::kMatrixProduct, Transposed::kFirst);
}

/// The sequence's parts, in the global buffer.
void gather_in_buffer(MegatronMemory& memory, const Tensor& x, std::size_t buffer = 0) {
  memory.use_global_buffer(x.elements() * memory.tensor_parallel, x.dtype(), buffer);
  among_ranks(memory, kGather, Collective::kAllGather, x.dtype(), x.bytes() * memory.tensor_parallel);
}

void head_backward(BackwardCall& call) {  // saved: x
  const auto& payload = call.payload<HeadPayload>();
  MegatronMemory& memory = *payload.memory;
  Tape& tape = call.tape;
  const Tensor& x = call.saved(0);
  const std::int64_t out = payload.out;
  const Tensor gradient = contiguous(call.gradient());
  const bool gathers = splits_sequence(memory);
  const std::int64_t rows = rows_of(gradient);
  const bool defers = std::ssize(memory.head_gradients) < memory.deferred_head_gradients;
  if (defers) memory.head_gradients.push_back(gradient);
  if (gathers && !defers) gather_in_buffer(memory, x);
  tape.memory.use_cublas(false);
  Tensor grad_input = tape.empty(with_last(gradient.shape(), x.size(-1)), x.dtype(), aten::kMm);
  tape.kernels.product(aten::kMm, x.dtype(), 1, rows, x.size(-1), out);
  Tensor scattered;
  if (gathers) {
    scattered = tape.empty(x.shape(), x.dtype(), kReduceScatter);
    among_ranks(memory, kReduceScatter, Collective::kReduceScatter, x.dtype(), grad_input.bytes());
  } else if (memory.tensor_parallel > 1) {
    among_ranks(memory, kAllReduce, Collective::kAllReduce, x.dtype(), grad_input.bytes());
  }
  if (!defers) head_weight_gradient(memory, x.dtype(), out, x.size(-1), rows);
  Tensor wgrad;
  if (memory.fuses_weight_gradients) {
    wgrad = memory.use_dummy_weight_gradient(out, x.size(-1), x.dtype());
  } else {
    wgrad = tape.empty({out, x.size(-1)}, x.dtype(), aten::kMm);
  }
  Tensor bias;
  if (payload.bias) bias = tape.empty({out}, x.dtype(), aten::kSum);
  call.set(0, gathers ? std::move(scattered) : std::move(grad_input));
}

void unsplit_backward(BackwardCall& call) {  // saved: x
  Tape& tape = call.tape;
  const Tensor& x = call.saved(0);
  const Tensor gradient = contiguous(call.gradient());
  const std::int64_t rows = rows_of(x), in = x.size(-1), out = gradient.size(-1);
  tape.memory.use_cublas(false);
  Tensor grad_input = tape.empty(x.shape(), x.dtype(), aten::kMm);
  tape.kernels.product(aten::kMm, x.dtype(), 1, rows, in, out);
  const Tensor weight = tape.empty({out, in}, x.dtype(), aten::kMm);
  tape.kernels.product(aten::kMm, x.dtype(), 1, out, in, rows, KernelKind::kMatrixProduct, Transposed::kFirst);
  const Tensor bias = tape.empty({out}, x.dtype(), aten::kSum);
  call.set(0, std::move(grad_input));
}

void cross_entropy_backward(BackwardCall& call) {  // saved: probabilities, mask of targets, masked targets
  Tape& tape = call.tape;
  const Tensor& softmax = call.saved(0);
  const Tensor range = tape.empty({rows_of(softmax)}, DType::kInt64, aten::kIndex);
  const Tensor update = tape.empty({rows_of(softmax)}, DType::kFloat32, aten::kToCopy);
  tape.kernels.add(kLoss, OperatorClass::kElementwise, softmax.dtype(), real(softmax.elements()),
                   2 * real(softmax.bytes()));
  Tensor gradient = softmax;
  call.set(0, to_dtype(std::move(gradient), call.payload<InputDType>().dtype));
}

void swiglu_backward(BackwardCall& call) {  // saved: x, probabilities?
  const Tensor& x = call.saved(0);
  Tensor gradient = call.tape.empty(x.shape(), x.dtype(), kSwiglu);
  call.tape.kernels.add(kSwiglu, OperatorClass::kElementwise, x.dtype(), 8 * real(x.elements()), 2.5 * real(x.bytes()));
  if (call.node.saved_count > 1) {
    const Tensor& probabilities = call.saved(1);
    call.set(1, call.tape.empty(probabilities.shape(), probabilities.dtype(), kSwiglu));
  }
  call.set(0, std::move(gradient));
}

void gelu_backward(BackwardCall& call) {  // saved: x
  const Tensor& x = call.saved(0);
  Tensor gradient = call.tape.empty(x.shape(), x.dtype(), kGelu);
  const Tensor bias = call.tape.empty({x.size(-1)}, x.dtype(), kGelu);
  call.tape.kernels.add(kGelu, OperatorClass::kElementwise, x.dtype(), 12 * real(x.elements()), 3 * real(x.bytes()));
  call.set(0, std::move(gradient));
}

void squared_relu_backward(BackwardCall& call) {  // saved: x
  const Tensor& x = call.saved(0);
  Tensor gradient = call.tape.empty(x.shape(), x.dtype(), kSquaredRelu);
  call.tape.kernels.add(kSquaredRelu, OperatorClass::kElementwise, x.dtype(), 3 * real(x.elements()),
                        3 * real(x.bytes()));
  call.set(0, std::move(gradient));
}

void dropout_add_backward(BackwardCall& call) {  // saved: mask?
  const Tensor& incoming = call.gradient();
  if (call.node.saved_count == 0) {
    call.set(0, incoming);
    call.set(1, incoming);
    return;
  }
  Tensor gradient = call.tape.empty(incoming.shape(), incoming.dtype(), kDropoutAdd);
  const Tensor bias = call.tape.empty({incoming.size(-1)}, incoming.dtype(), kDropoutAdd);
  call.tape.kernels.add(kDropoutAdd, OperatorClass::kElementwise, incoming.dtype(), real(incoming.elements()),
                        2 * real(incoming.bytes()) + real(incoming.elements()));
  call.set(0, std::move(gradient));
  call.set(1, incoming);
}

void split_backward(BackwardCall& call) {
  const Shape& mixed = call.payload<InputShape>().shape;
  // utils.py, SplitAlongDim: gradients that lie side by side in one storage are their concatenation already.
  const Tensor &query = call.gradient(0), &key = call.gradient(1), &value = call.gradient(2);
  if (query.block() == key.block() && query.block() == value.block()) {
    call.set(0, call.tape.alias(query, mixed, contiguous_strides(mixed), false));
    return;
  }
  Tensor whole = call.tape.empty(mixed, call.gradient(0).dtype(), aten::kCat);
  call.tape.kernels.add(aten::kCat, OperatorClass::kMovement, whole.dtype(), 0, 2 * real(whole.bytes()));
  call.set(0, std::move(whole));
}

struct MlaPayload {
  Shape kv;
  std::int64_t rotary = 0;  // the width of a rotary key
};

/// fused_mla_yarn_rope_apply.py, one kernel each: queries are turned in place, of keys and values both widths are read
/// and written. So are their gradients.
void mla_kernels(Tape& tape, const Tensor& kv, double key_value_bytes, std::int64_t rotary) {
  const double turned = real(kv.elements() / kv.size(-1) * rotary), width = real(size_of(kv.dtype()));
  tape.kernels.add(kRotaryQuery, OperatorClass::kElementwise, kv.dtype(), 3 * turned, 2 * width * turned);
  tape.kernels.add(kRotary, OperatorClass::kElementwise, kv.dtype(), 3 * turned, real(kv.bytes()) + key_value_bytes);
}

void mla_key_value_backward(BackwardCall& call) {
  const auto& [kv, rotary] = call.payload<MlaPayload>();
  const DType dtype = call.gradient(0).dtype();
  Tensor of_kv = call.tape.empty(kv, dtype, kRotary);
  mla_kernels(call.tape, of_kv, real(call.gradient(0).bytes() + call.gradient(1).bytes()), rotary);
  call.set(0, std::move(of_kv));
  call.set(1, call.tape.empty({kv[0], kv[1], rotary}, dtype, kRotary));
}

/// What a gradient takes to come back.
Collective opposite(Collective collective) {
  if (collective == Collective::kAllGather) return Collective::kReduceScatter;
  if (collective == Collective::kReduceScatter) return Collective::kAllGather;
  return collective;
}

void moved(Tape& tape, const Operator& op, Collective collective, const Tensor& from, const Tensor& to,
           std::int64_t ranks) {
  if (collective == Collective::kNone) {
    tape.kernels.add(op, OperatorClass::kMovement, from.dtype(), 0, real(from.bytes() + to.bytes()));
  } else {
    tape.kernels.collective(op, collective, from.dtype(), std::max(from.bytes(), to.bytes()), ranks);
  }
}

struct ExchangePayload {
  Shape input;
  Collective back = Collective::kNone;  // what its gradient takes to come back
  std::int64_t ranks = 1;
};

void exchange_backward(BackwardCall& call) {
  const auto& payload = call.payload<ExchangePayload>();
  Tensor gradient = call.tape.empty(payload.input, call.gradient().dtype(), kExchange);
  moved(call.tape, kExchange, payload.back, call.gradient(), gradient, payload.ranks);
  call.set(0, std::move(gradient));
}

}  // namespace

Tensor vocab_parallel_embedding(MegatronMemory& memory, const Tensor& weight, const Tensor& ids) {
  Tape& tape = memory.tape;
  const bool splits = memory.tensor_parallel > 1;
  const Tensor* inputs[] = {&weight};
  Node* node = tape.autograd.record(kEmbeddingNode, embedding_backward, inputs, 1);
  const std::int64_t batch = ids.size(0), sequence = ids.size(1), width = weight.size(1);
  Tensor masked = ids, mask;
  if (splits) {
    mask = tape.empty(ids.shape(), DType::kBool, aten::kBitwiseOr);
    masked = tape.empty(ids.shape(), DType::kInt64, aten::kToCopy);
  }
  Tensor rows = tape.empty({batch, sequence, width}, weight.dtype(), kEmbedding);
  tape.kernels.add(kEmbedding, OperatorClass::kMovement, weight.dtype(), 0, 2 * real(rows.bytes()));
  Tensor result;
  {
    const NoGrad no_grad(tape.modes);
    result = contiguous(transpose(rows, 0, 1));
  }
  if (splits) {  // output_parallel[input_mask, :] = 0.0; then the ranks' parts are summed
    const Bytes whole = rows.bytes();
    tape.kernels.add(aten::kMaskedFillInPlace, OperatorClass::kElementwise, weight.dtype(), 0, 2 * real(whole),
                     KernelKind::kStrided);
    const bool scatters = memory.sequence_parallel;
    among_ranks(memory, scatters ? kReduceScatter : kAllReduce,
                scatters ? Collective::kReduceScatter : Collective::kAllReduce, weight.dtype(), whole);
  }
  if (splits && memory.sequence_parallel) {
    rows.reset();
    result = tape.empty({sequence / memory.tensor_parallel, batch, width}, weight.dtype(), kReduceScatter);
  }
  if (node != nullptr) {
    node->payload.set(EmbeddingPayload{.memory = &memory, .table = weight.shape()});
    tape.autograd.save(*node, masked);
    if (splits) tape.autograd.save(*node, mask);
  }
  tape.autograd.set_history(node, result);
  return result;
}

void drain_head_gradients(MegatronMemory& memory) {
  // One micro-batch after another; gathered inputs alternate between two global buffers.
  Tape& tape = memory.tape;
  const bool gathers = splits_sequence(memory);
  for (std::size_t i = 0; i < memory.head_gradients.size(); ++i) {
    const Tensor x = std::move(memory.head_inputs[i]), gradient = std::move(memory.head_gradients[i]);
    if (gathers) gather_in_buffer(memory, x, 1 + i % 2);
    tape.memory.use_cublas(false);
    head_weight_gradient(memory, x.dtype(), gradient.size(-1), x.size(-1), rows_of(gradient));
  }
  memory.head_inputs.clear();
  memory.head_gradients.clear();
}

Tensor column_parallel_linear(MegatronMemory& memory, const Tensor& x, std::int64_t out, bool bias) {
  Tape& tape = memory.tape;
  if (std::ssize(memory.head_inputs) < memory.deferred_head_gradients) memory.head_inputs.push_back(x);
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kHeadNode, head_backward, inputs, 1);
  Shape shape = with_last(x.shape(), out);
  if (splits_sequence(memory)) {
    gather_in_buffer(memory, x);
    shape[0] *= memory.tensor_parallel;
  }
  tape.memory.use_cublas(false);
  Tensor result = tape.empty(shape, x.dtype(), aten::kMm);
  tape.kernels.product(aten::kMm, x.dtype(), 1, rows_of(result), out, x.size(-1), KernelKind::kMatrixProduct,
                       Transposed::kSecond);
  if (bias) {
    result = tape.empty(shape, x.dtype(), aten::kAdd);
    tape.kernels.add(aten::kAdd, OperatorClass::kElementwise, x.dtype(), real(result.elements()),
                     2 * real(result.bytes()));
  }
  if (node != nullptr) {
    node->payload.set(HeadPayload{.memory = &memory, .out = out, .bias = bias});
    tape.autograd.save(*node, x);
  }
  tape.autograd.set_history(node, result);
  return result;
}

Tensor unsplit_linear(MegatronMemory& memory, const Tensor& x, std::int64_t out) {
  Tape& tape = memory.tape;
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kUnsplitNode, unsplit_backward, inputs, 1);
  tape.memory.use_cublas(true);
  Tensor result = tape.empty(with_last(x.shape(), out), x.dtype(), aten::kAddmm);
  tape.kernels.product(aten::kAddmm, x.dtype(), 1, rows_of(x), out, x.size(-1), KernelKind::kMatrixProduct,
                       Transposed::kSecond);
  if (node != nullptr) tape.autograd.save(*node, x);
  tape.autograd.set_history(node, result);
  return result;
}

namespace {

Tensor record_loss(MegatronMemory& memory, const Tensor& logits, const Tensor& labels, bool compiled) {
  Tape& tape = memory.tape;
  const Tensor* inputs[] = {&logits};
  Node* node = tape.autograd.record(kLossNode, cross_entropy_backward, inputs, 1);
  const std::int64_t rows = rows_of(logits);
  const Shape by_token{logits.size(0), logits.size(1)};
  Tensor exponentials;
  {
    const NoGrad no_grad(tape.modes);
    exponentials = to_dtype(logits, DType::kFloat32);
  }
  Tensor maximum = tape.empty(by_token, DType::kFloat32, aten::kMax);
  Tensor mask = tape.empty(by_token, DType::kBool, aten::kBitwiseOr);
  Tensor targets = tape.empty({rows}, DType::kInt64, aten::kToCopy);
  Tensor predicted = tape.empty(by_token, DType::kFloat32, aten::kIndex);
  Tensor sums = tape.empty(by_token, DType::kFloat32, kLoss);
  // Compiled, the exponentials are results of their own beside the shifted logits.
  if (compiled) exponentials = tape.empty(logits.shape(), DType::kFloat32, kLoss);
  Tensor loss = tape.empty(by_token, DType::kFloat32, kLoss);
  tape.kernels.add(kLoss, OperatorClass::kElementwise, DType::kFloat32, 6 * real(logits.elements()),
                   6 * real(exponentials.bytes()));
  if (node != nullptr) {
    node->payload.set(InputDType{logits.dtype()});
    tape.autograd.save(*node, exponentials);
    tape.autograd.save(*node, mask);
    tape.autograd.save(*node, targets);
  }
  (void)labels;
  if (memory.tensor_parallel > 1) {  // the largest logits, those of the targets and the sums of the exponentials
    for (const Tensor* each : {&maximum, &predicted, &sums}) {
      among_ranks(memory, kAllReduce, Collective::kAllReduce, DType::kFloat32, each->bytes());
    }
  }
  tape.autograd.set_history(node, loss);
  return loss;
}

}  // namespace

Tensor vocab_parallel_cross_entropy(MegatronMemory& memory, const Tensor& logits, const Tensor& labels) {
  return record_loss(memory, logits, labels, false);
}

Tensor fused_vocab_parallel_cross_entropy(MegatronMemory& memory, const Tensor& logits, const Tensor& labels) {
  return record_loss(memory, logits, labels, true);
}

Tensor fused_swiglu(const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kSwigluNode, swiglu_backward, inputs, 1);
  if (node != nullptr) tape.autograd.save(*node, x);
  Tensor result = tape.empty(with_last(x.shape(), x.size(-1) / 2), x.dtype(), kSwiglu);
  tape.kernels.add(kSwiglu, OperatorClass::kElementwise, x.dtype(), 5 * real(result.elements()),
                   3 * real(result.bytes()));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor fused_weighted_swiglu(const Tensor& x, const Tensor& probabilities) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x, &probabilities};
  Node* node = tape.autograd.record(kWeightedNode, swiglu_backward, inputs, 2);
  if (node != nullptr) {
    tape.autograd.save(*node, x);
    tape.autograd.save(*node, probabilities);
  }
  Tensor result = tape.empty(with_last(x.shape(), x.size(-1) / 2), x.dtype(), kSwiglu);
  tape.kernels.add(kSwiglu, OperatorClass::kElementwise, x.dtype(), 6 * real(result.elements()),
                   3 * real(result.bytes()));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor fused_bias_gelu(const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kGeluNode, gelu_backward, inputs, 1);
  if (node != nullptr) tape.autograd.save(*node, x);
  Tensor result = tape.empty(x.shape(), x.dtype(), kGelu);
  tape.kernels.add(kGelu, OperatorClass::kElementwise, x.dtype(), 9 * real(x.elements()), 2 * real(x.bytes()));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor squared_relu(const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kSquaredReluNode, squared_relu_backward, inputs, 1);
  if (node != nullptr) tape.autograd.save(*node, x);
  Tensor result = tape.empty(x.shape(), x.dtype(), kSquaredRelu);
  tape.kernels.add(kSquaredRelu, OperatorClass::kElementwise, x.dtype(), 2 * real(x.elements()), 2 * real(x.bytes()));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor fused_bias_dropout_add(const Tensor& x, const Tensor& residual, double dropout) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x, &residual};
  Node* node = tape.autograd.record(kDropoutAddNode, dropout_add_backward, inputs, 2);
  Tensor result = tape.empty(x.shape(), x.dtype(), kDropoutAdd);
  if (dropout > 0 && node != nullptr) tape.autograd.save(*node, tape.empty(x.shape(), DType::kBool, kDropoutAdd));
  tape.kernels.add(kDropoutAdd, OperatorClass::kElementwise, x.dtype(), 3 * real(x.elements()), 3 * real(x.bytes()));
  tape.autograd.set_history(node, result);
  return result;
}

SplitHeads split_query_key_value(const Tensor& mixed, std::int64_t groups, std::int64_t head_dim) {
  Tape& tape = mixed.tape();
  const std::int64_t sequence = mixed.size(0), batch = mixed.size(1);
  const std::int64_t of_group = mixed.size(2) / groups;  // (r + 2) d
  const std::int64_t query_width = of_group - 2 * head_dim;
  const Tensor* inputs[] = {&mixed};
  Node* node = tape.autograd.record(kSplitNode, split_backward, inputs, 1);
  if (node != nullptr) node->payload.set(InputShape{mixed.shape()});
  const Shape strides{batch * groups * of_group, groups * of_group, of_group, 1};
  Tensor query = tape.alias(mixed, {sequence, batch, groups, query_width}, strides, true);
  SplitHeads heads;
  heads.key = tape.alias(mixed, {sequence, batch, groups, head_dim}, strides, true);
  heads.value = tape.alias(mixed, {sequence, batch, groups, head_dim}, strides, true);
  tape.autograd.set_history(node, query);
  tape.autograd.set_history(node, heads.key);
  tape.autograd.set_history(node, heads.value);
  heads.query = reshape(query, {sequence, batch, groups * (query_width / head_dim), head_dim});
  return heads;
}

std::pair<Tensor, Tensor> mla_key_value(const Tensor& kv, const Tensor& rotary, std::int64_t qk, std::int64_t v) {
  Tape& tape = kv.tape();
  const Tensor* inputs[] = {&kv, &rotary};
  Node* node = tape.autograd.record(kMlaNode, mla_key_value_backward, inputs, 2);
  if (node != nullptr) node->payload.set(MlaPayload{.kv = kv.shape(), .rotary = rotary.size(-1)});
  Tensor key = tape.empty({kv.size(0), kv.size(1), kv.size(2), qk}, kv.dtype(), kRotary);
  Tensor value = tape.empty({kv.size(0), kv.size(1), kv.size(2), v}, kv.dtype(), kRotary);
  mla_kernels(tape, kv, real(key.bytes() + value.bytes()), rotary.size(-1));
  tape.autograd.set_history(node, key);
  tape.autograd.set_history(node, value);
  return {std::move(key), std::move(value)};
}

Tensor exchange(const Tensor& x, const Shape& shape, const Operator& op, Collective collective, std::int64_t ranks) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kExchangeNode, exchange_backward, inputs, 1);
  if (node != nullptr) {
    node->payload.set(ExchangePayload{.input = x.shape(), .back = opposite(collective), .ranks = ranks});
  }
  Tensor result = tape.empty(shape, x.dtype(), op);
  moved(tape, op, collective, x, result, ranks);
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
