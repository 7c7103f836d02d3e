#include "memcalc/cost/cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/cost/collective.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/compiled_code.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/within_call.h"

namespace memcalc {

namespace {

constexpr double kMicrosecond = 1e-6;

bool runs_on_card(const Kernel& kernel) {
  return kernel.kind != KernelKind::kPartOfPrevious && kernel.kind != KernelKind::kSynchronize;
}

bool is_copy(const Kernel& kernel) {
  return kernel.kind == KernelKind::kCopyToDevice || kernel.kind == KernelKind::kCopyToHost;
}

bool is_pinned_copy(const Kernel& kernel) {
  const auto* copy = kernel.as<work::HostCopy>();
  return copy != nullptr && copy->pinned;
}

/// A foreach or fused step over a list of tensors: one kernel stands for its passes.
bool is_list(const Kernel& kernel) {
  return kernel.kind == KernelKind::kMultiTensor && kernel.launches == 1 && kernel.elements > 0;
}

/// How often the list is gone through: each pass is issued by itself, so the card starts with the first.
double list_passes(const Kernel& kernel) {
  return std::max(1.0, kernel.bytes / (kernel.elements * static_cast<double>(size_of(kernel.dtype))));
}

double host_work_microseconds(HostWork work, const HostRates& rates) {
  switch (work) {
    case HostWork::kTrainerStep: return rates.trainer_step_us;
    case HostWork::kTrainerBatch: return rates.trainer_batch_us;
    case HostWork::kTrainerTensor: return rates.trainer_tensor_us;
    case HostWork::kFsdp2Forward: return rates.fsdp2_forward_us;
    case HostWork::kFsdp2Backward: return rates.fsdp2_backward_us;
    case HostWork::kFsdp1Forward: return rates.fsdp1_forward_us;
    case HostWork::kFsdp1Backward: return rates.fsdp1_backward_us;
    case HostWork::kDistributedLinear: return rates.distributed_linear_us;
    case HostWork::kDistributedLinearBackward: return rates.distributed_linear_backward_us;
    case HostWork::kReducedTensor: return rates.reduced_tensor_us;
    case HostWork::kCheckpointForward: return rates.checkpoint_forward_us;
    case HostWork::kCheckpointBackward: return rates.checkpoint_backward_us;
    case HostWork::kPackedTensor: return rates.packed_tensor_us;
    case HostWork::kUnpackedTensor: return rates.unpacked_tensor_us;
    case HostWork::kOptimizerTensor: return rates.optimizer_tensor_us;
    case HostWork::kZeroedTensor: return rates.zeroed_tensor_us;
    case HostWork::kVmappedIndex: return rates.vmapped_index_us;
  }
  return 0;
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
    case KernelKind::kCopyToDevice:
    case KernelKind::kCopyToHost: return rates.copy_us;
    default: return rates.pointwise_us;
  }
}

/// Every layer has the same products, and each takes a search of tiles: those seen last are remembered.
class RepeatedProducts {
 public:
  /// Null for another kind of kernel, or one that is not remembered.
  [[nodiscard]] const double* find(const Kernel& kernel) const {
    const work::Product* product = remembered(kernel);
    if (product == nullptr) return nullptr;
    const Entry& entry = entries_[place_of(*product)];
    return entry.kernel != nullptr && is_same(*entry.kernel, kernel) ? &entry.seconds : nullptr;
  }
  void add(const Kernel& kernel, double seconds) {
    if (const work::Product* product = remembered(kernel)) entries_[place_of(*product)] = {&kernel, seconds};
  }

 private:
  struct Entry {
    const Kernel* kernel = nullptr;
    double seconds = 0;
  };
  static constexpr std::size_t kPlaces = 64;

  static const work::Product* remembered(const Kernel& kernel) {
    return kernel.kind == KernelKind::kMatrixProduct ? kernel.as<work::Product>() : nullptr;
  }
  static std::size_t place_of(const work::Product& p) {
    const std::uint64_t mixed = static_cast<std::uint64_t>(p.m) * 31 + static_cast<std::uint64_t>(p.n) * 1009 +
                                static_cast<std::uint64_t>(p.k) * 65537 + static_cast<std::uint64_t>(p.transposed);
    return (mixed * 0x9E3779B97F4A7C15U) >> 58U;
  }
  /// In all that kernel_seconds() asks of a product.
  static bool is_same(const Kernel& a, const Kernel& b) {
    return *a.as<work::Product>() == *b.as<work::Product>() && a.dtype == b.dtype && a.bytes == b.bytes;
  }

