#include "memcalc/cost/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "memcalc/base/seconds.h"
#include "memcalc/cost/collective.h"
#include "memcalc/cost/host_time.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/power_limit.h"

namespace memcalc {

namespace {

bool is_copy(const Kernel& kernel) {
  return kernel.kind == KernelKind::kCopyToDevice || kernel.kind == KernelKind::kCopyToHost;
}

bool is_pinned_copy(const Kernel& kernel) {
  const auto* copy = kernel.as<work::HostCopy>();
  return copy != nullptr && copy->pinned;
}

// Cards of one kind reach their power limit at clocks of their own, and those that wait for each other take the time of
// the slowest. BERT's steps of 39 single H100s in 37 hosts (lambdal/deeplearning-benchmark,
// pytorch-train-throughput-v2-*.csv, 2024-10): a standard deviation of 1.8 and 0.7 % in 16 bits (base, large), 1.2 and
// 2.0 % in TF32; here their root mean square. Networks that memory bounds (ResNet-50) vary by 0.1 to 0.6 %.
constexpr double kCardSpread = 0.015;

// Kernels of the compute stream follow each other later where other streams hold work: by means over steps of both
// ranks, gaps above 8 us left out, 2.2 to 2.7 us after the one before under FSDP (2.4 in the middle of nine), 1.9 to
// 2.3 under DDP and ZeRO-1 (1.94 of seven), 2.5 and 2.2 in tensor parallelism (DTensor), 1.5 in a pipeline and 1.6
// to 1.8 alone (timelines on two H200s of six hosts that ran ahead: docs/studies/time-several-cards.md). On those hosts
// all of them are 0.4 later than on a host of one card.
constexpr double kSeveralCardsGapUs = 0.4, kBucketsGapUs = 0.4, kQueuesGapUs = 0.9;
constexpr std::string_view kFunctional = "_c10d_functional::";

/// What such work adds to the gap: FSDP's gathers and DTensor's collectives stand on other streams all the time, DDP's
/// buckets in backward. HSDP is found by its gathers.
double gap_us_beside(const DistinctKernels& kernels) {
  double gap_us = 0;
  for (const Kernel* kernel : kernels.distinct()) {
    if (!kernel->communicates() || kernel->stream == CudaStream::kPointToPoint) continue;
    if (kernel->stream == CudaStream::kAllReduce) {
      gap_us = kBucketsGapUs;
    } else if (kernel->stream != CudaStream::kDefault ||
               (kernel->op != nullptr && std::string_view(kernel->op->name).starts_with(kFunctional))) {
      return kQueuesGapUs;
    }
  }
  return gap_us;
}

/// The ranks that wait for each other in a step.
std::int64_t ranks_of(const DistinctKernels& kernels) {
  std::int64_t ranks = 1;
  for (const Kernel* kernel : kernels.distinct()) {
    if (const auto* group = kernel->as<work::Communication>()) ranks = std::max(ranks, group->ranks);
  }
  return ranks;
}

Timeline::Issue::Way way_of(const Kernel& kernel) {
  using Way = Timeline::Issue::Way;
  if (kernel.communicates()) {
    if (!runs_beside(kernel)) return Way::kBlocks;
    return is_needed_at_once(kernel) ? Way::kGathers : Way::kReduces;
  }
  if (!runs_on_card(kernel)) return Way::kHost;
  return kernel.stream == CudaStream::kDefault ? Way::kCompute : Way::kBeside;
}

/// But for its seconds, which differ between equal ones.
Timeline::Issue issue_of(const Kernel& kernel, const DeviceSpec& device, const LinkRates& links) {
  Timeline::Issue issue{.way = way_of(kernel), .phase = kernel.phase};
  issue.launches = kernel.launches;
  issue.longer = contention_of(kernel, links);
  if (const auto* collective = kernel.as<work::Communication>()) {
    issue.is_all_reduce = collective->kind == Collective::kAllReduce;
  } else if (kernel.operator_class != OperatorClass::kContraction) {
    issue.delays = links.all_reduce_contention;
  }
  issue.time_class = static_cast<TimeClass>(kernel.operator_class);
  if (is_list(kernel)) issue.passes = list_passes(kernel);
  if (const auto* wait = kernel.as<work::Wait>()) {
    issue.waits = true;
    issue.waits_for = static_cast<std::int32_t>(wait->kernels);
  }
  issue.waits_until_done = is_copy(kernel) && !is_pinned_copy(kernel);
  issue.is_on_bus = is_copy(kernel);
  issue.uses_tensor_cores = uses_tensor_cores(kernel, device);
  return issue;
}

void add_part(const StepTime& part, double times, StepTime& result) {
  for (std::size_t i = 0; i < kTimeClassCount; ++i) result.by_class[i] += times * part.by_class[i];
  result.forward_seconds += times * part.forward_seconds;
  result.decode_seconds += times * part.decode_seconds;
  result.backward_seconds += times * part.backward_seconds;
  result.optimizer_seconds += times * part.optimizer_seconds;
  result.kernel_seconds += times * part.kernel_seconds;
  result.host_seconds += times * part.host_seconds;
  result.communication_seconds += times * part.communication_seconds;
  result.tensor_core_seconds += times * part.tensor_core_seconds;
  result.kernels += static_cast<std::int64_t>(times) * part.kernels;
}

}  // namespace

bool runs_on_card(const Kernel& kernel) {
  return kernel.kind != KernelKind::kPartOfPrevious && kernel.kind != KernelKind::kSynchronize;
}

// The mean of the largest of n standard normal variables: the quantile at (n - 0.375) / (n + 0.25) (Blom 1958), by
// Abramowitz and Stegun 26.2.23.
double slowest_of(std::int64_t ranks, double spread) {
  if (ranks < 2) return 1;
  const double n = static_cast<double>(ranks);
  const double t = std::sqrt(-2 * std::log(1 - (n - 0.375) / (n + 0.25)));
  const double score =
      t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  return 1 + spread * score;
}

StepTime mean_of(const StepTime& generating, const StepTime& other, double share) {
  StepTime mean;
  add_part(generating, share, mean);
  add_part(other, 1 - share, mean);
  mean.kernels =
      std::llround(share * static_cast<double>(generating.kernels) + (1 - share) * static_cast<double>(other.kernels));
  mean.step_seconds = share * generating.step_seconds + (1 - share) * other.step_seconds;
  mean.generating_step_seconds = generating.step_seconds;
  mean.other_step_seconds = other.step_seconds;
  return mean;
}

std::vector<double> seconds_of(const DistinctKernels& kernels, const DeviceSpec& device, const DeviceRates& rates,
                               IssueTimes& issuing, double waiting) {
  const std::int64_t ranks = ranks_of(kernels);
  double gap_us = rates.host.gap_us;
  if (ranks > 1) gap_us += kSeveralCardsGapUs + gap_us_beside(kernels);
  const double gap = gap_us * kMicrosecond;
  const double slowest = slowest_of(ranks, kCardSpread);
  std::vector<double> seconds = kernels.of_all(kernels.of_distinct([&](const Kernel& kernel) {
    if (const auto* communication = kernel.as<work::Communication>()) {
      return collective_seconds(*communication, device, rates.link);
    }
    if (is_copy(kernel)) return copy_seconds(kernel, rates.transfer);
    const bool at_power_limit = kernel.operator_class == OperatorClass::kContraction;
    const double launches = kernel.kind == KernelKind::kMultiTensor ? list_launches(kernel) : kernel.launches;
    return kernel_seconds(kernel, device, rates) * (at_power_limit ? slowest : 1) +
           (runs_on_card(kernel) ? gap * launches : 0);
  }));
  if (!has_power_limit(device, rates.power)) return seconds;
  std::vector<double> waits;
  if (std::any_of(kernels.distinct().begin(), kernels.distinct().end(),
                  [](const Kernel* kernel) { return runs_beside(*kernel); })) {
    waits = Timeline(kernels, seconds, device, rates, issuing).waits_for_collectives();
  }
  lower_clock(kernels, device, rates, issuing, waits, waiting, seconds);
  return seconds;
}

Timeline::Timeline(const DistinctKernels& kernels, const std::vector<double>& seconds, const DeviceSpec& device,
                   const DeviceRates& rates, IssueTimes& issuing, std::span<const double> before)
    : kernels_(kernels.kernels()),
      seconds_(seconds),
      issuing_(issuing),
      before_(before),
      queue_kernels_(std::max<std::size_t>(static_cast<std::size_t>(rates.host.queue_kernels), 1)),
      slowest_(slowest_of(ranks_of(kernels), rates.host.rank_spread)) {
  issues_ =
      kernels.of_all(kernels.of_distinct([&](const Kernel& kernel) { return issue_of(kernel, device, rates.link); }));
  for (std::size_t i = 0; i < issues_.size(); ++i) {
    Issue& each = issues_[i];
    each.seconds = each.way == Issue::Way::kCompute ? seconds[i] / each.launches : seconds[i];
    gathers_ = gathers_ || each.way == Issue::Way::kGathers;
    waits_ = waits_ || (each.waits && each.waits_for == 0);
    if (each.waits && each.waits_for > 0) issues_[static_cast<std::size_t>(each.waits_for - 1)].is_waited_for = true;
    if (each.way < Issue::Way::kBlocks) continue;
    const auto* collective = kernels_[i].as<work::Communication>();
    if (collective == nullptr || collective->awaited_after == 0) continue;
    const std::size_t by = i + static_cast<std::size_t>(collective->awaited_after);
    if (by >= issues_.size()) continue;
    issues_[by].awaits = static_cast<std::int32_t>(i);  // of several the last, which ends last
    issues_[i].is_awaited = true;
  }
}

namespace {

/// How many times as long as usual the threads of a process take: the one of Python, and autograd's, which issues
/// backward (torch/csrc/autograd/engine.cpp, 2.11: a thread for each device).
struct Threads {
  double python = 1, autograd = 1;
};

/// A process on a host.
struct Process {
  const HostRates* host = nullptr;
  Threads threads;
};

}  // namespace

/// The clocks of some hosts and of the card of each, in seconds since the first step began. The same is issued on all
/// of them, so a step is gone through once for all.
template <std::size_t kHosts>
class Clocks {
 public:
  using Seconds = std::array<double, kHosts>;

