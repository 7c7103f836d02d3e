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
#include "memcalc/cost/kernel_time.h"

namespace memcalc {

namespace {

// How far back the limit looks. A stage of a pipeline on an H200 (layers of Qwen2.5-7B, two_cards_timelines_h200) takes
// four micro-batches of 37 ms behind 47 ms of an optimizer and of waiting: its products take 1.00, 1.02, 1.05 and 1.09
// times what they take at first, where 1.10 is what that mixture ends at (docs/studies/time-several-cards.md).
constexpr double kLooksBack = 0.040;  // seconds

// Float16 multiplies 11 bits where bfloat16 multiplies 8. Loops of 0.8 s on an H200 (operator_draws_h200.jsonl.gz,
// 2026-11-30): products 683 and 665 TFLOP/s, half of the time beside additions 787 and 757, convolutions 682 and 641,
// attention 580 and 555, which asks for 1.06, 1.07, 1.13 and 1.09 times the power.
constexpr double kFloat16Power = 1.08;

// What NVLinks of 450 GB/s draw that were used lately, of 700 W. Products of 8,192 in a loop on two H200s
// (two_cards_power_h200.jsonl.gz, 2026-11-30) take 1.9 and 1.1 % longer where 16 bytes are summed every 5 ms, 2.2 and
// 3.0 with 1 MiB, 2.0 and 1.4 with 16; 1.8 and 1.2 with 1 MiB every 20 ms, 1.7 and 1.0 with 64: 1.73 % of time, which
// is 3.4 % of the power. 256 MiB every 20 ms cost 0.3 and 0.2 %, and are left out: the card waits for them and rests.
// The loops without collectives differ by 2.1 and 2.2 % among themselves, so that the figure is no better than half.
// 0.45 s behind a barrier the links draw it no more. In between it was not measured: that they are awake for 20 ms, the
// longest pause of these loops, is an assumption.
constexpr double kLinksPower = 0.034, kLinkRate = 450e9, kLinksAwake = 0.020;  // seconds

// What a collective draws beyond that and beyond a card that waits, where it moves what such links carry. Loops of
// all-reduces, gathers and reduce-scatters of 256 MiB on two H200s (collective_power_h200.jsonl, 2026-11-30): 269 to
// 284 W on one card and 250 to 256 on the other, whichever it is; 124 and 122 without. Of others it was not measured.
// What kernels take longer beside it is told apart (LinkRates) and taken to save nothing.
constexpr double kCollectivePower = 0.2 - kLinksPower;

// What a card draws in one with nothing beside it, without what is told of its links: the same loops.
constexpr double kAlonePower = 0.38 - kLinksPower;

/// The same of a card of the same die that may draw less or more: what other kernels draw is at most its limit, which
/// is an assumption below 0.77 of 700 W.
PowerRates at_limit_of(const DeviceSpec& device, const PowerRates& power) {
  const double times = power.watts > 0 && device.power_watts > 0 ? power.watts / device.power_watts : 1;
  return {.products = power.products * times,
          .best = power.best,
          .others = std::min(1.0, power.others * times),
          .idle = std::min(1.0, power.idle * times),
          .full_clock = power.full_clock};
}

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
bool fills_card(const Kernel& kernel) { return kernel.stream == CudaStream::kDefault; }

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

