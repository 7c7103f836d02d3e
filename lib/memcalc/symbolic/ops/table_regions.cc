// Rows of the operator table for detectors: torchvision's own operators (torchvision 0.26:
// csrc/ops/cuda/nms_kernel.cu, csrc/ops/{autograd,autocast,cuda}/{roi_align,deform_conv2d}_kernel.*) and the random
// order of its samplers (aten/src/ATen/native/cuda/Randperm.cu).
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {
namespace {

constexpr std::int64_t kBoxesOfBlock = 64;  // threadsPerBlock: the bits of a word of the mask
constexpr double kFlops = 20;  // about, of a pair of boxes, or of a pixel that is interpolated between four

/// The boxes in the order of their scores, a word of a mask for each box and 64 others, which the host reads; how many
/// are kept was recorded.
void nms_row(RecordedCall& call) {  // dets scores iou_threshold
  const Tensor dets = autocast(aten::kNms, call.tensor(0)), scores = autocast(aten::kNms, call.tensor(1));
  const std::int64_t boxes = dets.size(0);
  Tape& tape = call.tape;
  const NoGrad no_grad(tape.modes);
  const Tensor values = tape.empty({boxes}, scores.dtype(), aten::kSortOf);
  const Tensor order = tape.empty({boxes}, DType::kInt64, aten::kSortOf);
  tape.memory.scratch(radix_sort_bytes(boxes), aten::kSortOf);
  tape.kernels.add(aten::kSortOf, OperatorClass::kMovement, scores.dtype(), 0,
                   3.0 * static_cast<double>(order.bytes()));
  const Tensor in_order = tape.empty(dets.shape(), dets.dtype(), aten::kNms);
  const Tensor mask = tape.empty({boxes * ceil_div(boxes, kBoxesOfBlock)}, DType::kInt64, aten::kNms);
  tape.kernels.add(aten::kNms, OperatorClass::kElementwise, dets.dtype(),
                   kFlops * static_cast<double>(boxes) * static_cast<double>(boxes), static_cast<double>(mask.bytes()));
  tape.kernels.describe(work::Rows{.count = boxes, .width = ceil_div(boxes, kBoxesOfBlock)});
  tape.kernels.synchronize(aten::kNms);
  const Tensor places = tape.empty({call.given().shape[0]}, DType::kInt64, aten::kToCopy);
  call.returns(tape.empty({call.given().shape[0]}, DType::kInt64, aten::kNms));
}

/// InputShape, and the samples that each element of the result is the mean of.
struct AlignedRegions {
  Shape shape;
  std::int64_t samples = 1;
};

void roi_align_backward(BackwardCall& call) {
  const Tensor& gradient = call.gradient();
  const auto& regions = call.payload<AlignedRegions>();
  Tensor result = filled(call.tape, regions.shape, gradient.dtype(), aten::kZeros);
  call.tape.kernels.add(aten::kRoiAlign, OperatorClass::kElementwise, gradient.dtype(),
                        kFlops * static_cast<double>(gradient.elements()),
                        static_cast<double>(gradient.bytes() + result.bytes()));
  call.tape.kernels.describe(work::Rows{.count = gradient.elements(), .width = regions.samples, .backward = true});
  call.set(0, std::move(result));
}

/// In float32 under autocast, which casts the result to the images' type again.
void roi_align_row(RecordedCall& call) {  // input rois spatial_scale pooled_height pooled_width sampling_ratio aligned
  const DType dtype = call.tensor(0).dtype();
  const Tensor x = autocast(aten::kRoiAlign, call.tensor(0)), rois = autocast(aten::kRoiAlign, call.tensor(1));
  // A ratio of zero takes as many as a region's part has pixels: as many as torchvision's detectors ask for are said.
  constexpr std::int64_t kUsualRatio = 2;
  const std::int64_t asked = call.has(5) ? call.integer(5) : 0, ratio = asked > 0 ? asked : kUsualRatio;
  const std::int64_t samples = ratio * ratio;
  Node* node = record(aten::kRoiAlign, roi_align_backward, {&x});
  if (node != nullptr) {
    node->payload.set(AlignedRegions{x.shape(), samples});
    call.tape.autograd.save(*node, rois);
  }
  Tensor result =
      filled(call.tape, {rois.size(0), x.size(1), call.integer(3), call.integer(4)}, x.dtype(), aten::kRoiAlign);
  call.tape.kernels.add(aten::kRoiAlign, OperatorClass::kElementwise, x.dtype(),
                        kFlops * static_cast<double>(result.elements()),
                        static_cast<double>(x.bytes() + result.bytes()));
  call.tape.kernels.describe(work::Rows{.count = result.elements(), .width = samples});
  result = finish(node, std::move(result));
  call.returns(to_dtype(std::move(result), dtype));
}

// --- deformable convolutions

/// csrc/ops/cuda/deform_conv2d_kernel.cu
struct DeformedConvolution {
  std::int64_t images = 1, parallel = 1, groups = 1, in_rows = 0, out_channels = 0, places = 0;  // places: of an image

  /// kMaxParallelImgs: as many images at a time as divide the batch.
  void in_blocks_of(std::int64_t batch) {
    images = batch;
    for (parallel = 32; batch % parallel != 0;) --parallel;
  }
  [[nodiscard]] Shape columns() const { return {in_rows, parallel * places}; }

  /// What a block of images takes: the image at the places of each window, and a product for each group.
  void count(Tape& tape, const Operator& op, const Tensor& columns, bool by_columns, int passes) const {
    for (std::int64_t block = 0; block < images / parallel; ++block) {
      for (int pass = 0; pass < passes; ++pass) {
        tape.kernels.add(op, OperatorClass::kElementwise, columns.dtype(),
                         kFlops * static_cast<double>(columns.elements()), 2.0 * static_cast<double>(columns.bytes()));
      }
      for (std::int64_t group = 0; group < groups; ++group) {
        tape.memory.use_cublas(false);
        const std::int64_t rows = out_channels / groups, inner = in_rows / groups, all = parallel * places;
        if (by_columns)
          tape.kernels.product(op, columns.dtype(), 1, rows, all, inner);
        else
          tape.kernels.product(op, columns.dtype(), 1, rows, inner, all);
      }
    }
  }
};

struct DeformedPayload {
  DeformedConvolution sizes;
  Handed aside;
};

/// Inputs: image, weight, offsets (and the mask), bias; saved: image, weight, offsets, mask, bias.
void deform_conv2d_backward(BackwardCall& call) {
  const Operator& op = aten::kDeformConv2dBackward;
  const auto& [sizes, aside] = call.payload<DeformedPayload>();
  Tape& tape = call.tape;
  const Tensor gradient = contiguous(call.gradient());
  const DType dtype = gradient.dtype();
  const auto zeros_like = [&](int i) { return filled(tape, call.saved(i).shape(), dtype, aten::kZeros); };
  Tensor of_image = zeros_like(0), of_offsets = zeros_like(2), of_mask = zeros_like(3);
  const Shape of_group{sizes.out_channels / sizes.groups, sizes.parallel * sizes.places};
  {
    const Tensor columns = tape.empty(sizes.columns(), dtype, op);
    if (sizes.parallel > 1) (void)filled(tape, of_group, dtype, aten::kClone);  // a group's channels of several images
    sizes.count(tape, op, columns, true, 3);
  }
  Tensor of_weight = zeros_like(1);
  {
    Tensor in_order;
    if (sizes.parallel > 1) in_order = filled(tape, gradient.shape(), dtype, aten::kClone);
    const Tensor columns = tape.empty(sizes.columns(), dtype, op);
    sizes.count(tape, op, columns, false, 1);
  }
  Tensor of_bias;
  {
    const Shape channels = call.saved(4).shape();
    const Tensor ones = filled(tape, channels, dtype, aten::kOnesLike);
    const Tensor sum = filled(tape, channels, dtype, aten::kSum);
    of_bias = filled(tape, channels, dtype, aten::kMul);
  }
  call.set(0, std::move(of_image));
  call.set(1, std::move(of_weight));
  call.set(2, std::move(of_offsets));
  if (aside != nullptr && call.needs(2)) *aside = std::move(of_mask);
  call.set(3, std::move(of_bias));
}

/// In float32 under autocast, whose result has the image's type again; the last argument is cast first.
void deform_conv2d_row(RecordedCall& call) {  // input weight offset mask bias, steps, groups, use_mask
  const DType dtype = call.tensor(0).dtype();
  const auto cast_one = [&](int i) { return autocast(aten::kDeformConv2d, call.tensor(i)); };
  const Tensor bias = cast_one(4), mask = cast_one(3), offsets = cast_one(2), weight = cast_one(1), x = cast_one(0);
  Tape& tape = call.tape;
  DeformedPayload payload;
  payload.sizes.in_blocks_of(x.size(0));
  payload.sizes.groups = call.integer(11);
  payload.sizes.in_rows = x.size(1) * weight.size(2) * weight.size(3);
  payload.sizes.out_channels = weight.size(0);
  payload.sizes.places = offsets.size(2) * offsets.size(3);
  Tensor both = offsets;
  if (call.boolean_or(13, false)) {
    payload.aside = std::make_shared<Tensor>();
    both = with_aside(offsets, mask, payload.aside);
  }
  Node* node = record(aten::kDeformConv2d, deform_conv2d_backward, {&x, &weight, &both, &bias},
                      {&x, &weight, &offsets, &mask, &bias});
  const Shape shape{x.size(0), weight.size(0), offsets.size(2), offsets.size(3)};
  Tensor result;
  {
    const NoGrad no_grad(tape.modes);
    const Tensor out = filled(tape, shape, x.dtype(), aten::kZeros),
                 in_order = filled(tape, shape, x.dtype(), aten::kZeros);
    const Tensor columns = filled(tape, payload.sizes.columns(), x.dtype(), aten::kZeros);
    payload.sizes.count(tape, aten::kDeformConv2d, columns, true, 1);
    result = filled(tape, shape, x.dtype(), aten::kAdd);
  }
  if (node != nullptr) node->payload.set(std::move(payload));
  call.returns(to_dtype(finish(node, std::move(result)), dtype));
}

/// A range that is sorted by random keys, of as many bits as make two equal ones rare.
void randperm_row(RecordedCall& call) {  // n generator out dtype layout device
  const std::int64_t n = call.integer(0);
  Tape& tape = call.tape;
  if (!call.text_or(5, "cpu").starts_with("cuda")) {
    const OnMetaDevice on_meta(tape.memory);
    return call.returns(tape.empty({n}, DType::kInt64, aten::kToCopy));
  }
  Tensor result = tape.empty({n}, DType::kInt64, aten::kRandperm);
  if (n > 0) {
    const auto size = static_cast<double>(n);
    const int bits =
        std::min(64, static_cast<int>(std::ceil(std::log2(size - (6 * size * size + 1) / (12 * std::log(0.9))))));
    const Tensor range = tape.empty({n}, DType::kInt64, aten::kArange);
    const DType key = bits <= 32 ? DType::kInt32 : DType::kInt64;
    const Tensor keys = tape.empty({n}, key, aten::kRandperm), sorted_keys = tape.empty({n}, key, aten::kRandperm);
    tape.memory.scratch(radix_sort_bytes(n, bits), aten::kRandperm);
    tape.kernels.add(aten::kRandperm, OperatorClass::kMovement, key, 0, 6.0 * static_cast<double>(result.bytes()));
  }
  call.returns(std::move(result));
}

constexpr OperatorRow kRegionRows[] = {
    {"nms", "dets scores iou_threshold", nms_row},
    {"roi_align", "input rois spatial_scale pooled_height pooled_width sampling_ratio aligned", roi_align_row},
    {"deform_conv2d",
     "input weight offset mask bias stride_h stride_w pad_h pad_w dilation_h dilation_w groups offset_groups use_mask",
     deform_conv2d_row},
    {"randperm", "n generator out dtype layout device requires_grad pin_memory", randperm_row},
};

}  // namespace

std::span<const OperatorRow> region_rows() { return kRegionRows; }

}  // namespace memcalc
