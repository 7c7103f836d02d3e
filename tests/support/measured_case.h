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
  const DeviceSpec* device = nullptr;  // the card that it was measured on
};

/// Of one of the families that memcalc models, and with nothing but what it models: no compilation.
[[nodiscard]] bool is_modelled(const JsonObject& case_json);

/// "mode": "infer": no training.
[[nodiscard]] bool is_inference(const JsonObject& case_json);

inline constexpr const char* kUsualGpu = "h100-sxm";  // of the records that name none

/// Of an image model: ViT and DeiT as the harness built them, or a network of torchvision.
[[nodiscard]] bool is_vision_case(const JsonObject& case_json);

/// `gpu`: the record's "gpu", as the driver names it. Throws Error on a case that is not modelled.
[[nodiscard]] MeasuredCase measured_case(const JsonObject& case_json, Loop loop, const std::string& gpu = kUsualGpu);

/// The same for an image model; images of 224 x 224 where the case names no other.
[[nodiscard]] MeasuredCase vision_case(const JsonObject& case_json, Loop loop = Loop::kBare,
                                       const std::string& gpu = kUsualGpu);

/// Of specs/gpus, by name.
[[nodiscard]] const DeviceSpec& measured_device(const std::string& gpu = kUsualGpu);

}  // namespace memcalc::measured
