// MIRRORS(torch, "attention_backward.cu", "2.11.0")
// MIRRORS(torch, "native/transformers/attention.cpp", "2.11.0")
// MIRRORS(torch, "native/transformers/cuda/attention.cu", "2.11.0")
// MIRRORS(torch, "sdp_utils.cpp", "2.11.0")
#include "memcalc/symbolic/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/attention_kernels.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/ring_attention.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// [B, H, S, D] in the memory order [B, S, H, D], as linear layers deliver and consume it.
Shape bshd_strides(const Shape& s) { return {s[1] * s[2] * s[3], s[3], s[1] * s[3], 1}; }

AttentionTerms terms_of(const SdpaOptions& options, const Tensor& bias) {
  return {.causal = options.causal,
          .dropout = options.dropout > 0,
          .bias = bias.defined(),
          .learns_bias = bias.defined() && bias.requires_grad()};
}

/// For the time of the backward.
void remember(Node* node, const AttentionTerms& terms) {
  if (node != nullptr) node->payload.set(terms);
}

// --- cuDNN

void cudnn_backward(BackwardCall& call) {  // saved: attn_bias?, key, query, value, logsumexp, out, offset, seed
  const int first = call.node.saved_count - 7;
  AttentionGradients gradients =
      cudnn_gradients(call.saved(first + 1), call.saved(first), call.saved(first + 2), call.payload<AttentionTerms>());
  call.set(0, std::move(gradients.query));
  call.set(1, std::move(gradients.key));
  call.set(2, std::move(gradients.value));
}

Tensor cudnn_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
                       const SdpaOptions& options) {
  Tape& tape = query.tape();
  const Tensor* inputs[] = {&query, &key, &value};
  Node* node = tape.autograd.record(aten::kScaledDotProductCudnnAttention, cudnn_backward, inputs, 3);
  const AttentionTerms terms = terms_of(options, bias);
  remember(node, terms);
  if (node != nullptr) {
    if (bias.defined()) tape.autograd.save(*node, bias);
    for (const Tensor* tensor : {&key, &query, &value}) tape.autograd.save(*node, *tensor);
  }
  auto [seed, offset, out, logsumexp] = run_or_recall<4>(
      tape, ListedOperator::kFusedAttention, [&] { return cudnn_forward(query, key, value, node != nullptr, terms); });
  tape.autograd.set_history(node, out);
  if (node != nullptr) {
    for (const Tensor* tensor : {&logsumexp, &out, &offset, &seed}) tape.autograd.save(*node, *tensor);
  }
  drop(logsumexp, offset, seed);
  return std::move(out);
}

// --- memory-efficient (native/transformers/cuda/attention.cu, attention_backward.cu)

constexpr int kBiasEdge = 3;  // after query, key and value

/// Float32 accumulators of dQ per tile of queries, 16 bytes of counters each; for head dimensions over 128 in 16 bits
/// also of dK and dV per split of the keys (mem_eff_attention/kernel_backward.h; 913 measured cases).
Bytes efficient_backward_workspace(const AttentionShape& s, bool half) {
  const std::int64_t block = s.dim <= 64 ? 64 : 128;
  const std::int64_t columns = half && s.dim > 64 && s.dim <= 128 ? 128 : 64;
  const std::int64_t tiles = ceil_div(s.queries, block) * ceil_div(s.dim, columns);
  Bytes per_head = tiles * (4 * block * columns + 16);
  if (half && s.dim > 128) {
    const std::int64_t heads = s.batch * s.heads;
    const std::int64_t splits =
        heads < 256 ? std::min(ceil_div(s.keys, 64), std::max<std::int64_t>(200 / heads, 1)) : 1;
    per_head += 2 * splits * 64 * 128 * ceil_div(s.dim, 128) * 4;
  }
  return s.batch * s.heads * per_head;
}

