#include "memcalc/symbolic/kernel_log.h"

#include <utility>

namespace memcalc {

namespace {
double real(std::int64_t value) { return static_cast<double>(value); }
}  // namespace

void KernelLog::add(const Operator& op, OperatorClass operator_class, DType dtype, double flops, double bytes,
                    KernelKind kind, double elements) {
  if (!recording) return;
  Kernel& kernel = list_.emplace_back();
  kernel.op = &op;
  kernel.node = moment_.node;
  kernel.operator_class = operator_class;
  kernel.phase = moment_.phase;
  kernel.stream = moment_.stream;
  kernel.recomputed = moment_.recomputing;
  kernel.repeats = repeats;
  kernel.share = share;
  kernel.dtype = dtype;
  kernel.flops = flops;
  kernel.bytes = bytes;
  kernel.kind = kind;
  kernel.elements = elements > 0 ? elements : bytes / (2.0 * static_cast<double>(size_of(dtype)));
  kernel.views = std::exchange(views_, 0);
  kernel.nodes = std::exchange(nodes_, 0);
}

void KernelLog::synchronize(const Operator& op, std::int64_t kernels) {
  add(op, OperatorClass::kMovement, DType::kFloat32, 0, 0, KernelKind::kSynchronize);
  describe(work::Wait{kernels});
}

void KernelLog::contraction(const Operator& op, DType dtype, std::int64_t batch, std::int64_t m, std::int64_t n,
                            std::int64_t k, KernelKind kind) {
  const double elements = real(m) * real(k) + real(k) * real(n) + real(m) * real(n);
  add(op, OperatorClass::kContraction, dtype, 2.0 * real(batch) * real(m) * real(n) * real(k),
      real(batch) * elements * real(size_of(dtype)), kind);
}

void KernelLog::product(const Operator& op, DType dtype, std::int64_t batch, std::int64_t m, std::int64_t n,
                        std::int64_t k, KernelKind kind, Transposed transposed) {
  if (!recording) return;
  contraction(op, dtype, batch, m, n, k, kind);
  const bool tf32 = kind == KernelKind::kMatrixProduct && products_in_tf32 && dtype == DType::kFloat32;
  describe(work::Product{.batch = batch, .m = m, .n = n, .k = k, .transposed = transposed, .tf32 = tf32});
}

void KernelLog::attention(const Operator& op, DType dtype, KernelKind kind, const work::Attention& attention) {
  if (!recording) return;
  contraction(op, dtype, attention.heads, attention.queries, attention.keys, attention.width, kind);
  describe(attention);
}

void KernelLog::convolution(const Operator& op, DType dtype, KernelKind kind, const work::Convolution& convolution,
                            double bytes) {
  if (!recording) return;
  contraction(op, dtype, convolution.groups, convolution.pixels, convolution.channels, convolution.depth, kind);
  work::Convolution described = convolution;
  described.tf32 = kind == KernelKind::kConvolution && convolutions_in_tf32 && dtype == DType::kFloat32;
  describe(described);
  Kernel& last = list_.back();
  last.bytes = bytes;  // not the unfolded matrix
  last.elements = convolution.group_channels;
}

void KernelLog::grouped_product(const Operator& op, DType dtype, std::int64_t groups, std::int64_t rows, std::int64_t k,
                                std::int64_t n) {
  if (!recording) return;
  const double elements = real(rows) * (real(k) + real(n)) + real(groups) * real(k) * real(n);
  add(op, OperatorClass::kContraction, dtype, 2.0 * real(rows) * real(k) * real(n), elements * real(size_of(dtype)),
      KernelKind::kGroupedProduct);
  describe(work::Product{.batch = groups, .m = ceil_div(rows, groups), .n = n, .k = k});
}

void KernelLog::grouped_weight_gradient(const Operator& op, DType dtype, std::int64_t groups, std::int64_t rows,
                                        std::int64_t k, std::int64_t n, DType buffer) {
  if (!recording) return;
  const double read = real(rows) * (real(k) + real(n)) * real(size_of(dtype));
  const double accumulated = 2 * real(groups) * real(k) * real(n) * real(size_of(buffer));
  add(op, OperatorClass::kContraction, dtype, 2.0 * real(rows) * real(k) * real(n), read + accumulated,
      KernelKind::kGroupedProduct);
  describe(work::Product{.batch = groups,
                         .m = k,
                         .n = n,
                         .k = ceil_div(rows, groups),
                         .transposed = Transposed::kFirst,
                         .accumulated_bytes = accumulated});
}

void KernelLog::pinned_copy(const Operator& op, DType dtype, Bytes bytes, KernelKind kind) {
  add(op, OperatorClass::kMovement, dtype, 0, static_cast<double>(bytes), kind);
  describe(work::HostCopy{.pinned = true});
}

std::size_t KernelLog::collective(const Operator& op, Collective kind, DType dtype, Bytes bytes, std::int64_t ranks,
                                  std::int64_t distance) {
  if (!recording) return 0;
  add(op, OperatorClass::kCommunication, dtype, 0, 0);
  describe(
      work::Communication{.kind = kind, .bytes = static_cast<double>(bytes), .ranks = ranks, .distance = distance});
  return list_.size();
}

void KernelLog::await(std::size_t place) {
  if (!recording || place == 0 || place > list_.size()) return;  // of a step that was not recorded, or of another list
  auto* const awaited = std::get_if<work::Communication>(&list_[place - 1].work);
  if (awaited != nullptr) awaited->awaited_after = static_cast<std::int64_t>(list_.size() - (place - 1));
}

void KernelLog::replay(const KernelList& kernels) {
  if (!recording) return;
  for (const Kernel& kernel : kernels) list_.emplace_back(kernel).repeats = repeats;
}

}  // namespace memcalc
