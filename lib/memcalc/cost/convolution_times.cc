// Convolutions by those that were measured. cuDNN chooses among some hundred kernels by rules of its own, so that a
// time is told by what alike convolutions took: of the nearest ones the median of measured over ideal, times the ideal
// of this one. One that was measured itself is its own neighbour.
#include "memcalc/cost/convolution_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "memcalc/base/mixed_hash.h"
#include "memcalc/base/seconds.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/measured_card.h"
#include "memcalc/cost/nearest.h"
#include "memcalc/cost/remembered.h"
#include "memcalc/spec/cuda_architecture.h"

namespace memcalc {

namespace {

/// A row of specs/measured/h100-sxm/convolution_times.txt, which is in the order of type, kind and a group's channels.
struct Time {
  std::int8_t card, type, kind, dimensions;  // card: 0: an H100, 1: an H200
  std::int16_t in_channels, out_channels, groups;
  std::int32_t entering, leaving;
  std::int16_t window, images;
  std::array<std::int32_t, 3> nanoseconds;
};

#include "memcalc/cost/convolution_times.inc"

constexpr std::size_t kTypes = 3;

/// Those that are compared with each other.
enum class ConvolutionKind : std::uint8_t {
  kWhole,
  kGroups,
  kChannelsLast,
};
constexpr std::size_t kKinds = 3;
constexpr double kLanes = 128;  // of a Hopper card's multiprocessor, in float32

/// What moves bytes on a card: its memory, and its multiprocessors, which calculate where each byte goes.
struct Mover {
  double bandwidth;        // of the datasheet, bytes a second
  double share_of_memory;  // of what a byte takes at that bandwidth (MemoryScaling)
  double cycles;           // of all multiprocessors in a second
  double multiprocessors;
};

/// Of the cards that the table is of, by type: the datasheet's FLOP/s.
constexpr std::array<double, kTypes> kMeasuredPeaks = {kMeasuredHalfFlops, 494.7e12, 67e12};
constexpr Mover kMeasured = {
    .bandwidth = 3.35e12, .share_of_memory = 1, .cycles = kMeasuredCycles, .multiprocessors = kMeasuredMultiprocessors};
// Of an H200: its bandwidth and MemoryScaling, and what it takes, over its ideals, of what an H100 does over its own
// (medians of the passes of 20 us and more that both had taken, without groups: 245, 70 and 163 by type).
constexpr Mover kOther = {.bandwidth = 4.8e12,
                          .share_of_memory = 0.9,
                          .cycles = kMeasuredCycles,
                          .multiprocessors = kMeasuredMultiprocessors};
constexpr std::array<double, kTypes> kOtherLevel = {1.02, 1.03, 0.99};
constexpr std::string_view kOtherName = "h200-sxm";
constexpr std::array<double, kTypes> kItemSizes = {2, 4, 4};
constexpr std::size_t kFloat32 = 2;  // the type without tensor cores

/// Of what goes with cycles, over what an H100 takes for it.
double slower_cycles(const Mover& mover) { return mover.cycles > 0 ? kMeasured.cycles / mover.cycles : 1; }

struct Sizes {
  double in_channels, out_channels;  // of a group
  double groups, entering, leaving, window, dimensions;
  double images;