  /// `call`: of a model that does not train, whose own host work stands in the list (HostWork::kModelCall).
  Clocks(const Timeline& timeline, const std::array<Process, kHosts>& processes, bool call = false)
      : timeline_(timeline),
        queue_(timeline.queue_kernels_),
        slowed_(timeline.queue_kernels_),
        finished_(timeline.issues_.size()),
        issued_late_(timeline.issues_.size()) {
    std::array<const double*, kHosts> seconds;
    for (std::size_t h = 0; h < kHosts; ++h) seconds[h] = timeline.issuing_.of(*processes[h].host).data();
    issuing_.reserve(timeline.kernels_.size());
    for (const Kernel& kernel : timeline.kernels_) {
      Seconds& each = issuing_.emplace_back();
      const bool by_autograd = kernel.phase == Phase::kBackward;
      for (std::size_t h = 0; h < kHosts; ++h) {
        const Threads& threads = processes[h].threads;
        each[h] = *seconds[h]++ * (by_autograd ? threads.autograd : threads.python);
      }
    }
    for (std::size_t i = 0; i < timeline.before_.size(); ++i) {
      for (double& each : issuing_[i]) each += timeline.before_[i];
    }
    for (std::size_t h = 0; h < kHosts; ++h) {
      const Process& process = processes[h];
      forward_[h] = call ? 0 : process.threads.python * process.host->forward_us * kMicrosecond;
      backward_[h] = process.threads.autograd * process.host->backward_us * kMicrosecond;
      latency_[h] = process.host->launch_latency_us * kMicrosecond;
    }
  }

