#include "memcalc/train/parallel/ulysses.h"

#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/train/optimizers/lists.h"

namespace memcalc {

namespace {

constexpr Operator kGather{"c10d::allgather_"}, kScatter{"c10d::reduce_scatter_"};
constexpr Operator kNode{"deepspeed_sp_compute_lossBackward"};

/// torch.distributed.nn.functional.all_gather of a scalar, which the list lives on in `gathered`.
void gather(Tape& tape, DType dtype, std::int64_t ranks, std::vector<Tensor>& gathered) {
  for (std::int64_t i = 0; i < ranks; ++i) gathered.push_back(scalar(tape, dtype, aten::kEmptyLike));
  const Tensor flat = tape.empty({ranks}, dtype, kGather, Category::kCommunication);
  tape.kernels.collective(kGather, Collective::kAllGather, dtype, flat.bytes(), ranks);
}

// Of total / tokens.clamp(min=1), sum, multiplication, where, stack and the all-gather, whose backward is a
// reduce-scatter. Saved: the mask, the tokens of each rank, the divisor.
void loss_backward(BackwardCall& call) {
  Tape& tape = call.tape;
  const std::int64_t ranks = call.payload<RankCount>().ranks;
  const DType dtype = call.gradient().dtype();
  const auto let_go = [&call](std::size_t saved) {
    call.unpacked[saved].reset();
    call.node.saved[saved].reset();
  };
  Tensor of_sum = scalar(tape, dtype, aten::kDiv);
  let_go(2);
  Tensor of_products = tape.empty({ranks}, dtype, aten::kMul);
  of_sum.reset();
  let_go(1);
  Tensor zero = scalar(tape, dtype, aten::kScalarTensor);
  Tensor of_losses = tape.empty({ranks}, dtype, aten::kWhere);
  drop(zero, of_products);
  let_go(0);
  Tensor gradient = scalar(tape, dtype, aten::kEmptyLike);
  {
    const Tensor flat = tape.empty({ranks}, dtype, kScatter, Category::kCommunication);
    tape.kernels.collective(kScatter, Collective::kReduceScatter, dtype, flat.bytes(), ranks);
  }
  call.set(0, std::move(gradient));
}

/// deepspeed_sp_compute_loss: the ranks' losses, weighted by how many tokens each counts.
Tensor loss_of_all_ranks(const Tensor& loss, const Tensor& shift_labels, std::int64_t ranks) {
  Tape& tape = loss.tape();
  const Tensor* const inputs[] = {&loss};
  Node* node = tape.autograd.record(kNode, loss_backward, inputs, 1);
  if (node != nullptr) node->payload.set(RankCount{ranks});
  std::vector<Tensor> losses, tokens;
  gather(tape, loss.dtype(), ranks, losses);
  Tensor good_tokens = no_grad::sum(no_grad::not_equal(shift_labels));
  gather(tape, DType::kInt64, ranks, tokens);
  Tensor losses_stacked = tape.empty({ranks}, loss.dtype(), aten::kStack);
  Tensor tokens_stacked = tape.empty({ranks}, DType::kInt64, aten::kStack);
  Tensor mask = no_grad::greater(tokens_stacked);
  Tensor safe_losses = no_grad::where(mask, losses_stacked, no_grad::zeros_like(losses_stacked));
  Tensor total_loss;
  {
    const Tensor products = no_grad::multiply(safe_losses, tokens_stacked);
    total_loss = scalar(tape, loss.dtype(), aten::kSum);
  }
  Tensor total_tokens = no_grad::sum(tokens_stacked);
  Tensor divisor = no_grad::clamp(total_tokens);
  if (node != nullptr) {
    for (const Tensor* each : {&mask, &tokens_stacked, &divisor}) tape.autograd.save(*node, *each);
  }
  Tensor result = no_grad::divide(total_loss, divisor);
  tape.autograd.set_history(node, result);
  for (Tensor& each : losses) each.reset();
  good_tokens.reset();
  for (Tensor& each : tokens) each.reset();
  drop(losses_stacked, tokens_stacked, mask, safe_losses, total_loss, total_tokens, divisor);
  return result;
}

}  // namespace

Ulysses::Ulysses(Tape& tape, const RunSpec& run, std::int64_t rank, std::unique_ptr<ParallelWrapper> engine)
    : ParallelWrapper(tape, run, rank), engine_(std::move(engine)) {
  tape.modes.ulysses = {.ranks = run.parallel.context};
}

void Ulysses::wrap(Model& model) {
  engine_->wrap(model);
  whole_shapes = std::move(engine_->whole_shapes);
  assumptions = std::move(engine_->assumptions);
  empties_cache = engine_->empties_cache;
  assumptions.emplace_back("each rank has its part of the batch on the card, and no more");
}

ModelOutput Ulysses::forward(const ModuleForward& module, const Batch& batch, bool sync) {
  ModelOutput output = engine_->forward(module, batch, sync);
  output.loss = loss_of_all_ranks(output.loss, batch.labels, run.parallel.context);
  return output;
}

}  // namespace memcalc
