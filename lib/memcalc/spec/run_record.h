// The record of a run as JSON: the `run` object of a report and of a measured row. Covered by
// tests/unit/run_fields_test.cc.
#pragma once

#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/run_request.h"

namespace memcalc {

/// What the object asks for: keys of run_fields(), "megatron" and "deepspeed" as objects of theirs. Throws
/// Error(kInput) for an unknown key or a value of another type, Error(kUsage) for a value that is not accepted.
[[nodiscard]] RunRequest request_from(const JsonObject& run);

}  // namespace memcalc
