// What hosts take to issue each kernel of a list: several clocks go by it, and each host is asked once.
// Covered by tests/unit/cost_test.cc.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "memcalc/cost/distinct_kernels.h"
#include "memcalc/spec/device_rates.h"

namespace memcalc {

class IssueTimes {
 public:
  /// `no_grad`: of a call without autograd. Pre: the kernels, and the hosts that are asked, which
  /// it knows by their addresses, outlive it as they are.
  IssueTimes(const DistinctKernels& kernels, bool no_grad) : kernels_(kernels), no_grad_(no_grad) {}

  /// Seconds of each kernel (host_seconds). What is returned lives as long as this.
  [[nodiscard]] const std::vector<double>& of(const HostRates& host);
  /// Their sum.
  [[nodiscard]] double sum(const HostRates& host);

 private:
  const DistinctKernels& kernels_;
  bool no_grad_;
  std::vector<std::pair<const HostRates*, std::unique_ptr<const std::vector<double>>>> asked_;
};

}  // namespace memcalc
