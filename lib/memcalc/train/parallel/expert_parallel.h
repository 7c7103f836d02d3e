// Expert parallelism of transformers 5.17 (distributed/tensor_parallel.py): the base_model_ep_plan of a mixture of
// experts, as from_pretrained(distributed_config=DistributedConfig(tp_size=N, enable_expert_parallel=True)) applies it.
// Each rank has some of the experts of every layer and a whole copy of the rest; all ranks see the same tokens, and
// what their experts make of them is summed. How many tokens an expert gets does not change what is allocated: the rows
// of experts of other ranks are kept and masked. What runs then: models/experts.h. Covered by
// tests/unit/parallel_test.cc.
// MIRRORS(transformers, "distributed/tensor_parallel.py", "5.17.0")
#pragma once

#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

class ExpertParallel : public ParallelWrapper {
 public:
  using ParallelWrapper::ParallelWrapper;

  void wrap(Model& model) override;
  [[nodiscard]] ModelOutput forward(const ModuleForward& module, const Batch& batch, bool sync) override;
};

}  // namespace memcalc
