#include "memcalc/cost/collective.h"
#include "memcalc/base/seconds.h"

#include <algorithm>

namespace memcalc {

namespace {

constexpr double kNoTime = 1e9;  // of a rate's share

/// Members of a group in one host, where ranks are numbered host by host.
std::int64_t members_in_host(const work::Communication& group, const LinkRates& rates) {
  const std::int64_t in_host =
      std::max<std::int64_t>(rates.gpus_per_host / std::max<std::int64_t>(group.distance, 1), 1);
  return std::min(group.ranks, in_host);
}

/// NCCL's rings sum on the way in an all-reduce, and reach a twentieth more there than where they gather or scatter.
double share_of_link(Collective kind, const LinkRates& rates) {
  switch (kind) {
    case Collective::kAllToAll: return rates.exchange_bandwidth;
    case Collective::kAllGather:
    case Collective::kReduceScatter: return rates.gather_bandwidth;
    default: return rates.bandwidth;
  }
}

double own_share_of_link(Collective kind, const LinkRates& rates) {
  switch (kind) {
    case Collective::kAllGather:
    case Collective::kReduceScatter: return rates.gather_own_bandwidth;
    case Collective::kAllReduce: return rates.own_bandwidth;
    default: return kNoTime;
  }
}

// A rank copies its own part on the way, too. Of large parts that is hidden: all-reduces of 0.27 to 4.3 GB between two
// H200s, alone, take 0.10, 0.13, 0.16, 0.16 and 0.17 ms beside what the link takes, gathers 0.15, 0.22, 0.45, 0.66 and
// 1.38, reduce-scatters as long (docs/studies/time-several-cards.md, 2026-11-30).
double own_seconds(Collective kind, double bytes, double rate) {
  constexpr double kWholeBytes = 2e8;      // so many take their whole time
  constexpr double kGatheredShare = 0.56;  // and this much of it those beyond
  const double share_beyond = kind == Collective::kAllReduce ? 0 : kGatheredShare;
  return (std::min(bytes, kWholeBytes) + share_beyond * std::max(bytes - kWholeBytes, 0.0)) / rate;
}

// Cards of one host over PCI Express, of its datasheet's rate: what NCCL reaches between two and four, and what all
// groups together get between the host's halves, each of four cards. Fits to nccl-tests of a host of eight A100 PCIe
// (MooreThreads/SimuMax configs/system/a100_pcie.json, acdbb66, read 2026-11-30): two and four cards 20.7 to 22.4 GB/s,
// eight 11.9 to 14.5; two and four that lie as far apart as ranks of data parallelism do, with tensor-parallel groups
// of four and two between them, 4.2 and 7.5 to 8.2. That other hosts are built so is an assumption.
constexpr double kPcieShare = 0.71, kBetweenHalves = 0.46;
constexpr std::int64_t kCardsOfHalf = 4;

double pcie_rate(const work::Communication& group, std::int64_t in_host, const DeviceSpec& device) {
  const std::int64_t distance = std::max<std::int64_t>(group.distance, 1);
  const bool both_halves = distance * (in_host - 1) >= kCardsOfHalf;
  const double share = both_halves ? std::min(kPcieShare, kBetweenHalves / static_cast<double>(distance)) : kPcieShare;
  return share * device.pcie_bytes_per_second;
}

/// Whether NVLink joins all members within a host: a bridge joins neighbours alone. Else they reach each other over
/// PCIe.
bool are_linked(const work::Communication& group, std::int64_t in_host, const DeviceSpec& device) {
  const std::int64_t span = std::max<std::int64_t>(group.distance, 1) * (in_host - 1) + 1;
  return device.link_bytes_per_second > 0 && (device.link_cards == 0 || span <= device.link_cards);
}

double hop_us_of(Collective kind, const LinkRates& rates) {
  return kind == Collective::kAllGather || kind == Collective::kReduceScatter ? rates.gather_hop_us : rates.hop_us;
}

}  // namespace

bool uses_links(const work::Communication& communication, const DeviceSpec& device, const LinkRates& rates) {
  const std::int64_t in_host = members_in_host(communication, rates);
  return in_host > 1 && are_linked(communication, in_host, device);
}

double collective_seconds(const work::Communication& communication, const DeviceSpec& device, const LinkRates& rates) {
  const std::int64_t members = std::max<std::int64_t>(communication.ranks, 1);
  if (members < 2) return 0;
  const auto ranks = static_cast<double>(members);
  const std::int64_t in_host = members_in_host(communication, rates);
  const bool linked = are_linked(communication, in_host, device);
  const double link = linked ? device.link_bytes_per_second : device.pcie_bytes_per_second;
  double sent = communication.bytes * (ranks - 1) / ranks;
  double passes = 1;
  switch (communication.kind) {
    case Collective::kAllReduce: passes = 2; break;
    case Collective::kBroadcast:
    case Collective::kSend: sent = communication.bytes; break;
    default: break;
  }
  const bool is_message = communication.kind == Collective::kBroadcast || communication.kind == Collective::kSend;
  double hops = is_message ? 1 : passes * (ranks - 1);
  double rate = linked ? share_of_link(communication.kind, rates) * link : pcie_rate(communication, in_host, device);
  double quick_rate = rates.quick_bandwidth * link;
  double crossed = 0;  // seconds
  if (in_host < members) {
    const double hosts = ranks / static_cast<double>(in_host);
    const double crossings = is_message ? 1 : passes * (hosts - 1);
    hops -= crossings;
    crossed = rates.network_us * kMicrosecond * crossings;
    const double adapter = rates.network_bandwidth * rates.network_bytes_per_second;
    // A ring crosses each host's border once, and there is a ring for each member's adapter. What members of other
    // hosts get in an all-to-all each member sends by its own, beside what those of its host get over their links.
    const double outside = (ranks - static_cast<double>(in_host)) / (ranks - 1);
    const double network = is_message                                    ? adapter
                           : communication.kind == Collective::kAllToAll ? adapter / outside
                                                                         : adapter * static_cast<double>(in_host);
    rate = std::min(rate, network);
    quick_rate = std::min(quick_rate, network);
  }
  crossed += std::max(hops, 0.0) * hop_us_of(communication.kind, rates) * kMicrosecond;
  const double own = !linked ? 0  // in the fits
                             : own_seconds(communication.kind, communication.bytes / ranks,
                                           own_share_of_link(communication.kind, rates) * link);
  // NCCL takes the protocol that its own model says is the quicker (src/graph/tuning.cc).
  return crossed + std::min(rates.quick_start_us * kMicrosecond + passes * sent / quick_rate,
                            rates.start_us * kMicrosecond + own + passes * sent / rate);
}

double copy_seconds(const Kernel& kernel, const TransferRates& rates) {
  const auto* copy = kernel.as<work::HostCopy>();
  const bool pinned = copy != nullptr && copy->pinned;
  return rates.latency_us * kMicrosecond +
         kernel.bytes / (pinned ? rates.pinned_bytes_per_second : rates.pageable_bytes_per_second);
}

bool is_needed_at_once(const Kernel& kernel) {
  const auto* communication = kernel.as<work::Communication>();
  return communication != nullptr && communication->kind == Collective::kAllGather;
}

bool runs_beside(const Kernel& kernel) { return kernel.communicates() && kernel.stream != CudaStream::kDefault; }

double contention_of(const Kernel& kernel, const LinkRates& rates) {
  if (kernel.communicates()) return is_needed_at_once(kernel) ? rates.gather_contention : rates.collective_contention;
  // Attention gives its blocks to whichever multiprocessors are free, a product its tiles in waves to all that it has.
  const bool in_waves = kernel.operator_class == OperatorClass::kContraction && kernel.as<work::Attention>() == nullptr;
  return in_waves ? rates.product_contention : rates.memory_contention;
}

}  // namespace memcalc
