// MIRRORS(torch, "distributed/tensor/placement_types.py", "2.11.0")
#include "memcalc/symbolic/ops/dtensor.h"

#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/embedding.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kGather{"_c10d_functional::all_gather_into_tensor"};
constexpr Operator kScatter{"_c10d_functional::reduce_scatter_tensor"};
constexpr Operator kReduce{"_c10d_functional::all_reduce"};
constexpr Operator kRedistribute{"RedistributeBackward"};
constexpr Operator kFromLocal{"_FromTorchTensorBackward"};
constexpr Operator kMask{"_MaskPartial"};
constexpr Operator kLoss{"loss_parallel"};

double real(std::int64_t value) { return static_cast<double>(value); }

Shape with_size(Shape shape, int dim, std::int64_t size) {
  shape[dim] = size;
  return shape;
}

int place(const Tensor& x, int dim) { return dim < 0 ? x.rank() + dim : dim; }

Tensor new_copy(const Tensor& x, const Shape& shape, const Operator& op) {
  Tensor copy = x.tape().empty(shape, x.dtype(), op);
  x.tape().kernels.add(op, OperatorClass::kMovement, x.dtype(), 0, 2 * real(copy.bytes()), KernelKind::kVectorized,
                       real(copy.elements()));
  return copy;
}

/// funcol.all_gather_tensor: what arrives lies rank by rank; _maybe_view_chunk_cat copies it unless nothing is in
/// front of `dim`.
Tensor all_gather(const Tensor& x, int dim, std::int64_t ranks) {
  Tape& tape = x.tape();
  const Tensor part = contiguous(x);
  const Shape whole = with_size(part.shape(), dim, part.size(dim) * ranks);
  std::int64_t in_front = 1;
  for (int i = 0; i < dim; ++i) in_front *= part.size(i);
  Tensor gathered = tape.empty(whole, part.dtype(), kGather, Category::kCommunication);
  tape.kernels.collective(kGather, Collective::kAllGather, part.dtype(), gathered.bytes(), ranks);
  tape.memory.set_category(gathered.block(), Category::kTemporaries);
  return in_front == 1 ? gathered : new_copy(gathered, whole, aten::kCat);
}

/// funcol.reduce_scatter_tensor: the pieces of each rank are put one behind another first.
Tensor reduce_scatter(const Tensor& x, int dim, std::int64_t ranks) {
  Tape& tape = x.tape();
  const Tensor by_rank = dim == 0 ? x : new_copy(x, x.shape(), aten::kCat);
  Tensor part =
      tape.empty(with_size(x.shape(), dim, x.size(dim) / ranks), x.dtype(), kScatter, Category::kCommunication);
  tape.kernels.collective(kScatter, Collective::kReduceScatter, x.dtype(), x.bytes(), ranks);
  tape.memory.set_category(part.block(), Category::kTemporaries);
  return part;
}

/// Replicate() to Shard(dim): a copy of this rank's part.
Tensor own_part(const Tensor& whole, int dim, std::int64_t ranks) {
  return new_copy(whole, with_size(whole.shape(), dim, whole.size(dim) / ranks), aten::kClone);
}

using Move = Tensor (*)(const Tensor& x, int dim, std::int64_t ranks);

struct RedistributePayload {
  int dim = 0;
  std::int64_t ranks = 1;
  std::int64_t linears = 0;  // whose host work stands here
};

template <Move kBack>
void move_back(BackwardCall& call) {
  const Tensor gradient = call.take_gradient();
  const auto& [dim, ranks, linears] = call.payload<RedistributePayload>();
  record_host_work(call.tape, HostWork::kDistributedLinearBackward, linears);
  call.set(0, kBack(gradient, dim, ranks));
}

