#include "memcalc/cost/issue_times.h"

#include "memcalc/cost/host_time.h"

namespace memcalc {

const std::vector<double>& IssueTimes::of(const HostRates& host) {
  for (const auto& [each, seconds] : asked_) {
    if (each == &host) return *seconds;
  }
  const auto issuing = [&](const Kernel& kernel) { return host_seconds(kernel, host, no_grad_); };
  auto seconds = std::make_unique<std::vector<double>>(kernels_.of_all(kernels_.of_distinct(issuing)));
  return *asked_.emplace_back(&host, std::move(seconds)).second;
}

double IssueTimes::sum(const HostRates& host) {
  double sum = 0;
  for (const double seconds : of(host)) sum += seconds;
  return sum;
}

}  // namespace memcalc