/// _flash_attention_backward, _efficient_attention_backward: grad_out.contiguous() of [B, S, H, D]. A slice of what was
/// concatenated is not (FLUX), nor is one of [S, B, H, D] (nn.MultiheadAttention).
Tensor copied_gradient(const Tensor& gradient) {
  const Shape& s = gradient.shape();
  const Shape rows{s[0], s[2], s[1], s[3]};
  const Shape& strides = gradient.strides();
  if (is_contiguous(rows, {strides[0], strides[2], strides[1], strides[3]})) return {};
  Tape& tape = gradient.tape();
  Tensor copy = tape.empty_strided(s, bshd_strides(s), gradient.dtype(), aten::kClone);
  tape.kernels.add(aten::kClone, OperatorClass::kMovement, copy.dtype(), 0, 2.0 * static_cast<double>(copy.bytes()));
  return copy;
}

void efficient_backward(BackwardCall& call) {  // saved: attn_bias?, key, query, value, logsumexp, out, (offset, seed)
  const int first = call.node.saved_count - 5;
  const Tensor &key = call.saved(first), &query = call.saved(first + 1), &value = call.saved(first + 2);
  const Tensor& out = call.saved(first + 4);
  Tape& tape = call.tape;
  const Tensor copy = copied_gradient(call.gradient());
  const AttentionShape s = shape_of(query, key, value);
  const auto gradient_like = [&](const Tensor& x) {
    return tape.empty_strided(x.shape(), bshd_strides(x.shape()), x.dtype(), aten::kEfficientAttentionBackward);
  };
  Tensor dq = gradient_like(query), dk = gradient_like(key), dv = gradient_like(value);
  Tensor grad_bias;
  if (call.needs(kBiasEdge)) {  // its rows start at multiples of 16 elements
    const Shape shape{s.batch, s.heads, s.queries, s.keys};
    const Shape aligned{s.batch, s.heads, s.queries, round_up(s.keys, 16)};
    Tensor whole = tape.empty(aligned, query.dtype(), aten::kEfficientAttentionBackward);
    grad_bias = tape.become_view(whole, shape, contiguous_strides(aligned));
  }
  const bool half = is_half(query.dtype());
  Tensor delta;
  if (half) {  // a kernel of its own
    delta = tape.empty({s.batch, s.heads, s.queries}, DType::kFloat32, aten::kEfficientAttentionBackward);
  } else {  // (grad * out).sum(-1), transposed
    Tensor product = pointwise(aten::kEfficientAttentionBackward, {&call.gradient(), &out}, 1);
    Tensor sum = tape.empty({s.batch, s.queries, s.heads}, DType::kFloat32, aten::kEfficientAttentionBackward);
    delta = s.queries > 1
                ? tape.empty({s.batch, s.heads, s.queries}, DType::kFloat32, aten::kEfficientAttentionBackward)
                : sum;
    drop(sum, product);
  }
  const Tensor workspace = tape.empty({efficient_backward_workspace(s, half)}, DType::kUInt8,
                                      aten::kEfficientAttentionBackward, Category::kWorkspaces);
  delta.reset();
  attention_contractions(tape, aten::kEfficientAttentionBackward, KernelKind::kEfficientAttention, s, query.dtype(),
                         true, call.payload<AttentionTerms>());
  call.set(0, std::move(dq));
  call.set(1, std::move(dk));
  call.set(2, std::move(dv));
  call.set(kBiasEdge, std::move(grad_bias));
}

/// preprocess_mask: the last dimension of a mask is brought to a multiple of 8 by copying (pad_bias). One that requires
/// a gradient is expanded by an operator of autograd.
Tensor padded_bias(Tensor bias, const Tensor& query, const Tensor& key) {
  if (bias.defined() && bias.requires_grad()) {
    if (bias.size(-1) % 8 != 0) {
      Shape padded = bias.shape();
      padded[-1] = round_up(padded[-1], 8);
      bias = slice(pad_to(bias, padded), -1, 0, bias.size(-1));
    }
    return expand(std::move(bias), {query.size(0), query.size(1), query.size(2), key.size(2)});
  }
  if (!bias.defined() || bias.size(-1) % 8 == 0) return bias;
  Shape shape = bias.shape();
  shape[-1] = round_up(shape[-1], 8);
  Tensor padded = bias.tape().empty(shape, bias.dtype(), aten::kEfficientAttentionForward);
  bias.reset();
  return padded;
}

