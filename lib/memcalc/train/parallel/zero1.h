// ZeroRedundancyOptimizer beside DDP: torch/distributed/optim/zero_redundancy_optimizer.py (PyTorch 2.11) with its
// defaults. Parameters and gradients are whole on every rank; each rank has the states of some parameters, updates
// these and broadcasts them. Covered by tests/unit/parallel_test.cc and tests/measured/parallel_rows_test.cc.
// MIRRORS(torch, "distributed/optim/zero_redundancy_optimizer.py", "2.11.0")
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memcalc/train/parallel/ddp.h"
#include "memcalc/train/parallel/holdings.h"

namespace memcalc {

/// _partition_parameters: the rank of each parameter, by its elements; and the order in which the ranks get them.
struct ZeroPartition {
  std::vector<std::int64_t> rank_of;
  std::vector<std::size_t> order;  // largest first
};
[[nodiscard]] ZeroPartition zero_partition(std::span<const std::int64_t> elements, std::int64_t ranks);

/// Elements of each trained parameter whose states are on a rank, for each rank.
[[nodiscard]] std::vector<Holding> zero1_holdings(const Model& model, std::int64_t ranks);

class Zero1 : public Ddp {
 public:
  using Ddp::Ddp;

  void wrap(Model& model) override;
  [[nodiscard]] bool updates(const Parameter& parameter) const override;
  [[nodiscard]] ParameterGroup optimizer_parameters(const Model& model) const override;
  void after_step() override;

 private:
  std::vector<const Parameter*> mine_;  // in the local optimizer's order
  std::vector<Bytes> broadcasts_;
};

}  // namespace memcalc