template <Move kThere, Move kBack>
Tensor redistribute(const Tensor& x, int dim, std::int64_t ranks, bool sums_anew, std::int64_t linears = 0) {
  const int along = place(x, dim);
  const Tensor* const inputs[] = {&x};
  Node* node = x.tape().autograd.record(kRedistribute, &move_back<kBack>, inputs, 1);
  if (node != nullptr) {
    node->payload.set(RedistributePayload{.dim = along, .ranks = ranks, .linears = linears});
    node->sums_anew = sums_anew;
  }
  record_host_work(x.tape(), HostWork::kDistributedLinear, linears);
  Tensor result = kThere(x, along, ranks);
  x.tape().autograd.set_history(node, result);
  return result;
}

/// placement_types.py, _MaskPartial._mask_tensor: which ids are of other ranks, and the others counted from this
/// rank's first.
struct Masked {
  Tensor mask, ids;
};

Masked mask_ids(Tape& tape, const Shape& shape) {
  Masked masked;
  Tensor below = tape.empty(shape, DType::kBool, kMask), above = tape.empty(shape, DType::kBool, kMask);
  masked.mask = tape.empty(shape, DType::kBool, kMask);
  drop(below, above);
  const Tensor copied = tape.empty(shape, DType::kInt64, kMask);
  masked.ids = tape.empty(shape, DType::kInt64, kMask);
  return masked;
}

struct EmbeddingPayload {
  Shape table;  // of all ranks
  std::int64_t ranks = 1;
};

void embedding_backward(BackwardCall& call) {  // saved: ids
  const auto& [table, ranks] = call.payload<EmbeddingPayload>();
  Tensor whole;
  {
    const Tensor gradient = call.take_gradient();
    whole = all_gather(gradient, 1, ranks);
  }
  call.set(0, embedding_table_gradient(call.tape, call.saved(0), whole, table));
}

/// torch.where(targets != ignore_index, values, 0) of [rows] int64 or float32.
Tensor where_counted(Tape& tape, const Shape& shape, DType dtype) {
  const Tensor counted = tape.empty(shape, DType::kBool, kLoss);
  const Tensor zero = tape.empty({}, dtype, kLoss);
  return tape.empty(shape, dtype, kLoss);
}

// _nll_loss_and_log_softmax_backward: the gradient of both at once; _log_softmax_backward_handler passes it.
void loss_backward(BackwardCall& call) {  // saved: targets, total weight, log-probabilities
  Tape& tape = call.tape;
  const Tensor& result = call.saved(2);
  const Shape rows{result.size(0)};
  Tensor scaled = tape.empty({}, DType::kFloat32, kLoss);
  Tensor safe_target = where_counted(tape, rows, DType::kInt64);
  Tensor grad_input = tape.empty(result.shape(), DType::kFloat32, kLoss);
  Masked masked = mask_ids(tape, rows);
  Tensor as_float = tape.empty(rows, DType::kFloat32, kLoss);
  Tensor update = tape.empty(rows, DType::kFloat32, kLoss);
  as_float.reset();
  Tensor range = tape.empty(rows, DType::kInt64, kLoss);
  Tensor by_row = where_counted(tape, {result.size(0), 1}, DType::kFloat32);
  scaled.reset();
  Tensor exponentials = tape.empty(result.shape(), DType::kFloat32, kLoss);
  Tensor sum = tape.empty(result.shape(), DType::kFloat32, kLoss);
  exponentials.reset();
  Tensor gradient = tape.empty(result.shape(), DType::kFloat32, kLoss);
  tape.kernels.add(kLoss, OperatorClass::kElementwise, DType::kFloat32, 3 * real(result.elements()),
                   8 * real(result.bytes()), KernelKind::kVectorized, real(result.elements()));
  drop(sum, by_row, safe_target, grad_input, masked.mask, masked.ids, update, range);
  call.set(0, std::move(gradient));
}

void pass_gradient_of_norm(BackwardCall& call) {
  record_host_work(call.tape, HostWork::kDistributedNormBackward);
  call.set(0, call.take_gradient());
}

}  // namespace

