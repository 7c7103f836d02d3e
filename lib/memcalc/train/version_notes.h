// What a report says of versions other than those that memcalc was measured with most: each behaviour that differs,
// that this run may feel, and that no card has shown. Covered by tests/unit/version_notes_test.cc.
#pragma once

#include "memcalc/train/step.h"

namespace memcalc {

/// Adds to the assumptions of `result`, and to what is not modelled.
void tell_about_versions(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, SymbolicRun& result);

}  // namespace memcalc
