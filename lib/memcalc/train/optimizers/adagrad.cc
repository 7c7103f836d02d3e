// torch/optim/adagrad.py
// MIRRORS(accelerate, "optimizer.py", "1.15.0")
// MIRRORS(torch, "optim/adagrad.py", "2.11.0")
#include "memcalc/symbolic/aten.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/rules.h"

namespace memcalc {

namespace {

constexpr const char* kSource = "torch/optim/adagrad.py";
constexpr const char* kStates = "one sum of squares in the weight's dtype, made with the optimizer";

void construct(OptimizerMemory& memory, const ParameterGroup& group) {
  for (const Parameter* each : group) memory.state(each->tensor.shape(), each->tensor.dtype(), aten::kFullLike);
}

/// accelerate/optimizer.py, AcceleratedOptimizer: the states that exist, so the step counters too, go to the card.
void move_to_device(OptimizerMemory& memory, const ParameterGroup& group) {
  for (std::size_t i = 0; i < group.size(); ++i) memory.state({}, DType::kFloat32, aten::kToCopy);
}

/// _multi_tensor_adagrad
void foreach_step(OptimizerMemory& memory, const ParameterGroup& group) {
  TensorList std;
  TensorList numerator;
  for (const ParameterGroup& params : by_dtype(group)) {
    std = list_like(memory.tape, params, aten::kForeachSqrt);
    numerator = list_like(memory.tape, params, aten::kForeachMul);
  }
  std.reset();
  numerator.reset();
}

/// _single_tensor_adagrad
void for_loop_step(OptimizerMemory& /*memory*/, const ParameterGroup& group) {
  Tensor std;
  for (const Parameter* each : group) std = like(each->tensor, aten::kSqrt);
}

StateBytes state_bytes(const OptimizedTensor& tensor, Loop loop) {
  return {.tensors = tensor.bytes(), .scalars = is_trainer(loop) ? 4 : 0};
}

double foreach_bytes(double itemsize) { return 13 * itemsize; }
double for_loop_bytes(double itemsize) { return 11 * itemsize; }

}  // namespace

std::span<const OptimizerRule> adagrad_rules() {
  static constexpr OptimizerRule kRules[] = {
      {.optimizer = Optimizer::kAdagrad,
       .title = "Adagrad",
       .source = kSource,
       .states = kStates,
       .scalars = "step counters",
       .state_bytes = state_bytes,
       .construct = construct,
       .move_to_device = move_to_device,
       .step = foreach_step,
       .flops = 8,
       .bytes_moved = foreach_bytes},
      {.optimizer = Optimizer::kAdagradForLoop,
       .title = "Adagrad (for loop)",
       .source = kSource,
       .states = kStates,
       .scalars = "step counters",
       .state_bytes = state_bytes,
       .construct = construct,
       .move_to_device = move_to_device,
       .step = for_loop_step,
       .flops = 7,
       .bytes_moved = for_loop_bytes},
  };
  return kRules;
}

}  // namespace memcalc
