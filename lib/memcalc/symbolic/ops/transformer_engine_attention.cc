// attention/dot_product_attention/{backends,context_parallel}.py. cuDNN's workspaces are those that PyTorch's own
// cuDNN attention was measured to ask for (ops/attention.cc).
// MIRRORS(transformer_engine, "pytorch/attention/dot_product_attention/backends.py", "2.11.0")
// MIRRORS(transformer_engine, "pytorch/attention/dot_product_attention/context_parallel.py", "2.11.0")
// MIRRORS(transformer_engine, "pytorch/attention/dot_product_attention/utils.py", "2.11.0")
#include <array>
#include <vector>

#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/attention_kernels.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/transformer_engine.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kForward{"transformer_engine::fused_attn_fwd"}, kBackward{"transformer_engine::fused_attn_bwd"};
constexpr Operator kNode{"FusedAttnFuncBackward"}, kAllToAllNode{"AttnFuncWithCPAndQKVOA2ABackward"};
constexpr Operator kSoftmax{"transformer_engine::scaled_upper_triang_masked_softmax"};
constexpr Operator kSoftmaxNode{"ScaledUpperTriangMaskedSoftmaxBackward"};
constexpr Operator kRingNode{"AttnFuncWithCPAndKVP2PBackward"};
constexpr Operator kAllGatherNode{"AttnFuncWithCPAndKVAllGatherBackward"};
constexpr Operator kSendReceive{"c10d::recv_"}, kGather{"c10d::_allgather_base_"};
constexpr Operator kScatter{"c10d::_reduce_scatter_base_"};
constexpr Operator kAllToAll{"c10d::alltoall_base_"};

std::int64_t heads_of(const Tensor& x) { return x.size(2); }

/// One kernel, as attention_kernels.h counts it: cuDNN's, before Hopper the flash-attn package's
/// (utils.py, get_attention_backend). In a ring the first step has the causal blocks of a rank, each later one half of
/// its keys or of its queries; over gathered keys a rank has half of the scores. So each causal call takes half the
/// time.
void contractions(Tape& tape, const Operator& op, const Tensor& q, const Tensor& k, const Tensor& v, bool backward,
                  bool causal) {
  const bool cudnn = architecture_of(tape.device) >= CudaArchitecture::kHopper;
  attention_contractions(tape, op, cudnn ? KernelKind::kCudnnAttention : KernelKind::kFlashAttention,
                         {.batch = q.size(1),
                          .heads = heads_of(q),
                          .kv_heads = heads_of(k),
                          .queries = q.size(0),
                          .keys = k.size(0),
                          .dim = q.size(3),
                          .value_dim = v.size(3)},
                         q.dtype(), backward, {.causal = causal});
}

struct Attended {
  Tensor output, logsumexp, rng_state;
};

Attended attend(const Tensor& q, const Tensor& k, const Tensor& v, bool causal = true) {
  Tape& tape = q.tape();
  Attended result;
  result.output = tape.empty({q.size(0), q.size(1), heads_of(q), v.size(3)}, q.dtype(), kForward);
  result.logsumexp = tape.empty({q.size(1), heads_of(q), q.size(0), 1}, DType::kFloat32, kForward);
  result.rng_state = tape.empty({2}, DType::kInt64, kForward);
  contractions(tape, kForward, q, k, v, false, causal);
  return result;
}

/// As ops/attention.cc, cudnn_backward_workspace.
Bytes backward_workspace(const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::int64_t heads = q.size(1) * heads_of(q);
  Bytes bytes = 4 * heads * q.size(0) * (q.size(3) + 1) + 256;
  if (heads_of(q) != heads_of(k)) bytes += 2 * heads * k.size(0) * (q.size(3) + v.size(3));
  return bytes;
}

std::array<Tensor, 3> attend_backward(Tape& tape, const Tensor& q, const Tensor& k, const Tensor& v,
                                      bool causal = true) {
  std::array<Tensor, 3> gradients;
  std::size_t i = 0;
  if (q.block() == k.block()) {  // interleaved in one storage: so are their gradients
    const Tensor whole = tape.empty({3, q.elements()}, q.dtype(), kBackward);
    for (const Tensor* each : {&q, &k, &v}) gradients[i++] = tape.alias(whole, each->shape(), each->strides(), true);
  } else {
    for (const Tensor* each : {&q, &k, &v}) gradients[i++] = tape.empty(each->shape(), each->dtype(), kBackward);
  }
  tape.memory.scratch(backward_workspace(q, k, v), kBackward, Category::kWorkspaces);
  contractions(tape, kBackward, q, k, v, true, causal);
  return gradients;
}

