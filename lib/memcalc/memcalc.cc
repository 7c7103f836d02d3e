// The whole flow on one screen. Read this first. What else the facade shows of a run stands in facade/.
#include "memcalc/memcalc.h"

#include <fmt/core.h>

#include <cstdint>
#include <utility>

#include "memcalc/report/rank_reports.h"
#include "memcalc/report/replayed_run.h"
#include "memcalc/report/report_of.h"
#include "memcalc/spec/native_format.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/spec/validate.h"
#include "memcalc/train/ranks.h"

namespace memcalc {
namespace {

Report estimate_rank(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, std::int64_t rank) {
  auto [symbolic, memory] =
      replayed_run(model, run, device, rank);  // what is asked of the allocator and what it makes of it
  return report_of(model, run, device, symbolic, std::move(memory));
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
  return with_assumptions(estimate(model, run.run, device), run.assumptions);
}

}  // namespace memcalc