  /// Of a host that takes no time; `waits` gets what the compute stream waits for collectives in front of each kernel.
  Clocks(const Timeline& timeline, std::vector<double>& waits)
      : timeline_(timeline),
        issuing_(timeline.issues_.size()),
        queue_(timeline.queue_kernels_),
        slowed_(timeline.queue_kernels_),
        finished_(timeline.issues_.size()),
        issued_late_(timeline.issues_.size()),
        waits_(&waits) {}

  /// The last kernel waits behind it for what is left of the collectives.
  void note_end() { note_wait(timeline_.issues_.back(), communication_); }

  /// Runs a step; how long it is. Where one is told, `told` gets what happens in it.
  template <bool kTells>
  Seconds step(StepTime& told) {
    const Seconds begin = compute_;
    told = {};
    const KernelList& kernels = timeline_.kernels_;
    for (std::size_t i = 0; i < kernels.size();) {
      const std::int64_t repeats = kernels[i].repeats;
      std::size_t end = i;
      while (end < kernels.size() && kernels[end].repeats == repeats) ++end;
      // The first may live on the host's lead; those after it take as long as the second.
      for (std::int64_t left = repeats; left > 0;) {
        const std::int64_t alike = left == repeats ? 1 : left;
        group<kTells>(i, end, static_cast<double>(alike), told);
        left -= alike;
      }
      i = end;
    }
    Seconds taken;
    for (std::size_t h = 0; h < kHosts; ++h) taken[h] = compute_[h] - begin[h];
    told.step_seconds = taken[0];
    return taken;
  }

