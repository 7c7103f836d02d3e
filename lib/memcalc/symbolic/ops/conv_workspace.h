// What cuDNN requests beside a convolution's result: layout copies, Winograd tiles, split-K partial sums.
// MIRRORS(torch, "aten/src/ATen/native/Convolution.cpp", "2.11.0")
#pragma once

#include <cstdint>

#include "memcalc/base/bytes.h"
#include "memcalc/base/dtype.h"
#include "memcalc/spec/device_spec.h"

namespace memcalc {

enum class ConvolutionPass : std::uint8_t { kForward, kInputGradient, kWeightGradient };

/// A convolution as cuDNN sees it.
struct ConvolutionShape {
  std::int64_t batch = 1;
  std::int64_t in_channels = 0, height = 0, width = 0;
  std::int64_t out_channels = 0, out_height = 0, out_width = 0;
  std::int64_t groups = 1, kernel_height = 1, kernel_width = 1, stride = 1, padding = 0;
  bool channels_last = false;                               // the tensors' strides, which decide the engine
  std::int64_t depth = 1, out_depth = 1, kernel_depth = 1;  // of a volume
  int spatial_rank = 2;
  std::int64_t dilation = 1;                 // the largest of all dimensions
  std::int64_t padding_across = kAsPadding;  // of an image's width, where it is not the height's
  bool transposed = false;
  bool same_steps = true;       // stride and dilation, in both dimensions of an image
  bool same_everywhere = true;  // stride and padding, in both dimensions of an image; no dilation

  static constexpr std::int64_t kAsPadding = -1;
  [[nodiscard]] bool dilated() const { return dilation > 1; }
};

/// True where PyTorch computes it with a kernel of its own, which needs no workspace: ConvParams::is_depthwise and
/// use_cudnn_depthwise (aten/src/ATen/native/Convolution.cpp).
[[nodiscard]] bool uses_depthwise_kernel(const ConvolutionShape& shape, DType dtype);

/// cuDNN 9.19 on sm_90, the first engine of its heuristics (torch.backends.cudnn.benchmark = False). The engine is
/// cuDNN's secret: for the convolutions of torchvision's classifiers at 224 pixels it was measured for 13 batch sizes,
/// and what lies between follows the neighbours; any other image and each volume gets its likely engine
/// (conv_engine.h).
[[nodiscard]] Bytes convolution_workspace(const ConvolutionShape& shape, ConvolutionPass pass, DType dtype,
                                          bool allow_tf32);

/// The same of a convolution over a sequence: [batch, channels, length], kernel_width wide. Measured are Whisper's, of
/// all its widths over 3,000 frames, and eight others; else its likely engine.
[[nodiscard]] Bytes sequence_convolution_workspace(const ConvolutionShape& shape, ConvolutionPass pass, DType dtype,
                                                   bool allow_tf32);

/// A share of the card that is worth a look whether it is there.
[[nodiscard]] bool is_large_workspace(Bytes bytes, const DeviceSpec& device);

/// Whether a large workspace finds memory beside what is held. `earlier`: the largest one before it, if that was large.
/// native/cudnn/Conv_v8.cpp, try_plans and run_single_conv (torch 2.11): a plan whose workspace finds none
/// (c10::OutOfMemoryError) is passed over for the next one, which needs little. By then the allocator has given back
/// the segments that are wholly free (c10/cuda/CUDACachingAllocator.cpp, malloc); that of an earlier workspace is none
/// of them, for what was asked for since lies in it.
[[nodiscard]] bool workspace_finds_memory(Bytes bytes, Bytes held, Bytes earlier, const DeviceSpec& device);

/// True where the table holds this convolution (at any batch size).
[[nodiscard]] bool is_measured_convolution(const ConvolutionShape& shape, DType dtype, bool allow_tf32);

}  // namespace memcalc
