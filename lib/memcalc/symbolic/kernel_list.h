// KernelList: what a step computes, in order: the input of cost/ and of the FLOP counts.
#pragma once

#include <cstdint>
#include <string_view>

#include "memcalc/base/dtype.h"
#include "memcalc/base/kept_vector.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

enum class Collective : std::uint8_t { kNone, kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast, kSend };

/// How a kernel works: which model of cost/ gives its time.
enum class KernelKind : std::uint8_t {
  kVectorized,         // element-wise; operands contiguous and of one type
  kConverting,         // element-wise; contiguous, of several types
  kStrided,            // element-wise; an operand is broadcast, permuted or a slice: one index calculation an element
  kRandom,             // element-wise with random numbers: dropout
  kRowwise,            // a block holds a row: normalisations, softmax
  kRowSum,             // reduces the innermost dimension
  kColumnSum,          // reduces outer dimensions: gradients of biases
  kImage,              // batch norm, pooling: a plane or channel a block
  kIndexed,            // gathers rows
  kEmbeddingBackward,  // m indices, n wide
  kMultiTensor,        // foreach and fused kernels over lists of parameters
  kMatrixProduct,
  kGroupedProduct,  // batch: groups; m: rows of an average one
  kCudnnAttention,
  kFlashAttention,
  kEfficientAttention,
  kConvolution,
  kDepthwiseConvolution,
  kPartOfPrevious,  // computed by the kernel recorded before it
  // Not on the card
  kCopyToDevice,  // from host memory
  kCopyToHost,
  kSynchronize,  // the host waits until the card has finished what was issued: .item(), .tolist(), a copy to Python
};

/// "vectorized", "product", …
[[nodiscard]] std::string_view name_of(KernelKind kind);

/// Which operands of a product are stored transposed (column-major): a forward Linear has kSecond, its input gradient
/// kNone, its weight gradient kFirst.
enum class Transposed : std::uint8_t { kNone, kFirst, kSecond, kBoth };

/// One operator call of one optimizer step.
struct Kernel {
  const Operator* op = nullptr;
  const Operator* node = nullptr;  // the autograd node that issued it; null in forward
  OperatorClass operator_class = OperatorClass::kElementwise;
  Phase phase = Phase::kForward;
  KernelKind kind = KernelKind::kVectorized;
  Transposed transposed = Transposed::kNone;
  bool recomputed = false;   // part of a checkpoint's second forward
  bool causal = false;       // attention: the upper half of the scores is not computed
  bool dropout = false;      // attention: with random numbers
  bool backward = false;     // attention, convolution: the gradient's kernels
  bool flag = false;         // products and convolutions: float32 in TF32;
                             // copies: the host's memory is pinned
  std::int64_t repeats = 1;  // calls like this one in a step: micro-batches that were not executed
  DType dtype = DType::kFloat32;
  std::int32_t views = 0;     // operators without a kernel (views) that the host called since the kernel before
  std::int32_t nodes = 0;     // autograd nodes that it evaluated since the kernel before
  std::int32_t launches = 1;  // kernels that the operator puts on the queue
  double elements = 0;        // element-wise: iterated over; convolutions: input channels of a group
  double flops = 0;  // of one call; a multiply-add counts 2; contractions counted as torch.utils.flop_counter does
  double bytes = 0;  // read and written by an ideal kernel
  CudaStream stream = CudaStream::kDefault;  // on which it runs beside the others
  Collective collective = Collective::kNone;
  /// Collectives only: bytes as nccl-tests count them (the whole tensor: what is gathered, what is to be scattered; of
  /// a message what is sent), and the ranks that take part.
  double collective_bytes = 0;
  std::int64_t group_size = 1;
  /// Contractions: C[batch, m, n] += A[batch, m, k] B[batch, k, n]. kRowwise: m rows of n. kMultiTensor: m tensors.
  std::int64_t m = 0, n = 0, k = 0, batch = 0;
};

using KernelList = KeptVector<Kernel>;

}  // namespace memcalc