struct FusedAttentionPayload {
  bool causal = true;
};

void fused_attention_backward(BackwardCall& call) {  // saved: q, k, v, output, logsumexp, rng_state
  const Tensor gradient = contiguous(call.gradient());
  auto gradients = attend_backward(call.tape, call.saved(0), call.saved(1), call.saved(2),
                                   call.payload<FusedAttentionPayload>().causal);
  for (int i = 0; i < 3; ++i) call.set(i, std::move(gradients[static_cast<std::size_t>(i)]));
}

/// A copy in another order of heads or positions.
void reordered(Tape& tape, const Operator& op, const Tensor& x, KernelKind kind) {
  tape.kernels.add(op, OperatorClass::kMovement, x.dtype(), 0, 2 * static_cast<double>(x.bytes()), kind);
}

/// What is sent, and what came, are copies in another order. The products of one tensor hide nothing of another's
/// exchange: attention needs all of them.
void exchange_before_attention(Tape& tape, const Tensor& x, std::int64_t ranks) {
  reordered(tape, aten::kContiguous, x, KernelKind::kStrided);
  tape.kernels.collective(kAllToAll, Collective::kAllToAll, x.dtype(), x.bytes(), ranks);
  reordered(tape, aten::kIndexSelect, x, KernelKind::kIndexed);
}

/// The same, back.
void exchange_after_attention(Tape& tape, const Tensor& x, std::int64_t ranks) {
  reordered(tape, aten::kIndexSelect, x, KernelKind::kIndexed);
  tape.kernels.collective(kAllToAll, Collective::kAllToAll, x.dtype(), x.bytes(), ranks);
  reordered(tape, aten::kContiguous, x, KernelKind::kStrided);
}

/// context_parallel.py, flash_attn_a2a_communicate before attention: [s/c, b, h, d] to [s, b, h/c, d]. The copies that
/// are sent stay until all have been.
template <std::size_t kCount>
std::array<Tensor, kCount> heads_to_sequence(const std::array<const Tensor*, kCount>& inputs, std::int64_t ranks) {
  Tape& tape = inputs[0]->tape();
  std::array<Tensor, kCount> sent, results;
  for (std::size_t i = 0; i < kCount; ++i) {
    const Tensor& x = *inputs[i];
    sent[i] = tape.empty(x.shape(), x.dtype(), aten::kContiguous);
    const Tensor received = tape.empty(x.shape(), x.dtype(), kAllToAll);
    results[i] =
        tape.empty({x.size(0) * ranks, x.size(1), x.size(2) / ranks, x.size(3)}, x.dtype(), aten::kIndexSelect);
    exchange_before_attention(tape, x, ranks);
  }
  return results;
}

/// … and after it.
template <std::size_t kCount>
std::array<Tensor, kCount> sequence_to_heads(const std::array<const Tensor*, kCount>& inputs, std::int64_t ranks) {
  Tape& tape = inputs[0]->tape();
  std::array<Tensor, kCount> sent, results;
  for (std::size_t i = 0; i < kCount; ++i) {
    const Tensor& x = *inputs[i];
    sent[i] = tape.empty(x.shape(), x.dtype(), aten::kIndexSelect);
    const Tensor received = tape.empty(x.shape(), x.dtype(), kAllToAll);
    results[i] = tape.empty({x.size(0) / ranks, x.size(1), x.size(2) * ranks, x.size(3)}, x.dtype(), aten::kContiguous);
    exchange_after_attention(tape, x, ranks);
  }
  return results;
}

struct AllToAllPayload {
  std::int64_t ranks = 1;
  Shape output;
};

void all_to_all_backward(BackwardCall& call) {  // saved: q, k, v, output, logsumexp, rng_state of all positions
  const auto& [ranks, out] = call.payload<AllToAllPayload>();
  const Tensor incoming = call.gradient();
  const Tensor by_heads = incoming.rank() == 4 ? incoming : view(incoming, out);
  const auto [gradient] = heads_to_sequence<1>({&by_heads}, ranks);
  const auto partial = attend_backward(call.tape, call.saved(0), call.saved(1), call.saved(2));
  auto gradients = sequence_to_heads<3>({&partial[0], &partial[1], &partial[2]}, ranks);
  for (int i = 0; i < 3; ++i) call.set(i, std::move(gradients[static_cast<std::size_t>(i)]));
}

