#include "memcalc/cost/product_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "memcalc/base/bytes.h"
#include "memcalc/base/mixed_hash.h"
#include "memcalc/base/seconds.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/measured_card.h"
#include "memcalc/cost/nearest.h"
#include "memcalc/cost/remembered.h"
#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/symbolic/aten.h"

namespace memcalc {

namespace {

/// A row of specs/measured/h200-sxm/product_times.txt: a Linear of `tokens` rows, or a batch of them.
struct Time {
  std::int8_t type, bias;
  std::int32_t batch, tokens, out, in;
  std::array<std::int32_t, 3> nanoseconds;  // forward, gradient of the input, of the weight
};

#include "memcalc/cost/product_times.inc"

constexpr CudaArchitecture kTimed = CudaArchitecture::kHopper;  // cuBLAS has other kernels for others
constexpr std::string_view kTimedOn = "h200-sxm";
constexpr std::size_t kTypes = 3;

/// What the formula says on the card that the rows are of (specs/measured/h200-sxm/rates.json of 2026-11-29; its
/// datasheet): a row tells how far off that is, which other cards of the kind share.
constexpr std::array<ProductRates, kTypes> kRatesOfTimed = {{{.launch_us = 1.263,
                                                              .tile_us = 1.978,
                                                              .plain = 0.8321,
                                                              .first = 0.8168,
                                                              .second = 0.8203,
                                                              .narrow = 0.01137,
                                                              .ragged = 1.108e-07,
                                                              .misaligned = 0.1552,
                                                              .half_misaligned = 0.3183,
                                                              .bandwidth = 0.5723},
                                                             {.launch_us = 0.001107,
                                                              .tile_us = 5.88,
                                                              .plain = 0.7992,
                                                              .first = 0.5168,
                                                              .second = 0.8966,
                                                              .narrow = 0.2271,
                                                              .ragged = 0.422,
                                                              .misaligned = 0.13,
                                                              .half_misaligned = 0.3,
                                                              .bandwidth = 0.4442},
                                                             {.launch_us = 0.7812,
                                                              .tile_us = 6.072,
                                                              .plain = 0.7674,
                                                              .first = 0.8006,
                                                              .second = 0.7487,
                                                              .narrow = 0.04115,
                                                              .ragged = 0.221,
                                                              .misaligned = 0.13,
                                                              .half_misaligned = 0.3,
                                                              .bandwidth = 1.958}}};

const DeviceSpec& timed_card() {
  static const DeviceSpec card = [] {
    DeviceSpec made;
    made.compute_capability_major = major_of(kTimed);
    made.multiprocessors = 132;
    made.memory_bandwidth_bytes_per_second = 4.8e12;
    made.bf16_flops_per_second = made.fp16_flops_per_second = 989.4e12;
    made.tf32_flops_per_second = 494.7e12;
    made.fp32_flops_per_second = 67e12;
    return made;
  }();
  return card;
}

/// The product as one of the three of a Linear.
struct Shape {
  std::int64_t batch, tokens, out, in;
  std::size_t pass;

