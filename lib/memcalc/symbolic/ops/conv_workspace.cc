// MIRRORS(torch, "native/Convolution.cpp", "2.11.0")
#include "memcalc/symbolic/ops/conv_workspace.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <span>
#include <tuple>

#include "memcalc/symbolic/ops/conv_engine.h"

namespace memcalc {

namespace {

/// One measured convolution; the last three index kSequences. A square image has `height`, a sequence its length there.
/// kernel: the window's width, 1,000 times its height where that differs, a million times a dilation; padding: the
/// height's, 1,000 times the width's where that differs.
struct Row {
  std::int8_t mode, layout;
  std::uint16_t in_channels, out_channels, groups;
  std::int32_t kernel;
  std::uint16_t stride;
  std::int32_t padding;
  std::uint16_t height;
  std::uint16_t forward, input_gradient, weight_gradient;
};

#include "memcalc/symbolic/ops/convolution_workspaces.inc"  // of specs/measured/cudnn-9.19

constexpr std::size_t kBatchCount = std::size(kBatches);
constexpr std::int64_t kUnknown = -9;

// Formulas behind the negative numbers of the table.
constexpr std::int64_t kWinograd = -1;  // tiles of 6 x 6 in float32 for weights, input and output
constexpr std::int64_t kCopies = -2;    // input and output in the engine's layout, and 16 bytes
constexpr std::int64_t kCopiesAndWeight = -3;
constexpr std::int64_t kInputAndWeight = -4;
constexpr std::int64_t kAlignedCopiesAndWeight = -5;  // of sequences: 147 bytes beside them
constexpr std::int64_t kOfEngine = -1000;             // and less: of the engine of this number (conv_engine.h)

enum Layout { kRowMajor, kChannelsLast, kSequence };

Bytes formula_bytes(std::int64_t formula, const ConvolutionShape& s, DType dtype, bool allow_tf32) {
  if (formula <= kOfEngine)
    return ConvolutionEngine(static_cast<int>(kOfEngine - formula)).workspace(s, dtype, allow_tf32);
  const std::int64_t element = size_of(dtype);
  const Bytes input = checked_multiply(s.batch * s.in_channels, s.depth * s.height * s.width * element);
  const Bytes output = checked_multiply(s.batch * s.out_channels, s.out_depth * s.out_height * s.out_width * element);
  const Bytes weight =
      s.out_channels * (s.in_channels / s.groups) * s.kernel_depth * s.kernel_height * s.kernel_width * element;
  switch (formula) {
    case kWinograd: return winograd_workspace(s);
    case kCopies: return checked_add(input, output) + 16;
    case kCopiesAndWeight: return checked_add(input, output) + weight + 16;
    case kInputAndWeight: return checked_add(input, weight) + 16;
    case kAlignedCopiesAndWeight: return checked_add(input, output) + weight + 147;
    default: return 0;
  }
}

auto identity_of(const Row& r) {
  return std::tie(r.mode, r.layout, r.in_channels, r.out_channels, r.groups, r.kernel, r.stride, r.padding);
}

std::int64_t kernel_of_row(const ConvolutionShape& s, Layout layout) {
  const bool same = s.kernel_height == s.kernel_width || layout == kSequence;
  return s.kernel_width + (same ? 0 : 1'000 * s.kernel_height) + (s.dilated() ? 1'000'000 * s.dilation : 0);
}

std::int64_t padding_of_row(const ConvolutionShape& s) {
  const bool same = s.padding_across == ConvolutionShape::kAsPadding || s.padding_across == s.padding;
  return s.padding + (same ? 0 : 1'000 * s.padding_across);
}

/// The rows of the same weights, stride and padding, by size.
std::span<const Row> rows_like(const ConvolutionShape& s, int mode, Layout layout) {
  constexpr std::int64_t kMost = std::numeric_limits<std::uint16_t>::max();
  if (std::max({s.in_channels, s.out_channels, s.groups, static_cast<std::int64_t>(s.stride)}) > kMost) return {};
  const Row key{.mode = static_cast<std::int8_t>(mode),
                .layout = static_cast<std::int8_t>(layout),
                .in_channels = static_cast<std::uint16_t>(s.in_channels),
                .out_channels = static_cast<std::uint16_t>(s.out_channels),
                .groups = static_cast<std::uint16_t>(s.groups),
                .kernel = static_cast<std::int32_t>(kernel_of_row(s, layout)),
                .stride = static_cast<std::uint16_t>(s.stride),
                .padding = static_cast<std::int32_t>(padding_of_row(s)),
                .height = 0,
                .forward = 0,
                .input_gradient = 0,
                .weight_gradient = 0};
  const auto [first, last] = std::equal_range(std::begin(kRows), std::end(kRows), key, [](const Row& a, const Row& b) {
    return identity_of(a) < identity_of(b);
  });
  return {first, last};
}

/// The row of this image, at any batch size; null where none was measured.
const Row* row_of_image(const ConvolutionShape& s, int mode) {
  if (s.spatial_rank > 2 || !s.same_steps || s.height != s.width) return nullptr;
  for (const Row& row : rows_like(s, mode, s.channels_last ? kChannelsLast : kRowMajor)) {
    if (row.height == s.height) return &row;
  }
  return nullptr;
}

int sequence_of(const Row& row, ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::kForward: return row.forward;
    case ConvolutionPass::kInputGradient: return row.input_gradient;
    case ConvolutionPass::kWeightGradient: break;
  }
  return row.weight_gradient;
}

/// The sequence at the shape's batch: measured, or what its measured neighbours have in common, or between them.
Bytes at_batch(std::span<const std::int64_t> sequence, const ConvolutionShape& s, DType dtype, bool allow_tf32) {
  const std::int64_t batch = s.batch;
  std::size_t below = kBatchCount, above = kBatchCount;
  for (std::size_t i = 0; i < kBatchCount; ++i) {
    if (sequence[i] == kUnknown) continue;
    if (kBatches[i] <= batch) below = i;
    if (kBatches[i] >= batch && above == kBatchCount) above = i;
  }
  if (below == kBatchCount && above == kBatchCount) return 0;
  if (below == kBatchCount) below = above;
  if (above == kBatchCount) above = below;
  const auto value = [&](std::size_t i) { return sequence[i]; };
  if (value(below) > 0 && value(above) > 0) {
    const std::int64_t step = kBatches[above] - kBatches[below];
    if (step > 0) return value(below) + (value(above) - value(below)) * (batch - kBatches[below]) / step;
    if (batch == kBatches[below]) return value(below);
    return checked_multiply(value(below), batch) / kBatches[below];  // beyond what was measured
  }
  const std::size_t nearest = batch - kBatches[below] <= kBatches[above] - batch ? below : above;
  if (value(nearest) <= 0) return formula_bytes(value(nearest), s, dtype, allow_tf32);
  return checked_multiply(value(nearest), batch) / kBatches[nearest];
}

/// native/Convolution.cpp, check_cudnn_depthwise_workload_with_filter: where cuDNN beats PyTorch's own kernel.
bool cudnn_depthwise_pays(const ConvolutionShape& s) {
  if (s.height == 1 && s.stride == 1) return true;
  const std::int64_t filter = s.kernel_width;
  if (s.kernel_height != filter || (filter != 1 && filter != 3 && filter != 5) || s.width < 7) return false;
  if (s.stride == 1) return true;
  if (s.stride != 2) return false;
  if (s.batch == 1) return filter != 1 || s.width <= 28;
  if (filter == 1) return s.batch <= 16 && s.in_channels >= 128 && s.width <= 7;
  return s.width >= 512 || (s.width >= 256 && s.in_channels >= 32);
}

}  // namespace

bool uses_depthwise_kernel(const ConvolutionShape& shape, DType dtype) {
  if (shape.groups == 1 || shape.groups != shape.in_channels || shape.out_channels % shape.in_channels != 0)
    return false;
  if (shape.transposed || shape.channels_last) return false;
  const bool may_use_cudnn =
      dtype == DType::kFloat16 && shape.in_channels >= 32 && !shape.dilated() && shape.spatial_rank < 3;
  return !(may_use_cudnn && cudnn_depthwise_pays(shape));
}

bool is_measured_convolution(const ConvolutionShape& shape, DType dtype, bool allow_tf32) {
  return row_of_image(shape, convolution_mode(dtype, allow_tf32)) != nullptr;
}

Bytes sequence_convolution_workspace(const ConvolutionShape& shape, ConvolutionPass pass, DType dtype,
                                     bool allow_tf32) {
  const int mode = convolution_mode(dtype, allow_tf32);
  for (const Row& row : rows_like(shape, mode, kSequence)) {
    if (row.height == shape.width) return at_batch(kSequences[sequence_of(row, pass)], shape, dtype, allow_tf32);
  }
  // Of groups in less than float32 cuDNN's own plans are not what runs took: layout copies, of each group alone.
  if (shape.groups > 1 && mode != kFp32) {
    constexpr Bytes kOfEachGroup = 16;
    const bool each_channel = shape.groups == shape.in_channels && shape.out_channels == shape.in_channels;
    if (pass == ConvolutionPass::kWeightGradient || (each_channel && mode == kFp16)) return 0;
    const Bytes copies = formula_bytes(kCopiesAndWeight, shape, dtype, allow_tf32);
    return pass == ConvolutionPass::kInputGradient ? copies : copies + kOfEachGroup * (shape.groups - 1);
  }
  return likely_engine(shape, pass, dtype, allow_tf32).workspace(shape, dtype, allow_tf32);
}

Bytes convolution_workspace(const ConvolutionShape& shape, ConvolutionPass pass, DType dtype, bool allow_tf32) {
  if (shape.spatial_rank == 1) return sequence_convolution_workspace(shape, pass, dtype, allow_tf32);
  const int mode = convolution_mode(dtype, allow_tf32);
  if (const Row* row = row_of_image(shape, mode); row != nullptr)
    return at_batch(kSequences[sequence_of(*row, pass)], shape, dtype, allow_tf32);
  return likely_engine(shape, pass, dtype, allow_tf32).workspace(shape, dtype, allow_tf32);
}

bool is_large_workspace(Bytes bytes, const DeviceSpec& device) {
  constexpr Bytes kShare = 16;
  return device.memory_bytes > 0 && bytes > device.memory_bytes / kShare;
}

bool workspace_finds_memory(Bytes bytes, Bytes held, Bytes earlier, const DeviceSpec& device) {
  const Bytes taken = checked_add(device.context_bytes.value_or(0), checked_add(held, earlier));
  return checked_add(taken, bytes) <= device.memory_bytes;
}

}  // namespace memcalc
