#include "memcalc/cost/issue_times.h"

#include "memcalc/cost/host_time.h"

namespace memcalc {

const std::vector<double>& IssueTimes::of(const HostRates& host) {
  for (const auto& [each, seconds] : asked_) {
    if (each == &host) return *seconds;
  }
  auto seconds = std::make_unique<std::vector<double>>();
  seconds->reserve(kernels_.size());
  for (const Kernel& kernel : kernels_) seconds->push_back(host_seconds(kernel, host, no_grad_));
  return *asked_.emplace_back(&host, std::move(seconds)).second;
}

double IssueTimes::sum(const HostRates& host) {
  double sum = 0;
  for (const double seconds : of(host)) sum += seconds;
  return sum;
}

}  // namespace memcalc
