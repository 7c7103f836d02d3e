// How a measured run on several GPUs was split: the keys of harness/measure_dist.py and measure_parallel.py.
#pragma once

#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/run_options.h"

namespace memcalc::measured {

/// Nothing for a case of one GPU, which has no "world".
void set_parallel(const JsonObject& case_json, RunOptions& options);

}  // namespace memcalc::measured
