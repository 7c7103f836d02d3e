// torch/optim/adamax.py
// MIRRORS(torch, "optim/adamax.py", "2.11.0")
#include "memcalc/symbolic/aten.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/rules.h"

namespace memcalc {

namespace {

/// _multi_tensor_adamax: the variable of the gradients takes their magnitudes, until it takes the next dtype's.
void step(OptimizerMemory& memory, const ParameterGroup& group) {
  make_states(memory, group, 2);  // exp_avg, exp_inf
  TensorList grouped_grads;
  for (const ParameterGroup& params : by_dtype(group)) {
    grouped_grads.reset();
    grouped_grads = list_like(memory.tape, params, aten::kForeachAbs);
  }
}

double bytes_moved(double itemsize) { return 16 * itemsize; }

}  // namespace

std::span<const OptimizerRule> adamax_rules() {
  static constexpr OptimizerRule kRules[] = {
      {.optimizer = Optimizer::kAdamax,
       .title = "Adamax",
       .source = "torch/optim/adamax.py",
       .states = "two moments (exp_avg, exp_inf) in the weight's dtype",
       .state_bytes = two_states,
       .step = step,
       .flops = 10,
       .bytes_moved = bytes_moved},
  };
  return kRules;
}

}  // namespace memcalc
