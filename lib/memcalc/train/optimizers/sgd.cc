// torch/optim/sgd.py
// MIRRORS(torch, "optim/sgd.py", "2.11.0")
#include "memcalc/symbolic/aten.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/rules.h"

namespace memcalc {

namespace {

constexpr const char* kSource = "torch/optim/sgd.py";

/// The gradients are added to the weights in place.
void plain_step(OptimizerMemory& /*memory*/, const ParameterGroup& /*group*/) {}

/// The first step's gradients, copied, are the momentum.
void momentum_step(OptimizerMemory& memory, const ParameterGroup& group) {
  for (const ParameterGroup& params : by_dtype(group)) {
    for (const Parameter* each : params) memory.state(each->tensor.shape(), each->tensor.dtype(), aten::kClone);
  }
}

/// The variable of the gradients takes their sums with the weights, until it takes the next dtype's.
void weight_decay_step(OptimizerMemory& memory, const ParameterGroup& group) {
  TensorList device_grads;
  for (const ParameterGroup& params : by_dtype(group)) {
    device_grads.reset();
    device_grads = list_like(memory.tape, params, aten::kForeachAdd);
  }
}

StateBytes nothing(const OptimizedTensor& /*tensor*/, Loop /*loop*/) { return {}; }
StateBytes one_buffer(const OptimizedTensor& tensor, Loop /*loop*/) { return {.tensors = tensor.bytes()}; }

double plain_bytes(double itemsize) { return 3 * itemsize; }
double list_bytes(double itemsize) { return 6 * itemsize; }

}  // namespace

std::span<const OptimizerRule> sgd_rules() {
  static constexpr OptimizerRule kRules[] = {
      {.optimizer = Optimizer::kSgd,
       .title = "SGD",
       .source = kSource,
       .states = "plain SGD keeps no state",
       .state_bytes = nothing,
       .step = plain_step,
       .flops = 2,
       .bytes_moved = plain_bytes},
      {.optimizer = Optimizer::kSgdMomentum,
       .title = "SGD with momentum",
       .source = kSource,
       .states = "one momentum buffer in the weight's dtype",
       .state_bytes = one_buffer,
       .step = momentum_step,
       .flops = 4,
       .bytes_moved = list_bytes},
      {.optimizer = Optimizer::kSgdWeightDecay,
       .title = "SGD with weight decay",
       .source = kSource,
       .states = "SGD without momentum keeps no state",
       .state_bytes = nothing,
       .step = weight_decay_step,
       .flops = 4,
       .bytes_moved = list_bytes},
  };
  return kRules;
}

}  // namespace memcalc
