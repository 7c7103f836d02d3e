// torch/optim/radam.py
// MIRRORS(torch, "optim/radam.py", "2.11.0")
#include "memcalc/symbolic/aten.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/rules.h"

namespace memcalc {

namespace {

/// _multi_tensor_radam: before and after the rectification sets in, the same lists.
void step(OptimizerMemory& memory, const ParameterGroup& group) {
  for (const Parameter* each : group) {
    memory.state(each->tensor.shape(), each->tensor.dtype(), aten::kZerosLike);  // exp_avg
    memory.state(each->tensor.shape(), each->tensor.dtype(), aten::kZerosLike);  // exp_avg_sq
  }
  TensorList buffer;
  for (const ParameterGroup& params : by_dtype(group)) buffer = list_like(memory.tape, params, aten::kForeachSqrt);
}

StateBytes state_bytes(const OptimizedTensor& tensor, Loop /*loop*/) { return {.tensors = 2 * tensor.bytes()}; }

double bytes_moved(double itemsize) { return 22 * itemsize; }

}  // namespace

std::span<const OptimizerRule> radam_rules() {
  static constexpr OptimizerRule kRules[] = {
      {.optimizer = Optimizer::kRAdam,
       .title = "RAdam",
       .source = "torch/optim/radam.py",
       .states = "two moments (exp_avg, exp_avg_sq) in the weight's dtype",
       .state_bytes = state_bytes,
       .step = step,
       .flops = 15,
       .bytes_moved = bytes_moved},
  };
  return kRules;
}

}  // namespace memcalc
