#include "memcalc/symbolic/ops/all_to_all.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kGather{"c10d::allgather_"};
constexpr Operator kAllToAll{"deepspeed::dim_zero_all_to_all"};
constexpr Operator kNode{"deepspeed_dim_zero_all_to_allBackward"};

Tensor exchanged(const Tensor& x, std::int64_t ranks) {
  Tensor output = x.tape().empty(x.shape(), x.dtype(), kAllToAll);
  x.tape().kernels.collective(kAllToAll, Collective::kAllToAll, x.dtype(), x.bytes(), ranks);
  return output;
}

void exchange_gradient(BackwardCall& call) {
  const Tensor gradient = contiguous(call.take_gradient());
  call.set(0, exchanged(gradient, call.payload<RankCount>().ranks));
}

}  // namespace

Tensor dim_zero_all_to_all(const Tensor& x, std::int64_t ranks) {
  Tape& tape = x.tape();
  const Tensor input = contiguous(x);
  const Tensor* const inputs[] = {&input};
  Node* node = tape.autograd.record(kNode, exchange_gradient, inputs, 1);
  if (node != nullptr) node->payload.set(RankCount{ranks});
  Tensor output = exchanged(input, ranks);
  tape.autograd.set_history(node, output);
  return output;
}

std::vector<Tensor> all_gather(Tape& tape, const Shape& shape, DType dtype, std::int64_t ranks) {
  std::vector<Tensor> of_ranks;
  for (std::int64_t i = 0; i < ranks; ++i) of_ranks.push_back(tape.empty(shape, dtype, aten::kEmptyLike));
  const Tensor flat = tape.empty({checked_multiply(ranks, shape.elements())}, dtype, kGather, Category::kCommunication);
  tape.kernels.collective(kGather, Collective::kAllGather, dtype, flat.bytes(), ranks);
  return of_ranks;
}

}  // namespace memcalc
