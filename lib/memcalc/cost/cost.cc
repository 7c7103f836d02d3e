#include "memcalc/cost/cost.h"

#include <algorithm>
#include <vector>

#include "memcalc/cost/collective.h"
#include "memcalc/cost/kernel_time.h"

namespace memcalc {

namespace {

constexpr double kMicrosecond = 1e-6;

bool runs_on_card(const Kernel& kernel) {
  return kernel.kind != KernelKind::kPartOfPrevious && kernel.kind != KernelKind::kSynchronize;
}

double host_microseconds(KernelKind kind, const HostRates& rates) {
  switch (kind) {
    case KernelKind::kMatrixProduct:
    case KernelKind::kGroupedProduct: return rates.product_us;
    case KernelKind::kCudnnAttention:
    case KernelKind::kFlashAttention:
    case KernelKind::kEfficientAttention: return rates.attention_us;
    case KernelKind::kConvolution:
    case KernelKind::kDepthwiseConvolution: return rates.convolution_us;
    case KernelKind::kImage: return rates.image_us;
    case KernelKind::kRowwise:
    case KernelKind::kEmbeddingBackward: return rates.normalization_us;
    case KernelKind::kPartOfPrevious: return 0;
    default: return rates.pointwise_us;
  }
}

/// The host, the card's streams and their clocks, in seconds since the first step began.
class Timeline {
 public:
  Timeline(const KernelList& kernels, const DeviceSpec& device, const DeviceRates& rates)
      : kernels_(kernels), rates_(rates) {
    seconds_.reserve(kernels.size());
    const double gap = rates.host.gap_us * kMicrosecond;
    for (const Kernel& kernel : kernels) {
      const bool collective = kernel.collective != Collective::kNone;
      seconds_.push_back(collective ? collective_seconds(kernel, device, rates.link)
                                    : kernel_seconds(kernel, device, rates) +
                                          (runs_on_card(kernel) ? gap * kernel.launches : 0));
    }
  }

  /// Runs a step; `result` gets what happens in it.
  void step(StepTime& result) {
    const double begin = compute_;
    result = {};
    for (std::size_t i = 0; i < kernels_.size();) {
      const std::int64_t repeats = kernels_[i].repeats;
      std::size_t end = i;
      while (end < kernels_.size() && kernels_[end].repeats == repeats) ++end;
      StepTime part;
      const double host_before = host_, compute_before = compute_;
      for (; i < end; ++i) issue(i, part);
      add(part, static_cast<double>(repeats), result);
      // Micro-batches that were not executed take as long as the one that stands for them. A host that waits for room
      // in the queue goes as fast as the card does, though it caught up in the first of them.
      const auto others = static_cast<double>(repeats - 1);
      const double taken = compute_ - compute_before;
      host_ += others * std::min(host_ - host_before, taken);
      compute_ += others * taken;
    }
    result.step_seconds = compute_ - begin;
  }

 private:
  void issue(std::size_t i, StepTime& part);
  void communicate(std::size_t i, StepTime& part);
  void advance(double until, TimeClass time_class, const Kernel& kernel, StepTime& part);
  static void add(const StepTime& part, double times, StepTime& result);

