#include "memcalc/train/parallel/expert_parallel.h"

#include <string>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/train/parallel/tensor_parallel.h"

namespace memcalc {

void ExpertParallel::wrap(Model& model) {
  std::vector<Split> splits;  // of one module
  for (const Parameter& parameter : model.parameters) {
    whole_shapes.push_back(parameter.tensor.shape());
    const bool is_expert = parameter.name.find(".experts.") != std::string::npos;
    if (is_expert) splits.push_back({&parameter.tensor, 0});  // grouped_gemm: Shard(0)
    const bool ends = !is_expert || &parameter == &model.parameters.back();
    if (ends && !splits.empty()) keep_shards(tape, std::exchange(splits, {}), run.parallel.expert);
  }
  assumptions.emplace_back(
      "transformers' expert parallel plan: all ranks see the same tokens, and rows of other ranks' experts are masked, "
      "so that memory does not depend on how tokens spread over experts");
}

ModelOutput ExpertParallel::forward(const ModuleForward& module, const Batch& batch, bool /*sync*/) {
  return module(batch);
}

}  // namespace memcalc
