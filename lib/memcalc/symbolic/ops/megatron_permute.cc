#include "memcalc/symbolic/ops/megatron_permute.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kGatherTokens{"c10d::_allgather_base_"}, kScatterTokens{"c10d::_reduce_scatter_base_"};
constexpr Operator kGatherTokensNode{"_GatherFromSequenceParallelRegionBackward"};
constexpr Operator kCountTokens{"megatron::preprocess"};
constexpr Operator kSelectMaskedNode{"MaskedSelectBackward0"};

struct GatheredPayload {
  std::int64_t ranks = 1;
};

void gather_tokens_backward(BackwardCall& call) {
  const Tensor& incoming = call.gradient();
  const std::int64_t ranks = call.payload<GatheredPayload>().ranks;
  Shape own = incoming.shape();
  own[0] /= ranks;
  call.tape.kernels.collective(kScatterTokens, Collective::kReduceScatter, incoming.dtype(), incoming.bytes(), ranks);
  call.set(0, call.tape.empty(own, incoming.dtype(), kScatterTokens));
}

/// What moves rows moves their gradients, too; a gradient that rows are added to begins with zeros.
void moved_rows(Tape& tape, const Operator& op, const Tensor& from, const Tensor& to) {
  tape.kernels.add(op, OperatorClass::kMovement, from.dtype(), 0, static_cast<double>(from.bytes() + to.bytes()));
}

void select_rows_backward(BackwardCall& call) {  // saved: indices
  Tensor gradient = call.tape.empty(call.payload<InputShape>().shape, call.gradient().dtype(), aten::kIndexSelect);
  moved_rows(call.tape, aten::kIndexSelect, call.gradient(), gradient);
  call.set(0, std::move(gradient));
}

void select_masked_backward(BackwardCall& call) {  // saved: the transposed probabilities, mask
  call.set(0, call.tape.empty(call.payload<InputShape>().shape, call.gradient().dtype(), aten::kMaskedSelect));
}

void scatter_add_backward(BackwardCall& call) {  // saved: indices
  Tensor gradient = call.tape.empty(call.payload<InputShape>().shape, call.gradient().dtype(), aten::kScatterAdd);
  moved_rows(call.tape, aten::kScatterAdd, call.gradient(), gradient);
  call.set(0, std::move(gradient));
}

}  // namespace

void exchange_token_counts(Tape& tape, std::int64_t tokens, std::int64_t experts, std::int64_t ranks) {
  constexpr std::int32_t kSums = 2, kSumsOfRanks = 5;  // sums, conversions and a copy, of a few numbers
  constexpr Bytes kCount = 8;
  tape.kernels.add(kCountTokens, OperatorClass::kElementwise, DType::kInt64, 0, static_cast<double>(tokens * experts));
  if (Kernel* kernel = tape.kernels.last()) kernel->launches = kSums + (ranks > 1 ? kSumsOfRanks : 0);
  if (ranks > 1) {
    tape.kernels.collective(kGatherTokens, Collective::kAllGather, DType::kInt64, kCount * experts * ranks, ranks);
  }
  read_on_host(tape, kCountTokens);
}

Tensor gather_in_global_buffer(MegatronMemory& memory, const Tensor& x, std::int64_t ranks) {
  Tape& tape = memory.tape;
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(kGatherTokensNode, gather_tokens_backward, inputs, 1);
  if (node != nullptr) node->payload.set(GatheredPayload{ranks});
  const Shape whole{x.size(0) * ranks, x.size(1)};
  Tensor result = memory.in_global_buffer(whole, x.dtype());
  tape.kernels.collective(kGatherTokens, Collective::kAllGather, x.dtype(), x.bytes() * ranks, ranks);
  tape.autograd.set_history(node, result);
  return result;
}

IndexedRows permute_by_indices(const Tensor& x, std::int64_t experts, std::int64_t rows) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kIndexSelect.node, select_rows_backward, inputs, 1);
  IndexedRows result;
  {
    const Tensor map = tape.empty({experts, x.size(0)}, DType::kBool, aten::kClone);
    const Tensor tokens = tape.empty({x.size(0)}, DType::kInt64, aten::kArange);
    result.indices = tape.empty({rows}, DType::kInt64, aten::kMaskedSelect);
  }
  result.rows = tape.empty({rows, x.size(1)}, x.dtype(), aten::kIndexSelect);
  moved_rows(tape, aten::kIndexSelect, result.rows, result.rows);
  if (node != nullptr) {
    node->payload.set(InputShape{x.shape()});
    tape.autograd.save(*node, result.indices);
  }
  tape.autograd.set_history(node, result.rows);
  return result;
}

Tensor select_probabilities(const Tensor& probabilities, std::int64_t rows) {
  Tape& tape = probabilities.tape();
  const Tensor* inputs[] = {&probabilities};
  Node* node = tape.autograd.record(kSelectMaskedNode, select_masked_backward, inputs, 1);
  const Shape by_expert{probabilities.size(1), probabilities.size(0)};
  const Tensor transposed = tape.empty(by_expert, probabilities.dtype(), aten::kClone);
  const Tensor mask = tape.empty(by_expert, DType::kBool, aten::kClone);
  Tensor result = tape.empty({rows}, probabilities.dtype(), aten::kMaskedSelect);
  if (node != nullptr) {
    node->payload.set(InputShape{probabilities.shape()});
    tape.autograd.save(*node, transposed);
    tape.autograd.save(*node, mask);
  }
  tape.autograd.set_history(node, result);
  return result;
}

Tensor unpermute_by_indices(const Tensor& rows, const Tensor& indices, std::int64_t tokens) {
  Tape& tape = rows.tape();
  const Tensor* inputs[] = {&rows};
  Node* node = tape.autograd.record(aten::kScatterAdd.node, scatter_add_backward, inputs, 1);
  Tensor result = tape.empty({tokens, rows.size(1)}, rows.dtype(), aten::kZeros);
  moved_rows(tape, aten::kScatterAdd, rows, rows);
  if (node != nullptr) {
    node->payload.set(InputShape{rows.shape()});
    tape.autograd.save(*node, indices);
  }
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
