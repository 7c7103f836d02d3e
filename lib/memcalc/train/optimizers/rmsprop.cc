// torch/optim/rmsprop.py
// MIRRORS(torch, "optim/rmsprop.py", "2.11.0")
#include "memcalc/symbolic/aten.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/rules.h"

namespace memcalc {

namespace {

/// _multi_tensor_rmsprop, neither centered nor with momentum.
void step(OptimizerMemory& memory, const ParameterGroup& group) {
  for (const Parameter* each : group) memory.state(each->tensor.shape(), each->tensor.dtype(), aten::kZerosLike);
  TensorList avg;
  for (const ParameterGroup& params : by_dtype(group)) avg = list_like(memory.tape, params, aten::kForeachSqrt);
}

StateBytes state_bytes(const OptimizedTensor& tensor, Loop /*loop*/) { return {.tensors = tensor.bytes()}; }

double bytes_moved(double itemsize) { return 13 * itemsize; }

}  // namespace

std::span<const OptimizerRule> rmsprop_rules() {
  static constexpr OptimizerRule kRules[] = {
      {.optimizer = Optimizer::kRmsprop,
       .title = "RMSprop",
       .source = "torch/optim/rmsprop.py",
       .states = "one mean of squares (square_avg) in the weight's dtype",
       .state_bytes = state_bytes,
       .step = step,
       .flops = 8,
       .bytes_moved = bytes_moved},
  };
  return kRules;
}

}  // namespace memcalc