/// output, logsumexp, the latter only where there will be a backward (compute_logsumexp).
std::array<Tensor, 2> efficient_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                        bool computes_logsumexp, const AttentionTerms& terms) {
  Tape& tape = query.tape();
  const AttentionShape s = shape_of(query, key, value);
  Tensor out = tape.empty_strided({s.batch, s.heads, s.queries, value.size(3)},
                                  bshd_strides({s.batch, s.heads, s.queries, value.size(3)}), query.dtype(),
                                  aten::kEfficientAttentionForward);
  Tensor logsumexp;
  if (computes_logsumexp) {
    logsumexp =
        tape.empty({s.batch, s.heads, round_up(s.queries, 32)}, DType::kFloat32, aten::kEfficientAttentionForward);
  }
  if (is_half(query.dtype()) && s.dim > 128)
    tape.memory.scratch(4 * query.elements(), aten::kEfficientAttentionForward);
  attention_contractions(tape, aten::kEfficientAttentionForward, KernelKind::kEfficientAttention, s, query.dtype(),
                         false, terms);
  return {std::move(out), std::move(logsumexp)};
}

Tensor efficient_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
                           const SdpaOptions& options) {
  Tape& tape = query.tape();
  const Tensor* inputs[] = {&query, &key, &value, &bias};
  const bool learns_bias = bias.defined() && bias.requires_grad();
  Node* node =
      tape.autograd.record(aten::kScaledDotProductEfficientAttention, efficient_backward, inputs, learns_bias ? 4 : 3);
  const AttentionTerms terms = terms_of(options, bias);
  remember(node, terms);
  if (node != nullptr) {
    if (bias.defined()) tape.autograd.save(*node, bias);
    for (const Tensor* tensor : {&key, &query, &value}) tape.autograd.save(*node, *tensor);
  }
  auto [out, logsumexp] = run_or_recall<2>(tape, ListedOperator::kFusedAttention, [&] {
    return efficient_forward(query, key, value, node != nullptr, terms);
  });
  tape.autograd.set_history(node, out);
  if (node != nullptr) {
    tape.autograd.save(*node, logsumexp);
    tape.autograd.save(*node, out);
  }
  logsumexp.reset();
  return std::move(out);
}

// --- flash

void flash_backward(BackwardCall& call) {  // saved: key, query, value, logsumexp, out, rng_state, unused
  const Tensor copy = copied_gradient(call.gradient());
  AttentionGradients gradients =
      flash_gradients(call.saved(1), call.saved(0), call.saved(2), call.payload<AttentionTerms>());
  call.set(0, std::move(gradients.query));
  call.set(1, std::move(gradients.key));
  call.set(2, std::move(gradients.value));
}

/// `listed`: as an operator of ATen; the flash-attn package's is not on selective checkpointing's list.
Tensor flash_attention(const Tensor& query, const Tensor& key, const Tensor& value, double dropout, bool causal,
                       bool listed) {
  Tape& tape = query.tape();
  const Tensor* inputs[] = {&query, &key, &value};
  Node* node = tape.autograd.record(aten::kScaledDotProductFlashAttention, flash_backward, inputs, 3);
  remember(node, {.causal = causal, .dropout = dropout > 0});
  if (node != nullptr) {
    for (const Tensor* tensor : {&key, &query, &value}) tape.autograd.save(*node, *tensor);
  }
  const auto forward = [&] { return flash_forward(query, key, value, dropout, causal); };
  auto [out, logsumexp, rng_state, unused] =
      listed ? run_or_recall<4>(tape, ListedOperator::kFusedAttention, forward) : forward();
  tape.autograd.set_history(node, out);
  if (node != nullptr) {
    for (const Tensor* tensor : {&logsumexp, &out, &rng_state, &unused}) tape.autograd.save(*node, *tensor);
  }
  drop(logsumexp, rng_state, unused);  // libstdc++'s tuple destroys its first element first
  return std::move(out);
}

// --- math: the composite of ordinary operators (native/transformers/attention.cpp, _scaled_dot_product_attention_math)

Tensor repeat_heads(const Tensor& x, std::int64_t times) {  // repeat_interleave over the head dimension
  if (times == 1) return x;
  // It always copies, also where one key head could be repeated by a stride.
  const Tensor expanded = expand(unsqueeze(x, 2), {x.size(0), x.size(1), times, x.size(2), x.size(3)});
  return view(contiguous(expanded), {x.size(0), x.size(1) * times, x.size(2), x.size(3)});
}