Tensor all_reduce(const Tensor& x, std::int64_t ranks) {
  Tape& tape = x.tape();
  Tensor sum = tape.empty(x.shape(), x.dtype(), kReduce, Category::kCommunication);
  tape.kernels.collective(kReduce, Collective::kAllReduce, x.dtype(), x.bytes(), ranks);
  tape.memory.set_category(sum.block(), Category::kTemporaries);
  return sum;
}

Tensor distributed(const Tensor& x) {
  const Tensor* const inputs[] = {&x};
  Node* node = x.tape().autograd.record(kFromLocal, &pass_gradient_of_norm, inputs, 1);
  record_host_work(x.tape(), HostWork::kDistributedNorm);
  Tensor same = x.tape().alias(x, x.shape(), x.strides(), true);
  if (node == nullptr) return same;
  node->sums_anew = true;
  x.tape().autograd.set_history(node, same);
  return same;
}

Tensor gather_for_products(const Tensor& x, int dim, std::int64_t ranks, std::int64_t linears) {
  return redistribute<all_gather, reduce_scatter>(x, dim, ranks, true, linears);
}

Tensor gather_for_all(const Tensor& x, int dim, std::int64_t ranks) {
  return redistribute<all_gather, own_part>(x, dim, ranks, false);
}

Tensor reduce_and_scatter(const Tensor& partial, int dim, std::int64_t ranks, std::int64_t linears) {
  return redistribute<reduce_scatter, all_gather>(partial, dim, ranks, false, linears);
}

Tensor vocabulary_parallel_embedding(const Tensor& weight, const Tensor& ids, std::int64_t ranks) {
  Tape& tape = weight.tape();
  const Tensor* const inputs[] = {&weight};
  Node* node = tape.autograd.record(aten::kEmbedding, &embedding_backward, inputs, 1);
  if (node != nullptr) {
    node->payload.set(EmbeddingPayload{.table = {weight.size(0) * ranks, weight.size(1)}, .ranks = ranks});
    tape.autograd.save(*node, ids);
  }
  Tensor partial;
  {
    const Masked masked = mask_ids(tape, ids.shape());
    partial = tape.empty({ids.size(0), ids.size(1), weight.size(1)}, weight.dtype(), aten::kEmbedding);
    tape.kernels.add(aten::kEmbedding, OperatorClass::kMovement, weight.dtype(), 0, 2 * real(partial.bytes()),
                     KernelKind::kIndexed, real(partial.elements()));
  }
  Tensor rows = reduce_scatter(partial, 1, ranks);
  tape.autograd.set_history(node, rows);
  return rows;
}

Tensor loss_parallel_cross_entropy(const Tensor& logits, const Tensor& targets, std::int64_t ranks) {
  Tape& tape = logits.tape();
  const Tensor* const inputs[] = {&logits};
  Node* node = tape.autograd.record(aten::kNllLossForward, &loss_backward, inputs, 1);
  const Shape column{logits.size(0), 1}, rows{logits.size(0)};
  const auto make = [&](const Shape& shape, DType dtype = DType::kFloat32) { return tape.empty(shape, dtype, kLoss); };
  Tensor result;
  {  // _log_softmax
    Tensor maximum = make(column);
    maximum = all_reduce(maximum, ranks);
    Tensor shifted = make(logits.shape());
    Tensor exponentials = make(logits.shape());
    Tensor sums = make(column);
    exponentials.reset();
    sums = all_reduce(sums, ranks);
    Tensor logarithms = make(column);
    result = make(logits.shape());
    tape.kernels.add(kLoss, OperatorClass::kNormalization, DType::kFloat32, 5 * real(logits.elements()),
                     8 * real(logits.bytes()), KernelKind::kVectorized, real(logits.elements()));
    drop(shifted, maximum, sums, logarithms);
  }
  Tensor total_weight, loss;
  {  // _nll_loss_forward
    Tensor safe_target = where_counted(tape, rows, DType::kInt64);
    Masked masked = mask_ids(tape, rows);
    Tensor picked = make(column);
    masked.mask.reset();
    Tensor reduced = all_reduce(picked, ranks);
    Tensor of_row = make(rows);
    of_row = where_counted(tape, rows, DType::kFloat32);
    {
      Tensor counted = make(rows, DType::kBool);
      const Tensor count = make({}, DType::kInt64);
      Tensor integers = make(rows, DType::kInt64);
      drop(integers, counted);
      total_weight = make({});
    }
    Tensor sum = make({});
    loss = make({});
    drop(sum, of_row, safe_target, masked.ids, picked, reduced);
  }
  if (node != nullptr) {
    tape.autograd.save(*node, targets);
    tape.autograd.save(*node, total_weight);
    tape.autograd.save(*node, result);
  }
  tape.autograd.set_history(node, loss);
  return loss;
}

