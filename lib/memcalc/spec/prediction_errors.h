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
  kDenoiser,
  kFineTuning,
  kImage,
  kText,
};
inline constexpr std::array<std::string_view, 12> kRunKindNames = {
    "megatron", "deepspeed",     "compiled", "inference",   "pipeline", "tensor-parallel",
    "fsdp1",    "data-parallel", "denoiser", "fine-tuning", "image",    "text"};

[[nodiscard]] RunKind kind_of(const ModelSpec& model, const RunSpec& run);

/// Kinds of runs whose step times are predicted equally well. The first that a run is, in this order: where the host
/// decides, it matters more than what is trained; else a card that this project has not timed does.
enum class StepKind : std::uint8_t {
  kInference,
  kOtherCards,
  kSeveralCards,
  kCompiled,
  kHostBound,
  kOtherCard,
  kExperts,
  kImage,
  kCardBound,
};
inline constexpr std::array<std::string_view, 9> kStepKindNames = {
    "inference", "other-cards", "several-cards", "compiled", "by-host", "other-card", "experts", "image", "by-card"};

/// `timed_card`: its rates were measured here, not only published by others.
[[nodiscard]] StepKind step_kind_of(const ModelSpec& model, const RunSpec& run, bool host_bound, bool timed_card);

/// How far the step times of the measured runs of a kind are predicted, of other cards those that others published:
/// shares of the measured times.
struct StepErrors {
  double median = 0, p90 = 0;
  std::int64_t runs = 0;  // 0: none was measured
};

/// Shares of reserved memory within which 9 of 10 measured runs of a kind lie, how many were measured, and errors of
/// step times.
struct PredictionErrors {
  std::array<double, kRunKindNames.size()> shares{};
  std::array<std::int64_t, kRunKindNames.size()> runs{};
  std::array<StepErrors, kStepKindNames.size()> steps{};
};

/// Throws Error(kInput) for a file that is wrong.
[[nodiscard]] PredictionErrors read_prediction_errors(const std::string& path);

}  // namespace memcalc
