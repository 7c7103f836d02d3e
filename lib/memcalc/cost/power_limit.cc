// A card that would draw more than its limit lowers its clock until it draws the limit in the mean of what it did
// lately; what tensor cores draw goes with the square of their clock (docs/time.md). What they take t for at the full
// clock takes x t, and o and i are the seconds of other kernels and of none:
// products t / x + others o + idle i = x t + o + i.
#include "memcalc/cost/power_limit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "memcalc/cost/collective.h"
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

/// Of some time, in seconds: what tensor cores take for their part of it at the full clock, that times the power which
/// they would draw, and what other kernels and pauses save of the limit.
struct Activity {
  double seconds = 0, products = 0, drawn = 0, saved = 0;

  /// Adds another; what was before weighs `share`, and so does the other one.
  void add(const Activity& other, double share = 1) {
    seconds = share * (seconds + other.seconds);
    products = share * (products + other.products);
    drawn = share * (drawn + other.drawn);
    saved = share * (saved + other.saved);
  }
  /// How many times as long as at the full clock products take in it.
  [[nodiscard]] double longer() const {
    if (drawn <= products + saved) return 1;
    return (std::sqrt(saved * saved + 4 * drawn * products) - saved) / (2 * products);
  }
};

Activity times(double count, const Activity& of) {
  return {count * of.seconds, count * of.products, count * of.drawn, count * of.saved};
}

Activity pause(double seconds, const PowerRates& power) {
  return {.seconds = seconds, .saved = (1 - power.idle) * seconds};
}

/// Of a kernel, `idle` times as long as which the card waits for a host that issues too slowly.
Activity activity_of(const Kernel& kernel, double seconds, double of_products, double idle, const PowerRates& power) {
  const double draws = power.products * (kernel.dtype == DType::kFloat16 ? kFloat16Power : 1);
  Activity activity{.seconds = seconds,
                    .products = of_products,
                    .drawn = draws * of_products,
                    .saved = (1 - power.others) * (seconds - of_products)};
  activity.add(pause(seconds * idle, power));
  return activity;
}

/// What the kernels of a step do, each distinct one told once.
struct Activities {
  const DistinctKernels& kernels;
  std::vector<Activity> of_distinct;

  [[nodiscard]] const Activity& of(std::size_t i) const { return of_distinct[kernels.number_of(i)]; }
};

/// The micro-batch that kernels from one number to another stand for, `repeats` times one after the other.
void lengthen(const Activities& activities, std::size_t begin, std::size_t end, Activity& recent,
              std::vector<double>& longer) {
  constexpr std::int64_t kByThemselves = 4;  // those after them stand behind one another as one
  const std::int64_t repeats = activities.kernels.kernels()[begin].repeats;
  for (std::int64_t done = 0; done < repeats;) {
    const std::int64_t alike = done < kByThemselves ? 1 : repeats - done;
    const auto count = static_cast<double>(alike);
    for (std::size_t i = begin; i < end; ++i) {
      if (activities.of(i).seconds <= 0) continue;
      if (done == 0) longer[i] = 0;
      const Activity activity = times(count, activities.of(i));
      recent.add(activity, kLooksBack / (kLooksBack + activity.seconds));
      longer[i] += count / static_cast<double>(repeats) * recent.longer();
    }
    done += alike;
  }
}

/// How many times as long the products of each kernel take in a step that comes again and again. `waits`: before it.
std::vector<double> longer_each(const Activities& activities, const Activity& waits) {
  const KernelList& kernels = activities.kernels.kernels();
  Activity all = waits;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    all.add(times(static_cast<double>(kernels[i].repeats), activities.of(i)));
  }
  Activity recent = times(kLooksBack / all.seconds, all);
  std::vector<double> longer(kernels.size(), 1);
  for (int step = 0; step < 2; ++step) {  // the second comes after one
    recent.add(waits, kLooksBack / (kLooksBack + waits.seconds));
    for (std::size_t begin = 0, end = 0; begin < kernels.size(); begin = end) {
      while (end < kernels.size() && kernels[end].repeats == kernels[begin].repeats) ++end;
      lengthen(activities, begin, end, recent, longer);
    }
  }
  return longer;
}

}  // namespace

void lower_clock(const DistinctKernels& kernels, const DeviceSpec& device, const DeviceRates& rates,
                 IssueTimes& issuing, double waiting, std::vector<double>& seconds) {
  const PowerRates& power = rates.power;
  if (power.products <= 1) return;
  const KernelList& list = kernels.kernels();
  std::vector<double> at_full_clock = kernels.of_distinct(
      [&](const Kernel& kernel) { return seconds[static_cast<std::size_t>(&kernel - list.data())]; });
  std::vector<double> of_products;
  for (std::size_t n = 0; n < at_full_clock.size(); ++n) {
    const Kernel& kernel = *kernels.distinct()[n];
    of_products.push_back(fills_card(kernel) ? busiest_seconds(kernel, at_full_clock[n], device, power) : 0);
    if (of_products.back() <= 0 || !is_product(kernel)) continue;
    const double busiest = std::exchange(of_products.back(), of_products.back() / power.full_clock);
    at_full_clock[n] -= busiest - of_products.back();
  }
  double products = 0, busy = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::size_t number = kernels.number_of(i);
    seconds[i] = at_full_clock[number];
    if (!fills_card(list[i])) continue;
    const auto repeats = static_cast<double>(list[i].repeats);
    products += repeats * of_products[number];
    busy += repeats * seconds[i];
  }
  if (products <= 0) return;
  const std::vector<double>& issued_in = issuing.of(rates.host);
  double host = 0;
  for (std::size_t i = 0; i < list.size(); ++i) host += static_cast<double>(list[i].repeats) * issued_in[i];
  const double idle = std::max(host / busy - 1, 0.0);
  Activities activities{.kernels = kernels, .of_distinct = {}};
  for (std::size_t n = 0; n < at_full_clock.size(); ++n) {
    const Kernel& kernel = *kernels.distinct()[n];
    activities.of_distinct.push_back(
        fills_card(kernel) ? activity_of(kernel, at_full_clock[n], of_products[n], idle, power) : Activity());
  }
  const std::vector<double> longer = longer_each(activities, pause(std::max(waiting - idle, 0.0) * busy, power));
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (longer[i] <= 1) continue;
    if (list[i].as<work::Attention>() != nullptr) {
      seconds[i] *= has_hopper_attention(list[i], device) ? longer[i] : longer[i] / power.full_clock;
    } else {
      seconds[i] += (longer[i] - 1) * (goes_with_clock(list[i]) ? seconds[i] : of_products[kernels.number_of(i)]);
    }
  }
}

}  // namespace memcalc
