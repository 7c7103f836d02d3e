// What a process takes of a card beside the allocator's segments, of cards on which this project has not measured it:
// specs/contexts.json. Covered by tests/unit/contexts_test.cc.
#pragma once

#include <string>

#include "memcalc/spec/device_spec.h"

namespace memcalc {

/// Fills device.assumed_context from `path`, a file like specs/contexts.json: the card's row, else by the threads that
/// can be resident on it; a card of which neither is known is given those of the card with most. Throws Error(kInput)
/// for a file that is wrong.
void assume_context(const std::string& path, DeviceSpec& device);

}  // namespace memcalc