Tensor math_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                      const SdpaOptions& options) {
  Tape& tape = query.tape();
  // The dispatcher has cast the arguments of the whole; its parts run without autocast (autocast_mode.h, no_autocast).
  const WithoutAutocast without_autocast(tape.modes.autocast);
  // 16-bit inputs are computed in float32 (allow_fp16_bf16_reduction_math_sdp is off).
  const DType precise = is_half(query.dtype()) ? DType::kFloat32 : query.dtype();
  Tensor precise_query = to_dtype(query, precise);
  Tensor precise_key = to_dtype(key, precise);
  Tensor precise_value = to_dtype(value, precise);
  Tensor q = multiply_scalar(precise_query);
  Tensor bias = mask;
  if (options.causal) {
    const Shape square{query.size(2), key.size(2)};
    Tensor lower;
    {
      const Tensor ones = tape.empty(square, DType::kBool, aten::kOnes);
      lower = tape.empty(square, DType::kBool, aten::kTril);
    }
    Tensor zero = tape.empty({}, precise, aten::kWhere);
    Tensor minus_infinity = tape.empty({}, precise, aten::kWhere);
    bias = tape.empty(square, precise, aten::kWhere);
    drop(minus_infinity, zero, lower);
  }
  const std::int64_t times = options.broadcast_heads ? 1 : query.size(1) / key.size(1);
  Tensor k = repeat_heads(precise_key, times);
  Tensor v = repeat_heads(precise_value, times);
  Tensor scores = matmul(q, multiply_scalar(transpose(k, 2, 3)));
  // areAnyTensorSubclassLike: not in place under a Python dispatch mode, which selective checkpointing is.
  if (bias.defined()) scores = in_selective_region(tape) ? add(scores, bias) : add_in_place(scores, bias);
  scores = safe_softmax(scores);
  if (options.dropout > 0) scores = dropout(scores, options.dropout);
  Tensor weights = to_dtype(scores, query.dtype());  // the second result, which nobody takes
  Tensor out = to_dtype(matmul(scores, v), query.dtype());
  drop(scores, v, k, q, bias, precise_value, precise_key, precise_query, weights);
  return out;
}

/// convert_boolean_attn_mask: where(mask, 0, -inf) with the two numbers as scalars on the card.
Tensor additive_mask(const Tensor& mask, DType dtype) {
  Tape& tape = mask.tape();
  const Tensor* inputs[] = {&mask};
  Node* node = tape.autograd.record(aten::kConvertBooleanAttnMask, nullptr, inputs,
                                    1);  // a mask needs no gradient: for a capture only
  Tensor zero = tape.empty({}, dtype, aten::kConvertBooleanAttnMask);
  Tensor minus_infinity = tape.empty({}, dtype, aten::kConvertBooleanAttnMask);
  Tensor additive = tape.empty(mask.shape(), dtype, aten::kConvertBooleanAttnMask);
  drop(minus_infinity, zero);
  tape.autograd.set_history(node, additive);
  return additive;
}

}  // namespace

std::string_view name_of(SdpaBackend backend) {
  constexpr std::string_view names[] = {"cuDNN", "flash", "memory-efficient", "math"};
  return names[static_cast<int>(backend)];
}

// sdp_utils.cpp under USE_ROCM: AOTriton runs on gfx90a, gfx942 and gfx950, all that specs/gpus has; a head may be 512
// wide, and key heads may be fewer.
SdpaBackend choose_for_rocm(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                            const SdpaOptions& options) {
  const std::int64_t dim = query.size(3);
  if (dim != value.size(3) || dim > 512) return SdpaBackend::kMath;
  const bool square = !options.causal || query.size(2) == key.size(2);
  if (is_half(query.dtype()) && !mask.defined() && square) return SdpaBackend::kFlash;
  const bool aligned = dim % (is_half(query.dtype()) ? 8 : 4) == 0;
  return !options.grouped_heads && aligned && dim <= 256 ? SdpaBackend::kEfficient : SdpaBackend::kMath;
}

