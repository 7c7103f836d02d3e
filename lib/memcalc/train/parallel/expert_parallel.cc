#include "memcalc/train/parallel/expert_parallel.h"

#include <string>

#include "memcalc/base/error.h"
#include "memcalc/train/parallel/tensor_parallel.h"

namespace memcalc {

void ExpertParallel::wrap(Model& model) {
  for (const Parameter& parameter : model.parameters) {
    whole_shapes.push_back(parameter.tensor.shape());
    if (parameter.name.find(".experts.") == std::string::npos) continue;
    keep_shard(tape, parameter.tensor, 0, run.parallel.expert);  // grouped_gemm: Shard(0)
  }
  assumptions.emplace_back(
      "transformers' expert parallel plan: all ranks see the same tokens, and rows of other ranks' experts are masked, "
      "so that memory does not depend on how tokens spread over experts");
}

ModelOutput ExpertParallel::forward(const ModuleForward& module, const Batch& batch, bool /*sync*/) {
  return module(batch);
}

}  // namespace memcalc
