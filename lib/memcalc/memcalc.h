// memcalc: will this training run fit, what fills the memory, and why.
//
//   const memcalc::SpecRegistry registry("/usr/share/memcalc/specs");
//   const auto model  = registry.model("bert-large");
//   const auto device = registry.device("h100-sxm");
//   memcalc::RunSpec run{.task = memcalc::Task::kSequenceClassification, .batch_size = 4, .sequence_length = 512};
//   const memcalc::Report report = memcalc::estimate(model, run, device);
//   std::cout << memcalc::render(report, memcalc::Format::kText);
//
// All functions are pure and thread-safe; wrong input throws memcalc::Error.
#pragma once

#include "memcalc/base/bytes.h"
#include "memcalc/base/dtype.h"
#include "memcalc/base/error.h"
#include "memcalc/report/render.h"
#include "memcalc/report/report.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Runs the training step symbolically, replays its allocations, and assembles the report.
[[nodiscard]] Report estimate(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device);

}  // namespace memcalc
