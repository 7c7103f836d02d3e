// Rows of the operator table over images, sequences of samples and volumes: convolutions, pooling, resizing.
// MIRRORS(torch, "nn/functional.py", "2.11.0")
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/conv.h"
#include "memcalc/symbolic/ops/conv1d.h"
#include "memcalc/symbolic/ops/fold.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/interpolate.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/pool.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {
namespace {

/// A number for each spatial dimension, or one for all.
SpatialSizes sizes_of(const RecordedCall& call, int i, SpatialSizes otherwise) {
  if (!call.has(i)) return otherwise;
  const std::vector<std::int64_t> sizes = call.integers(i);
  if (sizes.empty()) return otherwise;
  if (sizes.size() == 1) return sizes.front();
  if (sizes.size() > 3) call.refuse("more than three sizes");
  return {sizes[0], sizes[1], sizes.size() > 2 ? sizes[2] : 1};
}

/// Images without a batch are not recorded so by any layer that is known.
void expect_rank(const RecordedCall& call, int rank) {
  if (call.tensor(0).rank() != rank) call.refuse("an input without samples");
}

SpatialSizes padding_of(const RecordedCall& call, int i, const Tensor& weight, const SpatialSizes& dilation) {
  const std::string_view text = call.text_or(i, "");
  if (text.empty()) return sizes_of(call, i, 0);
  SpatialSizes padding = 0;
  if (text == "valid") return padding;
  for (int dim = 0; dim < weight.rank() - 2; ++dim) {  // "same"
    padding.of[static_cast<std::size_t>(dim)] = dilation[dim] * (weight.size(dim + 2) - 1) / 2;
  }
  return padding;
}

/// Convolution.cpp, _convolution_same: where the two sides differ, one side is padded before by what it has more.
Tensor with_even_sides(const RecordedCall& call, int padding, const SpatialSizes& dilation) {
  const Tensor &x = call.tensor(0), &weight = call.tensor(1);
  if (call.text_or(padding, "") != "same") return x;
  Shape shape = x.shape();
  for (int dim = 2; dim < weight.rank(); ++dim) shape[dim] += dilation[dim - 2] * (weight.size(dim) - 1) % 2;
  return shape == x.shape() ? x : pad_to(x, shape);
}

template <int rank>
void convolution_row(RecordedCall& call) {  // input weight bias stride padding dilation groups
  expect_rank(call, rank + 2);
  const Tensor& weight = call.tensor(1);
  const SpatialSizes dilation = sizes_of(call, 5, 1);
  const Tensor input = with_even_sides(call, 4, dilation);
  const ConvolutionOptions options{.stride = sizes_of(call, 3, 1),
                                   .padding = padding_of(call, 4, weight, dilation),
                                   .groups = call.integer_or(6, 1),
                                   .dilation = dilation};
  if (rank == 1) {
    return call.returns(
        conv1d(input, weight, call.tensor_or_none(2), options.stride[0], options.padding[0], options.dilation[0]));
  }
  call.returns(convolution(input, weight, call.tensor_or_none(2), options));
}

template <int rank>
void transposed_row(RecordedCall& call) {  // input weight bias stride padding output_padding groups dilation
  expect_rank(call, rank + 2);
  const ConvolutionOptions options{.stride = sizes_of(call, 3, 1),
                                   .padding = sizes_of(call, 4, 0),
                                   .groups = call.integer_or(6, 1),
                                   .dilation = sizes_of(call, 7, 1),
                                   .transposed = true,
                                   .output_padding = sizes_of(call, 5, 0)};
  call.returns(convolution(call.tensor(0), call.tensor(1), call.tensor_or_none(2), options));
}

template <int rank>
void max_pool_row(RecordedCall& call) {  // input kernel_size stride padding dilation ceil_mode return_indices
  expect_rank(call, rank + 2);
  if (call.boolean_or(6, false)) call.refuse("return_indices");
  const SpatialSizes kernel = sizes_of(call, 1, 1);
  call.returns(max_pool(call.tensor(0), {.kernel = kernel,
                                         .stride = sizes_of(call, 2, kernel),
                                         .padding = sizes_of(call, 3, 0),
                                         .dilation = sizes_of(call, 4, 1),
                                         .ceil_mode = call.boolean_or(5, false)}));
}

template <int rank>
void avg_pool_row(RecordedCall& call) {  // input kernel_size stride padding ceil_mode
  expect_rank(call, rank + 2);
  const SpatialSizes kernel = sizes_of(call, 1, 1);
  call.returns(avg_pool(call.tensor(0), {.kernel = kernel,
                                         .stride = sizes_of(call, 2, kernel),
                                         .padding = sizes_of(call, 3, 0),
                                         .ceil_mode = call.boolean_or(4, false)}));
}

/// The result's shape of an adaptive pool; None keeps a size.
Shape adaptive_shape(const RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  Shape shape = x.shape();
  for (int dim = 2; dim < shape.rank; ++dim) {
    const auto& slot = call.slot(1);
    if (slot.kind != BoundArgument::Kind::kList) {
      shape[dim] = call.integer(1);
    } else if (const auto i = static_cast<std::size_t>(dim - 2); i < slot.items.size()) {
      if (slot.items[i].kind != BoundArgument::Kind::kNone) shape[dim] = call.integer(slot.items[i]);
    }
  }
  return shape;
}

template <int rank>
void adaptive_avg_row(RecordedCall& call) {
  expect_rank(call, rank + 2);
  const Shape shape = adaptive_shape(call);
  if (rank == 1) return call.returns(adaptive_avg_pool1d(call.tensor(0), shape[2]));
  call.returns(adaptive_avg_pool(call.tensor(0), shape));
}

template <int rank>
void adaptive_max_row(RecordedCall& call) {
  expect_rank(call, rank + 2);
  if (call.boolean_or(2, false)) call.refuse("return_indices");
  call.returns(adaptive_max_pool(call.tensor(0), adaptive_shape(call)));
}

/// MaxUnpooling.cpp, max_unpooling2d_forward: zeros of the larger size; backward takes the gradient at the indices.
void max_unpool_row(RecordedCall& call) {  // input indices kernel_size stride padding output_size
  const Tensor &x = call.tensor(0), &indices = call.tensor(1);
  expect_rank(call, 4);
  const auto of = [&](int slot, std::vector<std::int64_t> otherwise) {
    std::vector<std::int64_t> sizes = call.has(slot) ? call.integers(slot) : std::move(otherwise);
    if (sizes.size() == 1) sizes.push_back(sizes.front());
    if (sizes.size() < 2) call.refuse("no size");
    return sizes;
  };
  const std::vector<std::int64_t> kernel = of(2, {});
  const std::vector<std::int64_t> stride = of(3, kernel), padding = of(4, {0});
  Shape shape = x.shape();
  for (std::size_t i = 0; i < 2; ++i) {
    std::int64_t& size = shape[static_cast<int>(i) - 2];
    size = (size - 1) * stride[i] - 2 * padding[i] + kernel[i];
  }
  if (call.has(5)) {
    const std::vector<std::int64_t> sizes = of(5, {});
    for (int dim = -2; dim < 0; ++dim) shape[dim] = sizes[sizes.size() - static_cast<std::size_t>(-dim)];
  }
  if (shape[-1] < 1 || shape[-2] < 1) call.refuse("such a size");
  Node* node = record(aten::kMaxUnpool2d,
                      [](BackwardCall& back) {
                        const Shape places = back.saved(0).shape();
                        back.set(0, filled(back.tape, places, back.gradient().dtype(), aten::kGather));
                      },
                      {&x}, {&indices});
  call.returns(finish(node, filled(call.tape, shape, x.dtype(), aten::kMaxUnpool2d)));
}

void interpolate_row(RecordedCall& call) {  // input size scale_factor mode align_corners recompute antialias
  const Tensor& x = call.tensor(0);
  Shape shape = x.shape();
  const int slot = call.has(1) ? 1 : 2;
  if (!call.has(slot)) call.refuse("no size");
  const BoundArgument& given = call.slot(slot);
  for (int dim = 2; dim < shape.rank; ++dim) {
    const auto i = static_cast<std::size_t>(dim - 2);
    const bool each = given.kind == BoundArgument::Kind::kList;
    if (each && i >= given.items.size()) call.refuse("another number of sizes");
    const BoundArgument& size = each ? given.items[i] : given;
    const bool whole = size.kind == BoundArgument::Kind::kInteger;
    if (slot == 1) {
      shape[dim] = call.integer(size);
    } else {  // torch/nn/functional.py: floor(size * scale)
      const double scale = whole ? static_cast<double>(size.integer) : size.number;
      shape[dim] = static_cast<std::int64_t>(std::floor(static_cast<double>(shape[dim]) * scale));
    }
  }
  const std::string_view mode = call.text_or(3, "nearest");
  if (mode == "area") return call.returns(adaptive_avg_pool(x, shape));
  if (mode.starts_with("nearest")) return call.returns(interpolate(x, shape, Interpolation::kNearest));
  call.returns(interpolate(x, shape, mode == "bicubic" ? Interpolation::kCubic : Interpolation::kLinear));
}

void unfold_row(RecordedCall& call) {  // input kernel_size dilation padding stride
  expect_rank(call, 4);
  const ConvolutionOptions options{
      .stride = sizes_of(call, 4, 1), .padding = sizes_of(call, 3, 0), .dilation = sizes_of(call, 2, 1)};
  call.returns(unfold(call.tensor(0), sizes_of(call, 1, 1), options));
}

void windows_row(RecordedCall& call) {  // input dimension size step
  const Tensor& x = call.tensor(0);
  const int dim = call.dimension(1, x.rank(), 0);
  const std::int64_t size = call.integer(2), step = call.integer(3);
  if (x.rank() == 0 || x.rank() == kMaxDims || size < 0 || size > x.size(dim) || step < 1) call.refuse("such windows");
  call.returns(windows(x, dim, size, step));
}

void fold_row(RecordedCall& call) {  // input output_size kernel_size dilation padding stride
  expect_rank(call, 3);
  const Tensor& columns = call.tensor(0);
  const SpatialSizes image = sizes_of(call, 1, 1), window = sizes_of(call, 2, 1);
  call.returns(fold(columns, {columns.size(0), columns.size(1) / (window[0] * window[1]), image[0], image[1]}));
}

void pixel_shuffle_row(RecordedCall& call) {
  expect_rank(call, 4);
  call.returns(pixel_shuffle(call.tensor(0), call.integer(1)));
}

void pixel_unshuffle_row(RecordedCall& call) {
  expect_rank(call, 4);
  call.returns(pixel_unshuffle(call.tensor(0), call.integer(1)));
}

constexpr char kConvolution[] = "input weight bias stride padding dilation groups";
constexpr char kTransposed[] = "input weight bias stride padding output_padding groups dilation";
constexpr char kMaxPool[] = "input kernel_size stride padding dilation ceil_mode return_indices";
constexpr char kAvgPool[] = "input kernel_size stride padding ceil_mode count_include_pad divisor_override";

constexpr OperatorRow kRows[] = {
    {"conv1d", kConvolution, convolution_row<1>},
    {"conv2d", kConvolution, convolution_row<2>},
    {"conv3d", kConvolution, convolution_row<3>},
    {"conv_transpose1d", kTransposed, transposed_row<1>},
    {"conv_transpose2d", kTransposed, transposed_row<2>},
    {"conv_transpose3d", kTransposed, transposed_row<3>},
    {"max_pool1d", kMaxPool, max_pool_row<1>},
    {"max_pool2d", kMaxPool, max_pool_row<2>},
    {"max_pool3d", kMaxPool, max_pool_row<3>},
    {"avg_pool1d", kAvgPool, avg_pool_row<1>},
    {"avg_pool2d", kAvgPool, avg_pool_row<2>},
    {"avg_pool3d", kAvgPool, avg_pool_row<3>},
    {"adaptive_avg_pool1d", "input output_size", adaptive_avg_row<1>},
    {"adaptive_avg_pool2d", "input output_size", adaptive_avg_row<2>},
    {"adaptive_avg_pool3d", "input output_size", adaptive_avg_row<3>},
    {"adaptive_max_pool1d", "input output_size return_indices", adaptive_max_row<1>},
    {"adaptive_max_pool2d", "input output_size return_indices", adaptive_max_row<2>},
    {"adaptive_max_pool3d", "input output_size return_indices", adaptive_max_row<3>},
    {"max_unpool2d", "input indices kernel_size stride padding output_size", max_unpool_row},
    {"interpolate", "input size scale_factor mode align_corners recompute_scale_factor antialias", interpolate_row},
    {"unfold", "input kernel_size dilation padding stride", unfold_row},
    {"Tensor.unfold", "input dimension size step", windows_row},
    {"fold", "input output_size kernel_size dilation padding stride", fold_row},
    {"pixel_shuffle", "input upscale_factor", pixel_shuffle_row},
    {"pixel_unshuffle", "input downscale_factor", pixel_unshuffle_row},
};

}  // namespace

std::span<const OperatorRow> image_rows() { return kRows; }

}  // namespace memcalc
