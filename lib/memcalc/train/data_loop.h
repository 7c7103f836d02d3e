// The Trainer's steps of batches that are as long as the data makes them (--lengths): each step of the whole model, or
// most of them told by a model with few layers (step_patterns.h). `Loop`: loop_trainer.cc's.
// Covered by tests/unit/step_patterns_test.cc, tests/unit/data_steps_test.cc and tests/unit/first_calls_test.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/first_calls.h"
#include "memcalc/symbolic/kernel_log.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/symbolic/trace.h"
#include "memcalc/train/data/data_steps.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/step_patterns.h"

namespace memcalc {

/// Steps whose micro-batches are as long as the data makes them. The list of kernels is that of the median step.
template <typename Loop>
class DataLoop {
 public:
  DataLoop(Tape& tape, Loop& loop, const DataSteps& steps) : tape_(tape), loop_(loop), steps_(steps) {}

  StepSpan step(std::size_t number) {
    const Trace& trace = tape_.memory.trace;
    StepSpan span{.first_event = trace.events.size(), .first_block = trace.blocks.size()};
    tape_.moment.step = static_cast<int>(number);
    {
      const bool listed = records && number == steps_.median;
      std::optional<SeparateKernels> counted;
      if (first_calls != nullptr && !listed) counted.emplace(tape_.kernels);
      tape_.kernels.recording = listed || counted;
      if (listed) tape_.kernels.forget_host_calls();
      const DataStep& step = steps_.simulated[number];
      if (step.begins_epoch && number > 0 && tape_.behaviors.drops_with_epoch) loop_.end();  // _run_epoch() returns
      loop_.begin_step(step.number);
      loop_.step(true, step.micro_batches);
      if (first_calls != nullptr) count(number == 0);
    }
    tape_.kernels.recording = false;
    // Before the last step, or behind the only one.
    if (evaluates && number + 1 == std::max<std::size_t>(1, steps_.simulated.size() - 1)) loop_.evaluate();
    span.last_event = trace.events.size();
    span.last_block = trace.blocks.size();
    return span;
  }

  bool records = true;
  bool evaluates = false;
  CountedFirstCalls* first_calls = nullptr;  // null: not counted

 private:
  void count(bool is_first) {
    const FirstCallCounts counts = seen_.add(tape_.kernels.list());
    for (std::size_t i = 0; i < counts.size(); ++i) first_calls->all[i] += counts[i];
    if (is_first) first_calls->first_step = counts;
  }

  Tape& tape_;
  Loop& loop_;
  const DataSteps& steps_;
  FirstCalls seen_;
};

/// The first steps take what stays, the shortest and the longest test what is told, the median's kernels are listed,
/// and what comes after the last one needs its variables.
inline std::vector<bool> executed_steps(const DataSteps& steps) {
  std::vector<bool> executed(steps.simulated.size());
  std::fill_n(executed.begin(), std::min<std::size_t>(kSteps, executed.size()), true);
  const auto shorter = [](const DataStep& a, const DataStep& b) {
    return a.largest().rows * a.largest().columns < b.largest().rows * b.largest().columns;
  };
  const auto [shortest, longest] = std::minmax_element(steps.simulated.begin(), steps.simulated.end(), shorter);
  executed[static_cast<std::size_t>(shortest - steps.simulated.begin())] = true;
  executed[static_cast<std::size_t>(longest - steps.simulated.begin())] = true;
  executed[steps.median] = executed.back() = true;
  return executed;
}

/// So few steps are all executed.
inline constexpr std::size_t kFewestTold = 48;

/// The loop of a model with few layers, which tells most steps of the whole model's. Pre: the model is prepared.
template <typename Loop>
class TellingLoop {
 public:
  TellingLoop(const FewLayers& few, const RunSpec& run, const SpecialTokens& tokens, const DataSteps& steps)
      : tape_(few.tape),
        loop_(few.tape, few.model, run, nullptr, few.reference, tokens),
        data_loop_(few.tape, loop_, steps),
        steps_(steps) {
    data_loop_.records = tape_.kernels.recording = false;
  }
  ~TellingLoop() { tape_.memory.stop(); }
  TellingLoop(const TellingLoop&) = delete;
  TellingLoop& operator=(const TellingLoop&) = delete;

  void run(const Trace& trace, DataLoop<Loop>& whole) {
    patterns_.emplace(trace, tape_.memory.trace, kSteps);
    const std::vector<bool> executed = executed_steps(steps_);
    for (std::size_t i = 0; i < executed.size(); ++i) {
      const StepSpan told = data_loop_.step(i);
      if (!executed[i] && patterns_->knows(told)) {
        patterns_->tell(told);
      } else {
        patterns_->learn(whole.step(i), told);
      }
    }
  }
  [[nodiscard]] DataLoop<Loop>& data_loop() { return data_loop_; }
  [[nodiscard]] Trace composed() const { return patterns_->composed(); }

 private:
  Tape& tape_;
  Loop loop_;
  DataLoop<Loop> data_loop_;
  const DataSteps& steps_;
  std::optional<StepPatterns> patterns_;
};

}  // namespace memcalc