Tensor gradient_in_layout(const Tensor& parameter, Tensor gradient, std::int64_t ranks) {
  if (parameter.impl()->has_partial_gradient) return all_reduce(gradient, ranks);
  if (gradient.shape() == parameter.shape()) return gradient;
  return own_part(gradient, 0, ranks);
}

namespace {

void record_linear_backward(Tape& tape, bool casts) {
  record_host_work(tape, HostWork::kDistributedLinearBackward);
  if (casts) record_host_work(tape, HostWork::kDistributedCastBackward);
}

void record_linear(Tape& tape) {
  record_host_work(tape, HostWork::kDistributedLinear);
  if (tape.modes.autocast.is_on()) record_host_work(tape, HostWork::kDistributedCast);
}

template <bool kCasts>
void sum_gradient_of_product(BackwardCall& call) {
  const Tensor gradient = call.take_gradient();
  record_linear_backward(call.tape, kCasts);
  call.set(0, all_reduce(gradient, call.payload<RankCount>().ranks));
}

template <bool kCasts>
void pass_gradient_of_product(BackwardCall& call) {
  record_linear_backward(call.tape, kCasts);
  call.set(0, call.take_gradient());
}

/// One of the two above, as autocast is now: a backward pass does not tell.
template <typename Function>
Function with_casts(const Tape& tape, Function with, Function without) {
  return tape.modes.autocast.is_on() ? with : without;
}

}  // namespace

Tensor replicated(const Tensor& x, std::int64_t ranks) {
  Tape& tape = x.tape();
  const Tensor* const inputs[] = {&x};
  Node* node = tape.autograd.record(
      kFromLocal, with_casts(tape, &sum_gradient_of_product<true>, &sum_gradient_of_product<false>), inputs, 1);
  Tensor output = tape.alias(x, x.shape(), x.strides(), true);
  record_linear(tape);
  if (node == nullptr) return output;
  node->payload.set(RankCount{ranks});
  tape.autograd.set_history(node, output);
  return output;
}

void read_as_dtensor(const Tensor& x) {
  Tape& tape = x.tape();
  record_linear(tape);
  if (!tape.modes.grad_enabled || !x.requires_grad()) return;
  const bool casts = tape.modes.autocast.is_on();
  tape.autograd.before_backward_of(x, [&tape, casts] { record_linear_backward(tape, casts); });
}

Tensor summed_over_ranks(const Tensor& partial, std::int64_t ranks) {
  const Tensor* const inputs[] = {&partial};
  Tape& tape = partial.tape();
  Node* node = tape.autograd.record(
      kRedistribute, with_casts(tape, &pass_gradient_of_product<true>, &pass_gradient_of_product<false>), inputs, 1);
  record_linear(tape);
  Tensor output = all_reduce(partial, ranks);
  partial.tape().autograd.set_history(node, output);
  return output;
}

}  // namespace memcalc
