#include "memcalc/report/rank_reports.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "memcalc/report/quantity.h"
#include "memcalc/report/throughput.h"
#include "memcalc/spec/device_rates.h"

namespace memcalc {
namespace {

// What a card must have: what it reserves decides, then what is allocated.
auto size_of(const RankRow& row) { return std::tie(row.peak_reserved, row.peak_allocated); }

double host_wait(const StepTime& step) { return step.by_class[static_cast<std::size_t>(TimeClass::kHost)]; }

// Of forward and backward. torch's pipelining issues what a stage receives without waiting for it (_wait_batch_p2p in
// distributed/pipelining/schedules.py, 2.11: the stream waits), so that the host of a stage gains a lead while its card
// has nothing to do; Megatron-core's synchronizes after each message (p2p_communication.py, batch_p2p_sync).
double busy_seconds(const StepTime& step, bool host_waits) {
  const double both = step.forward_seconds + step.backward_seconds;
  return host_waits ? both : std::max(both - host_wait(step), 0.0);
}

// The share of the time of the other stages that the slowest waits for (below).
double exposed_share(const Parallel& parallel) {
  switch (parallel.schedule) {
    // ZB-H1 fills two thirds of it with gradients of weights (Qi et al. 2023, arXiv 2401.10241, table 2).
    case PipelineSchedule::kZeroBubble: return 1.0 / 3;
    case PipelineSchedule::kZeroBubbleV:
      return 0;  // section 6, where both halves of a backward take a forward's time
    // Chunks of a rank in turn: the first waits for a chunk of each stage alone. Megatron needs no --schedule for it.
    default: return 1.0 / static_cast<double>(std::max<std::int64_t>(parallel.virtual_stages, 1));
  }
}

// Micro-batches of a stage: of one that is not told as many as there are stages.
double micro_batches_of(const Parallel& parallel) {
  return static_cast<double>(parallel.micro_batches > 0 ? parallel.micro_batches : parallel.pipeline);
}

}  // namespace

double waiting_share(const Parallel& parallel) {
  if (parallel.pipeline < 2) return 0;
  return exposed_share(parallel) * static_cast<double>(parallel.pipeline - 1) / micro_batches_of(parallel);
}

void RankReports::add(const RankGroup& group, Report report) {
  rows_.push_back({.first = group.first,
                   .count = group.count,
                   .name = group.name,
                   .holds = group.holds,
                   .peak_allocated = report.memory.peak_allocated,
                   .peak_reserved = report.memory.peak_reserved,
                   .device_used_bytes = report.device_used_bytes,
                   .peak_phase = report.peak_phase,
                   .peak_operator = report.peak_operator});
  if (report.time) times_.push_back(report.time->step);
  if (rows_.size() > 1 && !(size_of(rows_[largest_]) < size_of(rows_.back()))) return;
  largest_ = rows_.size() - 1;
  report_ = std::move(report);
}

// The slowest rank's step. In a pipeline of m micro-batches its first waits until the stages before it have passed
// theirs on, and after its last the gradients go back through them: forward and backward of one micro-batch in every
// other stage, 1 / v of that with v chunks a rank (Narayanan et al. 2021, arXiv 2104.04473, sections 2.2.1 and 2.2.2).
StepTime RankReports::time_of_all() const {
  const Parallel& parallel = report_.run.parallel;
  StepTime slowest = *std::max_element(times_.begin(), times_.end(), [](const StepTime& a, const StepTime& b) {
    return a.step_seconds < b.step_seconds;
  });
  double flops = 0, hardware_flops = 0, masked = 0, masked_hardware = 0, ranks = 0;
  for (std::size_t i = 0; i < times_.size(); ++i) {
    const auto count = static_cast<double>(rows_[i].count);
    flops += count * times_[i].model_flops;
    hardware_flops += count * times_[i].hardware_flops;
    masked += count * times_[i].masked_model_flops;
    masked_hardware += count * times_[i].masked_hardware_flops;
    ranks += count;
  }
  slowest.model_flops = flops / ranks;  // of an average rank
  slowest.hardware_flops = hardware_flops / ranks;
  slowest.masked_model_flops = masked / ranks;
  slowest.masked_hardware_flops = masked_hardware / ranks;
  if (parallel.pipeline < 2) return slowest;
  const auto of_stage = static_cast<double>(parallel.gpus / parallel.pipeline);
  const bool host_waits = parallel.framework() == Framework::kMegatron;
  double others = -busy_seconds(slowest, host_waits);
  for (std::size_t i = 0; i < times_.size(); ++i) {
    others += static_cast<double>(rows_[i].count) / of_stage * busy_seconds(times_[i], host_waits);
  }
  const double waiting = exposed_share(parallel) * std::max(others, 0.0) / micro_batches_of(parallel);
  const double hidden = host_waits ? 0 : host_wait(slowest);
  const double busy = slowest.step_seconds - hidden;
  const double bubble = std::max(waiting - hidden, 0.0);
  slowest.by_class.at(static_cast<std::size_t>(TimeClass::kBubble)) += bubble;
  slowest.step_seconds += bubble;
  for (double* const each : {&slowest.hosts.least_seconds, &slowest.hosts.most_seconds}) {
    *each = std::max(*each + (host_waits ? waiting : 0), busy + waiting);
  }
  return slowest;
}

// What the time of collectives between hosts stands on.
void RankReports::tell_network() {
  const Parallel& parallel = report_.run.parallel;
  const LinkRates& link = report_.device.rates->link;
  const std::int64_t in_host = parallel.nodes > 1 ? parallel.gpus / parallel.nodes : link.gpus_per_host;
  if (parallel.gpus <= in_host) return;
  report_.assumptions.push_back(
      "hosts of " + std::to_string(in_host) + " cards, each with " +
      format_fixed(link.network_bytes_per_second / 1e9, 1) + " GB/s to other hosts: " +
      (link.network_source.empty() ? "a guess (specs/networks.json has no row for this card)" : link.network_source));
}

Report RankReports::of_largest() && {
  if (report_.time && times_.size() == rows_.size() && rows_.size() > 1) {
    set_time(report_, time_of_all());
  }
  if (report_.time) tell_network();
  report_.ranks = std::move(rows_);
  report_.largest_rank = largest_;
  return std::move(report_);
}

}  // namespace memcalc
