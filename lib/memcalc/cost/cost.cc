#include "memcalc/cost/cost.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/cost/costliest.h"
#include "memcalc/cost/host_time.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/timeline.h"

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
  bool causal = false;                // the kernel that this one is a part of, or itself
  for (const Kernel& kernel : kernels) {
    if (kernel.kind != KernelKind::kPartOfPrevious) {
      const auto* attention = kernel.as<work::Attention>();
      causal = attention != nullptr && attention->causal;
    }
    if (kernel.operator_class != OperatorClass::kContraction) continue;
    const double flops = kernel.flops * static_cast<double>(kernel.repeats) * kernel.share;
    const double masked = causal ? flops / 2 : 0;
    flops_at[peak_flops(kernel, device)] += flops;
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

/// The hosts that issue the kernels soonest and latest.
struct Extremes {
  const MeasuredHost *quickest, *slowest;
};

/// Pre: there are hosts.
Extremes extremes_of(const std::vector<MeasuredHost>& hosts, const KernelList& kernels, Costed what) {
  std::vector<double> issuing(hosts.size());
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    for (const Kernel& kernel : kernels) issuing[h] += host_seconds(kernel, hosts[h].rates, what == Costed::kCall);
  }
  const auto [least, most] = std::minmax_element(issuing.begin(), issuing.end());
  return {&hosts[static_cast<std::size_t>(least - issuing.begin())],
          &hosts[static_cast<std::size_t>(most - issuing.begin())]};
}

/// Of a step or a call on the quickest and on the slowest host.
std::array<double, 2> seconds_on(const Extremes& hosts, const Timeline& timeline, const StepTime& of_middle,
                                 Costed what) {
  // A card that never waits takes as long with any host.
  const bool waits = of_middle.bound() == Bound::kHost || of_middle.host_seconds > 0.5 * of_middle.step_seconds;
  if (!waits) return {of_middle.step_seconds, of_middle.step_seconds};
  return what == Costed::kCall ? timeline.extreme_calls(hosts.quickest->rates, hosts.slowest->rates)
                               : timeline.extreme_steps(hosts.quickest->rates, hosts.slowest->rates);
}

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
void add_first_calls(const FirstCallCounts& of_average, const KernelList& kernels, const std::vector<double>& seconds,
                     const DeviceSpec& device, const DeviceRates& rates, StepTime& result,
                     std::vector<double>& of_hosts) {
  constexpr double kMicrosecond = 1e-6;
  constexpr int kTimed = 9;  // the compute capability of the cards whose 16-bit products were timed: Hopper's
  FirstCallRates of_card = rates.first_calls;
  if (device.compute_capability_major < kTimed) of_card.product_us = 0;
  std::vector<double> before(kernels.size());
  FirstCalls seen;
  double whole = 0, average = 0;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (const auto what = seen.call(kernels[i])) before[i] = microseconds_of(*what, of_card) * kMicrosecond;
    whole += before[i];
  }
  for (std::size_t i = 0; i < kFirstCallKinds; ++i) {
    average += of_average[i] * microseconds_of(static_cast<FirstCall>(i), of_card) * kMicrosecond;
  }
  if (whole <= 0 || average <= 0) return;
  const double share = average / whole;
  const Timeline timeline(kernels, seconds, device, rates, before);
  const StepTime fresh = timeline.steady(rates.host);
  const std::vector<double> fresh_of_hosts = timeline.steady_seconds(rates.hosts);
  for (std::size_t i = 0; i < of_hosts.size(); ++i) of_hosts[i] += share * (fresh_of_hosts[i] - of_hosts[i]);
  const StepTime of_seen = std::exchange(result, mean_of(fresh, result, share));
  result.generating_step_seconds = result.other_step_seconds = 0;
  const auto host = static_cast<std::size_t>(TimeClass::kHost);
  result.by_class[static_cast<std::size_t>(TimeClass::kFirstCalls)] = result.by_class[host] - of_seen.by_class[host];
  result.by_class[host] = of_seen.by_class[host];
  const auto of = [&](FirstCall what) { return of_average[static_cast<std::size_t>(what)]; };
  result.first_calls = FirstCallTime{.seen_step_seconds = of_seen.step_seconds,
                                     .new_step_seconds = fresh.step_seconds,
                                     .plans = of(FirstCall::kAttention) + of(FirstCall::kAttentionBackward),
                                     .products = of_card.product_us > 0 ? of(FirstCall::kProduct) : 0};
}

}  // namespace

StepTime cost(const KernelList& kernels, const DeviceSpec& device, const DeviceRates& rates, Costed what,
              const FirstCallCounts& first_calls) {
  StepTime result;
  if (kernels.empty()) return result;
  constexpr std::size_t kShown = 10;  // kernels
  const std::vector<double> seconds = seconds_of(kernels, device, rates);
  const Timeline timeline(kernels, seconds, device, rates);
  result = what == Costed::kCall ? timeline.call(rates.host) : timeline.steady(rates.host);
  std::optional<Extremes> hosts;
  if (!rates.hosts.empty()) hosts = extremes_of(rates.hosts, kernels, what);
  std::array<double, 2> range{};
  if (hosts) range = seconds_on(*hosts, timeline, result, what);
  if (const double share = share_of(kernels); share != 1) {
    const OtherStep other = without_shared(kernels, seconds);
    const Timeline of_other(other.kernels, other.seconds, device, rates);
    const StepTime time = of_other.steady(rates.host);
    if (hosts) {
      const std::array<double, 2> of_others = seconds_on(*hosts, of_other, time, what);
      for (std::size_t i = 0; i < range.size(); ++i) range[i] = share * range[i] + (1 - share) * of_others[i];
    }
    result = mean_of(result, time, share);
  }
  add_first_calls(first_calls, kernels, seconds, device, rates, result, of_hosts);
  result.host = rates.host_name;
  if (hosts) {
    result.hosts = {.least_seconds = range[0],
                    .most_seconds = range[1],
                    .least_host = hosts->quickest->name,
                    .most_host = hosts->slowest->name};
  }
  result.costliest = costliest_of(kernels, seconds, device, kShown);
  count_flops(kernels, device, result);
  return result;
}

}  // namespace memcalc
