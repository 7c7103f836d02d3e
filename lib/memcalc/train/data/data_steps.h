// The optimizer steps of a training whose batches are as long as the data makes them (--lengths).
// Covered by tests/unit/data_steps_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/first_calls.h"
#include "memcalc/train/data/collator.h"

namespace memcalc {

/// So many steps are simulated: of longer trainings half of them from the beginning, and those whose largest
/// micro-batch has the most tokens.
inline constexpr std::size_t kMostDataSteps = 2000;

/// Of trainers that generate, since no two of their generations are alike.
inline constexpr std::size_t kMostGeneratingSteps = 200;

/// What the model that trains is given of a micro-batch, padding included.
[[nodiscard]] std::int64_t given_tokens(const RunSpec& run, const BatchShape& shape);

struct DataStep {
  std::int64_t number = 0;    // from 0
  bool begins_epoch = false;  // the first epoch, too
  std::vector<BatchShape> micro_batches;

  /// That with the most tokens, padding included.
  [[nodiscard]] const BatchShape& largest() const;
};

struct DataSteps {
  std::int64_t all = 0;             // of the training
  std::vector<DataStep> simulated;  // in order
  std::size_t median = 0;           // of these, by the tokens of a step: whose time is reported
  std::int64_t samples = 0;         // of that step, of this process
  std::int64_t tokens = 0;          // likewise, padding included
  double sizes_of_all = 1;          // of micro-batches, over those of the simulated steps
  FirstCallCounts first_calls{};    // of an average step of the training behind the first, or of the only one
};

/// Of all simulated steps together, and of the first, in which much else is done once.
struct CountedFirstCalls {
  FirstCallCounts all{}, first_step{};
};

/// The steps that are not simulated are taken to make as many for each size.
void set_first_calls(DataSteps& steps, const CountedFirstCalls& of_simulated);

/// Those of trainers that generate, whose tokens are not all executed: each new number of keys (without a KV cache each
/// new width) is an attention of its own, and so is each width of what is trained on. Products are not counted.
[[nodiscard]] CountedFirstCalls generated_first_calls(const RunSpec& run, const DataSteps& steps);

/// One epoch, or as many steps as were asked for, of a process of a data-parallel run.
/// Pre: `run` trains and has lengths.
[[nodiscard]] DataSteps data_steps(const RunSpec& run, std::int64_t processes = 1, std::int64_t process = 0,
                                   std::size_t most = kMostDataSteps);

/// So many batches of an evaluation are executed: of more half of them from the beginning, and the largest.
inline constexpr std::size_t kMostEvaluatedBatches = 400;

/// The batches of an evaluation that are executed, each as a step of one: of the first samples of the data, in their
/// order or grouped by length. Pre: `run` trains, has lengths and evaluates; its rows are samples.
[[nodiscard]] std::vector<DataStep> evaluation_batches(const RunSpec& run, std::int64_t processes = 1,
                                                       std::int64_t process = 0,
                                                       std::size_t most = kMostEvaluatedBatches);

}  // namespace memcalc
