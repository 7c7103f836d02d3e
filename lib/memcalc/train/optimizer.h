// An optimizer that runs: the rule of its kind (optimizers/) applied to the param_groups.
#pragma once

#include <vector>

#include "memcalc/train/optimizers/rule.h"

namespace memcalc {

class OptimizerSteps {
 public:
  /// The constructor; under the Trainer also accelerate's wrapper, which moves to the card what there is. Of an
  /// offloaded optimizer (offload.h) what is on the card.
  /// Pre: the run outlives this.
  OptimizerSteps(Tape& tape, const RunSpec& run, std::vector<ParameterGroup> groups);

  void step();
  /// _amp_foreach_non_finite_check_and_unscale_: one pass over the gradients.
  void record_unscale();
  /// .grad = None for every parameter, in order.
  void zero_grad();
  [[nodiscard]] bool takes_loss_scale() const { return rule_.takes_loss_scale; }
  /// The variables that the next step replaces.
  template <typename Visit>
  void visit_carried(Visit visit) {
    memory_.visit_replaced(visit);
  }

 private:
  void record_cost(const ParameterGroup& group);
  void record_cost(const ParameterGroup& group, bool of_dtensors);
  [[nodiscard]] bool is_dtensor(const Parameter& parameter) const;

  void step_on_host();

  const RunSpec& run_;
  const OptimizerRule& rule_;
  std::vector<ParameterGroup> groups_;  // that are stepped on the card
  ParameterGroup on_host_;              // that are stepped on the host
  OptimizerMemory memory_;
  DataParallel data_parallel_;
  std::int64_t tensor_parallel_;
  std::int64_t expert_parallel_;
};

}  // namespace memcalc