  void add(const Activity& other) {
    seconds += other.seconds;
    products += other.products;
    drawn += other.drawn;
    saved += other.saved;
  }
  /// The same by the mean that forgets.
  void add_lately(const Activity& other) {
    const double kept = kLooksBack / (kLooksBack + other.seconds);
    add(other);
    for (double* const each : {&seconds, &products, &drawn, &saved}) *each *= kept;
  }
  /// How many times as long as at the full clock products take in it.
  [[nodiscard]] double longer() const {
    if (products <= 0 || drawn <= products + saved) return 1;
    return (std::sqrt(saved * saved + 4 * drawn * products) - saved) / (2 * products);
  }
};

Activity times(double count, const Activity& of) {
  return {count * of.seconds, count * of.products, count * of.drawn, count * of.saved};
}

Activity pause(double seconds, const PowerRates& power) {
  return {.seconds = seconds, .saved = (1 - power.idle) * seconds};
}

Activity activity_of(const Kernel& kernel, double seconds, double of_products, const PowerRates& power) {
  const double draws = power.products * (kernel.dtype == DType::kFloat16 ? kFloat16Power : 1);
  return {.seconds = seconds,
          .products = of_products,
          .drawn = draws * of_products,
          .saved = (1 - power.others) * (seconds - of_products)};
}

/// Kernels one after the other, short beside what the limit looks back over.
struct Stretch {
  std::size_t end = 0;  // the number of the first kernel behind it
  std::int64_t repeats = 1;
  Activity activity;
  double longer = 1;
};
constexpr double kStretch = kLooksBack / 80;

/// The micro-batch of stretches from one number to another, all of which are repeated as often.
void lengthen(std::vector<Stretch>& stretches, std::size_t begin, std::size_t end, double idle, const PowerRates& power,
              Activity& recent) {
  constexpr std::int64_t kByThemselves = 4;  // those after them stand behind one another as one
  const std::int64_t repeats = stretches[begin].repeats;
  for (std::int64_t done = 0; done < repeats;) {
    const std::int64_t alike = done < kByThemselves ? 1 : repeats - done;
    const auto count = static_cast<double>(alike);
    for (std::size_t i = begin; i < end; ++i) {
      Stretch& stretch = stretches[i];
      Activity activity = times(count, stretch.activity);
      activity.add(pause(activity.seconds * idle, power));
      recent.add_lately(activity);
      if (done == 0) stretch.longer = 0;
      stretch.longer += count / static_cast<double>(repeats) * recent.longer();
    }
    done += alike;
  }
}

/// How many times as long the products of each stretch take in a step that comes again and again; whether any take
/// longer. `idle`: what the card waits for its host, over what it computes; `waits`: before each step.
bool lengthen_all(std::vector<Stretch>& stretches, double idle, const Activity& waits, const PowerRates& power) {
  Activity all = waits;
  for (const Stretch& each : stretches) {
    Activity activity = times(static_cast<double>(each.repeats), each.activity);
    activity.add(pause(activity.seconds * idle, power));
    all.add(activity);
  }
  Activity recent = times(kLooksBack / all.seconds, all);
  for (int step = 0; step < 2; ++step) {  // the second comes after one
    recent.add_lately(waits);
    for (std::size_t begin = 0, end = 0; begin < stretches.size(); begin = end) {
      while (end < stretches.size() && stretches[end].repeats == stretches[begin].repeats) ++end;
      lengthen(stretches, begin, end, idle, power, recent);
    }
  }
  return std::any_of(stretches.begin(), stretches.end(), [](const Stretch& each) { return each.longer > 1; });
}

double issuing_seconds(const KernelList& kernels, const std::vector<double>& issued_in) {
  double seconds = 0;
  for (std::size_t i = 0; i < kernels.size(); ++i) seconds += static_cast<double>(kernels[i].repeats) * issued_in[i];
  return seconds;
}

/// Of a collective beside kernels, beyond what these and pauses draw: a power that goes with what it moves. So over a
/// network it draws as much as long as the links within a host would be busy.
Activity beside_kernels(const Kernel& kernel, double seconds, const DeviceSpec& device, const LinkRates& links,
                        double of_limit) {
  const auto* group = kernel.as<work::Communication>();
  if (group == nullptr) return {};
  work::Communication within_host = *group;
  within_host.distance = 1;
  LinkRates of_host = links;
  of_host.gpus_per_host = group->ranks;
  const double busy = std::min(seconds, collective_seconds(within_host, device, of_host));
  const double power = kCollectivePower * std::min(1.0, device.link_bytes_per_second / kLinkRate);
  return {.saved = -power * of_limit * busy};
}

/// A kernel at the full clock: its seconds, and those of its products.
struct AtFullClock {
  double seconds = 0, of_products = 0;
  Activity activity;
};

/// `of_limit`: 700 W over the card's limit.
AtFullClock at_full_clock(const Kernel& kernel, double seconds, const DeviceSpec& device, const LinkRates& links,
                          const PowerRates& power, double of_limit) {
  if (!fills_card(kernel)) {
    return {.seconds = seconds, .activity = beside_kernels(kernel, seconds, device, links, of_limit)};
  }
  if (kernel.communicates()) {
    return {.seconds = seconds, .activity = {.seconds = seconds, .saved = (1 - kAlonePower * of_limit) * seconds}};
  }
  AtFullClock result{.seconds = seconds, .of_products = busiest_seconds(kernel, seconds, device, power)};
  if (result.of_products > 0 && is_product(kernel)) {
    const double at_full_clock = result.of_products / power.full_clock;
    result.seconds -= result.of_products - at_full_clock;
    result.of_products = at_full_clock;
  }
  result.activity = activity_of(kernel, result.seconds, result.of_products, power);
  return result;
}

}  // namespace

