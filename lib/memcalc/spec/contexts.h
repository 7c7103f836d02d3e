// What a process takes of a card beside the allocator's segments, of cards on which this project has not measured it:
// specs/measured/contexts.json. Covered by tests/unit/contexts_test.cc.
#pragma once

#include <string>
#include <vector>

#include "memcalc/spec/device_spec.h"

namespace memcalc {

struct Contexts {
  struct Range {
    std::string card;
    Bytes least = 0, most = 0;
  };
  std::vector<Range> cards;
  Range per_thread;  // of other CUDA cards, for each thread that can be resident
  Bytes usual_per_thread = 0;
};

/// A file like specs/measured/contexts.json. Throws Error(kInput) for one that is wrong.
[[nodiscard]] Contexts read_contexts(const std::string& path);

/// The card's row, else by the threads that can be resident on it; where neither is known, up to twice the most that
/// was seen on any card.
[[nodiscard]] AssumedContext assumed_context(const Contexts& contexts, const DeviceSpec& device);

}  // namespace memcalc