  [[nodiscard]] bool operator==(const Sizes&) const = default;
  [[nodiscard]] double flops() const { return 2 * leaving * groups * out_channels * in_channels * window; }
  [[nodiscard]] double elements() const {
    return groups * (entering * in_channels + leaving * out_channels + in_channels * out_channels * window);
  }
};

/// FLOPs of the implicit product with what its tiles and its last wave of them leave idle. A tile of 64 columns reaches
/// three quarters of the rate. The sum over all pixels of a weight's gradient is split until all multiprocessors work.
double flops_of_waves(const Sizes& shape, std::size_t pass, double multiprocessors) {
  constexpr double kRows = 128, kColumns = 128, kFewColumns = 64, kRateOfFew = 0.75;
  const double rows = pass == 0 ? shape.leaving : pass == 1 ? shape.entering : shape.out_channels;
  const double columns = pass == 0   ? shape.out_channels
                         : pass == 1 ? shape.in_channels
                                     : shape.in_channels * shape.window;
  const double depth = shape.flops() / (2 * rows * columns);  // of all groups
  const auto of = [&](double width) {
    const double tiles = std::ceil(rows / kRows) * std::ceil(columns / width);
    const double run = pass == 2 || multiprocessors <= 0 ? tiles : std::ceil(tiles / multiprocessors) * multiprocessors;
    return run * kRows * width * 2 * depth;
  };
  return std::min(of(kColumns), of(kFewColumns) / kRateOfFew);
}

/// Kernels for tensor cores take images whose channels lie innermost: row-major ones are laid out for them before and
/// the result behind (nchwToNhwcKernel, nhwcToNchwKernel), whatever the pass. Each copy reads and writes: 2.27 TB/s in
/// 16 bits and 3.4 to 3.7 in float32 on an H200, 2.03 and 2.7 on an H100, what index calculations and the memory let it
/// (step_operators_h200.jsonl.gz, network_operators_h100.jsonl.gz).
double layout_seconds(const Sizes& shape, double item, const Mover& mover) {
  constexpr double kCopies = 3, kLaunch = 3e-6, kMemory = 0.9, kIndexSeconds = 0.73e-12;  // for an element
  const double copied = 2 * shape.elements();
  const double of_memory = item / (kMemory * mover.bandwidth);
  return kCopies * kLaunch + copied * std::hypot(of_memory, kIndexSeconds * slower_cycles(mover));
}

/// Bytes at a share of the datasheet's rate; of what a byte takes then, a part is the memory's, and goes with that of
/// the card; the rest goes with its multiprocessors' cycles.
double moving_seconds(const Sizes& shape, double item, double moves, const Mover& mover) {
  const double seconds_per_byte = mover.share_of_memory / mover.bandwidth +
                                  (1 / moves - mover.share_of_memory) * slower_cycles(mover) / kMeasured.bandwidth;
  return shape.elements() * item * seconds_per_byte;
}

/// On tensor cores an implicit product, and what is laid out for it. In float32, where cuDNN takes Winograd's, Fourier
/// transforms and direct sums beside it, and with groups neither waves nor layouts explain more of the rows left out.
double ideal_seconds(const Sizes& shape, ConvolutionKind kind, std::size_t type, std::size_t pass, double peak,
                     const Mover& mover) {
  constexpr double kLaunch = 3e-6, kComputes = 0.8, kMoves = 0.6, kConverts = 0.3;
  constexpr double kSplit = 8e-6;  // a weight's gradient sums up its parts
  const double item = kItemSizes[type];
  if (type == kFloat32 || kind == ConvolutionKind::kGroups) {
    const double moves = kind == ConvolutionKind::kWhole ? kConverts : kMoves;
    return kLaunch + std::hypot(shape.flops() / (kComputes * peak), moving_seconds(shape, item, moves, mover));
  }
  const double computed = flops_of_waves(shape, pass, mover.multiprocessors) / (kComputes * peak);
  const double laid_out = kind == ConvolutionKind::kWhole ? layout_seconds(shape, item, mover) : 0;
  return kLaunch + computed + moving_seconds(shape, item, kMoves, mover) + laid_out + (pass == 2 ? kSplit : 0);
}

/// What makes two convolutions alike, each on a scale on which a difference of one counts as much as any other's.
using Features = std::array<double, 14>;

/// 0: as many are a multiple of 16 bytes in 16 bits; to 3: odd.
double misalignment(double elements) {
  const auto count = static_cast<std::int64_t>(elements);
  return count % 8 == 0 ? 0.0 : count % 4 == 0 ? 1.0 : count % 2 == 0 ? 2.0 : 3.0;
}

/// Of an image, in float32: a Fourier transform takes 32 x 32 pixels at a time, of which so many are results that the
/// window allows. Images of 32 x 32 pixels take four, and eight times as long as those of 28 x 28.
double fourier_tiles(const Sizes& shape) {
  constexpr double kSide = 32;
  if (shape.window <= 1 || shape.dimensions != 2) return 1;
  const double results = kSide + 1 - std::sqrt(shape.window);
  const double tiles = std::max(1.0, std::ceil(std::sqrt(shape.leaving / shape.images) / results));
  return tiles * tiles;
}

/// The binary logarithm of what is mostly what was asked before.
class RememberedLogarithm {
 public:
  double operator()(double value) {
    if (value != of_) {
      of_ = value;
      is_ = value > 1 ? std::log2(value) : 0.0;
    }
    return is_;
  }

