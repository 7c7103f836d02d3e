// A training whose batches are of many lengths repeats no step, but its steps ask for memory in few orders: only the
// sizes differ, and those of a layer are those of its neighbours. So a model of few layers is executed at every step
// and tells the order and the sizes of the whole model's step. What it tells is learned from steps that both executed,
// and tested on others that both executed. Covered by tests/unit/step_patterns_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// What a step asked for: its part of a trace.
struct StepSpan {
  std::size_t first_event = 0, last_event = 0;  // the latter behind the end, as of blocks
  std::size_t first_block = 0, last_block = 0;
};

/// The few layers do not tell the whole model's step: each step has to be executed.
struct LayersDiffer {};

class StepPatterns {
 public:
  /// Pre: both traces outlive it. Steps are told or executed one after the other; the first `first_steps` are executed,
  /// and nothing is learned from them: they take what stays.
  StepPatterns(const Trace& whole, const Trace& few, std::size_t first_steps)
      : whole_(whole), few_(few), first_steps_(first_steps) {}

  /// Whether a step of the few layers tells that of the whole model.
  [[nodiscard]] bool knows(const StepSpan& few) const;
  /// The next step, which the few layers alone executed. Pre: knows(few).
  void tell(const StepSpan& few);
  /// The next step, which both executed. Throws LayersDiffer.
  void learn(const StepSpan& whole, const StepSpan& few);

  /// The trace of the whole model with all of these steps. Pre: the last one was executed.
  [[nodiscard]] Trace composed() const;

  [[nodiscard]] std::size_t told() const { return told_; }

 private:
  /// Blocks are numbered within the step; what an earlier step left is -2 and less, in the order in which it was made.
  struct Pattern {
    std::vector<Event> events;
    std::vector<Block> blocks;               // of the first example
    std::vector<std::vector<Bytes>> sizes;   // of each example, by block
    std::vector<std::vector<Bytes>> of_few;  // likewise of the few layers' blocks
    std::vector<Event> events_of_few;
    std::vector<std::int32_t> told_by;  // block of the few layers; -1: as large in every step
    std::vector<BlockId> left;          // blocks that the next step drops
    std::uint64_t left_by = 0;          // who asked for them
  };
  struct Step {
    StepSpan span;  // of the whole model, or of the few layers
    const Pattern* told = nullptr;
  };

  [[nodiscard]] std::vector<Event> numbered(const Trace& trace, const StepSpan& span,
                                            const std::vector<BlockId>& left_before) const;
  void match(Pattern& pattern) const;
  [[nodiscard]] std::uint64_t key_of(const StepSpan& few) const;

  const Trace& whole_;
  const Trace& few_;
  std::size_t first_steps_;
  std::vector<Step> steps_;
  std::vector<BlockId> left_before_;                           // by the last executed step, in the whole trace
  std::uint64_t left_by_executed_ = 0, left_by_previous_ = 0;  // who asked for what a step left
  std::unordered_map<std::uint64_t, Pattern> patterns_;        // by the few layers' order, and by what was left before
  std::size_t told_ = 0;
};

}  // namespace memcalc
