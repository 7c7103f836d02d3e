#include "memcalc/symbolic/ops/ring_attention.h"

#include <array>
#include <cstddef>
#include <string>
#include <tuple>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/attention_kernels.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/symbolic/within_call.h"

namespace memcalc {

namespace {

constexpr Operator kAllGather{"_c10d_functional::all_gather_into_tensor"};
constexpr Operator kAllToAll{"_c10d_functional::all_to_all_single"};

constexpr int kSequence = 2;  // the dimension that is split: [B, H, S, D]

Tensor half_of(const Tensor& x, std::int64_t index) {
  const std::int64_t length = x.size(kSequence) / 2;
  return slice(x, kSequence, index * length, length);
}

/// torch.cat([a.flatten(), b.flatten()])
Tensor packed(const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  Tensor both = tape.empty({a.elements() + b.elements()}, a.dtype(), aten::kCat, Category::kCommunication);
  tape.kernels.add(aten::kCat, OperatorClass::kMovement, a.dtype(), 0, 2.0 * static_cast<double>(both.bytes()));
  return both;
}

/// Keys and values of another rank in what arrived: views.
std::pair<Tensor, Tensor> unpacked(const Tensor& buffer, const Tensor& first, const Tensor& second) {
  Tape& tape = buffer.tape();
  return {tape.alias(buffer, first.shape(), contiguous_strides(first.shape()), true),
          tape.alias(buffer, second.shape(), contiguous_strides(second.shape()), true)};
}

/// x += y
void add_in_place_of(const Tensor& x, const Tensor& y) {
  x.tape().kernels.add(aten::kAddInPlace, OperatorClass::kElementwise, x.dtype(), static_cast<double>(x.elements()),
                       static_cast<double>(2 * x.bytes() + y.bytes()));
}

/// _partial_update: a copy in which one of two halves is another. Row-major, as torch.cat makes it.
Tensor with_half_replaced(const Tensor& original) {
  Tape& tape = original.tape();
  Tensor result = tape.empty(original.shape(), original.dtype(), aten::kCat);
  tape.kernels.add(aten::kCat, OperatorClass::kMovement, original.dtype(), 0,
                   2.0 * static_cast<double>(result.bytes()));
  return result;
}

/// _AllGatherRotater, _AllToAllRotater. What is sent lives until its collective is waited for.
class Rotater {
 public:
  Rotater(Tape& tape, bool passes_on) : tape_(tape), passes_on_(passes_on) {}

  void exchange(const Tensor& buffer) {
    const std::int64_t ranks = tape_.modes.context->ranks;
    if (!passes_on_) {
      if (received_.defined()) return;  // once is enough
      received_ = tape_.empty({ranks * buffer.elements()}, buffer.dtype(), kAllGather, Category::kCommunication);
      tape_.kernels.collective(kAllGather, Collective::kAllGather, buffer.dtype(), received_.bytes(), ranks);
    } else {
      received_ = tape_.empty(buffer.shape(), buffer.dtype(), kAllToAll, Category::kCommunication);
      tape_.kernels.collective(kAllToAll, Collective::kSend, buffer.dtype(), received_.bytes(), 2);
    }
    if (Kernel* const kernel = tape_.kernels.last()) kernel->node = &kFunctionalCollective;
    sent_ = buffer;
  }
  [[nodiscard]] const Tensor& next() {
    sent_.reset();
    return received_;
  }
  void reset() { drop(sent_, received_); }

