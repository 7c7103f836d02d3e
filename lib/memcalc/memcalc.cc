// The whole flow on one screen. Read this first. What else the facade shows of a run stands in facade/.
#include "memcalc/memcalc.h"

#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "memcalc/alloc/replay_options.h"
#include "memcalc/cost/cost.h"
#include "memcalc/cost/host_time.h"
#include "memcalc/cost/missing_rates.h"
#include "memcalc/cost/trained_python.h"
#include "memcalc/report/assemble.h"
#include "memcalc/report/epoch.h"
#include "memcalc/report/rank_reports.h"
#include "memcalc/report/replayed_run.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/native_format.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/spec/validate.h"
#include "memcalc/train/ranks.h"
#include "memcalc/train/step.h"

namespace memcalc {
namespace {

std::optional<StepTime> time_of(const SymbolicRun& symbolic, const ModelSpec& model, const RunSpec& run,
                                const DeviceSpec& device) {
  if (device.rates == nullptr || symbolic.kernels.empty() || !untimed_call(run).empty()) return std::nullopt;
  if (!missing_rates(symbolic.kernels, device).empty()) return std::nullopt;
  const bool experts = has_grouped_experts(symbolic.kernels);
  const Family* family = family_of(model);
  if (!run.trains()) {
    const double instructions = family != nullptr ? family->instructions_per_operator : 0;
    const DeviceRates rates = rates_of_call(*device.rates, instructions);
    return cost(symbolic.kernels, device, experts ? rates_among_experts(rates) : rates, Costed::kCall);
  }
  const FirstCallCounts& first = symbolic.data_steps.first_calls;
  const double waiting = waiting_share(run.parallel);
  const double of_family = instructions_per_trained_operator(family != nullptr ? family->model_type : "",
                                                             family != nullptr ? family->instructions_per_operator : 0);
  DeviceRates rates = rates_of_step(*device.rates, instructions_with_adapters(of_family, symbolic.kernels, run));
  if (experts) rates = rates_among_experts(std::move(rates));
  if (run.parallel.nodes > 1) rates.link.gpus_per_host = run.parallel.gpus / run.parallel.nodes;
  return cost(symbolic.kernels, device, rates, Costed::kStep, first, waiting);
}

// The same requests on a card that runs full. What is in use and not reserved is the context and loaded kernels.
FullCard on_full_card(const SymbolicRun& symbolic, const Report& report) {
  ReplayOptions options = replay_options(report.run, report.device, symbolic.measured_from);
  const Bytes in_use = report.needed() - report.managed_on_device_bytes;
  options.capacity = report.device.usable_bytes() - (in_use - report.memory.peak_reserved);
  if (report.memory.exact_peak > *options.capacity) return {.runs = false, .retries = 0};  // for any allocator
  ReplayResult memory = replay(symbolic.trace, options);
  return {.runs = !memory.out_of_memory, .retries = memory.retries, .steps = std::move(memory.steps)};
}

Report estimate_rank(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, std::int64_t rank) {
  // What is asked of the allocator, and what it makes of it.
  auto [symbolic, memory] = replayed_run(model, run, device, rank);
  const std::optional<StepTime> time = time_of(symbolic, model, run, device);       // how long it takes
  Report report = assemble(model, run, device, symbolic, std::move(memory), time);  // what that means
  if (!report.fits() && report.starts() && !run.expandable_segments) report.full_card = on_full_card(symbolic, report);
  if (report.epoch && report.full_card && report.full_card->runs) {
    report.epoch->retrying_steps = retrying_steps(report.full_card->steps);
  } else if (report.epoch && report.fits()) {
    report.epoch->retrying_steps = 0;
  }
  return report;
}

// `lighter`: whether ranks that are known not to need most are simulated, too.
HeaviestRanks estimate_ranks(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, bool lighter) {
  validate(model, run);
  const Quantization packing = run.fine_tuning.quantization;
  if (!keeps_packed(packing, device)) {
    HeaviestRanks ranks = estimate_ranks(model, dequantized(run), device, lighter);
    ranks.report.assumptions.insert(
        ranks.report.assumptions.begin(),
        fmt::format("weights in {} are dequantised to {}: transformers keeps them packed from "
                    "compute capability {} on",
                    name_of(packing), name_of(weights_dtype_of(run)), packing == Quantization::kMxfp4 ? "7.5" : "8.9"));
    ++ranks.report.leading_assumptions;
    return ranks;
  }
  if (!run.parallel.is_parallel()) return {estimate_rank(model, run, device, 0), true};
  RankReports ranks;
  bool all = true;
  for (const RankGroup& group : distinct_ranks(model, run, device)) {
    if (!lighter && group.lighter) {
      all = false;
      continue;
    }
    ranks.add(group, estimate_rank(model, run, device, group.first));
  }
  return {std::move(ranks).of_largest(), all};
}

}  // namespace

Report estimate(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device) {
  return estimate_ranks(model, run, device, true).report;
}

HeaviestRanks estimate_heaviest_ranks(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device) {
  return estimate_ranks(model, run, device, false);
}

Report estimate(const ModelSpec& model, const ResolvedRun& run, const DeviceSpec& device) {
  Report report = estimate(model, run.run, device);
  report.assumptions.insert(report.assumptions.begin() + report.leading_assumptions, run.assumptions.begin(),
                            run.assumptions.end());
  return report;
}

}  // namespace memcalc
