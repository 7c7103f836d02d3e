// The ranks of a parallel run: which of them ask for different memory. Those that are alike are simulated once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Ranks that ask for the same memory.
struct RankGroup {
  std::int64_t first = 0;  // the one that is simulated
  std::int64_t count = 1;  // how many there are
  std::string name;        // "all 4 ranks", "rank 3", "stage 0"
  std::string holds;       // what sets them apart; empty where all are alike
  bool lighter = false;    // another group is known to need as much
};

/// In the order of their first rank; one group on one GPU.
[[nodiscard]] std::vector<RankGroup> distinct_ranks(const ModelSpec& model, const RunSpec& run,
                                                    const DeviceSpec& device);

/// Ranks of torch's context parallelism: the first, the last and those between do other halves of the attention. One
/// group without a name where nothing shares sequences.
[[nodiscard]] std::vector<RankGroup> context_ranks(const Parallel& parallel);

}  // namespace memcalc
