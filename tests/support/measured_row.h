// The measured rows under tests/measured, and the first lines of histories, as the model and the run that memcalc is
// asked about: plan/measured_row.h with models.json, the registry and the models of layers.
#pragma once

#include <functional>
#include <string>

#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc::measured {

struct MeasuredRow {
  std::string id;     // "bert-large-2l-amp-fp16"
  std::string model;  // "bert-large": a key of tests/measured/models.json, a model of specs/models, or "custom-convnet"
  ModelSpec spec;
  RunSpec run;
  const DeviceSpec* device = nullptr;  // the card that it was measured on
};

/// The row's question. Throws Error for a run that memcalc refuses.
[[nodiscard]] MeasuredRow measured_row(const JsonObject& row);

/// It ran, and nothing is in it that memcalc does not model ("not_modelled" says what).
[[nodiscard]] bool is_modelled(const JsonObject& row);

/// Every row of a file of tests/measured (JSON lines, or compressed as FILE.gz), with its text.
void for_each_row(const std::string& file,
                  const std::function<void(const JsonObject& row, const std::string& text)>& each);

inline constexpr const char* kUsualGpu = "h100-sxm";

/// Of specs/gpus, by name, or as the driver names it.
[[nodiscard]] const DeviceSpec& measured_device(const std::string& gpu = kUsualGpu);

}  // namespace memcalc::measured