  std::array<Entry, kPlaces> entries_{};
};

std::string_view type_name(const Kernel& kernel) {
  return allows_tf32(kernel) && kernel.dtype == DType::kFloat32 ? "tf32" : name_of(kernel.dtype);
}

/// "8192 x 2048 x 5632 bf16", for people.
std::string shape_of(const Kernel& kernel) {
  std::string shape;
  const auto times = [&](std::int64_t size) { shape += (shape.empty() ? "" : " x ") + std::to_string(size); };
  if (const auto* product = kernel.as<work::Product>()) {
    if (product->batch > 1) times(product->batch);
    for (const std::int64_t size : {product->m, product->n, product->k}) times(size);
  } else if (const auto* attention = kernel.as<work::Attention>()) {
    for (const std::int64_t size : {attention->heads, attention->queries, attention->keys, attention->width}) {
      times(size);
    }
  } else if (const auto* convolution = kernel.as<work::Convolution>()) {
    if (convolution->groups > 1) times(convolution->groups);
    for (const std::int64_t size : {convolution->pixels, convolution->channels, convolution->depth}) times(size);
  } else {
    shape = std::to_string(static_cast<std::int64_t>(kernel.elements)) + " elements";
  }
  return shape + " " + std::string(type_name(kernel));
}

/// The ranks that wait for each other in a step.
std::int64_t ranks_of(const KernelList& kernels) {
  std::int64_t ranks = 1;
  for (const Kernel& kernel : kernels) {
    if (const auto* group = kernel.as<work::Communication>()) ranks = std::max(ranks, group->ranks);
  }
  return ranks;
}

}  // namespace

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

namespace {

/// The host, the card's streams and their clocks, in seconds since the first step began.
class Timeline {
 public:
  Timeline(const KernelList& kernels, const DeviceSpec& device, const DeviceRates& rates)
      : kernels_(kernels),
        device_(device),
        rates_(rates),
        slowest_(slowest_of(ranks_of(kernels), rates.host.rank_spread)) {
    seconds_.reserve(kernels.size());
    finished_.resize(kernels.size());
    queue_.resize(std::max<std::size_t>(static_cast<std::size_t>(rates.host.queue_kernels), 1), 0);
    RepeatedProducts products;
    const double gap = rates.host.gap_us * kMicrosecond;
    for (const Kernel& kernel : kernels) {
      if (const auto* communication = kernel.as<work::Communication>()) {
        seconds_.push_back(collective_seconds(*communication, device, rates.link));
      } else if (is_copy(kernel)) {
        seconds_.push_back(copy_seconds(kernel, rates.transfer));
      } else {
        const double* known = products.find(kernel);
        const double seconds = known != nullptr ? *known : kernel_seconds(kernel, device, rates);
        if (known == nullptr) products.add(kernel, seconds);
        seconds_.push_back(seconds + (runs_on_card(kernel) ? gap * kernel.launches : 0));
      }
    }
  }

  /// The steady step on a host: it begins from a standing start, where the card has nothing to do until the host has
  /// issued the first kernel, and the third is told.
  StepTime steady(const HostRates& host) {
    constexpr int kSteps = 3;
    host_rates_ = &host;
    std::fill(queue_.begin(), queue_.end(), 0);
    next_slot_ = 0;
    phase_ = Phase::kZero;
    host_ = compute_ = communication_ = 0;
    StepTime result;
    for (int i = 0; i < kSteps; ++i) step(result);
    return result;
  }

  /// Kernels of the compute stream that take most of a step, alike ones together.
  [[nodiscard]] std::vector<CostlyKernel> costliest(std::size_t count) const;

