// What a step time means: samples and tokens a second, utilisation, energy.
#pragma once

#include <string>

#include "memcalc/report/report.h"

namespace memcalc {

/// MFU and HFU count causal attention in full, as is usual. A long sequence's would exceed 1 so: then both count the
/// half that is computed.
/// Pre: report.epoch is set where batches are as long as the data makes them.
[[nodiscard]] Throughput throughput_of(const Report& report, const StepTime& step);

/// What a step does whose time is not known; empty: nothing.
[[nodiscard]] std::string untimed_part(const RunSpec& run);

/// Sets `report.time`, and says so among the assumptions where MFU leaves the masked half out.
void set_time(Report& report, const StepTime& step);

/// Sequences or images that one optimizer step of all ranks takes in; with --lengths the average one, other ranks taken
/// to be like this one.
[[nodiscard]] double samples_per_step(const Report& report);

/// Tokens in them, padding included: of both sequences where there are two; 0 for images.
[[nodiscard]] double tokens_per_step(const Report& report);

/// The data loader feeds the step: without workers it runs between two steps, with workers beside them, and the slower
/// of loader and card decides. Changes `report.time`. Throws Error(kUsage) for a number that cannot be. Pre:
/// report.time.
void feed(Report& report, const InputPipeline& input);

/// Steps, days, cards' hours, price and energy of a run over `tokens`. Throws Error(kUsage) where the samples are
/// images or no step time is known, and for a number of tokens that cannot be.
[[nodiscard]] TrainingRun training_run_of(const Report& report, double tokens);

}  // namespace memcalc
