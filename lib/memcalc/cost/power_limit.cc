// A card that would draw more than its limit lowers its clock until it draws the limit in the mean of what it did
// lately; what tensor cores draw goes with the square of their clock (docs/time.md). What they take t for at the full
// clock takes x t, and o and i are the seconds of other kernels and of none:
// products t / x + others o + idle i = x t + o + i.
#include "memcalc/cost/power_limit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "memcalc/cost/collective.h"
#include "memcalc/cost/host_time.h"
#include "memcalc/cost/kernel_time.h"

namespace memcalc {

namespace {

// How far back the limit looks. A stage of a pipeline on an H200 (layers of Qwen2.5-7B, timeline of 2026-11-30) takes
// four micro-batches of 37 ms behind 47 ms of an optimizer and of waiting: its products take 1.00, 1.02, 1.05 and 1.09
// times what they take at first, where 1.10 is what that mixture ends at (docs/studies/time.md).
constexpr double kLooksBack = 0.040;  // seconds

// Float16 multiplies 11 bits where bfloat16 multiplies 8. Loops of 0.8 s on an H200 (operator_draws_h200.jsonl.gz,
// 2026-11-30): products 683 and 665 TFLOP/s, half of the time beside additions 787 and 757, convolutions 682 and 641,
// attention 580 and 555, which asks for 1.06, 1.07, 1.13 and 1.09 times the power.
constexpr double kFloat16Power = 1.08;

/// Of a kernel on tensor cores the seconds in which they are as busy as they can be; causal attention computes half of
/// what its FLOPs say.
double busiest_seconds(const Kernel& kernel, double seconds, const DeviceSpec& device, const PowerRates& power) {
  if (!uses_tensor_cores(kernel, device)) return 0;
  const auto* attention = kernel.as<work::Attention>();
  const double flops = kernel.flops * (attention != nullptr && attention->causal ? 0.5 : 1);
  return std::min(seconds, flops / (power.best * peak_flops(kernel, device)));
}

bool is_product(const Kernel& kernel) {
  return kernel.kind == KernelKind::kMatrixProduct || kernel.kind == KernelKind::kGroupedProduct;
}

/// And draws power by itself: it runs in the compute stream's turn.
bool fills_card(const Kernel& kernel) {
  return kernel.stream == CudaStream::kDefault && !(kernel.communicates() && runs_beside(kernel));
}

// What a lower clock makes longer beside products: what multiprocessors bound, not the memory. Of the same kernels in
// the first step after an idle card and in the third (LLaMA's layers on an H200, whose clock was 1,650 to 1,750 MHz
// then instead of 1,980; tests/measured/two_cards_timelines_h200.jsonl.gz, 2026-11-30): attention's 1.04 and 1.08
// times, index calculations 1.05, conversions 1.03, a Linear's products 1.03 to 1.06; element-wise kernels, sums and
// softmax as before.
// Rates of attention but cuDNN's for Hopper are of loops at the limit where those of products are (full_clock).
bool goes_with_clock(const Kernel& kernel) {
  return kernel.kind == KernelKind::kStrided || kernel.kind == KernelKind::kConverting;
}

/// What a card did lately, each part weighing the less the longer ago it was.
class RecentPower {
 public:
  /// `idle`: seconds of a host that issues too slowly, to each of a kernel.
  RecentPower(const PowerRates& power, double idle) : power_(power), idle_(idle) {}

  void add(double seconds, double of_products, double drawn) {
    const double idle = seconds * idle_;
    add(seconds + idle, of_products, drawn, (1 - power_.others) * (seconds - of_products) + (1 - power_.idle) * idle);
  }
  void pause(double seconds) { add(seconds, 0, 0, (1 - power_.idle) * seconds); }

  /// How many times as long as at the full clock products take now.
  [[nodiscard]] double longer() const {
    if (drawn_ <= products_ + saved_) return 1;
    return (std::sqrt(saved_ * saved_ + 4 * drawn_ * products_) - saved_) / (2 * products_);
  }