  [[nodiscard]] bool operator==(const Shape&) const = default;
};

std::optional<Shape> shape_of(const work::Product& product) {
  const std::int64_t batch = std::max<std::int64_t>(product.batch, 1);
  switch (product.transposed) {
    case Transposed::kSecond: return Shape{batch, product.m, product.n, product.k, 0};
    case Transposed::kNone: return Shape{batch, product.m, product.k, product.n, 1};
    case Transposed::kFirst: return Shape{batch, product.k, product.m, product.n, 2};
    case Transposed::kBoth: return std::nullopt;
  }
  return std::nullopt;
}

work::Product product_of(const Time& row, std::size_t pass) {
  work::Product product{
      .batch = row.batch, .m = row.tokens, .n = row.out, .k = row.in, .transposed = Transposed::kSecond};
  if (pass == 1) {
    product.transposed = Transposed::kNone;
    std::swap(product.n, product.k);
  } else if (pass == 2) {
    product.transposed = Transposed::kFirst;
    product.m = row.out, product.n = row.in, product.k = row.tokens;
  }
  return product;
}

double formula_seconds(DType dtype, const Time& row, std::size_t pass, std::size_t type) {
  Kernel timed;
  timed.dtype = dtype;
  work::Product product = product_of(row, pass);
  product.tf32 = type == 1;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double m = real(product.m), n = real(product.n), k = real(product.k);
  timed.bytes = real(product.batch) * (m * k + n * k + m * n) * static_cast<double>(size_of(dtype));
  timed.work = product;
  return product_seconds(timed, product, timed_card(), kRatesOfTimed[type]);
}

/// The logarithm to base two, its fraction on a straight line: what makes sizes alike need not be exact.
double in_doublings(double value) {
  constexpr double kFraction = 0x1p-52, kBias = 1023;
  return static_cast<double>(bits_of(value)) * kFraction - kBias;
}

double doublings(std::int64_t size) { return in_doublings(static_cast<double>(std::max<std::int64_t>(size, 1))); }

/// 0: rows of so many elements are a multiple of 16 bytes; to 2: at odd ones
double misalignment(std::int64_t elements, std::size_t type) {
  const std::int64_t aligned = type == 0 ? 8 : 4;
  return elements % aligned == 0 ? 0 : elements % 2 == 0 ? 1 : 2;
}

double square(double value) { return value * value; }

/// How much of the waves of such tiles, one on each multiprocessor, the result fills, in doublings.
double filled_waves(double m, double n, double rows, double columns, double batch) {
  const double tiles = std::ceil(m / rows) * std::ceil(n / columns) * batch;
  const double filled =
      m * n * batch / (rows * columns * kMeasuredMultiprocessors) / std::ceil(tiles / kMeasuredMultiprocessors);
  return in_doublings(std::max(filled, 0.25));
}

/// What most decides which kernel cuBLAS takes and how full its last wave is: float32 multiplies 1,024 rows of 8,192 at
/// 50 TFLOP/s, 1,152 at 39. Its kernels for most products have tiles of these sizes, either way round.
struct WaveTile {
  double rows, columns, weight;
};
constexpr std::array<WaveTile, 3> kWaveTiles = {{{128, 128, 6}, {256, 128, 4}, {128, 256, 4}}};

double filled_waves(std::int64_t batch, std::int64_t tokens, std::int64_t out, std::int64_t in, std::size_t pass,
                    const WaveTile& tile) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  return filled_waves(real(pass == 2 ? out : tokens), real(pass == 0 ? out : in), tile.rows, tile.columns, real(batch));
}

using Neighbours = Nearest<Time, 6>;  // by the squares of their distances

/// The nearest of the rows, which are sorted by tokens.
Neighbours nearest_of(std::span<const Time> rows, const Shape& shape, bool bias, std::size_t type) {
  constexpr double kAligned = 4, kBias = 1, kBatch = 0.6;
  const double tokens = doublings(shape.tokens), out = doublings(shape.out), in = doublings(shape.in);
  const double batch = doublings(shape.batch);
  std::array<double, kWaveTiles.size()> filled{};
  for (std::size_t i = 0; i < filled.size(); ++i) {
    filled[i] = filled_waves(shape.batch, shape.tokens, shape.out, shape.in, shape.pass, kWaveTiles[i]);
  }
  const double out_aligned = misalignment(shape.out, type), in_aligned = misalignment(shape.in, type);
  Neighbours nearest;
  const auto consider = [&](const Time& row, double by_tokens) {
    double distance = by_tokens + square(doublings(row.out) - out);
    if (distance >= nearest.farthest()) return;
    distance += square(doublings(row.in) - in);
    if (distance >= nearest.farthest()) return;
    distance += square(kAligned * (misalignment(row.out, type) - out_aligned)) +
                square(kAligned * (misalignment(row.in, type) - in_aligned)) +
                square(kBatch * (doublings(row.batch) - batch)) +
                (shape.pass == 0 && (row.bias != 0) != bias ? square(kBias) : 0);
    if (distance >= nearest.farthest()) return;
    for (std::size_t i = 0; i < filled.size(); ++i) {
      const double of_row = filled_waves(row.batch, row.tokens, row.out, row.in, shape.pass, kWaveTiles[i]);
      distance += square(kWaveTiles[i].weight * (of_row - filled[i]));
      if (distance >= nearest.farthest()) return;
    }
    nearest.add(row, distance);
  };
  const auto start = std::lower_bound(rows.begin(), rows.end(), shape.tokens,
                                      [](const Time& row, std::int64_t size) { return row.tokens < size; });
  search_outward(
      rows, start, nearest, [&](const Time& row) { return square(doublings(row.tokens) - tokens); }, consider);
  return nearest;
}

/// Those of a type, single products or batches.
std::span<const Time> rows_of(std::size_t type, bool batches) {
  const auto of = [](const Time& row) { return std::pair(static_cast<std::size_t>(row.type), row.batch > 1); };
  const std::pair wanted(type, batches);
  const auto* begin =
      std::partition_point(std::begin(kTimes), std::end(kTimes), [&](const Time& row) { return of(row) < wanted; });
  const auto* end = std::partition_point(begin, std::end(kTimes), [&](const Time& row) { return of(row) == wanted; });
  return {begin, end};
}

/// What the rows say of: all that their answer depends on.
struct Asked {
  Shape shape;
  DType dtype;
  std::size_t type;
  bool bias, of_batches;