 private:
  using Issue = Timeline::Issue;

  /// The kernels of a micro-batch, which stands for `alike` of them, one after the other.
  template <bool kTells>
  void group(std::size_t begin, std::size_t end, double alike, StepTime& told) {
    StepTime part;
    const Seconds host_before = host_, compute_before = compute_;
    if (waits_ != nullptr) std::fill(&(*waits_)[begin], &(*waits_)[begin] + (end - begin), 0.0);  // of the last
    for (std::size_t i = begin; i < end; ++i) {
      const Issue& of = timeline_.issues_[i];
      if (of.awaits >= 0) {
        const auto awaited = static_cast<std::size_t>(of.awaits);
        await<kTells>(finished_[awaited], issued_late_[awaited], of, part);
        keep_use();
      }
      issue<kTells>(i, part);
      if (of.is_waited_for) finished_[i] = compute_;
      if (of.is_awaited) {
        finished_[i] = communication_;
        issued_late_[i] = issued_late_now_;
      }
    }
    if constexpr (kTells) add_part(part, alike, told);
    // Those that were not executed take as long as the one that stands for them. A host that waits for room in the
    // queue goes as fast as the card does, though it caught up in the first of them.
    const double others = alike - 1;
    for (std::size_t h = 0; h < kHosts; ++h) {
      const double taken = compute_[h] - compute_before[h];
      host_[h] += others * std::min(host_[h] - host_before[h], taken);
      compute_[h] += others * taken;
      communication_[h] += others * taken;
    }
  }

