// KernelLog: writes down what a run computes, in order, each kernel with the moment at which it is issued.
// Covered by tests/unit/kernel_log_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "memcalc/base/bytes.h"
#include "memcalc/symbolic/kernel_list.h"
#include "memcalc/symbolic/moment.h"

namespace memcalc {

class KernelLog {
 public:
  /// Pre: `moment` outlives the log.
  explicit KernelLog(const Moment& moment) : moment_(moment) {}

  /// `bytes`: read and written. `elements`: iterated over; where it is not given, half of those that `bytes` are.
  void add(const Operator& op, OperatorClass operator_class, DType dtype, double flops, double bytes,
           KernelKind kind = KernelKind::kVectorized, double elements = 0);
  /// C[batch, m, n] += A[batch, m, k] B[batch, k, n]. `kind`: kMatrixProduct or kPartOfPrevious.
  void product(const Operator& op, DType dtype, std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
               KernelKind kind = KernelKind::kMatrixProduct, Transposed transposed = Transposed::kNone);
  /// `rows` in as many groups, however long each, multiplied or summed over by matrices [k, n] of their own.
  void grouped_product(const Operator& op, DType dtype, std::int64_t groups, std::int64_t rows, std::int64_t k,
                       std::int64_t n);
  /// The gradients of `groups` matrices [k, n] from `rows` in as many groups, added to a buffer of such a type.
  void grouped_weight_gradient(const Operator& op, DType dtype, std::int64_t groups, std::int64_t rows, std::int64_t k,
                               std::int64_t n, DType buffer);
  /// A fused kernel, of whose products this is the first: queries by keys.
  void attention(const Operator& op, DType dtype, KernelKind kind, const work::Attention& attention);
  /// `kind`: kConvolution or kDepthwiseConvolution.
  void convolution(const Operator& op, DType dtype, KernelKind kind, const work::Convolution& convolution,
                   double bytes);
  /// A copy between the card and pinned host memory. `kind`: kCopyToDevice or kCopyToHost.
  void pinned_copy(const Operator& op, DType dtype, Bytes bytes, KernelKind kind);
  /// A collective of `ranks`, or a message (2); `bytes` and `distance` as in work::Communication.
  /// Its place in the list, from 1 on; 0 where nothing is recorded.
  std::size_t collective(const Operator& op, Collective kind, DType dtype, Bytes bytes, std::int64_t ranks,
                         std::int64_t distance = 0);
  /// The compute stream waits for the collective of that place before what is recorded next; for none of 0.
  void await(std::size_t place);
  /// The host reads a number from the card, so it waits for it (.item(), bool(tensor)); or for the first `kernels` of
  /// those that it has issued.
  void synchronize(const Operator& op, std::int64_t kernels = 0);
  /// What the kernel recorded last works on; nothing where none is recorded.
  void describe(const Work& work) {
    if (Kernel* kernel = last()) kernel->work = work;
  }
  /// The kernel recorded last, to say more of it; null where none is recorded.
  [[nodiscard]] Kernel* last() { return recording && !list_.empty() ? &list_.back() : nullptr; }

  /// The host has called an operator that has no kernel: a view.
  void pass_view() { ++views_; }
  /// The host has begun to evaluate an autograd node.
  void pass_node() { ++nodes_; }

  /// What the host called before a record begins does not count for its first kernel.
  void forget_host_calls() { views_ = nodes_ = 0; }
  /// Kernels that were recorded before run once more.
  void replay(const KernelList& kernels);

  [[nodiscard]] std::size_t size() const { return list_.size(); }
  [[nodiscard]] const KernelList& list() const { return list_; }
  /// What was recorded; the log begins anew.
  [[nodiscard]] KernelList take() { return std::exchange(list_, {}); }

  bool recording = false;
  bool integers = false;              // with `recording`: operators of no_grad:: are recorded, too (ops/integer.h)
  bool convolutions_in_tf32 = false;  // torch.backends.cudnn.allow_tf32
  bool products_in_tf32 = false;      // torch.backends.cuda.matmul.allow_tf32
  std::int64_t repeats = 1;           // how often what runs now runs in a step
  double share = 1;                   // how often an average step runs it, where that is not every step's

 private:
  friend class SeparateKernels;

  void contraction(const Operator& op, DType dtype, std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                   KernelKind kind);

  const Moment& moment_;
  KernelList list_;
  std::int32_t views_ = 0;  // operators without a kernel since the last one
  std::int32_t nodes_ = 0;  // autograd nodes evaluated since the last kernel
};

/// Until the scope ends, kernels are recorded in a list of their own.
class SeparateKernels {
 public:
  explicit SeparateKernels(KernelLog& log)
      : log_(log), before_(log.take()), recording_before_(std::exchange(log.recording, true)) {}
  ~SeparateKernels() {
    log_.list_ = std::move(before_);
    log_.recording = recording_before_;
  }
  SeparateKernels(const SeparateKernels&) = delete;
  SeparateKernels& operator=(const SeparateKernels&) = delete;

 private:
  KernelLog& log_;
  KernelList before_;
  bool recording_before_;
};

}  // namespace memcalc
