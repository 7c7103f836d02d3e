#include "memcalc/plan/outcome.h"

namespace memcalc {

Outcome outcome_of(const Report& report) {
  Outcome outcome{.allocated = report.memory.peak_allocated,
                  .reserved = report.memory.peak_reserved,
                  .needed = report.device_used_bytes.value_or(report.memory.peak_reserved),
                  .fits = report.fits,
                  .categories = report.memory.categories_at_peak,
                  .slack = report.memory.slack_at_peak};
  outcome.headroom = report.device.memory_bytes - outcome.needed;
  return outcome;
}

Outcome outcome_of(const Candidate& candidate) {
  try {
    return outcome_of(estimate(candidate.model, candidate.run, candidate.device));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal || error.code() == ErrorCode::kInput) throw;
    Outcome refused;
    refused.refusal = error.what();
    return refused;
  }
}

std::vector<std::optional<Outcome>> outcomes_of(std::span<const Candidate> candidates, const SearchControl& control) {
  std::vector<std::optional<Outcome>> outcomes(candidates.size());
  (void)for_each_index(candidates.size(), control, [&](std::size_t i) { outcomes[i] = outcome_of(candidates[i]); });
  return outcomes;
}

}  // namespace memcalc
