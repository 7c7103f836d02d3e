#include "memcalc/plan/outcome.h"

#include <algorithm>
#include <utility>

#include "memcalc/spec/device_rates.h"

namespace memcalc {

namespace {

/// What a stage waits for the others: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
/// Clusters", 2.2, (p - 1) / (v m) of its own time. The report's step is what a stage is busy.
double bubble_seconds(const Report& report) {
  const Parallel& p = report.run.parallel;
  const double timed = report.time->step.by_class[static_cast<std::size_t>(TimeClass::kBubble)];
  if (p.pipeline < 2 || timed > 0 || p.schedule == PipelineSchedule::kZeroBubble) return 0;
  const auto micro_batches = static_cast<double>(p.micro_batches > 0 ? p.micro_batches : p.pipeline);
  const double busy = report.time->step.forward_seconds + report.time->step.backward_seconds;
  return busy * static_cast<double>(p.pipeline - 1) / (static_cast<double>(p.virtual_stages) * micro_batches);
}

}  // namespace

Refusal refusal_of(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  if (known != nullptr && known->code() != ErrorCode::kInternal) {
    return {error.what(), false, known->rule().empty() ? error.what() : known->rule()};
  }
  return {"BUG OF MEMCALC, please report it: " + std::string(error.what()), true, "bug"};
}

Outcome outcome_of(const Report& report) {
  Outcome outcome{.allocated = report.memory.peak_allocated,
                  .reserved = report.memory.peak_reserved,
                  .needed = report.needed(),
                  .error = report.needed_error,
                  .verdict = report.verdict,
                  .starts = report.starts(),
                  .categories = report.memory.categories_at_peak,
                  .slack = report.memory.slack_at_peak,
                  .host = report.host_memory.total};
  if (report.time && (report.time->lacks.empty() || report.run.uses_vllm())) {
    const double busy = report.time->step.step_seconds;
    const double seconds = busy + bubble_seconds(report);
    const double share = seconds > 0 ? busy / seconds : 1;
    const HostRange& hosts = report.time->step.hosts;
    const auto with_bubble = [&](double of_host) { return of_host > 0 ? of_host / share : seconds; };
    outcome.speed = Speed{.step_seconds = seconds,
                          .least_seconds = with_bubble(hosts.least_seconds),
                          .most_seconds = with_bubble(hosts.most_seconds),
                          .samples_per_second = share * report.time->samples_per_second,
                          .tokens_per_second = share * report.time->tokens_per_second,
                          .mfu = share * report.time->mfu};
  }
  outcome.built_whole = report.run.parallel.is_parallel() && report.peak_phase == Phase::kBuild;
  outcome.headroom = report.device.usable_bytes() - outcome.needed;
  return outcome;
}

Outcome without_construction(const Report& report, Outcome outcome) {
  if (!outcome.built_whole) return outcome;
  Bytes steps = 0;
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kOptimizer}) {
    steps = std::max(steps, report.memory.phase_peaks[static_cast<std::size_t>(phase)]);
  }
  outcome.needed += steps - outcome.reserved;
  outcome.allocated = steps;
  outcome.reserved = steps;
  outcome.headroom = report.device.usable_bytes() - outcome.needed;
  outcome.verdict = verdict_of(outcome.needed, outcome.error, report.device.usable_bytes());
  return outcome;
}

Outcome refused(const std::exception& error) {
  Refusal refusal = refusal_of(error);
  Outcome outcome;
  outcome.refusal = std::move(refusal.reason);
  outcome.own_fault = refusal.own_fault;
  outcome.rule = std::move(refusal.rule);
  return outcome;
}

Outcome outcome_of(const Candidate& candidate) {
  try {
    const Report report = estimate(candidate.model, candidate.run, on_one_host(candidate.device));
    return candidate.built_on_meta ? without_construction(report, outcome_of(report)) : outcome_of(report);
  } catch (const std::exception& error) {
    return refused(error);
  }
}

std::vector<std::optional<Outcome>> outcomes_of(std::span<const Candidate> candidates, const SearchControl& control) {
  std::vector<std::optional<Outcome>> outcomes(candidates.size());
  (void)for_each_index(candidates.size(), control, [&](std::size_t i) { outcomes[i] = outcome_of(candidates[i]); });
  return outcomes;
}

}  // namespace memcalc
