#include "memcalc/plan/short_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <variant>

#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/rules.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

constexpr Bytes kEndless = Bytes{1} << 60U;  // of a card that no run fills: what happens on a full one is not asked

/// Layers after which the kinds of layers begin again; 0: they do not.
std::int64_t period_of(const ModelSpec& model) {
  const Dimensions d = model.architecture.dimensions();
  if (d.dense_layers != nullptr &&
      std::find(d.dense_layers->begin(), d.dense_layers->end(), true) != d.dense_layers->end())
    return 0;
  if (d.sliding_layers == nullptr || d.sliding_layers->empty()) return 1;
  const std::vector<bool>& sliding = *d.sliding_layers;
  for (std::size_t period = 1; 2 * period <= sliding.size(); ++period) {
    if (std::equal(sliding.begin() + static_cast<std::ptrdiff_t>(period), sliding.end(), sliding.begin())) {
      return static_cast<std::int64_t>(period);
    }
  }
  return 0;
}

/// First layers that are of another kind.
std::int64_t first_layers_of(const ModelSpec& model) { return model.architecture.dimensions().first_dense_layers; }

/// The line through both at `layers`.
struct Line {
  double share = 0;  // of the difference, to be added to the value at `more`
  [[nodiscard]] double at(double few, double more) const { return more + share * (more - few); }
  [[nodiscard]] Bytes at(Bytes few, Bytes more) const {
    return static_cast<Bytes>(std::llround(at(static_cast<double>(few), static_cast<double>(more))));
  }
};

static_assert(static_cast<int>(Phase::kBuild) == 0);

Outcome extended(const Report& few, const Report& more, const Line& line, Bytes usable) {
  const Outcome of_few = outcome_of(few), of_more = outcome_of(more);
  Outcome outcome = of_more;
  outcome.allocated = 0;
  for (std::size_t phase = more.run.counts_construction() ? 0 : 1; phase < kPhaseCount; ++phase) {
    outcome.allocated =
        std::max(outcome.allocated, line.at(few.memory.phase_peaks[phase], more.memory.phase_peaks[phase]));
  }
  outcome.reserved = outcome.allocated;
  outcome.needed = outcome.allocated + line.at(of_few.needed - of_few.reserved, of_more.needed - of_more.reserved);
  // An error is a share of what is reserved, and what is assumed of the card.
  outcome.error = line.at(of_few.error, of_more.error);
  outcome.host = line.at(of_few.host, of_more.host);
  outcome.headroom = usable - outcome.needed;
  outcome.verdict = verdict_of(outcome.needed, outcome.error, usable);
  if (of_few.speed && of_more.speed) {
    Speed& speed = *outcome.speed;
    speed.step_seconds = line.at(of_few.speed->step_seconds, of_more.speed->step_seconds);
    const double slower = of_more.speed->step_seconds / speed.step_seconds;
    speed.samples_per_second *= slower;
    speed.tokens_per_second *= slower;
    speed.mfu = 0;  // of a short model
  }
  return outcome;
}

/// Of an optimizer that moves to the host what the card has no room for, it matters that the card is full.
bool is_paged(const RunSpec& run) { return run.trains() && name_of(run.training().optimizer).starts_with("paged"); }

/// vLLM's share is one of the card's size. An outcome has one time.
DeviceSpec endless(DeviceSpec device, const RunSpec& run) {
  device = on_one_host(std::move(device));
  if (!is_paged(run) && !run.shares_card_with_vllm()) device.memory_bytes = kEndless;
  return device;
}

/// The verdict of a real card on what was simulated on an endless one.
Outcome on_card(Outcome outcome, Bytes usable) {
  if (!outcome.answered()) return outcome;
  outcome.headroom = usable - outcome.needed;
  outcome.verdict = outcome.starts ? verdict_of(outcome.needed, outcome.error, usable) : Verdict::kDoesNotFit;
  return outcome;
}

}  // namespace

std::optional<ShortLengths> short_lengths_of(const ModelSpec& model, const RunSpec& run) {
  const std::optional<std::int64_t> layers = shared_sizes(model).layers;
  const std::int64_t period = period_of(model);
  if (!layers || period == 0 || run.shares_card_with_vllm()) return std::nullopt;  // what vLLM caches is not linear
  const Parallel& parallel = run.parallel;
  const std::int64_t chunks = parallel.pipeline * parallel.virtual_stages;
  const std::int64_t step = std::lcm(std::lcm(chunks, period), run.trains() ? run.training().checkpoint_every : 1);
  // Where a layer's parameters are gathered, those of the next ones are, too, and buffers wait behind it: with fewer
  // than 4 layers they are not all there.
  const bool gathers =
      parallel.data_parallel == DataParallel::kFsdp2 || parallel.data_parallel == DataParallel::kDsZero3;
  const std::int64_t fewest = first_layers_of(model) + (gathers && parallel.pipeline == 1 ? 4 : 2);
  // A remainder stays the same, so that the same stages hold a layer more.
  ShortLengths lengths{.few = *layers % step};
  while (lengths.few < fewest) lengths.few += step;
  lengths.more = lengths.few + std::max<std::int64_t>(step, step == 1 ? 2 : 1);
  // Two runs of few layers each; what does not depend on them is done twice.
  if (2 * (lengths.few + lengths.more) > *layers) return std::nullopt;
  return lengths;
}

Survey surveyed(const Candidate& candidate) {
  const ModelSpec& model = candidate.model;
  const RunSpec& run = candidate.run;
  const DeviceSpec& device = candidate.device;
  const std::optional<ShortLengths> lengths = short_lengths_of(model, run);
  const auto* megatron = std::get_if<MegatronLayout>(&run.parallel.layout);
  const bool told = megatron != nullptr && megatron->first_stage_layers + megatron->last_stage_layers > 0;
  // A program has no layers to leave out, but of ZeRO-1's ranks one tells what all need: the front is simulated whole.
  if (!lengths || told) return simulated_on_heaviest_ranks(candidate);
  const DeviceSpec card = endless(device, run);
  try {
    ModelSpec brief = model;
    set_layers(brief, lengths->few);
    const Report few = estimate_heaviest_ranks(brief, run, card).report;
    set_layers(brief, lengths->more);
    const Report more = estimate_heaviest_ranks(brief, run, card).report;
    const auto all = static_cast<double>(*shared_sizes(model).layers);
    const Line line{(all - static_cast<double>(lengths->more)) / static_cast<double>(lengths->more - lengths->few)};
    return {extended(few, more, line, device.usable_bytes())};
  } catch (const std::exception& error) {
    return {refused(error)};
  }
}

Outcome simulated(const Candidate& candidate) {
  const auto& [model, run, device, built_on_meta] = candidate;
  return on_card(outcome_of(Candidate{model, run, endless(device, run), built_on_meta}), device.usable_bytes());
}

Survey simulated_on_heaviest_ranks(const Candidate& candidate) {
  const auto& [model, run, device, built_on_meta] = candidate;
  try {
    const auto [report, all] = estimate_heaviest_ranks(model, run, endless(device, run));
    const Outcome outcome = built_on_meta ? without_construction(report, outcome_of(report)) : outcome_of(report);
    return {on_card(outcome, device.usable_bytes()), all};
  } catch (const std::exception& error) {
    return {refused(error), true};
  }
}

}  // namespace memcalc
