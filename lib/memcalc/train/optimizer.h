// Optimizers: what torch.optim allocates at step(): states at the first, temporaries at every one.
#pragma once

#include <vector>

#include "memcalc/models/module.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// One param_group: the parameters that share settings.
using ParameterGroup = std::vector<Tensor>;

class OptimizerSteps {
 public:
  OptimizerSteps(Optimizer kind, std::vector<ParameterGroup> groups) : kind_(kind), groups_(std::move(groups)) {}

  void step(Tape& tape);
  /// .grad = None for every parameter, in order.
  void zero_grad();
  [[nodiscard]] const std::vector<ParameterGroup>& groups() const { return groups_; }

 private:
  void make_states(Tape& tape, const ParameterGroup& group);
  void take_temporaries(Tape& tape, const ParameterGroup& group) const;

  Optimizer kind_;
  std::vector<ParameterGroup> groups_;
  std::vector<Tensor> states_;
  bool has_states_ = false;
};

/// torch.nn.utils.clip_grad_norm_ (foreach); returns the total norm.
Tensor clip_grad_norm(Tape& tape, const std::vector<Parameter>& parameters);

}  // namespace memcalc