  template <bool kTells>
  void issue(std::size_t i, StepTime& part) {
    using Way = Issue::Way;
    const Issue& of = timeline_.issues_[i];
    Seconds issuing = issuing_[i];
    if (of.phase != phase_) {
      if (of.phase == Phase::kForward) add_to(issuing, forward_);
      if (of.phase == Phase::kBackward) add_to(issuing, backward_);
      if (phase_ == Phase::kOptimizer) updated_ = compute_;
      phase_ = of.phase;
    }
    for (double& each : issuing) each *= timeline_.slowest_;
    if constexpr (kTells) part.host_seconds += issuing[0];
    const bool launches = of.way == Way::kCompute || of.way == Way::kBeside;
    if (!launches) add_to(host_, issuing);
    if (of.waits) {
      const Seconds& until = of.waits_for > 0 ? finished_[static_cast<std::size_t>(of.waits_for - 1)] : compute_;
      keep_later(host_, until);
    }
    if (of.way == Way::kHost) {  // the optimizer's own step there, for which the card waits
      if (of.phase == Phase::kOptimizer) advance<kTells>(host_, TimeClass::kHost, of, part);
      return;
    }
    if (!launches) return communicate<kTells>(of, part);
    if (of.phase == Phase::kOptimizer) {
      end_alone();
      note_wait(of, communication_);
      advance<kTells>(communication_, TimeClass::kCommunication, of, part);
    }
    if constexpr (kTells) part.kernels += of.launches;
    if (of.way == Way::kBeside) {
      add_to(host_, issuing);
      return run_beside<kTells>(of, part);
    }
    if constexpr (kTells) {
      part.kernel_seconds += timeline_.seconds_[i];
      if (of.uses_tensor_cores) part.tensor_core_seconds += timeline_.seconds_[i];
    }
    if (of.launches == 1 && of.passes == 1) {
      launch<kTells>(issuing, of, part);
    } else {
      Seconds first, each;
      for (std::size_t h = 0; h < kHosts; ++h) {
        first[h] = issuing[h] / of.passes;
        each[h] = first[h] / of.launches;
      }
      for (std::int32_t n = 0; n < of.launches; ++n) launch<kTells>(each, of, part);
      for (std::size_t h = 0; h < kHosts; ++h) host_[h] += issuing[h] - first[h];
    }
    if (of.waits_until_done) keep_later(host_, compute_);  // of pageable memory the driver waits
  }

  // A kernel of another stream has the multiprocessors to itself, one after the other with those of the compute stream:
  // seen on two H200s (docs/time.md). A copy over the bus needs none.
  template <bool kTells>
  void run_beside(const Issue& of, StepTime& part) {
    Seconds until = compute_;
    for (std::size_t h = 0; h < kHosts; ++h) {
      const double begin = std::max(communication_[h], host_[h]);
      if (!of.is_on_bus && begin < compute_[h]) until[h] += of.seconds;
      communication_[h] = begin + of.seconds;
    }
    advance<kTells>(until, of.time_class, of, part);
  }

  // The queue holds so many launches; the host waits for room. A kernel is slower while a collective runs beside it.
  template <bool kTells>
  void launch(const Seconds& issuing, const Issue& of, StepTime& part) {
    Seconds& slot = queue_[next_slot_];
    if (timeline_.gathers_) {
      slowed_beside_ += of.seconds * of.longer / (1 + of.longer);
      slowed_[next_slot_] = slowed_beside_;
    }
    if (++next_slot_ == queue_.size()) next_slot_ = 0;
    Seconds until;
    for (std::size_t h = 0; h < kHosts; ++h) {
      host_[h] = std::max(host_[h] + issuing[h], slot[h]);
      until[h] = host_[h] + latency_[h];
    }
    advance<kTells>(until, TimeClass::kHost, of, part);
    Seconds beside;
    bool communicates = false;  // most kernels have no collective beside them
    for (std::size_t h = 0; h < kHosts; ++h) communicates = communicates || communication_[h] > compute_[h];
    if (communicates) {
      for (std::size_t h = 0; h < kHosts; ++h) {
        beside[h] = std::clamp((communication_[h] - compute_[h]) / (1 + of.longer), 0.0, of.seconds);
      }
    }
    for (std::size_t h = 0; h < kHosts; ++h) until[h] = compute_[h] + of.seconds;
    advance<kTells>(until, of.time_class, of, part);
    if (communicates) {
      for (std::size_t h = 0; h < kHosts; ++h) until[h] = compute_[h] + beside[h] * of.longer;
      if (all_reduces_) {
        for (std::size_t h = 0; h < kHosts; ++h) communication_[h] += beside[h] * (1 + of.longer) * of.delays;
      }
      advance<kTells>(until, TimeClass::kCommunication, of, part);
    }
    slot = compute_;
  }

