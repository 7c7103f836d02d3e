// A card and a host whose kernels' times are plain numbers.
#pragma once

#include <vector>

#include "memcalc/cost/distinct_kernels.h"
#include "memcalc/cost/issue_times.h"
#include "memcalc/cost/timeline.h"
#include "memcalc/memcalc.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc::test {

inline constexpr Operator kOp{"aten::add"};

// 1 TB/s, 1 TFLOP/s: a kernel of 1 MB takes 1 us.
inline DeviceSpec device() {
  DeviceSpec device;
  device.multiprocessors = 100;
  device.memory_bandwidth_bytes_per_second = 1e12;
  device.fp32_flops_per_second = 1e15;
  device.bf16_flops_per_second = 1e15;
  device.link_bytes_per_second = 1e11;
  return device;
}

// No launch time, the whole of the datasheet, a host that takes 10 us for an operator.
inline DeviceRates rates() {
  DeviceRates rates;
  rates.vectorized = {.launch_us = 0, .bandwidth = 1, .elements = 1};
  rates.host = {.pointwise_us = 10 / 1.16,  // 10 in forward
                .normalization_us = 10,
                .image_us = 10,
                .product_us = 10,
                .attention_us = 10,
                .convolution_us = 10,
                .view_us = 1,
                .python_us = 0,
                .forward_us = 0,
                .node_us = 2,
                .backward_us = 0,
                .tensor_us = 0,
                .queue_kernels = 1024,
                .gap_us = 0,
                .launch_latency_us = 0};
  rates.link = {
      .start_us = 0, .hop_us = 0, .gather_hop_us = 0, .bandwidth = 1, .network_us = 0, .network_bandwidth = 1};
  rates.host.rank_spread = 0.2;
  return rates;
}

inline Kernel kernel(double bytes, Phase phase = Phase::kForward) {
  Kernel kernel;
  kernel.op = &kOp;
  kernel.phase = phase;
  kernel.bytes = bytes;
  return kernel;
}

/// Of each kernel of a step.
inline std::vector<double> seconds_of(const KernelList& kernels, const DeviceSpec& device, const DeviceRates& rates,
                                      double waiting = 0) {
  const DistinctKernels distinct(kernels);
  IssueTimes issuing(distinct, false);
  return memcalc::seconds_of(distinct, device, rates, issuing, waiting);
}

}  // namespace memcalc::test
