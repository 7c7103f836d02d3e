// module/grouped_linear.py, permutation.py (masks), and Megatron-core's router around them.
// MIRRORS(megatron, "core/transformer/moe/router.py", "0.14.0")
// MIRRORS(transformer_engine, "pytorch/module/grouped_linear.py", "2.11.0")
// MIRRORS(transformer_engine, "pytorch/permutation.py", "2.11.0")
#include <array>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/transformer_engine.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kGroupedGemm{"transformer_engine::te_general_grouped_gemm"}, kGroupedNode{"_GroupedLinearBackward"};
constexpr Operator kRouter{"megatron::TopKRouter"}, kRouterNode{"TopKRouterBackward"};
constexpr Operator kPermute{"transformer_engine::permute_with_mask_map"}, kPermuteNode{"_moe_permute_mask_mapBackward"};
constexpr Operator kUnpermuteNode{"_moe_unpermute_mask_mapBackward"};

double real(std::int64_t value) { return static_cast<double>(value); }
std::int64_t rows_of(const Tensor& x) { return x.elements() / x.size(-1); }

struct GroupedLinearPayload {
  const TeLinear* layer = nullptr;  // outlives the graph
  std::int64_t experts = 0;
};

void grouped_linear_backward(BackwardCall& call) {  // saved: the rows of all experts
  const auto& payload = call.payload<GroupedLinearPayload>();
  const TeLinear& layer = *payload.layer;
  Tape& tape = call.tape;
  const std::int64_t experts = payload.experts;
  const Tensor gradient = contiguous(call.gradient());
  const std::int64_t rows = rows_of(gradient);
  layer.memory->use_grouped_workspaces();
  Tensor dgrad = tape.empty({rows, layer.in}, gradient.dtype(), kGroupedGemm);
  tape.kernels.grouped_product(kGroupedGemm, gradient.dtype(), experts, rows, layer.out, layer.in);
  // main_grad is in float32 beside bfloat16 (megatron_buffers.cc).
  const bool in_float32 = layer.memory->fuses_weight_gradients && gradient.dtype() == DType::kBFloat16;
  tape.kernels.grouped_weight_gradient(kGroupedGemm, gradient.dtype(), experts, rows, layer.out, layer.in,
                                       in_float32 ? DType::kFloat32 : gradient.dtype());
  Tensor wgrads;
  if (!layer.memory->fuses_weight_gradients) {
    wgrads = tape.empty({experts, layer.out, layer.in}, gradient.dtype(), kGroupedGemm);
  }
  call.unpacked[0].reset();  // clear_tensor_data
  call.node.saved[0].reset();
  if (layer.memory->fuses_weight_gradients) {
    layer.memory->use_dummy_weight_gradient(layer.out, layer.in, gradient.dtype());
  }
  call.set(0, std::move(dgrad));
}

struct RouterPayload {
  std::int64_t experts = 0;
};

// What router.py launches beside its product where --moe-router-fusion is not given: softmax, zeros, scatters (a copy
// and the scatter each), casts and masks, the load-balancing loss and its log; in backward twice the softmax and what
// leads there. Counted of moe_utils.py (23e00ed0, core_r0.14.0) by torch 2.11's dispatcher without a card, but topk.
constexpr std::int32_t kRouterLaunches = 28, kDroppingLaunches = 5, kRouterBackwardLaunches = 15;
constexpr int kRouterTopks = 2;  // of the scores and of those of the loss; one more where tokens are dropped

/// Small kernels one after another: what each launch takes decides.
void route(Tape& tape, double elements, double bytes, std::int32_t launches) {
  tape.kernels.add(kRouter, OperatorClass::kElementwise, DType::kFloat32, 10 * elements, bytes);
  if (Kernel* kernel = tape.kernels.last()) kernel->launches = launches;
}

void router_backward(BackwardCall& call) {  // saved: x and what stands beside it
  Tape& tape = call.tape;
  const Tensor& x = call.saved(0);
  const std::int64_t experts = call.payload<RouterPayload>().experts;
  const Shape scores{rows_of(x), experts};
  Tensor of_probabilities = tape.empty(scores, DType::kFloat32, kRouter);
  Tensor of_scores = tape.empty(scores, DType::kFloat32, kRouter);
  of_probabilities.reset();
  const Tensor of_logits = tape.empty(scores, x.dtype(), kRouter);
  of_scores.reset();
  route(tape, real(of_logits.elements()), 6 * 4 * real(of_logits.elements()), kRouterBackwardLaunches);
  Tensor gradient = tape.empty(x.shape(), x.dtype(), aten::kMm);
  const Tensor of_weight = tape.empty({experts, x.size(-1)}, x.dtype(), aten::kMm);
  tape.kernels.product(aten::kMm, x.dtype(), 1, rows_of(x), x.size(-1), experts);
  tape.kernels.product(aten::kMm, x.dtype(), 1, experts, x.size(-1), rows_of(x));
  call.set(0, std::move(gradient));
}

struct PermutedTokensPayload {
  Shape tokens;
  std::int64_t experts = 0;
};

/// What moves rows moves their gradients, too.
void moved(Tape& tape, const Tensor& from, const Tensor& to) {
  tape.kernels.add(kPermute, OperatorClass::kMovement, from.dtype(), 0, real(from.bytes() + to.bytes()));
}