  // A collective beside the compute stream starts when those before it are through: one that gathers waits for the
  // optimizer, but not for what is computed since (the host issues it ahead), one that reduces needs what was computed
  // before it. FSDP2's streams of gathers wait for what was gathered before to be copied out, in forward for that of
  // the layer before the last (wait_for_unshard in _fsdp_param_group.py, torch 2.11). Its blocks find room when the
  // kernel ends that runs meanwhile: seen on two H200s, beside products and short kernels alike.
  template <bool kTells>
  void communicate(const Issue& of, StepTime& part) {
    if constexpr (kTells) part.communication_seconds += of.seconds;
    if (of.way == Issue::Way::kBlocks) {
      advance<kTells>(host_, TimeClass::kHost, of, part);
      Seconds until;
      for (std::size_t h = 0; h < kHosts; ++h) until[h] = compute_[h] + of.seconds;
      return advance<kTells>(until, TimeClass::kCommunication, of, part);
    }
    const bool gathers = of.way == Issue::Way::kGathers;
    const bool holds_up = gathers && !of.is_awaited;
    const double longer = 1 + of.longer;
    contention_ = of.longer;
    all_reduces_ = of.is_all_reduce;
    const Seconds& used = of.is_awaited ? uses_[0] : uses_[1];
    Seconds slowed = compute_;
    for (std::size_t h = 0; h < kHosts; ++h) {
      const double made = gathers ? std::max(updated_[h], used[h]) : compute_[h];
      if (h == 0) issued_late_now_ = host_[h] > std::max(communication_[h], made) ? host_[h] : 0;
      const double begin = end_of_running(h, std::max({communication_[h], host_[h], made}));
      const double beside = holds_up ? std::clamp((compute_[h] - begin) / longer, 0.0, of.seconds) : of.seconds;
      communication_[h] = begin + of.seconds + beside * of.longer;
      slowed[h] += slowed_between(h, begin, communication_[h]);
    }
    if (gathers) advance<kTells>(slowed, TimeClass::kCommunication, of, part);
    if (!holds_up) return;
    await<kTells>(communication_, issued_late_now_, of, part);
    keep_use();
  }

  /// Waits for a collective; until `issued` it is the host that the card waits for (0: it was not late).
  template <bool kTells>
  void await(const Seconds& until, double issued, const Issue& of, StepTime& part) {
    note_wait(of, until);
    if constexpr (kTells) {
      Seconds issuing = compute_;
      issuing[0] = std::min(std::max(issued, compute_[0]), until[0]);
      advance<kTells>(issuing, TimeClass::kHost, of, part);
    }
    advance<kTells>(until, TimeClass::kCommunication, of, part);
  }

  void note_wait(const Issue& of, const Seconds& until) {
    if (waits_ == nullptr) return;
    const auto number = static_cast<std::size_t>(&of - timeline_.issues_.data());
    (*waits_)[number] += std::max(until[0] - compute_[0], 0.0);
  }

  /// The optimizer waits: what is left of the collectives has nothing beside it.
  void end_alone() {
    for (std::size_t h = 0; h < kHosts; ++h) {
      const double left = std::max(communication_[h] - compute_[h], 0.0);
      communication_[h] -= left * contention_ / (1 + contention_);
    }
  }

  /// What was gathered last is used from now on.
  void keep_use() {
    uses_[1] = uses_[0];
    uses_[0] = compute_;
  }

  /// What kernels of the compute stream lose that have been issued and run within these times, beside a collective.
  [[nodiscard]] double slowed_between(std::size_t host, double begin, double end) const {
    if (begin >= compute_[host]) return 0;
    const std::size_t first = ends_until(host, begin), last = ends_before(host, end);
    const auto until = [&](std::size_t place) {
      return place == 0 ? slowed_[next_slot_] : slowed_[(next_slot_ + place - 1) % slowed_.size()];
    };
    return until(last) - until(first);
  }

