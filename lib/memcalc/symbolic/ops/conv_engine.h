// cuDNN's engine for a convolution that nobody measured, and what each engine requests beside the result.
#pragma once

#include "memcalc/symbolic/ops/conv_workspace.h"

namespace memcalc {

/// What an engine requests, as a number of specs/measured/cudnn-9.19/convolution_engines.txt: which copies it makes in
/// its own layout, and for a split sum how many partial results it keeps in float32.
class ConvolutionEngine {
 public:
  explicit constexpr ConvolutionEngine(int number) : number_{number} {}

  /// Bytes. Row-major tensors of 16 bits and of TF32 are copied with channels in multiples of 16 bytes, which tensor
  /// cores read; groups as they are, or each as wide as the next power of two.
  [[nodiscard]] Bytes workspace(const ConvolutionShape& shape, DType dtype, bool allow_tf32) const;

 private:
  int number_;
};

/// How a convolution computes, as the tables of specs/measured number it.
enum ConvolutionMode { kFp32, kTf32, kFp16, kBf16 };
[[nodiscard]] ConvolutionMode convolution_mode(DType dtype, bool allow_tf32);

/// Winograd's transformed weights, input and output: tiles of 6 x 6 in float32, of which 4 x 4 are results.
[[nodiscard]] Bytes winograd_workspace(const ConvolutionShape& shape);

/// The engine that decision trees name, which were made of 270,000 convolutions on Hopper (cuDNN 9.19), with trees of
/// their own for volumes, for images in groups and for images in patches that do not overlap. Of the convolutions of 40
/// networks that were left out with all their windows and channels (row-major, images) they give the bytes within 1 KiB
/// in 90, 90 and 71 % (bfloat16: forward, input's and weight's gradient), in 98, 95 and 90 % (float32), when there were
/// 166,000. Of 52,616 random ones that were left out 86.5, 87.6 and 58.8 %. In bfloat16 of volumes in 91, 80 and 33 %,
/// in groups in 62, 53 and 25 %, of patches in 89, 69 and 29 %, when they were made first. Of sequences in 85, 86 and
/// 49 %, in float32 99, 100 and 82 %, in groups (float32) 68, 72 and 73 %.
[[nodiscard]] ConvolutionEngine likely_engine(const ConvolutionShape& shape, ConvolutionPass pass, DType dtype,
                                              bool allow_tf32);

}  // namespace memcalc