void permute_backward(BackwardCall& call) {  // saved: map
  const auto& [tokens, experts] = call.payload<PermutedTokensPayload>();
  Tensor gradient = call.tape.empty(tokens, call.gradient(0).dtype(), kPermute);
  moved(call.tape, call.gradient(0), gradient);
  call.set(0, std::move(gradient));
  call.set(1, call.tape.empty({tokens[0], experts}, DType::kFloat32, kPermute));
}

void unpermute_backward(BackwardCall& call) {  // saved: map
  Tensor gradient = call.tape.empty(call.payload<InputShape>().shape, call.gradient().dtype(), kPermute);
  moved(call.tape, call.gradient(), gradient);
  call.set(0, std::move(gradient));
}

}  // namespace

Tensor te_grouped_linear(const TeLinear& layer, const Tensor& x, std::int64_t experts) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kGroupedNode, grouped_linear_backward, inputs, 1);
  layer.memory->use_grouped_workspaces();
  Tensor result = tape.empty({rows_of(x), layer.out}, x.dtype(), kGroupedGemm);
  tape.kernels.grouped_product(kGroupedGemm, x.dtype(), experts, rows_of(x), layer.in, layer.out);
  if (node != nullptr) {
    node->payload.set(GroupedLinearPayload{.layer = &layer, .experts = experts});
    tape.autograd.save(*node, x);
  }
  tape.autograd.set_history(node, result);
  return result;
}

Tensor megatron_router(MegatronMemory& memory, const Tensor& x, const RouterShape& shape) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kRouterNode, router_backward, inputs, 1);
  const std::int64_t tokens = rows_of(x);
  const Shape scores{tokens, shape.experts};
  memory.use_engine_workspace();  // moe_utils.py, router_gating_linear: te_general_gemm
  Tensor logits = tape.empty(scores, x.dtype(), aten::kMm);
  tape.kernels.product(aten::kMm, x.dtype(), 1, tokens, shape.experts, x.size(-1));
  Tensor softmax = tape.empty(scores, DType::kFloat32, kRouter);
  Tensor indices = tape.empty({tokens, shape.per_token}, DType::kInt64, kRouter);
  Tensor gates = tape.empty(scores, shape.dtype, kRouter);
  Tensor map = tape.empty(scores, DType::kBool, kRouter);
  Tensor probabilities = gates;
  if (shape.drops) probabilities = tape.empty(scores, shape.dtype, kRouter);
  Tensor balance = tape.empty(scores, DType::kFloat32, kRouter);  // scores of the load-balancing loss
  for (int i = 0; i < kRouterTopks + (shape.drops ? 1 : 0); ++i) {
    tape.kernels.add(aten::kTopk, OperatorClass::kMovement, DType::kFloat32, 0, real(softmax.bytes()));
    if (Kernel* kernel = tape.kernels.last()) kernel->launches = 2;  // the selection and the sort of what it took
    // Of each token's experts; where tokens are dropped, of each expert's tokens, which are not sorted.
    const bool of_experts = i == kRouterTopks;
    tape.kernels.describe(
        work::Rows{.count = of_experts ? shape.experts : tokens, .width = of_experts ? tokens : shape.experts});
  }
  route(tape, real(logits.elements()), 6 * real(softmax.bytes()),
        kRouterLaunches + (shape.drops ? kDroppingLaunches : 0));
  if (node != nullptr) {
    node->payload.set(RouterPayload{shape.experts});
    const std::array<const Tensor*, 5> kept{&x, &softmax, &indices, &map, &balance};
    for (const Tensor* each : kept) tape.autograd.save(*node, *each);
  }
  tape.autograd.set_history(node, probabilities);
  return probabilities;
}

PermutedTokens te_permute(const Tensor& x, const Tensor& probabilities, std::int64_t rows) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x, &probabilities};
  Node* node = tape.autograd.record(kPermuteNode, permute_backward, inputs, 2);
  PermutedTokens result;
  result.map = tape.empty({x.size(0), 2 * probabilities.size(1) + 1}, DType::kInt32, kPermute);
  result.rows = tape.empty({rows, x.size(1)}, x.dtype(), kPermute);
  result.probabilities = tape.empty({rows}, probabilities.dtype(), kPermute);
  tape.kernels.add(kPermute, OperatorClass::kMovement, x.dtype(), 0, 2 * real(result.rows.bytes()));
  if (node != nullptr) {
    node->payload.set(PermutedTokensPayload{.tokens = x.shape(), .experts = probabilities.size(1)});
    tape.autograd.save(*node, result.map);
  }
  tape.autograd.set_history(node, result.rows);
  tape.autograd.set_history(node, result.probabilities);
  return result;
}

Tensor te_unpermute(const Tensor& rows, const Tensor& map, std::int64_t tokens) {
  Tape& tape = rows.tape();
  const Tensor* inputs[] = {&rows};
  Node* node = tape.autograd.record(kUnpermuteNode, unpermute_backward, inputs, 1);
  if (node != nullptr) {
    node->payload.set(InputShape{rows.shape()});
    tape.autograd.save(*node, map);
  }
  Tensor result = tape.empty({tokens, rows.size(1)}, rows.dtype(), kPermute);
  moved(tape, rows, result);
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