  /// Ends of launches, which the ring has in their order from next_slot_ on: how many lie before some time.
  [[nodiscard]] std::size_t ends_before(std::size_t host, double time) const {
    std::size_t first = 0, last = queue_.size();
    while (first < last) {
      const std::size_t middle = first + (last - first) / 2;
      const Seconds& end = queue_[(next_slot_ + middle) % queue_.size()];
      (end[host] < time ? first : last) = end[host] < time ? middle + 1 : middle;
    }
    return first;
  }

  /// How many lie before it or there.
  [[nodiscard]] std::size_t ends_until(std::size_t host, double time) const {
    return ends_before(host, std::nextafter(time, HUGE_VAL));
  }

  /// When the kernel of the compute stream ends that runs at some time; that time where none does.
  [[nodiscard]] double end_of_running(std::size_t host, double time) const {
    if (time >= compute_[host]) return time;
    const std::size_t first = ends_before(host, time);
    return first < queue_.size() ? queue_[(next_slot_ + first) % queue_.size()][host] : time;
  }

  template <bool kTells>
  void advance(const Seconds& until, TimeClass time_class, const Issue& of, StepTime& part) {
    if constexpr (kTells) {
      const double seconds = until[0] - compute_[0];
      if (seconds <= 0) return;
      part.by_class[static_cast<std::size_t>(time_class)] += seconds;
      const bool forward = of.phase == Phase::kForward || of.phase == Phase::kDecode;  // what a step generates, too
      if (of.phase == Phase::kDecode) part.decode_seconds += seconds;
      (forward                        ? part.forward_seconds
       : of.phase == Phase::kBackward ? part.backward_seconds
                                      : part.optimizer_seconds) += seconds;
    }
    keep_later(compute_, until);
  }

  static void add_to(Seconds& clock, const Seconds& seconds) {
    for (std::size_t h = 0; h < kHosts; ++h) clock[h] += seconds[h];
  }
  static void keep_later(Seconds& clock, const Seconds& other) {
    for (std::size_t h = 0; h < kHosts; ++h) clock[h] = std::max(clock[h], other[h]);
  }

