// torch/optim/nadam.py
// MIRRORS(torch, "optim/nadam.py", "2.11.0")
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/rules.h"

namespace memcalc {

namespace {

double bytes_moved(double itemsize) { return 22 * itemsize; }

}  // namespace

std::span<const OptimizerRule> nadam_rules() {
  static constexpr OptimizerRule kRules[] = {
      {.optimizer = Optimizer::kNAdam,
       .title = "NAdam",
       .source = "torch/optim/nadam.py",
       .states = "two moments (exp_avg, exp_avg_sq) in the weight's dtype",
       .state_bytes = two_states,
       .step = step_by_two_moments,  // _multi_tensor_nadam; the products of momenta are on the CPU
       .flops = 17,
       .bytes_moved = bytes_moved},
  };
  return kRules;
}

}  // namespace memcalc
