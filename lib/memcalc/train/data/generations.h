// The generations of GRPOTrainer and RLOOTrainer whose prompts are as long as the data makes them (--lengths): which
// prompts stand together is up to trl's RepeatSampler. Covered by tests/unit/data_steps_test.cc.
// MIRRORS(trl, "trainer/utils.py", "1.16.0")
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/base/torch_generator.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/train/data/collator.h"
#include "memcalc/train/data/sampler.h"

namespace memcalc {

/// Micro-batches of a process, epoch after epoch. Pre: a generation has whole prompts (rule lengths-generations).
class GenerationEpochs {
 public:
  GenerationEpochs(const RunSpec& run, std::int64_t processes, std::int64_t process);

  /// As many micro-batches as each generation serves, all of its columns: prompts padded to its longest, and the
  /// completion.
  [[nodiscard]] std::vector<BatchShape> next();

 private:
  const RunSpec& run_;
  std::int64_t processes_, process_;
  TorchGenerator generator_;  // the sampler's own, from epoch to epoch
};

/// OnlineDPOTrainer's micro-batches, in the Trainer's order: prompts padded to the longest of them, and the completion.
[[nodiscard]] std::vector<BatchShape> prompted(const Batches& batches, const RunSpec& run);

/// The batches of an evaluation, of --eval-samples completions.
[[nodiscard]] std::vector<BatchShape> evaluated_generations(const RunSpec& run, std::int64_t processes,
                                                            std::int64_t process);

}  // namespace memcalc