  const Timeline& timeline_;
  std::vector<Seconds> issuing_;     // that the host needs for each kernel
  std::vector<Seconds> queue_;       // when the kernels launched last will have finished, a ring
  std::vector<double> slowed_;       // that they and all before lose beside collectives, a ring
  std::vector<Seconds> finished_;    // when each kernel of this step did that is waited for
  std::vector<double> issued_late_;  // of collectives that are awaited: when by a host that was behind; 0: it was not
  double issued_late_now_ = 0;       // of the last one
  std::size_t next_slot_ = 0;        // in the queue
  Phase phase_ = Phase::kZero;       // of the kernel issued last
  Seconds forward_{}, backward_{}, latency_{};
  Seconds host_{}, compute_{};     // when each is free
  Seconds communication_{};        // when the stream of collectives is
  Seconds updated_{};              // when the optimizer had, that which ran last
  std::array<Seconds, 2> uses_{};  // since when what was gathered last is used, and what was before it
  double slowed_beside_ = 0;
  double contention_ = 0;     // what the collective issued last takes longer beside kernels
  bool all_reduces_ = false;  // whether that is an all-reduce
  std::vector<double>* waits_ = nullptr;
};

namespace {

constexpr int kSteps = 3;  // the third is steady

/// Seconds of the steady step, or of a call, of each of some processes.
template <std::size_t kProcesses>
std::array<double, kProcesses> last_seconds(const Timeline& timeline, const std::array<Process, kProcesses>& processes,
                                            bool call = false) {
  Clocks<kProcesses> clocks(timeline, processes, call);
  StepTime untold;
  std::array<double, kProcesses> seconds{};
  for (int step = 0; step < (call ? 1 : kSteps); ++step) seconds = clocks.template step<false>(untold);
  return seconds;
}

// A thread is quick or slow for seconds, as the other hardware thread of its core is idle or busy (docs/time.md),
// Python's and autograd's nearly by themselves. Tiny models in 163 processes of three sessions on H200s' virtual
// machines (tests/measured/steps_blind_h200.jsonl, steps_clean_h200.jsonl, "beside", 2026-11-29): standard deviations
// of the logarithm 0.16 to 0.22 of forward, 0.17 to 0.23 of backward; correlations of the two 0.4, -0.1 and 0.5, of a
// process with the one before it next to none.
constexpr double kThreadSpread = 0.20, kAlike = 0.32;  // pooled: standard deviation, correlation

/// The step of a process whose threads are as quick as the middle, made longer by what the others wait: where Python is
/// slow and autograd quick, or the other way round, the card does not make up in one for what it waited in the other.
/// Threads that are quicker or slower by a standard deviation each, the mean of the four logarithms by how often each
/// is.
void spread_over_threads(const Timeline& timeline, const HostRates& host, StepTime& step) {
  // Of the step: a host that needs less does not decide it, however slow its threads. With checkpoints under FSDP the
  // host waits for the card in each forward pass, where it looks for packed sequences, so it has no lead; FSDP's
  // wrappers take most of their host time there. 0.25: chosen by one pair of layouts, seed 11003.
  constexpr double kDecidesFrom = 0.5, kDecidesWithoutLeadFrom = 0.25;
  const double nearly = timeline.gathers_without_lead() ? kDecidesWithoutLeadFrom : kDecidesFrom;
  if (step.host_seconds < nearly * step.step_seconds) return;
  const double slow = std::exp(kThreadSpread), quick = 1 / slow;
  const std::array<double, 4> seconds = last_seconds<4>(
      timeline, {{{&host, {quick, quick}}, {&host, {quick, slow}}, {&host, {slow, quick}}, {&host, {slow, slow}}}});
  const double alike = (1 + kAlike) / 4, apart = (1 - kAlike) / 4;
  const double mean = std::exp(alike * (std::log(seconds[0]) + std::log(seconds[3])) +
                               apart * (std::log(seconds[1]) + std::log(seconds[2])));
  const double longer = mean / step.step_seconds;
  if (!(longer > 1)) return;
  step.by_class[static_cast<std::size_t>(TimeClass::kHost)] += mean - step.step_seconds;
  for (double* const part : {&step.step_seconds, &step.forward_seconds, &step.decode_seconds, &step.backward_seconds,
                             &step.optimizer_seconds}) {
    *part *= longer;
  }
}

std::array<Process, 2> extremes(const HostRates& quickest, const HostRates& slowest) {
  const double slow = std::exp(kThreadSpread), quick = 1 / slow;
  return {{{&quickest, {quick, quick}}, {&slowest, {slow, slow}}}};
}

}  // namespace

StepTime Timeline::steady(const HostRates& host) const {
  Clocks<1> clocks(*this, {{{&host, {}}}});
  StepTime result;
  for (int step = 1; step < kSteps; ++step) clocks.step<false>(result);
  clocks.step<true>(result);
  spread_over_threads(*this, host, result);
  return result;
}

std::vector<double> Timeline::waits_for_collectives() const {
  std::vector<double> waits(issues_.size());
  Clocks<1> clocks(*this, waits);
  StepTime untold;
  clocks.step<false>(untold);
  clocks.note_end();
  return waits;
}

StepTime Timeline::call(const HostRates& host) const {
  Clocks<1> clocks(*this, {{{&host, {}}}}, true);
  StepTime result;
  clocks.step<true>(result);
  return result;
}

std::array<double, 2> Timeline::extreme_steps(const HostRates& quickest, const HostRates& slowest) const {
  return last_seconds<2>(*this, extremes(quickest, slowest));
}

std::array<double, 2> Timeline::extreme_calls(const HostRates& quickest, const HostRates& slowest) const {
  // Hosts whose calls were timed are told in both states (specs/measured/hosts.json, calls): nothing is added to them.
  return last_seconds<2>(*this, {{{&quickest, {}}, {&slowest, {}}}}, true);
}

}  // namespace memcalc
