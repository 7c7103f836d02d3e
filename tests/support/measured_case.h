// A measured run's "case" (the first line of a history, a row of tests/measured/*.jsonl) as the model and the run that
// memcalc is asked about. The mapping is that of the measuring scripts, tests/measured/harness.
#pragma once

#include <string>

#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc::measured {

struct MeasuredCase {
  std::string id;     // "bert-large-2l-amp-fp16"
  std::string model;  // "bert-large": a key of tests/measured/models.json
  ModelSpec spec;
  RunSpec run;
};

/// Of one of the families that memcalc models, and with nothing but what it models: no compilation, inference,
/// Adafactor or Adagrad.
[[nodiscard]] bool is_modelled(const JsonObject& case_json);

/// Throws Error on a case that is not.
[[nodiscard]] MeasuredCase measured_case(const JsonObject& case_json, Loop loop);

/// specs/gpus/h100-sxm.json: all of tests/measured was recorded on that card.
[[nodiscard]] const DeviceSpec& measured_device();

}  // namespace memcalc::measured