  [[nodiscard]] bool operator==(const Asked&) const = default;
  [[nodiscard]] std::uint64_t hash() const {
    MixedHash mixed;
    for (const std::int64_t size : {shape.batch, shape.tokens, shape.out, shape.in}) mixed.add(size);
    mixed.add(static_cast<std::int64_t>(shape.pass * kTypes + type) * 4 + (bias ? 2 : 0) + (of_batches ? 1 : 0));
    mixed.add(static_cast<std::int64_t>(dtype));
    return mixed.value();
  }
};

double ratio_of_nearest(const Asked& asked) {
  constexpr double kBlur = 0.1;  // in doublings
  constexpr double kNear = 1, kFar = 3;
  const std::size_t pass = asked.shape.pass;
  const Neighbours nearest = nearest_of(rows_of(asked.type, asked.of_batches), asked.shape, asked.bias, asked.type);
  const auto ratio_of = [&](const Time& row) {
    const double timed = static_cast<double>(row.nanoseconds[pass]) * kNanosecond;
    return timed / formula_seconds(asked.dtype, row, pass, asked.type);
  };
  const auto weight_of = [](double distance) { return 1 / square(std::sqrt(distance) + kBlur); };
  const std::optional<double> ratio = nearest.median(ratio_of, weight_of);
  if (!ratio) return 1;
  return std::pow(*ratio, std::clamp((kFar - std::sqrt(nearest.least())) / (kFar - kNear), 0.0, 1.0));
}

}  // namespace

double measured_product_ratio(const Kernel& kernel, const work::Product& product, const DeviceSpec& device,
                              const DeviceRates& rates) {
  if (rates.product_times.empty() || !is_of(device, kTimed)) return 1;
  if (size_of(kernel.dtype) != 2 && size_of(kernel.dtype) != 4) return 1;
  if (is_few_float32_rows(kernel, product)) return 1;
  std::optional<Shape> shape = shape_of(product);
  if (!shape || std::min({shape->tokens, shape->out, shape->in}) <= 0) return 1;
  const std::size_t type = is_half(kernel.dtype) ? 0 : allows_tf32(kernel) ? 1 : 2;
  const bool bias = kernel.op == &aten::kAddmm;
  constexpr std::int64_t kLarge = 512;  // a batch of such fills the card as one of them does
  const bool of_batches = shape->batch > 1 && std::min({shape->tokens, shape->out, shape->in}) < kLarge;
  if (!of_batches) shape->batch = 1;
  // An H100's formula is fitted to 468 products of its own, of which these neighbours say no more (within 4.7 % instead
  // of 4.3 in bfloat16, 3.8 instead of 1.6 in float32) but in TF32 (4.2 instead of 6.3); batches were not among them.
  if (rates.measured_on != kTimedOn && !of_batches && type != 1) return 1;
  thread_local Remembered<Asked, 9> remembered;
  const Asked asked{.shape = *shape, .dtype = kernel.dtype, .type = type, .bias = bias, .of_batches = of_batches};
  return remembered.of(asked, [&] { return ratio_of_nearest(asked); });
}

}  // namespace memcalc
