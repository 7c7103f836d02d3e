// Tensor parallelism of torch (PyTorch 2.11): parallelize_module of each layer with ColwiseParallel and RowwiseParallel
// on its linear layers, as transformers' base_model_tp_plan has it. Everything else is a whole copy on each rank; with
// --sp the plan of torch's tutorial and of torchtitan (torchtitan/models/llama3/parallelize.py), which splits it, too.
// Beside it, where the run asks for it, what ranks do that see different data: fully_shard of the split layers (each
// parameter a DTensor on both meshes), or DistributedDataParallel around the module, whose parameters are then the
// local tensors of the DTensors (torch/distributed/tensor/parallel/ddp.py).
// Covered by tests/unit/parallel_test.cc and tests/measured/parallel_rows_test.cc.
// MIRRORS(torch, "distributed/tensor/parallel/ddp.py", "2.11.0")
#pragma once

#include <memory>
#include <vector>

#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

class TensorParallel : public ParallelWrapper {
 public:
  /// `inner` may be null: all ranks see the same data.
  TensorParallel(Tape& tape, const RunSpec& run, std::int64_t rank, std::unique_ptr<ParallelWrapper> inner);

  void wrap(Model& model) override;
  [[nodiscard]] ModelOutput forward(const ModuleForward& module, const Batch& batch, bool sync) override;
  [[nodiscard]] ParameterGroup optimizer_parameters(const Model& model) const override;
  void after_step() override;
  void before_last_backward() override;
  void reduce_gradients() override;
  void gather_parameters() override;
  void await_parameters() override;
  void release_parameters() override;
  [[nodiscard]] Tensor in_module(const Tensor& parameter) const override {
    return inner_ ? inner_->in_module(parameter) : parameter;
  }
  [[nodiscard]] std::vector<HeldRow> held_on_host() const override {
    return inner_ ? inner_->held_on_host() : std::vector<HeldRow>{};
  }

 private:
  std::unique_ptr<ParallelWrapper> inner_;
  Tensor position_ids_;  // where the sequence is split
};

/// parallelize_module: linear layers and their parameters are this rank's part, with --sp embedding and head, too. They
/// are cut in the order in which the plan names them.
void split_model(Tape& tape, Model& model, const Parallel& parallel);

struct Split {
  const Tensor* parameter;
  int dim;
};

/// A module's distribute_tensor(parameter, mesh, [Shard(dim)]): this rank's parts are tensors of their own in the
/// parameters' places. Throws Error(kUnsupported) where the ranks do not divide one.
void keep_shards(Tape& tape, const std::vector<Split>& splits, std::int64_t ranks);

}  // namespace memcalc
