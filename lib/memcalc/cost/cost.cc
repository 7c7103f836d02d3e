#include "memcalc/cost/cost.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/base/seconds.h"
#include "memcalc/cost/costliest.h"
#include "memcalc/cost/distinct_kernels.h"
#include "memcalc/cost/issue_times.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/timeline.h"
#include "memcalc/spec/cuda_architecture.h"

namespace memcalc {

std::string_view name_of(TimeClass time_class) {
  constexpr std::array<std::string_view, kTimeClassCount> names = {
      "contraction",   "normalization", "elementwise", "movement", "optimizer",
      "communication", "host",          "bubble",      "input",    "first_calls"};
  return names.at(static_cast<std::size_t>(time_class));
}

// Hosts differ by 1.4 and more (docs/time.md): where this one needs nearly as long as the card, another decides.
bool StepTime::host_bound() const {
  return by_class[static_cast<std::size_t>(TimeClass::kHost)] > 0.05 * step_seconds ||
         host_seconds > 0.8 * step_seconds;
}

// What the card waits for most, from a twentieth of the step on; a card that hardly waits is itself what decides.
Bound StepTime::bound() const {
  const auto share = [&](TimeClass of) { return by_class[static_cast<std::size_t>(of)] / step_seconds; };
  const double host = share(TimeClass::kHost), links = share(TimeClass::kCommunication);
  const double data = share(TimeClass::kInput), first = share(TimeClass::kFirstCalls);
  constexpr double kCounts = 0.05;
  if (first > kCounts && first >= std::max({host, links, data})) return Bound::kFirstCalls;
  if (data > kCounts && data >= host && data >= links) return Bound::kData;
  if (links > kCounts && links >= host) return Bound::kLinks;
  return host_bound() ? Bound::kHost : Bound::kCard;
}

std::string_view name_of(Bound bound) {
  constexpr std::array<std::string_view, 5> names = {"card", "host", "links", "data", "first-calls"};
  return names.at(static_cast<std::size_t>(bound));
}

namespace {

void count_flops(const KernelList& kernels, const DeviceSpec& device, StepTime& result) {
  std::map<double, double> flops_at;  // by the datasheet's rate of their type
  auto last = flops_at.end();         // mostly the next one's, too
  bool causal = false;                // the kernel that this one is a part of, or itself
  for (const Kernel& kernel : kernels) {
    if (kernel.kind != KernelKind::kPartOfPrevious) {
      const auto* attention = kernel.as<work::Attention>();
      causal = attention != nullptr && attention->causal;
    }
    if (kernel.operator_class != OperatorClass::kContraction) continue;
    const double flops = kernel.flops * static_cast<double>(kernel.repeats) * kernel.share;
    const double masked = causal ? flops / 2 : 0;
    const double peak = peak_flops(kernel, device);
    if (last == flops_at.end() || last->first != peak) last = flops_at.emplace(peak, 0).first;
    last->second += flops;
    result.hardware_flops += flops;
    result.masked_hardware_flops += masked;
    if (kernel.recomputed || kernel.phase == Phase::kOptimizer) continue;
    result.model_flops += flops;
    result.masked_model_flops += masked;
  }
  if (flops_at.empty()) return;
  const auto most = std::max_element(flops_at.begin(), flops_at.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  result.peak_flops_per_second = most->first;
  // Where much is computed in a faster type, the slower one's rate would be exceeded.
  const double computed = result.hardware_flops - result.masked_hardware_flops;
  if (computed > result.peak_flops_per_second * result.step_seconds) {
    result.peak_flops_per_second = flops_at.rbegin()->first;
  }
}

/// The measured hosts between which a step is told: those that issue its kernels soonest and latest.
class Extremes {
 public:
  /// Pre: there are hosts; they and what is told of their kernels outlive this.
  Extremes(const std::vector<MeasuredHost>& hosts, IssueTimes& issuing, Costed what)
      : hosts_(hosts), issuing_(issuing), what_(what), quickest_(&hosts.front()), slowest_(&hosts.front()) {}

  [[nodiscard]] const std::string& quickest() const { return quickest_->name; }
  [[nodiscard]] const std::string& slowest() const { return slowest_->name; }

  /// Of a step or a call on the two.
  std::array<double, 2> seconds(const Timeline& timeline, const StepTime& of_middle) {
    // A card that never waits takes as long with any host.
    const bool waits = of_middle.bound() == Bound::kHost || of_middle.host_seconds > 0.5 * of_middle.step_seconds;
    if (!waits) return {of_middle.step_seconds, of_middle.step_seconds};
    find();
    return what_ == Costed::kCall ? timeline.extreme_calls(quickest_->rates, slowest_->rates)
                                  : timeline.extreme_steps(quickest_->rates, slowest_->rates);
  }

 private:
  /// Once, and only for a card that waits: every host is asked for every kernel.
  void find() {
    if (std::exchange(found_, true)) return;
    std::vector<double> issuing;
    issuing.reserve(hosts_.size());
    for (const MeasuredHost& host : hosts_) issuing.push_back(issuing_.sum(host.rates));
    const auto [least, most] = std::minmax_element(issuing.begin(), issuing.end());
    quickest_ = &hosts_[static_cast<std::size_t>(least - issuing.begin())];
    slowest_ = &hosts_[static_cast<std::size_t>(most - issuing.begin())];
  }

  const std::vector<MeasuredHost>& hosts_;
  IssueTimes& issuing_;
  Costed what_;
  bool found_ = false;
  const MeasuredHost *quickest_, *slowest_;
};

/// Of the kernels of what several steps share, as an average step has of it; 1: every step has all of its kernels.
double share_of(const KernelList& kernels) {
  const auto shared = std::find_if(kernels.begin(), kernels.end(), [](const Kernel& each) { return each.share != 1; });
  return shared == kernels.end() ? 1 : shared->share;
}

/// Without what several steps share. A host that waits for the first n kernels waits for those of them that are left.
struct OtherStep {
  KernelList kernels;
  std::vector<double> seconds;
};
OtherStep without_shared(const KernelList& kernels, const std::vector<double>& seconds) {
  OtherStep other;
  std::vector<std::int64_t> left;  // of the kernels up to each
  left.reserve(kernels.size());
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i].share == 1) {
      Kernel& kept = other.kernels.emplace_back(kernels[i]);
      other.seconds.push_back(seconds[i]);
      if (auto* wait = std::get_if<work::Wait>(&kept.work); wait != nullptr && wait->kernels > 0) {
        wait->kernels = std::max<std::int64_t>(1, left[static_cast<std::size_t>(wait->kernels - 1)]);
      }
    }
    left.push_back(static_cast<std::int64_t>(other.kernels.size()));
  }
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const auto* collective = kernels[i].as<work::Communication>();
    if (collective == nullptr || collective->awaited_after == 0 || kernels[i].share != 1) continue;
    const std::size_t by = std::min(i + static_cast<std::size_t>(collective->awaited_after), kernels.size());
    Kernel& kept = other.kernels[static_cast<std::size_t>(left[i] - 1)];
    std::get<work::Communication>(kept.work).awaited_after = left[by - 1] - (left[i] - 1);
  }
  return other;
}

