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
/// their own for volumes, for images in groups, for images in patches that do not overlap and for sequences. Trees that
/// saw half of the 104,603 plans of random convolutions give the bytes of the other half in 86.5, 87.6 and 58.8 %
/// (forward, input's and weight's gradient; docs/any-module.md).
[[nodiscard]] ConvolutionEngine likely_engine(const ConvolutionShape& shape, ConvolutionPass pass, DType dtype,
                                              bool allow_tf32);

}  // namespace memcalc