 private:
  /// Runs a step; `result` gets what happens in it.
  void step(StepTime& result) {
    const double begin = compute_;
    result = {};
    for (std::size_t i = 0; i < kernels_.size();) {
      const std::int64_t repeats = kernels_[i].repeats;
      std::size_t end = i;
      while (end < kernels_.size() && kernels_[end].repeats == repeats) ++end;
      // The first may live on the host's lead; those after it take as long as the second.
      for (std::int64_t left = repeats; left > 0;) {
        const std::int64_t alike = left == repeats ? 1 : left;
        group(i, end, static_cast<double>(alike), result);
        left -= alike;
      }
      i = end;
    }
    result.step_seconds = compute_ - begin;
  }
  void group(std::size_t begin, std::size_t end, double alike, StepTime& result);
  void issue(std::size_t i, StepTime& part);
  void communicate(std::size_t i, StepTime& part);
  void launch(double issuing, double seconds, const Kernel& kernel, StepTime& part);
  void advance(double until, TimeClass time_class, const Kernel& kernel, StepTime& part);
  static void add(const StepTime& part, double times, StepTime& result);

  const KernelList& kernels_;
  const DeviceSpec& device_;
  const DeviceRates& rates_;
  const HostRates* host_rates_ = &rates_.host;
  const double slowest_;          // the slowest rank's host: its seconds over those of an average one
  std::vector<double> seconds_;   // of each kernel
  std::vector<double> finished_;  // when each of this step did
  std::vector<double> queue_;     // when the kernels launched last will have finished, a ring
  std::size_t next_slot_ = 0;     // in it
  Phase phase_ = Phase::kZero;    // of the kernel issued last
  double host_ = 0;
  double compute_ = 0;        // when the compute stream is free
  double communication_ = 0;  // when the stream of collectives is
};

/// The kernels of a micro-batch, which stands for `alike` of them, one after the other.
void Timeline::group(std::size_t begin, std::size_t end, double alike, StepTime& result) {
  StepTime part;
  const double host_before = host_, compute_before = compute_;
  for (std::size_t i = begin; i < end; ++i) {
    issue(i, part);
    finished_[i] = compute_;
  }
  add(part, alike, result);
  // Those that were not executed take as long as the one that stands for them. A host that waits for room in the
  // queue goes as fast as the card does, though it caught up in the first of them.
  const double others = alike - 1;
  const double taken = compute_ - compute_before;
  host_ += others * std::min(host_ - host_before, taken);
  compute_ += others * taken;
  communication_ += others * taken;
}

void Timeline::advance(double until, TimeClass time_class, const Kernel& kernel, StepTime& part) {
  const double seconds = until - compute_;
  if (seconds <= 0) return;
  part.by_class[static_cast<std::size_t>(time_class)] += seconds;
  const bool forward = kernel.phase == Phase::kForward || kernel.phase == Phase::kDecode;  // what a step generates, too
  (forward                            ? part.forward_seconds
   : kernel.phase == Phase::kBackward ? part.backward_seconds
                                      : part.optimizer_seconds) += seconds;
  compute_ = until;
}

void Timeline::issue(std::size_t i, StepTime& part) {
  const Kernel& kernel = kernels_[i];
  double issuing = host_seconds(kernel, *host_rates_);
  if (kernel.phase != phase_ && kernel.phase == Phase::kForward) issuing += host_rates_->forward_us * kMicrosecond;
  if (kernel.phase != phase_ && kernel.phase == Phase::kBackward) issuing += host_rates_->backward_us * kMicrosecond;
  phase_ = kernel.phase;
  issuing *= slowest_;
  part.host_seconds += issuing;
  const bool launches_kernels = runs_on_card(kernel) && !kernel.communicates();
  if (!launches_kernels) host_ += issuing;
  if (const auto* wait = kernel.as<work::Wait>()) {
    host_ = std::max(host_, wait->kernels > 0 ? finished_[static_cast<std::size_t>(wait->kernels - 1)] : compute_);
  }
  if (kernel.communicates()) return communicate(i, part);
  if (!launches_kernels) return;
  if (kernel.phase == Phase::kOptimizer) advance(communication_, TimeClass::kCommunication, kernel, part);
  part.kernels += kernel.launches;
  if (kernel.stream != CudaStream::kDefault) {  // FSDP's copies beside the compute stream
    host_ += issuing;
    communication_ = std::max(communication_, host_) + seconds_[i];
    return;
  }
  part.kernel_seconds += seconds_[i];
  if (uses_tensor_cores(kernel, device_)) part.tensor_core_seconds += seconds_[i];
  const double launches = kernel.launches;
  const double first = is_list(kernel) ? issuing / list_passes(kernel) : issuing;
  for (std::int32_t n = 0; n < kernel.launches; ++n) launch(first / launches, seconds_[i] / launches, kernel, part);
  host_ += issuing - first;
  if (is_copy(kernel) && !is_pinned_copy(kernel))
    host_ = std::max(host_, compute_);  // of pageable memory the driver waits
}

// The queue holds so many launches; the host waits for room. A kernel is slower while a collective runs beside it.
void Timeline::launch(double issuing, double seconds, const Kernel& kernel, StepTime& part) {
  double& slot = queue_[next_slot_];
  if (++next_slot_ == queue_.size()) next_slot_ = 0;
  host_ = std::max(host_ + issuing, slot);
  advance(host_ + host_rates_->launch_latency_us * kMicrosecond, TimeClass::kHost, kernel, part);
  const double longer = kernel.operator_class == OperatorClass::kContraction ? rates_.link.product_contention
                                                                             : rates_.link.memory_contention;
  const double beside = std::clamp((communication_ - compute_) / (1 + longer), 0.0, seconds);
  advance(compute_ + seconds, static_cast<TimeClass>(kernel.operator_class), kernel, part);
  advance(compute_ + beside * longer, TimeClass::kCommunication, kernel, part);
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

std::vector<CostlyKernel> Timeline::costliest(std::size_t count) const {
  // Alike: of one operator, with the same bytes and FLOPs.
  struct Alike {
    const Kernel* kernel;
    double seconds;
    std::int64_t calls;
  };
  std::vector<Alike> found;
  constexpr std::size_t kPlaces = 1024;
  std::array<std::int32_t, kPlaces> places{};  // one more than the place in `found`
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    const Kernel& kernel = kernels_[i];
    if (!runs_on_card(kernel) || kernel.communicates() || kernel.stream != CudaStream::kDefault) continue;
    const std::uint64_t mixed = (reinterpret_cast<std::uintptr_t>(kernel.op) >> 3U) * 31 +
                                bits_of(kernel.bytes) * 1009 + bits_of(kernel.flops) * 65537;
    const auto repeats = static_cast<double>(kernel.repeats);
    for (std::size_t place = (mixed * 0x9E3779B97F4A7C15U) >> 54U;; place = (place + 1) % kPlaces) {
      if (places[place] == 0) {
        if (found.size() < kPlaces / 2) {
          found.push_back({&kernel, repeats * seconds_[i], kernel.repeats});
          places[place] = static_cast<std::int32_t>(found.size());
        }
        break;
      }
      Alike& other = found[static_cast<std::size_t>(places[place] - 1)];
      if (other.kernel->op != kernel.op || other.kernel->bytes != kernel.bytes || other.kernel->flops != kernel.flops) {
        continue;
      }
      other.seconds += repeats * seconds_[i];
      other.calls += kernel.repeats;
      break;
    }
  }
  const std::size_t shown = std::min(count, found.size());
  // Times that differ by rounding alone, as between two compilers, stay in the order of the step.
  const auto slower = [](const Alike& a, const Alike& b) {
    constexpr double kPicoseconds = 1e12;
    const std::int64_t first = std::llround(a.seconds * kPicoseconds), second = std::llround(b.seconds * kPicoseconds);
    return first != second ? first > second : a.kernel < b.kernel;
  };
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(shown), found.end(), slower);
  std::vector<CostlyKernel> costliest;
  for (std::size_t i = 0; i < shown; ++i) {
    const Kernel& kernel = *found[i].kernel;
    const auto calls = static_cast<double>(found[i].calls);
    const bool computes = kernel.operator_class == OperatorClass::kContraction;
    costliest.push_back({.name = std::string(kernel.op->name),
                         .shape = shape_of(kernel),
                         .seconds = found[i].seconds,
                         .calls = found[i].calls,
                         .flops = computes ? calls * kernel.flops : 0,
                         .bytes = calls * kernel.bytes,
                         .possible_flops_per_second = computes ? peak_flops(kernel, device_) : 0,
                         .possible_bytes_per_second = device_.memory_bandwidth_bytes_per_second});
  }
  return costliest;
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

// Hosts differ by 1.4 and more (docs/time.md): where this one needs nearly as long as the card, another decides.
bool StepTime::host_bound() const {
  return by_class[static_cast<std::size_t>(TimeClass::kHost)] > 0.05 * step_seconds ||
         host_seconds > 0.8 * step_seconds;
}

// What the card waits for most, from a twentieth of the step on; a card that hardly waits is itself what decides.
Bound StepTime::bound() const {
  const auto share = [&](TimeClass of) { return by_class[static_cast<std::size_t>(of)] / step_seconds; };
  const double host = share(TimeClass::kHost), links = share(TimeClass::kCommunication);
  const double data = share(TimeClass::kInput);
  constexpr double kCounts = 0.05;
  if (data > kCounts && data >= host && data >= links) return Bound::kData;
  if (links > kCounts && links >= host) return Bound::kLinks;
  return host_bound() ? Bound::kHost : Bound::kCard;
}

std::string_view name_of(Bound bound) {
  constexpr std::array<std::string_view, 4> names = {"card", "host", "links", "data"};
  return names.at(static_cast<std::size_t>(bound));
}

double host_seconds(const Kernel& kernel, const HostRates& rates) {
  if (is_of_compiled_code(kernel)) {
    if (kernel.op == &kCompiledCall) {
      return (rates.compiled_call_us + kernel.elements * rates.compiled_tensor_us) * kMicrosecond;
    }
    return kernel.kind == KernelKind::kPartOfPrevious ? 0 : kernel.launches * rates.compiled_us * kMicrosecond;
  }
  const auto* list = kernel.as<work::TensorList>();
  const bool of_dtensors = list != nullptr && list->of_dtensors;
  const double call = kernel.communicates()                ? rates.collective_us
                      : of_dtensors && kernel.launches > 1 ? rates.sharded_operator_us
                                                           : host_microseconds(kernel.kind, rates);
  double microseconds = kernel.launches * call + kernel.views * rates.view_us;
  if (const auto* work = kernel.as<work::OfHost>()) {
    microseconds += static_cast<double>(work->times) * host_work_microseconds(work->what, rates);
  }
  if (kernel.phase == Phase::kBackward) microseconds += kernel.nodes * rates.node_us;
  // Forward, and checkpointing's second forward, are the model's Python; backward is autograd's C++, as is what
  // autocast converts and the steps of a recurrent network within one call.
  const bool cast = is_of_autocast(kernel), step = kernel.op == &aten::kCudnnRnn;
  const bool python = (kernel.phase == Phase::kForward || kernel.recomputed) && !cast && !step;
  // Of BERT's 320 conversions, each 10.9 us where an element-wise operator takes 7.8 (host_times_h200.jsonl).
  constexpr double kCastShare = 1.4;
  if (cast) microseconds *= kCastShare;
  if (python && kernel.kind != KernelKind::kPartOfPrevious) microseconds += rates.python_us;
  if (is_list(kernel)) {
    const double per_pass = of_dtensors ? rates.sharded_tensor_us : rates.tensor_us;
    const auto tensors = static_cast<double>(list != nullptr ? list->tensors : 0);
    microseconds += tensors * list_passes(kernel) * per_pass;
  }
  return microseconds * kMicrosecond;
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
    const double flops = kernel.flops * static_cast<double>(kernel.repeats);
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

}  // namespace

StepTime cost(const KernelList& kernels, const DeviceSpec& device, const DeviceRates& rates) {
  StepTime result;
  if (kernels.empty()) return result;
  constexpr std::size_t kShown = 10;  // kernels
  Timeline timeline(kernels, device, rates);
  result = timeline.steady(rates.host);
  result.host = rates.host_name;
  for (const MeasuredHost& host : rates.hosts) {
    // A card that never waits takes as long with any host.
    const bool waits = result.bound() == Bound::kHost || result.host_seconds > 0.5 * result.step_seconds;
    const double seconds = waits ? timeline.steady(host.rates).step_seconds : result.step_seconds;
    HostRange& range = result.hosts;
    if (range.least_host.empty() || seconds < range.least_seconds) {
      range.least_seconds = seconds;
      range.least_host = host.name;
    }
    if (range.most_host.empty() || seconds > range.most_seconds) {
      range.most_seconds = seconds;
      range.most_host = host.name;
    }
  }
  result.costliest = timeline.costliest(kShown);
  count_flops(kernels, device, result);
  return result;
}

}  // namespace memcalc