namespace {

/// check_prefer_cudnn_attention
bool tries_cudnn_first(const Tape& tape) {
  const CudaArchitecture of_card = architecture_of(tape.device);
  const bool is_old = of_card == CudaArchitecture::kHopper || of_card == CudaArchitecture::kBlackwell;
  if (!is_old && of_card != CudaArchitecture::kBlackwellUltra) return false;
  const CudnnAttention where = tape.behaviors.cudnn_attention;
  return is_old ? where != CudnnAttention::kNowhere : where == CudnnAttention::kAndB300;
}

}  // namespace

SdpaBackend choose_sdpa_backend(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                const SdpaOptions& options) {
  if (options.broadcast_heads) return SdpaBackend::kMath;  // check_batch_size_and_num_heads_dense
  // check_last_dim_stride_equals_1_dense: T5's position bias is a permuted table.
  if (mask.defined() && mask.strides()[-1] != 1) return SdpaBackend::kMath;
  const DeviceSpec& device = query.tape().device;
  const std::int64_t dim = query.size(3);
  const bool half = is_half(query.dtype());
  const bool modern = architecture_of(device) >= CudaArchitecture::kAmpere;
  const bool prefers_cudnn = tries_cudnn_first(query.tape());
  const std::int64_t cudnn_limit = is_of(device, CudaArchitecture::kHopper) ? 256 : 128;
  const bool learns_mask = mask.defined() && mask.requires_grad();  // whose gradient only the memory-efficient one has
  if (prefers_cudnn && !learns_mask && half && dim % 8 == 0 && dim <= cudnn_limit && key.size(2) > 1)
    return SdpaBackend::kCudnn;
  if (!device.gcn_architecture.empty()) return choose_for_rocm(query, key, value, mask, options);
  if (half && modern && !mask.defined() && value.size(3) == dim && dim <= 256 &&
      (!options.causal || query.size(2) == key.size(2))) {
    return SdpaBackend::kFlash;
  }
  const std::int64_t alignment = half ? 8 : 4;  // check_head_dim_size_mem_efficient
  const bool aligned = !modern || (dim % alignment == 0 && value.size(3) % alignment == 0);
  if (options.memory_efficient && aligned && !options.grouped_heads && (query.dtype() != DType::kBFloat16 || modern)) {
    return SdpaBackend::kEfficient;
  }
  return SdpaBackend::kMath;
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                    const SdpaOptions& options) {
  const bool boolean = mask.defined() && mask.dtype() == DType::kBool;
  const Tensor handed = mask.defined() && !boolean ? autocast(aten::kScaledDotProductAttention, mask)
                                                   : mask;  // the dispatcher's last argument first
  const Tensor v = autocast(aten::kScaledDotProductAttention, value);
  const Tensor k = autocast(aten::kScaledDotProductAttention, key);
  const Tensor q = autocast(aten::kScaledDotProductAttention, query);
  SdpaOptions chosen = options;
  chosen.grouped_heads = q.size(1) != k.size(1) && !options.broadcast_heads;
  const SdpaBackend backend = choose_sdpa_backend(q, k, v, handed, chosen);
  if (q.tape().modes.context) return ring_attention(q, k, v, handed, options, backend);
  // A local of the operator: it dies before what autocast made for its arguments.
  Tensor bias = boolean ? additive_mask(mask, q.dtype()) : handed;
  switch (backend) {
    case SdpaBackend::kCudnn: return cudnn_attention(q, k, v, bias, options);
    case SdpaBackend::kFlash: return flash_attention(q, k, v, options.dropout, options.causal, true);
    case SdpaBackend::kEfficient: return efficient_attention(q, k, v, padded_bias(std::move(bias), q, k), options);
    case SdpaBackend::kMath: break;
  }
  return math_attention(q, k, v, bias, chosen);
}

Tensor flash_attention_2(const Tensor& query, const Tensor& key, const Tensor& value, double dropout, bool causal) {
  const Tensor v = autocast(aten::kScaledDotProductAttention, value);
  const Tensor k = autocast(aten::kScaledDotProductAttention, key);
  const Tensor q = autocast(aten::kScaledDotProductAttention, query);
  return flash_attention(q, k, v, dropout, causal, false);
}

}  // namespace memcalc
