#include "memcalc/spec/prediction_errors.h"

#include <optional>

#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/program.h"

namespace memcalc {

RunKind kind_of(const ModelSpec& model, const RunSpec& run) {
  const Parallel& parallel = run.parallel;
  if (parallel.framework() == Framework::kMegatron) return RunKind::kMegatron;
  if (parallel.framework() == Framework::kDeepSpeed) return RunKind::kDeepSpeed;
  if (run.compiles()) return RunKind::kCompiled;
  if (!run.trains()) return RunKind::kInference;
  if (parallel.pipeline > 1) return RunKind::kPipeline;
  if (parallel.tensor > 1) return RunKind::kTensorParallel;
  if (parallel.data_parallel == DataParallel::kFsdp1) return RunKind::kFsdp1;
  if (parallel.is_parallel()) return RunKind::kDataParallel;
  if (is_denoiser(model)) return RunKind::kDenoiser;
  if (run.fine_tuning.replaces_linear_layers()) return RunKind::kFineTuning;
  return is_vision(model) || is_contrastive(model) ? RunKind::kImage : RunKind::kText;
}

StepKind step_kind_of(const ModelSpec& model, const RunSpec& run, bool host_bound, bool timed_card) {
  if (!run.trains()) return StepKind::kInference;
  // The published runs of several other cards are of large models, which no host decides.
  if (run.parallel.is_parallel()) return timed_card || host_bound ? StepKind::kSeveralCards : StepKind::kOtherCards;
  if (run.compiles()) return StepKind::kCompiled;
  if (host_bound) return StepKind::kHostBound;
  if (!timed_card) return StepKind::kOtherCard;
  if (has_experts(model)) return StepKind::kExperts;
  if (is_vision(model)) return StepKind::kImage;
  return StepKind::kCardBound;
}

PredictionErrors read_prediction_errors(const std::string& path) {
  constexpr std::array<std::string_view, 4> kKeys = {"description", "date", "kinds", "steps"};
  constexpr std::array<std::string_view, 3> kStepKeys = {"median", "p90", "runs"};
  constexpr std::array<std::string_view, 2> kKindKeys = {"share", "runs"};
  const JsonDocument document = JsonDocument::read_file(path);
  document.root().refuse_unknown_keys(kKeys);
  const JsonObject kinds = document.root().required_object("kinds");
  kinds.refuse_unknown_keys(kRunKindNames);
  PredictionErrors errors;
  for (std::size_t i = 0; i < kRunKindNames.size(); ++i) {
    const JsonObject kind = kinds.required_object(kRunKindNames[i]);
    kind.refuse_unknown_keys(kKindKeys);
    errors.shares[i] = kind.required_double("share", {0, 1});
    errors.runs[i] = kind.required_int("runs", {0});
  }
  if (const std::optional<JsonObject> steps = document.root().nullable_object("steps")) {
    steps->refuse_unknown_keys(kStepKindNames);
    for (std::size_t i = 0; i < kStepKindNames.size(); ++i) {
      if (!steps->has(kStepKindNames[i])) continue;
      const JsonObject kind = steps->required_object(kStepKindNames[i]);
      kind.refuse_unknown_keys(kStepKeys);
      errors.steps[i] = {.median = kind.required_double("median", {0, 10}),
                         .p90 = kind.required_double("p90", {0, 10}),
                         .runs = kind.required_int("runs", {1, 1'000'000})};
    }
  }
  return errors;
}

}  // namespace memcalc
