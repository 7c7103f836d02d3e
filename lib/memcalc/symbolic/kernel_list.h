// KernelList: what a step computes, in order: the input of cost/ and of the FLOP counts.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "memcalc/base/dtype.h"
#include "memcalc/base/kept_vector.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

enum class Collective : std::uint8_t { kNone, kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast, kSend };

/// How a kernel works: which model of cost/ gives its time.
enum class KernelKind : std::uint8_t {
  kVectorized,         // element-wise; operands contiguous and of one type
  kConverting,         // element-wise; contiguous, of several types
  kStrided,            // element-wise; an operand is broadcast, permuted or a slice: one index calculation an element
  kTurned,             // the same, of a matrix turned over: neighbours in the result are none in an operand
  kRandom,             // element-wise with random numbers: dropout
  kRowwise,            // a block holds a row: normalisations, softmax
  kRowSum,             // reduces the innermost dimension
  kColumnSum,          // reduces outer dimensions: gradients of biases
  kImage,              // batch norm, pooling: a plane or channel a block
  kIndexed,            // gathers rows
  kEmbeddingBackward,  // a table's gradient
  kMultiTensor,        // foreach and fused kernels over lists of parameters
  kMatrixProduct,
  kGroupedProduct,  // of groups of rows, each with a matrix of its own
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

/// What a kernel works on, beside its elements and bytes: what the models of cost/ ask.
namespace work {

/// kRowwise
struct Rows {
  std::int64_t count = 0, width = 0;
  bool softmax = false;  // may read a row more than once
  bool backward = false;
  std::int64_t images = 0;  // of a batch norm: how many, where they are row-major (NCHW)

  [[nodiscard]] bool operator==(const Rows&) const = default;
};

/// kImage: images that are made larger or smaller, where the kernel goes over them one by one.
struct Resize {
  std::int64_t planes = 0;  // images times channels
  std::int64_t from_width = 0, to_width = 0;
  bool backward = false;
  bool row_major = true;  // how the operand lies: neighbours of a row are neighbours in memory

  [[nodiscard]] bool operator==(const Resize&) const = default;
};

/// kEmbeddingBackward
struct EmbeddingGradient {
  std::int64_t indices = 0, width = 0, table_rows = 0;

  [[nodiscard]] bool operator==(const EmbeddingGradient&) const = default;
};

/// kMultiTensor
struct TensorList {
  std::int64_t tensors = 0;
  bool of_dtensors = false;

  [[nodiscard]] bool operator==(const TensorList&) const = default;
};

/// kMatrixProduct, kGroupedProduct (`batch` groups, `m` rows of an average one), and as kPartOfPrevious the products
/// inside of fused attention: C[batch, m, n] += A[batch, m, k] B[batch, k, n].
struct Product {
  std::int64_t batch = 0, m = 0, n = 0, k = 0;
  Transposed transposed = Transposed::kNone;
  bool tf32 = false;             // of float32 operands
  double accumulated_bytes = 0;  // of a buffer that the result is added to: read and written

  [[nodiscard]] bool operator==(const Product&) const = default;
};

/// kCudnnAttention, kFlashAttention, kEfficientAttention. They do not ask whether TF32 is allowed.
struct Attention {
  std::int64_t heads = 0;  // of the whole batch
  std::int64_t queries = 0, keys = 0, width = 0;
  bool causal = false;  // the upper half of the scores is not computed
  bool dropout = false;
  bool bias = false;  // one is added to the scores: masks and position biases
  bool backward = false;
  bool learns_bias = false;  // with `backward`: the gradient of the bias, of each score, is written, too

  [[nodiscard]] bool operator==(const Attention&) const = default;
};

/// kConvolution, kDepthwiseConvolution, as an implicit product of pixels, output channels and windows, in each group.
struct Convolution {
  std::int64_t groups = 0, pixels = 0, channels = 0, depth = 0;
  double group_channels = 0;  // input channels of a group
  bool tf32 = false;          // of float32 images
  bool backward = false;
  bool weight_gradient = false;  // with `backward`
  bool channels_last = false;    // how the images lie
  std::int8_t dimensions = 2;    // of the images; 1: sequences, 3: volumes
  std::int64_t images = 1;

  [[nodiscard]] bool operator==(const Convolution&) const = default;
};

/// kCopyToDevice, kCopyToHost
struct HostCopy {
  bool pinned = false;  // the host's memory

  [[nodiscard]] bool operator==(const HostCopy&) const = default;
};

/// kSynchronize
struct Wait {
  std::int64_t kernels = 0;  // for as many, from the step's first on; 0: for all that were issued

  [[nodiscard]] bool operator==(const Wait&) const = default;
};

/// Work of the host alone, which issues nothing.
struct OfHost {
  HostWork what = HostWork::kTrainerStep;
  std::int64_t times = 0;

  [[nodiscard]] bool operator==(const OfHost&) const = default;
};

/// A collective or a message. Bytes as nccl-tests count them: the whole tensor (what is gathered, what is to be
/// scattered); of a message what is sent.
struct Communication {
  Collective kind = Collective::kAllReduce;
  double bytes = 0;
  std::int64_t ranks = 1;     // that take part
  std::int64_t distance = 0;  // between the numbers of neighbouring ones; 0: as of 1
  // The compute stream waits for it in front of the kernel that comes so many later in the list; 0: of the next where
  // it gathers, of the optimizer's first where it reduces.
  std::int64_t awaited_after = 0;

  [[nodiscard]] bool operator==(const Communication&) const = default;
};

}  // namespace work

/// std::monostate: element-wise, and whatever else its elements and bytes say all of.
using Work =
    std::variant<std::monostate, work::Rows, work::Resize, work::EmbeddingGradient, work::TensorList, work::Product,
                 work::Attention, work::Convolution, work::HostCopy, work::Wait, work::OfHost, work::Communication>;

/// One operator call of one optimizer step.
struct Kernel {
  const Operator* op = nullptr;
  const Operator* node = nullptr;  // the autograd node that issued it; null in forward
  OperatorClass operator_class = OperatorClass::kElementwise;
  Phase phase = Phase::kForward;
  KernelKind kind = KernelKind::kVectorized;
  bool recomputed = false;  // part of a checkpoint's second forward
  DType dtype = DType::kFloat32;
  CudaStream stream = CudaStream::kDefault;  // on which it runs beside the others
  std::int64_t repeats = 1;                  // calls like this one in a step: micro-batches that were not executed
  double share = 1;                          // of these that an average step makes: a generation may serve several
  std::int32_t views = 0;     // operators without a kernel (views) that the host called since the kernel before
  std::int32_t nodes = 0;     // autograd nodes that it evaluated since the kernel before
  std::int32_t launches = 1;  // kernels that the operator puts on the queue
  double elements = 0;        // iterated over
  double flops = 0;  // of one call; a multiply-add counts 2; contractions counted as torch.utils.flop_counter does
  double bytes = 0;  // read and written by an ideal kernel
  Work work;

  /// Null where it is other work.
  template <typename T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&work);
  }
  [[nodiscard]] bool communicates() const { return std::holds_alternative<work::Communication>(work); }
  [[nodiscard]] bool operator==(const Kernel&) const = default;
};

using KernelList = KeptVector<Kernel>;

}  // namespace memcalc
