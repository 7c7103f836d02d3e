// torch/optim/radam.py
// MIRRORS(torch, "optim/radam.py", "2.11.0")
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/rules.h"

namespace memcalc {

namespace {

double bytes_moved(double itemsize) { return 22 * itemsize; }

}  // namespace

std::span<const OptimizerRule> radam_rules() {
  static constexpr OptimizerRule kRules[] = {
      {.optimizer = Optimizer::kRAdam,
       .title = "RAdam",
       .source = "torch/optim/radam.py",
       .states = "two moments (exp_avg, exp_avg_sq) in the weight's dtype",
       .state_bytes = two_states,
       .step = step_by_two_moments,  // _multi_tensor_radam: before and after the rectification sets in the same lists
       .flops = 15,
       .bytes_moved = bytes_moved},
  };
  return kRules;
}

}  // namespace memcalc
