// Tensor parallelism of torch (PyTorch 2.11): parallelize_module of each layer with ColwiseParallel and RowwiseParallel
// on its linear layers, as transformers' base_model_tp_plan has it. Everything else is a whole copy on each rank.
// Covered by tests/unit/parallel_test.cc and tests/measured/parallel_rows_test.cc.
#pragma once

#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

class TensorParallel : public ParallelWrapper {
 public:
  using ParallelWrapper::ParallelWrapper;

  void wrap(Model& model) override;
  [[nodiscard]] ModelOutput forward(const ModuleForward& module, const Batch& batch, bool sync) override;
};

}  // namespace memcalc