 private:
  void add(double seconds, double products, double drawn, double saved) {
    const double kept = kLooksBack / (kLooksBack + seconds);
    products_ = kept * (products_ + products);
    drawn_ = kept * (drawn_ + drawn);
    saved_ = kept * (saved_ + saved);
  }

  const PowerRates& power_;
  double idle_;
  double products_ = 0, drawn_ = 0, saved_ = 0;  // seconds
};

/// A step again and again, of which the second is told.
class Step {
 public:
  Step(const KernelList& kernels, const std::vector<double>& seconds, const std::vector<double>& of_products,
       const PowerRates& power)
      : kernels_(kernels), seconds_(seconds), of_products_(of_products), power_(power) {}

  /// How many times as long each kernel's products take, whose card waits for a host and for other stages.
  [[nodiscard]] std::vector<double> longer(double idle, double pause) const {
    RecentPower recent(power_, idle);
    std::vector<double> longer(kernels_.size());
    for (int step = 0; step < 2; ++step) {
      if (pause > 0) recent.pause(pause);
      for (std::size_t begin = 0, end = 0; begin < kernels_.size(); begin = end) {
        while (end < kernels_.size() && kernels_[end].repeats == kernels_[begin].repeats) ++end;
        micro_batches(begin, end, recent, longer);
      }
    }
    return longer;
  }

 private:
  // Those after some stand behind one another as one.
  void micro_batches(std::size_t begin, std::size_t end, RecentPower& recent, std::vector<double>& longer) const {
    constexpr std::int64_t kByThemselves = 4;
    std::fill(longer.begin() + static_cast<std::ptrdiff_t>(begin), longer.begin() + static_cast<std::ptrdiff_t>(end), 0);
    const std::int64_t repeats = kernels_[begin].repeats;
    for (std::int64_t done = 0; done < repeats;) {
      const std::int64_t alike = done < kByThemselves ? 1 : repeats - done;
      const auto times = static_cast<double>(alike), share = times / static_cast<double>(repeats);
      for (std::size_t i = begin; i < end; ++i) {
        const Kernel& kernel = kernels_[i];
        if (!fills_card(kernel)) continue;
        const double power = power_.products * (kernel.dtype == DType::kFloat16 ? kFloat16Power : 1);
        recent.add(times * seconds_[i], times * of_products_[i], times * of_products_[i] * power);
        longer[i] += share * recent.longer();
      }
      done += alike;
    }
  }

  const KernelList& kernels_;
  const std::vector<double>& seconds_;
  const std::vector<double>& of_products_;  // seconds of each kernel at the full clock
  const PowerRates& power_;
};

}  // namespace

void lower_clock(const KernelList& kernels, const DeviceSpec& device, const DeviceRates& rates, double waiting,
                 std::vector<double>& seconds) {
  const PowerRates& power = rates.power;
  if (power.products <= 1) return;
  double products = 0, busy = 0, host = 0;
  std::vector<double> of_products(kernels.size());
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const Kernel& kernel = kernels[i];
    const auto times = static_cast<double>(kernel.repeats);
    host += times * host_seconds(kernel, rates.host);
    if (!fills_card(kernel)) continue;
    of_products[i] = busiest_seconds(kernel, seconds[i], device, power);
    if (of_products[i] > 0 && is_product(kernel)) {
      const double at_full_clock = of_products[i] / power.full_clock;
      seconds[i] -= of_products[i] - at_full_clock;
      of_products[i] = at_full_clock;
    }
    products += times * of_products[i];
    busy += times * seconds[i];
  }
  if (products <= 0) return;
  const double idle = std::max(host / busy - 1, 0.0);
  const std::vector<double> longer =
      Step(kernels, seconds, of_products, power).longer(idle, std::max(waiting - idle, 0.0) * busy);
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (longer[i] <= 1) continue;
    if (kernels[i].as<work::Attention>() != nullptr) {
      seconds[i] *= has_hopper_attention(kernels[i], device) ? longer[i] : longer[i] / power.full_clock;
    } else {
      seconds[i] += (longer[i] - 1) * (goes_with_clock(kernels[i]) ? seconds[i] : of_products[i]);
    }
  }
}

}  // namespace memcalc
