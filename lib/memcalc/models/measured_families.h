// Which families and tasks were compared with recorded runs of the frameworks (tests/measured). A test over those
// records says whether the table is right: measured_families_test.
#pragma once

#include <string>

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Models that one table row speaks for: transformers' model_type, or "torchvision resnet" (with ResNeXt and wide
/// ones), "torchvision vgg", ….
[[nodiscard]] std::string measured_as(const ModelSpec& model);

[[nodiscard]] bool is_measured(const ModelSpec& model, Task task);

}  // namespace memcalc
