#include "memcalc/cost/costliest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/timeline.h"

namespace memcalc {

namespace {

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

/// Of one operator, with the same bytes and FLOPs.
struct Alike {
  const Kernel* kernel;
  double seconds = 0;
  double calls = 0;
};

/// Those that a step has, in its order, and for each distinct kernel which of them it is.
class AlikeKernels {
 public:
  /// Which of found() the kernel is; kNone of one that is not of the compute stream, or where too many were found.
  std::int32_t number_of(const Kernel& kernel) {
    if (!runs_on_card(kernel) || kernel.communicates() || kernel.stream != CudaStream::kDefault) return kNone;
    const std::uint64_t mixed = (reinterpret_cast<std::uintptr_t>(kernel.op) >> 3U) * 31 +
                                bits_of(kernel.bytes) * 1009 + bits_of(kernel.flops) * 65537;
    for (std::size_t place = (mixed * 0x9E3779B97F4A7C15U) >> 54U;; place = (place + 1) % kPlaces) {
      if (places_[place] == 0) {
        if (found_.size() >= kPlaces / 2) return kNone;
        found_.push_back({&kernel});
        places_[place] = static_cast<std::int32_t>(found_.size());
      }
      const Kernel& other = *found_[static_cast<std::size_t>(places_[place] - 1)].kernel;
      if (other.op == kernel.op && other.bytes == kernel.bytes && other.flops == kernel.flops)
        return places_[place] - 1;
    }
  }
  [[nodiscard]] std::vector<Alike>& found() { return found_; }

  static constexpr std::int32_t kNone = -1;

 private:
  static constexpr std::size_t kPlaces = 1024;
  std::vector<Alike> found_;
  std::array<std::int32_t, kPlaces> places_{};  // one more than the place in `found`
};

}  // namespace

std::vector<CostlyKernel> costliest_of(const DistinctKernels& kernels, const std::vector<double>& seconds,
                                       const DeviceSpec& device, std::size_t count) {
  AlikeKernels alike;
  std::vector<Alike>& found = alike.found();
  const std::vector<std::int32_t> numbers =
      kernels.of_distinct([&](const Kernel& kernel) { return alike.number_of(kernel); });
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const std::int32_t number = numbers[kernels.number_of(i)];
    if (number == AlikeKernels::kNone) continue;
    const Kernel& kernel = kernels.kernels()[i];
    const double repeats = static_cast<double>(kernel.repeats) * kernel.share;
    found[static_cast<std::size_t>(number)].seconds += repeats * seconds[i];
    found[static_cast<std::size_t>(number)].calls += repeats;
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
    const double calls = found[i].calls;
    const bool computes = kernel.operator_class == OperatorClass::kContraction;
    costliest.push_back({.name = std::string(kernel.op->name),
                         .shape = shape_of(kernel),
                         .seconds = found[i].seconds,
                         .calls = std::max<std::int64_t>(1, std::llround(calls)),
                         .flops = computes ? calls * kernel.flops : 0,
                         .bytes = calls * kernel.bytes,
                         .possible_flops_per_second = computes ? peak_flops(kernel, device) : 0,
                         .possible_bytes_per_second = device.memory_bandwidth_bytes_per_second});
  }
  return costliest;
}

}  // namespace memcalc
