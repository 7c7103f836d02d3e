// TracedStep: the forward and backward pass of a module that no family describes, as PyTorch itself ran it on the meta
// device: which operators ran, what they asked for and when it died (python/memcalc/_traced.py records it). What the
// device would add is not in it: temporaries inside an operator, the allocator. The workspaces of cuBLAS and of cuDNN's
// convolutions follow from calls that it names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/base/dtype.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

struct TracedParameter {
  std::string name;                 // as in named_parameters()
  std::vector<std::int64_t> shape;  // outermost first
  DType dtype = DType::kFloat32;
  bool trainable = true;
};

enum class TracedEventKind : std::uint8_t {
  kAllocate,   // `block` is born: `bytes`, `category`, by `operator_index`
  kFree,       // `block` dies
  kCompute,    // `operator_index` runs: `flops`, `bytes` moved, `dtype`, `is_contraction`, `cublas`
  kGradient,   // `block` has become (or is added to) the gradient of `parameter`
  kWorkspace,  // the convolution of TracedStep::convolutions at `block` takes its workspace, and gives it back
};

/// Who computes: a call of cuBLAS leaves a workspace behind, one of cuBLASLt (a fused bias) another.
enum class TracedCublas : std::uint8_t { kNone, kPlain, kWithLt };

enum class TracedConvolutionPass : std::uint8_t { kForward, kInputGradient, kWeightGradient };

/// A call of aten::convolution over images, or a part of aten::convolution_backward. Shapes: [N, C, H, W], the weight's
/// [out, C / groups, kh, kw].
struct TracedConvolution {
  TracedConvolutionPass pass = TracedConvolutionPass::kForward;
  std::array<std::int64_t, 4> input{}, weight{}, output{};
  std::int64_t stride = 1, padding = 0, groups = 1;
  DType dtype = DType::kFloat32;
  bool channels_last = false;  // the strides of input or weight
};

struct TracedEvent {
  TracedEventKind kind = TracedEventKind::kAllocate;
  std::int32_t block = -1;
  std::int32_t parameter = -1;
  std::int32_t operator_index = -1;  // into TracedStep::operators
  Bytes bytes = 0;
  double flops = 0;
  Category category = Category::kTemporaries;
  DType dtype = DType::kFloat32;
  bool is_contraction = false;
  TracedCublas cublas = TracedCublas::kNone;
};

struct TracedStep {
  std::string name;  // of the module's class
  std::vector<TracedParameter> parameters;
  std::vector<Bytes> buffers;
  std::vector<Bytes> inputs;  // one micro-batch
  std::int64_t batch_size = 1;
  Precision precision = Precision::kFp32;  // under which it was traced
  std::vector<std::string> operators;      // "aten::mm"
  std::vector<TracedEvent> forward;
  std::vector<TracedEvent> backward;
  std::vector<TracedConvolution> convolutions;
  std::size_t block_count = 0;  // blocks are numbered from 0, in both passes together
  std::int32_t loss = -1;       // the block of the loss, which outlives the forward pass
  DType loss_dtype = DType::kFloat32;
};

}  // namespace memcalc
