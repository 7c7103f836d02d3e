#include "memcalc/cost/collective.h"

#include <algorithm>
#include <string_view>

namespace memcalc {

double collective_seconds(const Kernel& kernel, const DeviceSpec& device, const LinkRates& rates) {
  constexpr double kMicrosecond = 1e-6;
  const auto ranks = static_cast<double>(std::max<std::int64_t>(kernel.group_size, 1));
  if (ranks < 2) return 0;
  // Without NVLink, peers reach each other over PCIe.
  const double link = device.link_bytes_per_second > 0   ? device.link_bytes_per_second
                      : device.pcie_bytes_per_second > 0 ? device.pcie_bytes_per_second
                                                         : 25e9;  // PCIe 4 x16, as a card without a figure has it
  double sent = kernel.collective_bytes * (ranks - 1) / ranks;
  double hops = ranks - 1;
  switch (kernel.collective) {
    case Collective::kAllReduce:
      sent *= 2;
      hops *= 2;
      break;
    case Collective::kBroadcast:
    case Collective::kSend:
      sent = kernel.collective_bytes;
      hops = 1;
      break;
    default: break;
  }
  return (rates.start_us + rates.hop_us * hops) * kMicrosecond + sent / (rates.bandwidth * link);
}

bool is_needed_at_once(const Kernel& kernel) { return kernel.collective == Collective::kAllGather; }

bool runs_beside(const Kernel& kernel) {
  if (kernel.collective == Collective::kNone) return false;
  // DDP's reducer issues its buckets in backward from AccumulateGrad's hooks; a row-parallel layer's all-reduce is
  // issued in forward, or by the node of its operand.
  const bool bucket = kernel.collective == Collective::kAllReduce && kernel.phase == Phase::kBackward &&
                      kernel.node != nullptr &&
                      std::string_view(kernel.node->name).find("AccumulateGrad") != std::string_view::npos;
  return kernel.stream != CudaStream::kDefault || bucket;
}

}  // namespace memcalc
