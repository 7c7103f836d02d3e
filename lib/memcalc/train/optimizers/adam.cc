// torch/optim/adam.py: Adam, and AdamW, which is Adam with a decoupled weight decay.
// MIRRORS(torch, "optim/adam.py", "2.11.0")
#include "memcalc/train/optimizers/adam.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/dtensor.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/rules.h"

namespace memcalc {

namespace {

constexpr const char* kSource = "torch/optim/adam.py";
constexpr const char* kMoments = "two moments (exp_avg, exp_avg_sq) in the weight's dtype";

/// Of DTensors: gradients of another layout than their parameter's, which each function of a list brings into it.
TensorList redistributed(Tape& tape, const ParameterGroup& params) {
  TensorList result;
  const std::optional<SequenceSplit>& split = tape.modes.sequence_split;
  if (!split) return result;
  for (const Parameter* each : params) {
    const Tensor& gradient = each->tensor.impl()->grad;
    const bool differs = each->tensor.impl()->has_partial_gradient || !(gradient.shape() == each->tensor.shape());
    if (differs) result.push_back(gradient_in_layout(each->tensor, gradient, split->ranks));
  }
  return result;
}

/// _multi_tensor_adam: the denominators of all parameters of a dtype at once.
void foreach_step(OptimizerMemory& memory, const ParameterGroup& group, int states) {
  make_states(memory, group, states);  // exp_avg, exp_avg_sq and, with amsgrad, max_exp_avg_sq
  TensorList exp_avg_sq_sqrt;
  for (const ParameterGroup& params : by_dtype(group)) {
    TensorList lerped = redistributed(memory.tape, params);
    lerped.reset();
    TensorList factor = redistributed(memory.tape, params), other_factor = redistributed(memory.tape, params);
    other_factor.reset();
    factor.reset();
    exp_avg_sq_sqrt = list_like(memory.tape, params, aten::kForeachSqrt);
  }
}

void amsgrad_step(OptimizerMemory& memory, const ParameterGroup& group) { foreach_step(memory, group, 3); }

/// _fused_adam updates in place; its step counters live on the card.
void fused_step(OptimizerMemory& memory, const ParameterGroup& group) {
  for (const Parameter* each : group) {
    memory.state({}, DType::kFloat32, aten::kZerosLike);
    memory.state(each->tensor.shape(), each->tensor.dtype(), aten::kZerosLike);
    memory.state(each->tensor.shape(), each->tensor.dtype(), aten::kZerosLike);
  }
}

/// _single_tensor_adam: a Python local keeps each denominator until the next one exists.
void for_loop_step(OptimizerMemory& memory, const ParameterGroup& group) {
  make_states(memory, group, 2);
  Tensor denom;
  for (const Parameter* each : group) {
    Tensor root = like(each->tensor, aten::kSqrt);
    Tensor quotient = like(each->tensor, aten::kDiv);
    root.reset();
    denom = std::move(quotient);
  }
}

StateBytes with_counter(const OptimizedTensor& tensor, Loop /*loop*/) {
  return {.tensors = 2 * tensor.bytes(), .scalars = 4};
}
StateBytes three_moments(const OptimizedTensor& tensor, Loop /*loop*/) { return {.tensors = 3 * tensor.bytes()}; }

double unfused(double itemsize) { return 18 * itemsize; }
double fused(double itemsize) { return 7 * itemsize; }
double with_maximum(double itemsize) { return 21 * itemsize; }

}  // namespace

void adam_foreach_step(OptimizerMemory& memory, const ParameterGroup& group) { foreach_step(memory, group, 2); }

std::span<const OptimizerRule> adam_rules() {
  static constexpr OptimizerRule kRules[] = {
      {.optimizer = Optimizer::kAdamWForeach,
       .title = "AdamW (foreach)",
       .source = kSource,
       .states = kMoments,
       .state_bytes = two_states,
       .step = adam_foreach_step,
       .flops = 14,
       .bytes_moved = unfused},
      {.optimizer = Optimizer::kAdamWFused,
       .title = "AdamW (fused)",
       .source = kSource,
       .states = kMoments,
       .scalars = "step counters",
       .state_bytes = with_counter,
       .step = fused_step,
       .flops = 14,
       .bytes_moved = fused,
       .takes_loss_scale = true},
      {.optimizer = Optimizer::kAdamWForLoop,
       .title = "AdamW (for loop)",
       .source = kSource,
       .states = kMoments,
       .state_bytes = two_states,
       .step = for_loop_step,
       .flops = 14,
       .bytes_moved = unfused,
       .operators = 8},
      {.optimizer = Optimizer::kAdam,
       .title = "Adam",
       .source = kSource,
       .states = kMoments,
       .state_bytes = two_states,
       .step = adam_foreach_step,
       .flops = 14,
       .bytes_moved = unfused},
      {.optimizer = Optimizer::kAdamWAmsgrad,
       .title = "AdamW with amsgrad",
       .source = kSource,
       .states = "three moments (exp_avg, exp_avg_sq, max_exp_avg_sq) in the weight's dtype",
       .state_bytes = three_moments,
       .step = amsgrad_step,
       .flops = 15,
       .bytes_moved = with_maximum},
  };
  return kRules;
}

}  // namespace memcalc