/// AttnFuncWithCPAndKVP2P: key and value travel around the ring; every step's output and each received pair stay until
/// the last step.
void ring_backward(BackwardCall& call) {  // saved: q, k, v, output, logsumexp, rng_state of this rank's positions
  Tape& tape = call.tape;
  const std::int64_t ranks = call.payload<RankCount>().ranks;
  const Tensor &q = call.saved(0), &k = call.saved(1), &v = call.saved(2);
  const Tensor gradient = contiguous(call.gradient());
  Tensor dq = tape.empty(q.shape(), q.dtype(), kBackward);
  // Two buffers, each of a pair and its gradient in float32 sums where the ring passes them on.
  const Shape pair{2, k.elements() + v.elements()};
  const std::array<Tensor, 2> buffers{tape.empty(pair, k.dtype(), kSendReceive),
                                      tape.empty(pair, k.dtype(), kSendReceive)};
  for (std::int64_t step = 0; step < ranks; ++step) {
    const auto gradients = attend_backward(tape, q, k, v);
  }
  Tensor dk = tape.empty(k.shape(), k.dtype(), kBackward), dv = tape.empty(v.shape(), v.dtype(), kBackward);
  call.set(0, std::move(dq));
  call.set(1, std::move(dk));
  call.set(2, std::move(dv));
}

/// AttnFuncWithCPAndKVAllGather: key and value of the whole sequence, in forward and again in backward.
void all_gather_backward(BackwardCall& call) {  // saved: q, k, v, output, logsumexp, rng_state
  Tape& tape = call.tape;
  const std::int64_t ranks = call.payload<RankCount>().ranks;
  const Tensor &q = call.saved(0), &k = call.saved(1), &v = call.saved(2);
  const Tensor gradient = contiguous(call.gradient());
  Tensor dq = tape.empty(q.shape(), q.dtype(), kBackward);
  const auto whole = [&](const Tensor& x, const Operator& op) {
    return tape.empty({x.size(0) * ranks, x.size(1), x.size(2), x.size(3)}, x.dtype(), op);
  };
  Tensor dk = whole(k, kBackward), dv = whole(v, kBackward);
  {
    const Tensor all_keys = whole(k, kGather), all_values = whole(v, kGather);
    for (const Tensor* each : {&all_keys, &all_values}) {
      tape.kernels.collective(kGather, Collective::kAllGather, each->dtype(), each->bytes(), ranks);
    }
    const auto gradients = attend_backward(tape, q, all_keys, all_values);
  }
  for (const Tensor* each : {&dk, &dv}) {
    tape.kernels.collective(kScatter, Collective::kReduceScatter, each->dtype(), each->bytes(), ranks);
  }
  Tensor scattered_k = tape.empty(k.shape(), k.dtype(), kScatter);
  Tensor scattered_v = tape.empty(v.shape(), v.dtype(), kScatter);
  call.set(0, std::move(dq));
  call.set(1, std::move(scattered_k));
  call.set(2, std::move(scattered_v));
}

void save_attention(Tape& tape, Node* node, const Tensor& q, const Tensor& k, const Tensor& v, const Attended& result) {
  if (node == nullptr) return;
  for (const Tensor* each : {&q, &k, &v, &result.output, &result.logsumexp, &result.rng_state})
    tape.autograd.save(*node, *each);
}

Tensor merge_heads(Tensor x) { return view(std::move(x), {x.size(0), x.size(1), x.size(2) * x.size(3)}); }