double microseconds_of(FirstCall what, const FirstCallRates& rates) {
  switch (what) {
    case FirstCall::kAttention: return rates.attention_us;
    case FirstCall::kAttentionBackward: return rates.attention_backward_us;
    case FirstCall::kProduct: return rates.product_us;
  }
  return 0;
}

/// Those of an average step come before kernels of the step that is listed. What it takes longer where it has to make
/// all of its own is taken in the share that an average step makes of them, since a host that runs ahead hides some.
void add_first_calls(const FirstCallCounts& of_average, const DistinctKernels& distinct,
                     const std::vector<double>& seconds, const DeviceSpec& device, const DeviceRates& rates,
                     IssueTimes& issuing, std::optional<Extremes>& hosts, StepTime& result,
                     std::array<double, 2>& range) {
  const KernelList& kernels = distinct.kernels();
  FirstCallRates of_card = rates.first_calls;
  if (architecture_of(device) < CudaArchitecture::kHopper)
    of_card.product_us = 0;  // the first whose products were timed
  std::vector<double> before(kernels.size());
  FirstCalls seen;
  FirstCallCounts listed{};
  double whole = 0, average = 0;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (&kernels[i] != distinct.distinct()[distinct.number_of(i)]) continue;  // seen
    const auto what = seen.call(kernels[i]);
    if (!what) continue;
    ++listed[static_cast<std::size_t>(*what)];
    before[i] = microseconds_of(*what, of_card) * kMicrosecond;
    whole += before[i];
  }
  for (std::size_t i = 0; i < kFirstCallKinds; ++i) {
    if (listed[i] > 0) average += of_average[i] * microseconds_of(static_cast<FirstCall>(i), of_card) * kMicrosecond;
  }
  if (whole <= 0 || average <= 0) return;
  const double share = average / whole;
  const auto of = [&](FirstCall what) { return of_average[static_cast<std::size_t>(what)]; };
  const FirstCallTime told{.seen_step_seconds = result.step_seconds,
                           .plans = of(FirstCall::kAttention) + of(FirstCall::kAttentionBackward),
                           .products = of_card.product_us > 0 ? of(FirstCall::kProduct) : 0};
  const auto first = static_cast<std::size_t>(TimeClass::kFirstCalls);
  if (result.generating_step_seconds > 0) {  // of steps with and without a generation, which waits at each token
    for (double* seconds : {&result.step_seconds, &result.host_seconds, &result.forward_seconds}) *seconds += average;
    result.by_class[first] = average;
    for (double& each : range) each += average;
    result.first_calls = told;
    result.first_calls->new_step_seconds = told.seen_step_seconds + whole;
    return;
  }
  const Timeline timeline(distinct, seconds, device, rates, issuing, before);
  const StepTime fresh = timeline.steady(rates.host);
  if (hosts) {
    const std::array<double, 2> of_fresh = hosts->seconds(timeline, fresh);
    for (std::size_t i = 0; i < range.size(); ++i) range[i] += share * (of_fresh[i] - range[i]);
  }
  const StepTime of_seen = std::exchange(result, mean_of(fresh, result, share));
  result.generating_step_seconds = result.other_step_seconds = 0;
  const auto host = static_cast<std::size_t>(TimeClass::kHost);
  result.by_class[first] = result.by_class[host] - of_seen.by_class[host];
  result.by_class[host] = of_seen.by_class[host];
  result.first_calls = told;
  result.first_calls->new_step_seconds = fresh.step_seconds;
}

}  // namespace

