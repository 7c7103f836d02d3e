#include "memcalc/train/parallel/zero1.h"

#include <algorithm>
#include <numeric>

#include "memcalc/spec/parallel.h"

namespace memcalc {

namespace {
constexpr Operator kBroadcast{"c10d::broadcast_"};
}

ZeroPartition zero_partition(std::span<const std::int64_t> elements, std::int64_t ranks) {
  ZeroPartition partition;
  partition.rank_of.resize(elements.size());
  partition.order.resize(elements.size());
  std::iota(partition.order.begin(), partition.order.end(), std::size_t{0});
  std::stable_sort(partition.order.begin(), partition.order.end(),
                   [&](std::size_t a, std::size_t b) { return elements[a] > elements[b]; });
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(ranks));
  for (const std::size_t i : partition.order) {
    const auto smallest = std::min_element(sizes.begin(), sizes.end());  // the first of the smallest
    partition.rank_of[i] = smallest - sizes.begin();
    *smallest += elements[i];
  }
  return partition;
}

std::vector<Holding> zero1_holdings(const Model& model, std::int64_t ranks) {
  std::vector<std::int64_t> elements;
  for (const Parameter& parameter : model.parameters) {
    if (parameter.tensor.requires_grad()) elements.push_back(parameter.tensor.elements());
  }
  const ZeroPartition partition = zero_partition(elements, ranks);
  std::vector<Holding> holdings;
  std::vector<std::int64_t> updated(elements.size());
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < elements.size(); ++i) updated[i] = partition.rank_of[i] == rank ? elements[i] : 0;
    add_rank(holdings, updated);
  }
  return holdings;
}

void Zero1::wrap(Model& model) {
  Ddp::wrap(model);
  std::vector<const Parameter*> trained;
  std::vector<std::int64_t> elements;
  for (const Parameter& parameter : model.parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    trained.push_back(&parameter);
    elements.push_back(parameter.tensor.elements());
  }
  const ZeroPartition partition = zero_partition(elements, sharing_ranks(run.parallel));
  for (const std::size_t i : partition.order) {
    broadcasts_.push_back(trained[i]->tensor.bytes());
    if (partition.rank_of[i] == rank) mine_.push_back(trained[i]);
  }
}

bool Zero1::updates(const Parameter& parameter) const {
  return std::find(mine_.begin(), mine_.end(), &parameter) != mine_.end();
}

ParameterGroup Zero1::optimizer_parameters(const Model& /*model*/) const { return mine_; }

// _sync_params: each parameter in place and by itself, from the rank that updated it (_broadcast_params_from_rank).
void Zero1::after_step() {
  Ddp::after_step();
  const DType dtype = run.weights_dtype.value_or(DType::kFloat32);
  for (const Bytes bytes : broadcasts_) {
    tape.kernels.collective(kBroadcast, Collective::kBroadcast, dtype, bytes, sharing_ranks(run.parallel));
  }
}

}  // namespace memcalc