Tensor all_to_all_attention(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t ranks) {
  Tape& tape = q.tape();
  const Tensor* inputs[] = {&q, &k, &v};
  Node* node = tape.autograd.record(kAllToAllNode, all_to_all_backward, inputs, 3);
  const auto whole = heads_to_sequence<3>({&q, &k, &v}, ranks);
  const Attended attended = attend(whole[0], whole[1], whole[2]);
  auto [result] = sequence_to_heads<1>({&attended.output}, ranks);
  if (node != nullptr) node->payload.set(AllToAllPayload{.ranks = ranks, .output = result.shape()});
  save_attention(tape, node, whole[0], whole[1], whole[2], attended);
  tape.autograd.set_history(node, result);
  return std::move(result);
}

Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t ranks) {
  Tape& tape = q.tape();
  const Tensor* inputs[] = {&q, &k, &v};
  Node* node = tape.autograd.record(kRingNode, ring_backward, inputs, 3);
  if (node != nullptr) node->payload.set(RankCount{ranks});
  std::vector<Tensor> pairs;
  std::vector<Attended> steps;
  for (std::int64_t step = 0; step < ranks; ++step) {
    if (step + 1 < ranks) pairs.push_back(tape.empty({k.elements() + v.elements()}, k.dtype(), kSendReceive));
    steps.push_back(attend(q, k, v));
  }
  Attended result;
  result.output = tape.empty(steps[0].output.shape(), q.dtype(), kForward);
  result.logsumexp = std::move(steps[0].logsumexp);
  result.rng_state = std::move(steps[0].rng_state);
  tape.autograd.set_history(node, result.output);
  save_attention(tape, node, q, k, v, result);
  return result.output;
}

Tensor all_gather_attention(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t ranks) {
  Tape& tape = q.tape();
  const Tensor* inputs[] = {&q, &k, &v};
  Node* node = tape.autograd.record(kAllGatherNode, all_gather_backward, inputs, 3);
  if (node != nullptr) node->payload.set(RankCount{ranks});
  const auto whole = [&](const Tensor& x) {
    return tape.empty({x.size(0) * ranks, x.size(1), x.size(2), x.size(3)}, x.dtype(), kGather);
  };
  const Tensor keys = whole(k), values = whole(v);
  for (const Tensor* each : {&keys, &values}) {
    tape.kernels.collective(kGather, Collective::kAllGather, each->dtype(), each->bytes(), ranks);
  }
  Attended result = attend(q, keys, values);
  tape.autograd.set_history(node, result.output);
  save_attention(tape, node, q, k, v, result);
  return result.output;
}

void masked_softmax_backward(BackwardCall& call) {  // saved: the probabilities; the gradient is written over
  const Tensor& probabilities = call.saved(0);
  call.tape.kernels.add(kSoftmax, OperatorClass::kNormalization, probabilities.dtype(),
                        4 * static_cast<double>(probabilities.elements()),
                        3 * static_cast<double>(probabilities.bytes()));
  call.set(0, call.take_gradient());
}

/// softmax.py, ScaledUpperTriangMaskedSoftmax and ScaledMaskedSoftmax: scale, mask and softmax in one kernel.
Tensor masked_softmax(const Tensor& scores) {
  Tape& tape = scores.tape();
  const Tensor* inputs[] = {&scores};
  Node* node = tape.autograd.record(kSoftmaxNode, masked_softmax_backward, inputs, 1);
  Tensor probabilities = tape.empty(scores.shape(), scores.dtype(), kSoftmax);
  tape.kernels.add(kSoftmax, OperatorClass::kNormalization, scores.dtype(), 5 * static_cast<double>(scores.elements()),
                   2 * static_cast<double>(scores.bytes()));
  tape.autograd.set_history(node, probabilities);
  if (node != nullptr) tape.autograd.save(*node, probabilities);
  return probabilities;
}

/// FusedScaleMaskSoftmax.forward_torch_softmax of scores [b, heads, sq, sk]: the mask is written over them.
Tensor torch_softmax(Tensor scores, const MaskedSoftmax& how) {
  const DType dtype = scores.dtype();
  if (how.in_float32) scores = to_dtype(std::move(scores), DType::kFloat32);
  if (how.scales) scores = multiply_scalar(std::move(scores));
  scores = masked_fill_in_place(scores, how.mask);
  Tensor probabilities = softmax(std::move(scores));
  return to_dtype(std::move(probabilities), dtype);
}

/// Reads what is repeated and writes the copies; backward sums them.
void repeat_kernel(const Tensor& from, const Tensor& to) {
  from.tape().kernels.add(aten::kRepeatInterleave, OperatorClass::kMovement, from.dtype(), 0,
                          static_cast<double>(from.bytes() + to.bytes()), KernelKind::kStrided);
}

void repeat_backward(BackwardCall& call) {
  Tensor gradient = call.tape.empty(call.payload<InputShape>().shape, call.gradient().dtype(), aten::kRepeatInterleave);
  repeat_kernel(call.gradient(), gradient);
  call.set(0, std::move(gradient));
}

