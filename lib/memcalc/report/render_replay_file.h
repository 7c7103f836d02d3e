// A run as memcalc-probe replays it on a card. Lines of text, the first "memcalc-replay 1":
//   p KEY VALUE                 what was predicted: peak_allocated_bytes, peak_reserved_bytes, step_seconds
//   a BLOCK BYTES | f BLOCK | e allocate, free, empty the cache; all steps, in order
//   k KIND DTYPE TRANSPOSED M N K BATCH ELEMENTS BYTES REPEATS MICROSECONDS OPERATOR    a kernel of the last step
#pragma once

#include <string>

#include "memcalc/alloc/replay.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/train/step.h"

namespace memcalc {

/// `memory`: the replay of the run's trace. Without rates of the card, kernels have no predicted time (0).
[[nodiscard]] std::string render_replay_file(const SymbolicRun& symbolic, const ReplayResult& memory,
                                             const DeviceSpec& device);

}  // namespace memcalc