 private:
  double of_ = 0, is_ = 0;
};

struct Logarithms {
  RememberedLogarithm in, out, window, groups, leaving, entering, bytes, extent, tiles;
};

/// Where groups share channels a kernel is chosen by their number more than by the size of the images. A window of one
/// pixel over row-major images is a product of matrices, if an image's pixels are a multiple of 16 bytes (28 x 28, but
/// neither 14 x 14 in 16 bits nor 7 x 7): it takes a quarter of what the others do, which are converted.
Features features_of(const Sizes& shape, ConvolutionKind kind, std::size_t type, Logarithms& of) {
  const bool shared = shape.groups > 1 && shape.in_channels > 1;
  // In float32 channels decide whether it is a Fourier transform, Winograd's or an implicit product; the best for each
  // shape left out with those of its layer that have 0.7 to 1.45 times as many images.
  const bool many_engines = type == kFloat32 && kind == ConvolutionKind::kWhole;
  const double by_channels = shared         ? 3
                             : many_engines ? 1.4
                                            : 0.7,
               by_window = shared ? 3 : 1, by_stride = shared ? 1.5 : 1;
  const double by_groups = shared ? 1.5 : 0.5, by_pixels = shared ? 0.4 : many_engines ? 0.35 : 0.5;
  const double by_extent = many_engines ? 1 : 0;
  const double in = of.in(shape.in_channels), out = of.out(shape.out_channels), window = of.window(shape.window);
  const double groups = of.groups(shape.groups), leaving = of.leaving(shape.leaving);
  const double entering = shape.entering == shape.leaving ? leaving : of.entering(shape.entering);
  const double pixels_of_image = shape.leaving / shape.images;
  constexpr double by_dimensions = 2;  // cuDNN has other kernels for volumes, also where a window is 1 x 3 x 3
  // What tells most rows apart comes first: of most the search adds up no more.
  return {by_channels * in,
          by_channels * out,
          by_pixels * leaving,
          by_window * window,
          by_extent * of.tiles(fourier_tiles(shape)),
          by_extent * of.extent(pixels_of_image),
          by_stride * (entering - leaving),
          by_groups * groups,
          0.3 * (1 + leaving + groups + out + in + window),  // FLOPs
          0.3 * of.bytes(shape.elements() * kItemSizes[type]),
          0.8 * misalignment(shape.in_channels),
          0.8 * misalignment(shape.out_channels),
          by_dimensions * shape.dimensions,
          kind == ConvolutionKind::kWhole ? 0.5 * misalignment(pixels_of_image) : 0};
}

struct Measured {
  Features features;
  const Time* time;
  double of_another;  // square of the distance from convolutions of a card whose own rows are preferred
};

Sizes sizes_of(const Time& time) {
  const auto real = [](auto value) { return static_cast<double>(value); };
  return {.in_channels = real(time.in_channels / time.groups),
          .out_channels = real(time.out_channels / time.groups),
          .groups = real(time.groups),
          .entering = real(time.entering),
          .leaving = real(time.leaving),
          .window = real(time.window),
          .dimensions = static_cast<double>(time.dimensions),
          .images = real(time.images)};
}

/// The logarithm of measured over ideal. Of the few nearest alone: of all rows it would be asked in vain.
double logarithm_of_ratio(const Time& time, std::size_t pass) {
  const auto type = static_cast<std::size_t>(time.type);
  const bool other = time.card != 0;
  const double ideal = ideal_seconds(sizes_of(time), static_cast<ConvolutionKind>(time.kind), type, pass,
                                     kMeasuredPeaks[type], other ? kOther : kMeasured);
  const double level = other ? kOtherLevel[type] : 1;
  return std::log(static_cast<double>(time.nanoseconds[pass]) * kNanosecond / (level * ideal));
}

// On an H200 cuDNN takes another kernel than on an H100 here and there: its rows, each left out, are told 4.5 instead
// of 5.3 % wrong in TF32 (forward) with its own preferred, 3.1 instead of 3.5 in 16 bits. An H100's are hardly better
// by it, its profiled steps worse, and float32 is the same either way: they take all alike.
constexpr double kOfAnother = 0.25;

/// Most rows are too far by the channels of a group alone: those that enter, then those that leave.
constexpr std::size_t kSortedBy = 0, kThenBy = 1;

bool has_fewer_channels(const Measured& row, const Features& features) {
  return row.features[kSortedBy] != features[kSortedBy] ? row.features[kSortedBy] < features[kSortedBy]
                                                        : row.features[kThenBy] < features[kThenBy];
}

/// Those of a type and a kind, made when first asked for.
const std::vector<Measured>& measured(std::size_t type, ConvolutionKind kind) {
  static std::array<std::vector<Measured>, kTypes * kKinds> all;
  static std::array<std::once_flag, kTypes * kKinds> made;
  const std::size_t place = type * kKinds + static_cast<std::size_t>(kind);
  std::call_once(made[place], [&] {
    const auto place_of = [](const Time& time) {
      return static_cast<std::size_t>(time.type) * kKinds + static_cast<std::size_t>(time.kind);
    };
    const auto* begin =
        std::partition_point(std::begin(kTimes), std::end(kTimes), [&](const Time& t) { return place_of(t) < place; });
    const auto* end =
        std::partition_point(begin, std::end(kTimes), [&](const Time& t) { return place_of(t) == place; });
    all[place].reserve(static_cast<std::size_t>(end - begin));
    Logarithms logarithms;
    for (const auto* time = begin; time != end; ++time) {
      all[place].push_back({.features = features_of(sizes_of(*time), kind, type, logarithms),
                            .time = time,
                            .of_another = time->card == 0 ? kOfAnother : 0});
    }
  });
  return all[place];
}

/// Measured over ideal: forward, the input's gradient and the weight's.
using Ratios = std::array<double, 3>;

/// The median of the nearest, each weighted by the inverse square of its distance: one that cuDNN gave another kernel
/// does not move it. Of each pass: all have the same neighbours.
Ratios median_ratios(std::span<const Measured> rows, const Features& features, bool prefers) {
  constexpr std::size_t kNeighbours = 8;
  constexpr double kBlur = 0.15;           // one that was measured itself weighs most, but not alone
  Nearest<Measured, kNeighbours> nearest;  // by the squares of their distances
  const auto square_of = [](double value) { return value * value; };
  const auto consider = [&](const Measured& row, double by_channels) {
    double square = by_channels + (prefers ? row.of_another : 0);
    for (std::size_t i = kThenBy; i < features.size(); ++i) {
      square += square_of(features[i] - row.features[i]);
      if (square >= nearest.farthest()) return;
    }
    nearest.add(row, square);
  };
  const double channels = features[kSortedBy];
  search_outward(
      rows, std::lower_bound(rows.begin(), rows.end(), features, has_fewer_channels), nearest,
      [&](const Measured& row) { return square_of(row.features[kSortedBy] - channels); }, consider);
  const auto weight_of = [&](double square) { return 1 / square_of(std::sqrt(square) + kBlur); };
  Ratios ratios{};
  for (std::size_t pass = 0; pass < ratios.size(); ++pass) {
    const std::optional<double> ratio =
        nearest.median([&](const Measured& row) { return logarithm_of_ratio(*row.time, pass); }, weight_of);
    ratios[pass] = ratio ? std::exp(*ratio) : 1;
  }
  return ratios;
}

/// Pixels of all images that enter, of the bytes of an ideal kernel: it reads or writes images, results and filter
/// once.
double entering_pixels(const Kernel& kernel, const Sizes& of_result) {
  const double elements = kernel.bytes / static_cast<double>(size_of(kernel.dtype));
  const double others = of_result.elements();  // nothing enters yet
  return std::max(1.0, std::round((elements - others) / (of_result.groups * of_result.in_channels)));
}

/// What the rows say of: all that their answer depends on.
struct Asked {
  Sizes shape;
  std::size_t type;
  ConvolutionKind kind;
  bool prefers;  // an H200's rows