/// x.repeat_interleave(groups, dim=2): a key head for each query head.
Tensor repeat_heads(const Tensor& x, std::int64_t groups) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kRepeatInterleave, repeat_backward, inputs, 1);
  if (node != nullptr) node->payload.set(InputShape{x.shape()});
  Tensor result = tape.empty({x.size(0), x.size(1), x.size(2) * groups, x.size(3)}, x.dtype(), aten::kRepeatInterleave);
  repeat_kernel(x, result);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor local_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  Tape& tape = q.tape();
  const Tensor* inputs[] = {&q, &k, &v};
  Node* node = tape.autograd.record(kNode, fused_attention_backward, inputs, 3);
  if (node != nullptr) node->payload.set(FusedAttentionPayload{causal});
  Attended result = attend(q, k, v, causal);
  tape.autograd.set_history(node, result.output);
  save_attention(tape, node, q, k, v, result);
  return result.output;
}

}  // namespace

Tensor te_fused_attention(const TeAttention& options, const Tensor& query, const Tensor& key, const Tensor& value) {
  const std::int64_t ranks = options.context_parallel;
  switch (options.type) {
    case TeContextParallel::kRing: return merge_heads(ring_attention(query, key, value, ranks));
    case TeContextParallel::kAllGather: return merge_heads(all_gather_attention(query, key, value, ranks));
    case TeContextParallel::kAllToAll: return merge_heads(all_to_all_attention(query, key, value, ranks));
    case TeContextParallel::kNone: break;
  }
  return merge_heads(local_attention(query, key, value, options.causal));
}

Tensor te_unfused_attention(const Tensor& query, const Tensor& key, const Tensor& value, double dropout_probability,
                            const MaskedSoftmax& softmax) {
  // [s, b, h, d] -> [b * h, s, d]; torch.baddbmm scales the product of queries and keys.
  const std::int64_t groups = query.size(2) / key.size(2);
  const auto repeated = [&](const Tensor& x) { return groups > 1 ? repeat_heads(x, groups) : x; };
  const Tensor keys = repeated(key), values = repeated(value);
  const auto flat = [](const Tensor& x) { return reshape(x, {x.size(0), x.size(1) * x.size(2), x.size(3)}); };
  const Tensor q = transpose(flat(query), 0, 1), k = transpose(flat(keys), 0, 1), v = transpose(flat(values), 0, 1);
  Tensor scores = matmul(q, transpose(k, 1, 2));
  const Shape flat_shape = scores.shape();
  const Shape by_head{query.size(1), query.size(2), query.size(0), key.size(0)};
  Tensor probabilities;
  if (softmax.fused) {
    probabilities = masked_softmax(scores);
    scores.reset();
  } else {
    probabilities = view(torch_softmax(view(std::move(scores), by_head), softmax), flat_shape);
  }
  if (softmax.hidden.defined()) {  // attention_probs.masked_fill(attention_mask, 0)
    probabilities = view(masked_fill(view(std::move(probabilities), by_head), softmax.hidden), flat_shape);
  }
  probabilities = dropout(std::move(probabilities), dropout_probability);
  Tensor context = matmul(probabilities, v);
  context = view(context, {query.size(1), query.size(2), query.size(0), value.size(3)});
  return merge_heads(contiguous(permute(context, {2, 0, 1, 3})));
}

Tensor te_full_mask(const Tensor& query_padding, const Tensor& key_padding) {
  namespace ng = no_grad;
  Tape& tape = key_padding.tape();
  const std::int64_t batch = key_padding.size(0), queries = query_padding.size(3), keys = key_padding.size(3);
  const Shape whole{batch, 1, queries, keys};
  const Tensor padding = ng::bitwise_or(view(query_padding, {batch, 1, queries, 1}), key_padding);
  const Tensor seen = ng::bitwise_not(padding);
  // A window without ends: where each key stands from each query, against both ends of every sample.
  const Tensor distance = ng::subtract(view(ng::arange(tape, queries, DType::kInt32), {1, 1, queries, 1}),
                                       view(ng::arange(tape, keys, DType::kInt32), {1, 1, 1, keys}));
  const Tensor end = tape.empty({batch, 1, 1, 1}, DType::kInt64, aten::kSum);
  const Tensor left = ng::add(expand(distance, whole), end), right = ng::add(expand(distance, whole), end);
  const Tensor window = ng::bitwise_not(ng::bitwise_and(ng::less_equal(left), ng::bitwise_not(ng::less(right))));
  return ng::bitwise_or(window, padding);
}

}  // namespace memcalc