bool has_power_limit(const DeviceSpec& device, const PowerRates& power) {
  return at_limit_of(device, power).products > 1;
}

void lower_clock(const DistinctKernels& distinct, const DeviceSpec& device, const DeviceRates& rates,
                 IssueTimes& issuing, const std::vector<double>& waits, double waiting, std::vector<double>& seconds) {
  const PowerRates power = at_limit_of(device, rates.power);
  const double of_limit = power.products / rates.power.products;
  const KernelList& kernels = distinct.kernels();
  const std::vector<AtFullClock> told = distinct.of_distinct([&](const Kernel& kernel) {
    return at_full_clock(kernel, seconds[static_cast<std::size_t>(&kernel - kernels.data())], device, rates.link, power,
                         of_limit);
  });
  std::vector<Stretch> stretches;
  bool uses_tensor_cores = false;
  double busy = 0;
  double unused = kLinksAwake;  // seconds since the links were used: a step begins behind its optimizer
  const double of_links = kLinksPower * of_limit * std::min(1.0, device.link_bytes_per_second / kLinkRate);
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const Kernel& kernel = kernels[i];
    const AtFullClock& of = told[distinct.number_of(i)];
    Activity activity = of.activity;
    if (!waits.empty() && waits[i] > 0) activity.add(pause(waits[i], power));
    const auto* group = kernel.as<work::Communication>();
    unused = group != nullptr && uses_links(*group, device, rates.link) ? 0 : unused + activity.seconds;
    if (unused < kLinksAwake) activity.saved -= of_links * activity.seconds;
    if (activity.saved == 0 && !fills_card(kernel)) continue;
    if (fills_card(kernel)) {
      seconds[i] = of.seconds;
      uses_tensor_cores = uses_tensor_cores || of.of_products > 0;
    }
    busy += static_cast<double>(kernel.repeats) * activity.seconds;
    const bool goes_on = !stretches.empty() && stretches.back().repeats == kernel.repeats &&
                         stretches.back().activity.seconds < kStretch;
    Stretch& stretch = goes_on ? stretches.back() : stretches.emplace_back(Stretch{.repeats = kernel.repeats});
    stretch.activity.add(activity);
    stretch.end = i + 1;
  }
  if (!uses_tensor_cores) return;
  if (!lengthen_all(stretches, 0, {}, power)) return;  // without a pause
  const double idle = std::max(issuing_seconds(kernels, issuing.of(rates.host)) / busy - 1, 0.0);
  const double rest = std::max(waiting - idle, 0.0) * busy;
  if ((idle > 0 || rest > 0) && !lengthen_all(stretches, idle, pause(rest, power), power)) return;
  std::size_t i = 0;
  for (const Stretch& stretch : stretches) {
    for (; i < stretch.end; ++i) {
      if (stretch.longer <= 1 || !fills_card(kernels[i])) continue;
      if (kernels[i].as<work::Attention>() != nullptr) {
        seconds[i] *= has_hopper_attention(kernels[i], device) ? stretch.longer : stretch.longer / power.full_clock;
      } else {
        const double of_products = told[distinct.number_of(i)].of_products;
        seconds[i] += (stretch.longer - 1) * (goes_with_clock(kernels[i]) ? seconds[i] : of_products);
      }
    }
  }
}

}  // namespace memcalc