  [[nodiscard]] bool operator==(const Asked&) const = default;
  [[nodiscard]] std::uint64_t hash() const {
    MixedHash mixed;
    for (const double size : {shape.in_channels, shape.out_channels, shape.groups, shape.entering, shape.leaving,
                              shape.window, shape.dimensions}) {
      mixed.add(static_cast<std::int64_t>(size));
    }
    mixed.add((static_cast<std::int64_t>(kind) * 4 + static_cast<std::int64_t>(type)) * 2 + (prefers ? 1 : 0));
    return mixed.value();
  }
};

}  // namespace

double measured_convolution_seconds(const Kernel& kernel, const work::Convolution& convolution,
                                    const DeviceSpec& device, const DeviceRates& rates) {
  const std::size_t type = is_half(kernel.dtype) ? 0 : allows_tf32(kernel) && computes_tf32(device) ? 1 : 2;
  Sizes shape = {.in_channels = std::max(convolution.group_channels, 1.0),
                 .out_channels = static_cast<double>(convolution.channels),
                 .groups = static_cast<double>(convolution.groups),
                 .entering = 0,
                 .leaving = static_cast<double>(convolution.pixels),
                 .window = 1,
                 .dimensions = static_cast<double>(convolution.dimensions),
                 .images = static_cast<double>(std::max<std::int64_t>(convolution.images, 1))};
  shape.window = std::max(1.0, static_cast<double>(convolution.depth) / shape.in_channels);
  shape.entering = entering_pixels(kernel, shape);
  const ConvolutionKind kind = convolution.groups > 1      ? ConvolutionKind::kGroups
                               : convolution.channels_last ? ConvolutionKind::kChannelsLast
                                                           : ConvolutionKind::kWhole;
  const std::size_t pass = !convolution.backward ? 0 : convolution.weight_gradient ? 2 : 1;
  const Mover mover = {.bandwidth = device.memory_bandwidth_bytes_per_second,
                       .share_of_memory = rates.scaling.share,
                       .cycles = cycles_of(device),
                       .multiprocessors = static_cast<double>(device.multiprocessors)};
  const double peak = sustained_flops(kernel, device);
  const double ideal = ideal_seconds(shape, kind, type, pass, peak, mover);
  const bool prefers = rates.measured_on == kOtherName && type != kFloat32;
  thread_local Remembered<Asked, 9, Ratios> remembered;
  const Ratios ratios = remembered.of({.shape = shape, .type = type, .kind = kind, .prefers = prefers}, [&] {
    Logarithms logarithms;
    return median_ratios(measured(type, kind), features_of(shape, kind, type, logarithms), prefers);
  });
  const double ratio = ratios[pass];
  // In float32 a Hopper card's convolutions keep a third to half of its 128 lanes busy: they wait for what a cycle
  // loads. Where a multiprocessor has 64 lanes as much is done in a cycle, until the lanes are busy.
  const double lanes = type == kFloat32 ? kLanes * 2 * cycles_of(device) / device.fp32_flops_per_second : 1;
  if (lanes <= 1) return ratio * ideal;
  return std::max(ratio * ideal_seconds(shape, kind, type, pass, lanes * peak, mover), std::min(1.0, ratio) * ideal);
}

}  // namespace memcalc
