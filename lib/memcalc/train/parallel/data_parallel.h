// nn.DataParallel: torch/nn/parallel/{data_parallel,replicate,scatter_gather,_functions,comm}.py (PyTorch 2.11). One
// process: the module lives on GPU 0; each forward sends the others replicas, and what they return is gathered on GPU
// 0, as are the gradients. "Rank" means GPU here. Covered by tests/unit/parallel_test.cc.
#pragma once

#include <cstddef>
#include <vector>

#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

class DataParallelModule : public ParallelWrapper {
 public:
  using ParallelWrapper::ParallelWrapper;

  void wrap(Model& model) override;
  [[nodiscard]] ModelOutput forward(const ModuleForward& module, const Batch& batch, bool sync) override;
  [[nodiscard]] bool updates(const Parameter& parameter) const override;
  [[nodiscard]] ParameterGroup optimizer_parameters(const Model& model) const override;

 private:
  [[nodiscard]] bool is_first() const { return rank == 0; }
  void broadcast_weights();
  void gather(ModelOutput& output);
  void reduce_to_first();

  /// comm::broadcast_coalesced: parameters that arrive as views of one tensor.
  struct Chunk {
    Tensor flat;                      // of a replica
    std::vector<std::size_t> params;  // places in params_
    std::size_t saved = 0;            // of them autograd keeps: all but embeddings
    std::size_t pending = 0;          // that it still keeps in this backward pass
  };
  void let_go(Chunk& chunk);

  std::vector<Tensor> params_;
  std::vector<Chunk> chunks_;
  bool ran_ = false;
};

}  // namespace memcalc
