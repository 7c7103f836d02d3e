// All steps of a run but the first ask for memory in the same order, and the first differs from them only in what it
// allocates for good (optimizer states, workspaces), and in that nothing is left over from a step before it. So one
// step is executed and the others are copied from it.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// The variables of a loop whose values outlive a step: the next step drops them when it assigns new ones. Before the
/// first step each gets a placeholder, so that the trace shows where that happens.
class CarriedVariables {
 public:
  /// `visit` calls its argument with each variable, in the same order whenever it is called.
  template <typename Visit>
  void place(Tape& tape, Visit visit) {
    visit([&](Tensor& variable) {
      variable = tape.placeholder();
      pairs_.emplace_back(variable.block(), kNoBlock);
    });
  }
  /// After the step: what each variable holds now is what the next step will drop.
  template <typename Visit>
  void collect(Visit visit) {
    std::size_t i = 0;
    visit([&](Tensor& variable) {
      // Nothing where the variable was never assigned, or is empty: a parameter that the loss does not depend on.
      const BlockId block = variable.defined() ? variable.block() : kNoBlock;
      auto& [placeholder, left] = pairs_[i++];
      left = block == placeholder ? kNoBlock : block;
    });
  }
  /// (placeholder, block that the step left in its place), sorted by placeholder.
  [[nodiscard]] const std::vector<std::pair<BlockId, BlockId>>& pairs() const { return pairs_; }

 private:
  std::vector<std::pair<BlockId, BlockId>> pairs_;
};

/// The trace of `tape` ends with the first step, which began at event `first_event` and block `first_block`. Removes
/// the placeholders' frees from it and appends `copies` further steps.
void repeat_step(Tape& tape, std::size_t first_event, std::size_t first_block, const CarriedVariables& carried,
                 int copies);

}  // namespace memcalc