  const KernelList& kernels_;
  const DeviceRates& rates_;
  std::vector<double> seconds_;  // of each kernel
  std::vector<double> queue_;    // when the kernels launched last will have finished, a ring
  std::size_t launched_ = 0;
  Phase phase_ = Phase::kZero;  // of the kernel issued last
  bool recomputed_ = false;
  double host_ = 0;
  double compute_ = 0;        // when the compute stream is free
  double communication_ = 0;  // when the stream of collectives is
};

void Timeline::advance(double until, TimeClass time_class, const Kernel& kernel, StepTime& part) {
  const double seconds = until - compute_;
  if (seconds <= 0) return;
  part.by_class[static_cast<std::size_t>(time_class)] += seconds;
  (kernel.phase == Phase::kForward    ? part.forward_seconds
   : kernel.phase == Phase::kBackward ? part.backward_seconds
                                      : part.optimizer_seconds) += seconds;
  compute_ = until;
}

void Timeline::issue(std::size_t i, StepTime& part) {
  const Kernel& kernel = kernels_[i];
  double issuing = host_seconds(kernel, rates_.host);
  if (kernel.phase != phase_ && kernel.phase == Phase::kForward) issuing += rates_.host.forward_us * kMicrosecond;
  if (kernel.phase != phase_ && kernel.phase == Phase::kBackward) issuing += rates_.host.backward_us * kMicrosecond;
  // checkpoint.py: hooks pack and unpack every saved tensor in Python; a region shows where it is computed again.
  if (kernel.recomputed && !recomputed_) issuing += rates_.host.region_us * kMicrosecond;
  recomputed_ = kernel.recomputed;
  phase_ = kernel.phase;
  host_ += issuing;
  part.host_seconds += issuing;
  if (kernel.kind == KernelKind::kSynchronize) {
    host_ = std::max({host_, compute_});
    return;
  }
  if (!runs_on_card(kernel)) return;
  if (kernel.collective != Collective::kNone) return communicate(i, part);
  if (kernel.phase == Phase::kOptimizer) advance(communication_, TimeClass::kCommunication, kernel, part);
  part.kernels += kernel.launches;
  // The queue holds so many launches; the host waits for room.
  const auto room = static_cast<std::size_t>(rates_.host.queue_kernels);
  if (queue_.size() < room) queue_.resize(room, 0);
  double& slot = queue_[launched_++ % room];
  host_ = std::max(host_, slot);
  // Of several launches the first runs while the others are issued, and the last after it has been.
  const double launches = kernel.launches;
  const double issued = host_ + rates_.host.launch_latency_us * kMicrosecond;
  advance(issued - issuing * (1 - 1 / launches), TimeClass::kHost, kernel, part);
  part.kernel_seconds += seconds_[i];
  if (uses_tensor_cores(kernel)) part.tensor_core_seconds += seconds_[i];
  advance(compute_ + seconds_[i], static_cast<TimeClass>(kernel.operator_class), kernel, part);
  advance(issued + seconds_[i] / launches, TimeClass::kHost, kernel, part);
  slot = compute_;
}

// A collective beside the compute stream starts when those before it are through: one that gathers need not wait for
// what is computed (the host issues it ahead), one that reduces needs what was computed before it.
void Timeline::communicate(std::size_t i, StepTime& part) {
  const Kernel& kernel = kernels_[i];
  const bool gathers = is_needed_at_once(kernel);
  part.communication_seconds += seconds_[i];
  if (!runs_beside(kernel)) {
    advance(host_, TimeClass::kHost, kernel, part);
    return advance(compute_ + seconds_[i], TimeClass::kCommunication, kernel, part);
  }
  communication_ = std::max({communication_, host_, gathers ? 0 : compute_}) + seconds_[i];
  if (gathers) advance(communication_, TimeClass::kCommunication, kernel, part);
}

void Timeline::add(const StepTime& part, double times, StepTime& result) {
  for (std::size_t i = 0; i < kTimeClassCount; ++i) result.by_class[i] += times * part.by_class[i];
  result.forward_seconds += times * part.forward_seconds;
  result.backward_seconds += times * part.backward_seconds;
  result.optimizer_seconds += times * part.optimizer_seconds;
  result.kernel_seconds += times * part.kernel_seconds;
  result.host_seconds += times * part.host_seconds;
  result.communication_seconds += times * part.communication_seconds;
  result.tensor_core_seconds += times * part.tensor_core_seconds;
  result.kernels += static_cast<std::int64_t>(times) * part.kernels;
}

}  // namespace

std::string_view name_of(TimeClass time_class) {
  constexpr std::array<std::string_view, kTimeClassCount> names = {"contraction", "normalization", "elementwise",
                                                                   "movement",    "optimizer",     "communication",
                                                                   "host",        "bubble",        "input"};
  return names.at(static_cast<std::size_t>(time_class));
}

bool StepTime::host_bound() const { return by_class[static_cast<std::size_t>(TimeClass::kHost)] > 0.05 * step_seconds; }

double host_seconds(const Kernel& kernel, const HostRates& rates) {
  double microseconds = kernel.launches * host_microseconds(kernel.kind, rates) + kernel.views * rates.view_us;
  if (kernel.phase == Phase::kBackward) microseconds += kernel.nodes * rates.node_us;
  // Forward, and checkpointing's second forward, are the model's Python; backward is autograd's C++.
  const bool python = kernel.phase == Phase::kForward || kernel.recomputed;
  if (python && kernel.kind != KernelKind::kPartOfPrevious) microseconds += rates.python_us;
  if (kernel.kind == KernelKind::kMultiTensor && kernel.launches == 1 && kernel.elements > 0) {
    const double passes = kernel.bytes / (kernel.elements * static_cast<double>(size_of(kernel.dtype)));
    microseconds += static_cast<double>(kernel.m) * passes * rates.tensor_us;
  }
  return microseconds * kMicrosecond;
}

namespace {

void count_flops(const KernelList& kernels, const DeviceSpec& device, StepTime& result) {
  std::array<double, 2> by_width{};  // of 16 and 32 bits
  std::array<double, 2> peaks{};
  for (const Kernel& kernel : kernels) {
    if (kernel.operator_class != OperatorClass::kContraction) continue;
    const double flops = kernel.flops * static_cast<double>(kernel.repeats);
    const std::size_t width = size_of(kernel.dtype) > 2 ? 1 : 0;
    by_width[width] += flops;
    peaks[width] = peak_flops(kernel, device);
    result.hardware_flops += flops;
    if (!kernel.recomputed && kernel.phase != Phase::kOptimizer) result.model_flops += flops;
  }
  result.peak_flops_per_second = by_width[1] > by_width[0] ? peaks[1] : peaks[0];
}

}  // namespace

StepTime cost(const KernelList& kernels, const DeviceSpec& device, const DeviceRates& rates) {
  StepTime result;
  if (kernels.empty()) return result;
  Timeline timeline(kernels, device, rates);
  timeline.step(result);  // from a standing start: the card has nothing to do until the host has issued the first
  timeline.step(result);
  timeline.step(result);
  count_flops(kernels, device, result);
  return result;
}

}  // namespace memcalc
