// torch/optim/nadam.py
// MIRRORS(torch, "optim/nadam.py", "2.11.0")
#include "memcalc/symbolic/aten.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/rules.h"

namespace memcalc {

namespace {

/// _multi_tensor_nadam; the products of momenta are on the CPU.
void step(OptimizerMemory& memory, const ParameterGroup& group) {
  for (const Parameter* each : group) {
    memory.state(each->tensor.shape(), each->tensor.dtype(), aten::kZerosLike);  // exp_avg
    memory.state(each->tensor.shape(), each->tensor.dtype(), aten::kZerosLike);  // exp_avg_sq
  }
  TensorList exp_avg_sq_sqrt;
  for (const ParameterGroup& params : by_dtype(group)) {
    exp_avg_sq_sqrt = list_like(memory.tape, params, aten::kForeachSqrt);
  }
}

StateBytes state_bytes(const OptimizedTensor& tensor, Loop /*loop*/) { return {.tensors = 2 * tensor.bytes()}; }

double bytes_moved(double itemsize) { return 22 * itemsize; }

}  // namespace

std::span<const OptimizerRule> nadam_rules() {
  static constexpr OptimizerRule kRules[] = {
      {.optimizer = Optimizer::kNAdam,
       .title = "NAdam",
       .source = "torch/optim/nadam.py",
       .states = "two moments (exp_avg, exp_avg_sq) in the weight's dtype",
       .state_bytes = state_bytes,
       .step = step,
       .flops = 17,
       .bytes_moved = bytes_moved},
  };
  return kRules;
}

}  // namespace memcalc