 private:
  Tape& tape_;
  bool passes_on_;
  Tensor received_, sent_;
};

/// What is attended to in one turn: with head-tail balancing both halves of the rank's own part in the first, then half
/// of the keys of earlier ranks, or the later half of the queries for those of later ones.
struct Turn {
  Tensor query, key, value;
  bool causal = false;
  bool partial = false;  // of the queries
};

Turn turn_of(std::int64_t i, const Tensor& query, const Tensor& key, const Tensor& value) {
  if (i == 0) return {query, key, value, true, false};
  if (i <= query.tape().modes.context->rank) return {query, half_of(key, 0), half_of(value, 0), false, false};
  return {half_of(query, 1), key, value, false, true};
}

/// _SDPAMerger, in float32.
class Merger {
 public:
  void step(const Tensor& block_out, const Tensor& block_lse, bool partial) {
    Tensor out32 = to_dtype(block_out, DType::kFloat32);
    if (!out_.defined()) {
      out_ = std::move(out32);
      lse_ = block_lse;
      return;
    }
    Tensor lse = partial ? half_of(lse_, 1) : lse_;
    Tensor out = partial ? half_of(out_, 1) : out_;
    {  // out - sigmoid(block_lse - lse) * (out - block_out)
      Tensor weight = sigmoid_of_difference(block_lse, lse);
      Tensor difference = pointwise(aten::kSub, {&out, &out32}, 1);
      Tensor product = pointwise(aten::kMul, {&out, &difference}, 1);
      drop(weight, difference);
      out = pointwise(aten::kSub, {&out, &product}, 1);
    }
    {  // lse - logsigmoid(lse - block_lse)
      Tensor difference = pointwise(aten::kSub, {&lse, &block_lse}, 1);
      Tensor logarithm = pointwise(aten::kLogSigmoid, {&difference}, 3);
      difference.reset();
      lse = pointwise(aten::kSub, {&lse, &logarithm}, 1);
    }
    if (partial) {
      lse_ = with_half_replaced(lse_);
      out_ = with_half_replaced(out_);
    } else {
      lse_ = lse;
      out_ = out;
    }
    drop(lse, out);
  }
  [[nodiscard]] Tensor output(DType dtype) const { return to_dtype(out_, dtype); }
  [[nodiscard]] const Tensor& logsumexp() const { return lse_; }
  void reset() { drop(out_, lse_); }

 private:
  static Tensor sigmoid_of_difference(const Tensor& a, const Tensor& b) {
    const Tensor difference = pointwise(aten::kSub, {&a, &b}, 1);
    return pointwise(aten::kSigmoid, {&difference}, 3);
  }