StepTime cost(const KernelList& kernels, const DeviceSpec& device, const DeviceRates& rates, Costed what,
              const FirstCallCounts& first_calls, double waiting) {
  StepTime result;
  if (kernels.empty()) return result;
  constexpr std::size_t kShown = 10;  // kernels
  const DistinctKernels distinct(kernels);
  IssueTimes issuing(distinct, what == Costed::kCall);
  const std::vector<double> seconds = seconds_of(distinct, device, rates, issuing, waiting);
  const Timeline timeline(distinct, seconds, device, rates, issuing);
  result = what == Costed::kCall ? timeline.call(rates.host) : timeline.steady(rates.host);
  std::optional<Extremes> hosts;
  if (!rates.hosts.empty()) hosts.emplace(rates.hosts, issuing, what);
  std::array<double, 2> range{};
  if (hosts) range = hosts->seconds(timeline, result);
  if (const double share = share_of(kernels); share != 1) {
    const OtherStep other = without_shared(kernels, seconds);
    const DistinctKernels distinct_others(other.kernels);
    IssueTimes issuing_others(distinct_others, what == Costed::kCall);
    const Timeline of_other(distinct_others, other.seconds, device, rates, issuing_others);
    const StepTime time = of_other.steady(rates.host);
    if (hosts) {
      const std::array<double, 2> of_others = hosts->seconds(of_other, time);
      for (std::size_t i = 0; i < range.size(); ++i) range[i] = share * range[i] + (1 - share) * of_others[i];
    }
    result = mean_of(result, time, share);
  }
  add_first_calls(first_calls, distinct, seconds, device, rates, issuing, hosts, result, range);
  result.host = rates.host_name;
  if (hosts) {
    result.hosts = {.least_seconds = range[0],
                    .most_seconds = range[1],
                    .least_host = hosts->quickest(),
                    .most_host = hosts->slowest()};
  }
  result.costliest = costliest_of(distinct, seconds, device, kShown);
  count_flops(kernels, device, result);
  return result;
}

}  // namespace memcalc
