// How far predictions of reserved memory are from measured runs of their kind: specs/prediction_errors.json, which
// scripts/prediction_errors makes of tests/measured. Covered by tests/unit/verdict_test.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Kinds of runs that are predicted equally well. The first that a run is, in this order.
enum class RunKind : std::uint8_t {
  kMegatron,
  kDeepSpeed,
  kCompiled,
  kInference,
  kPipeline,
  kTensorParallel,
  kFsdp1,
  kDataParallel,
  kFineTuning,
  kImage,
  kText,
};
inline constexpr std::array<std::string_view, 11> kRunKindNames = {
    "megatron", "deepspeed",     "compiled",    "inference", "pipeline", "tensor-parallel",
    "fsdp1",    "data-parallel", "fine-tuning", "image",     "text"};

[[nodiscard]] RunKind kind_of(const ModelSpec& model, const RunSpec& run);

/// Shares of reserved memory within which 9 of 10 measured runs of a kind lie, and how many were measured.
struct PredictionErrors {
  std::array<double, kRunKindNames.size()> shares{};
  std::array<std::int64_t, kRunKindNames.size()> runs{};
};

/// Throws Error(kInput) for a file that is wrong.
[[nodiscard]] PredictionErrors read_prediction_errors(const std::string& path);

}  // namespace memcalc