  Tensor out_, lse_;
};

/// One call of the kernel; `rest`: what it returns for the backward beside output and logsumexp.
struct Attended {
  Tensor out, logsumexp;
  std::array<Tensor, 2> rest;
};

Attended attend(const Turn& turn, SdpaBackend backend, const SdpaOptions& options) {
  const AttentionTerms terms{.causal = turn.causal, .dropout = options.dropout > 0};
  if (backend == SdpaBackend::kCudnn) {
    auto [seed, offset, out, logsumexp] = cudnn_forward(turn.query, turn.key, turn.value, true, terms);
    return {std::move(out), std::move(logsumexp), {std::move(seed), std::move(offset)}};
  }
  auto [out, logsumexp, rng_state, unused] =
      flash_forward(turn.query, turn.key, turn.value, options.dropout, turn.causal);
  // flash has [B, H, S], the merger [B, H, S, 1]
  return {std::move(out), unsqueeze(std::move(logsumexp), -1), {std::move(rng_state), std::move(unused)}};
}

AttentionGradients gradients_of(const Turn& turn, bool cudnn, bool dropout) {
  const AttentionTerms terms{.causal = turn.causal, .dropout = dropout};
  return cudnn ? cudnn_gradients(turn.query, turn.key, turn.value, terms)
               : flash_gradients(turn.query, turn.key, turn.value, terms);
}

struct RingPayload {
  bool is_cudnn = false, has_dropout = false;
};

/// _templated_ring_attention_backward.
void ring_backward(BackwardCall& call) {  // saved: key, query, value, logsumexp, out, rest
  Tape& tape = call.tape;
  const auto [cudnn, dropout] = call.payload<RingPayload>();
  const Tensor& query = call.saved(1);
  const DType dtype = query.dtype();
  const auto zeros_like = [&](const Tensor& x) {
    return tape.empty_strided(x.shape(), like_strides(x.shape(), x.strides()), DType::kFloat32, aten::kZerosLike);
  };
  const ContextRanks& context = *tape.modes.context;
  const NoGrad no_grad(tape.modes);
  record_host_work(tape, HostWork::kRingAttentionBackward);
  Tensor grad_query = zeros_like(query), grad_key = zeros_like(call.saved(0)), grad_value = zeros_like(call.saved(2));
  Tensor key = contiguous(call.saved(0)), value = contiguous(call.saved(2));
  Rotater kv_rotater(tape, context.rotates), gradient_rotater(tape, true);
  Tensor next_kv, next_gradients, logsumexp;
  AttentionGradients part;
  for (std::int64_t i = 0; i < context.ranks; ++i) {
    if (i > 0) std::tie(key, value) = unpacked(kv_rotater.next(), key, value);
    if (i + 1 < context.ranks) {
      next_kv = packed(key, value);
      kv_rotater.exchange(next_kv);
    }
    const Turn turn = turn_of(i, query, key, value);
    if (turn.partial) logsumexp = contiguous(half_of(call.saved(3), 1));
    AttentionGradients gradients = gradients_of(turn, cudnn, dropout);
    part.query = std::move(gradients.query);
    part.key = std::move(gradients.key);
    part.value = std::move(gradients.value);
    const bool own_half = i > 0 && i <= context.rank;  // of the keys
    if (i > 0) {
      next_gradients = gradient_rotater.next();
      std::tie(grad_key, grad_value) = unpacked(next_gradients, grad_key, grad_value);
    }
    if (own_half) {
      grad_key = with_half_replaced(grad_key);
      grad_value = with_half_replaced(grad_value);
    } else {
      add_in_place_of(grad_key, part.key);
      add_in_place_of(grad_value, part.value);
    }
    next_gradients = packed(grad_key, grad_value);
    gradient_rotater.exchange(next_gradients);
    if (turn.partial) {
      grad_query = with_half_replaced(grad_query);
    } else {
      add_in_place_of(grad_query, part.query);
    }
  }
  grad_query = to_dtype(grad_query, dtype);
  next_gradients = to_dtype(gradient_rotater.next(), dtype);
  std::tie(grad_key, grad_value) = unpacked(next_gradients, grad_key, grad_value);
  drop(next_kv, part.query, part.key, part.value);
  gradient_rotater.reset();
  drop(key, value);
  kv_rotater.reset();
  drop(logsumexp, next_gradients);
  call.set(0, std::move(grad_query));
  call.set(1, std::move(grad_key));
  call.set(2, std::move(grad_value));
}

void check(const Tensor& mask, const SdpaOptions& options, SdpaBackend backend) {
  if (mask.defined()) throw refusal(rules::kCpMask);
  if (!options.causal) throw refusal(rules::kCpCausal);
  if (backend != SdpaBackend::kCudnn && backend != SdpaBackend::kFlash) {
    throw refusal(rules::kCpKernel, {name_of(backend)});
  }
}

}  // namespace

/// _templated_ring_attention.
Tensor ring_attention(const Tensor& query, const Tensor& original_key, const Tensor& original_value, const Tensor& mask,
                      const SdpaOptions& options, SdpaBackend backend) {
  check(mask, options, backend);
  Tape& tape = query.tape();
  const bool cudnn = backend == SdpaBackend::kCudnn;
  const Tensor* inputs[] = {&query, &original_key, &original_value};
  Node* node = tape.autograd.record(
      cudnn ? aten::kScaledDotProductCudnnAttention : aten::kScaledDotProductFlashAttention, ring_backward, inputs, 3);
  if (node != nullptr) {
    node->payload.set(RingPayload{.is_cudnn = cudnn, .has_dropout = options.dropout > 0});
    for (const Tensor* tensor : {&original_key, &query, &original_value}) tape.autograd.save(*node, *tensor);
  }
  Tensor output, logsumexp;
  std::array<Tensor, 2> rest;
  {
    const ContextRanks& context = *tape.modes.context;
    const NoGrad no_grad(tape.modes);
    record_host_work(tape, HostWork::kRingAttention);
    Tensor key = contiguous(original_key), value = contiguous(original_value);
    Merger merger;
    Rotater rotater(tape, context.rotates);
    Attended last;
    for (std::int64_t i = 0; i < context.ranks; ++i) {
      if (i > 0) std::tie(key, value) = unpacked(rotater.next(), key, value);
      if (i + 1 < context.ranks) rotater.exchange(packed(key, value));
      const Turn turn = turn_of(i, query, key, value);
      Attended attended = attend(turn, backend, options);
      last.out = std::move(attended.out);
      last.logsumexp = std::move(attended.logsumexp);
      for (const std::size_t each : {0, 1}) last.rest[each] = std::move(attended.rest[each]);
      merger.step(last.out, last.logsumexp, turn.partial);
    }
    output = merger.output(query.dtype());
    logsumexp = merger.logsumexp();
    rest = std::move(last.rest);
    merger.reset();
    drop(key, value);
    rotater.reset();
    drop(last.out, last.logsumexp);
  }
  tape.autograd.set_history(node, output);
  if (node != nullptr) {
    for (const Tensor* tensor : {&logsumexp, &output, &rest[1], &rest[0]}) tape.autograd.save(*node, *tensor);
  }
  drop(logsumexp, rest[1], rest[0]);
  return output;
}

}  // namespace memcalc
