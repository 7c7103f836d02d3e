// Tape: a symbolic run. It makes tensors, on the parts that a run has: Memory (blocks and the trace of requests),
// Autograd (the graph and its backward pass), KernelLog (what is computed), the Moment that stamps all of it, and the
// Modes in which operators are called.
// Covered by tests/unit/tape_test.cc.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "memcalc/spec/behaviors.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/autograd.h"
#include "memcalc/symbolic/kernel_log.h"
#include "memcalc/symbolic/memory.h"
#include "memcalc/symbolic/modes.h"
#include "memcalc/symbolic/moment.h"
#include "memcalc/symbolic/operator_call.h"
#include "memcalc/symbolic/pool.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

class Tape {
 public:
  explicit Tape(const DeviceSpec& device, const Behaviors& behaviors = {});
  ~Tape();
  Tape(const Tape&) = delete;  // tensors point back to their tape
  Tape& operator=(const Tape&) = delete;

  // --- tensors
  /// A new storage of `shape`, requested by `op`. Zero elements request nothing.
  [[nodiscard]] Tensor empty(const Shape& shape, DType dtype, const Operator& op,
                             Category category = Category::kTemporaries);
  [[nodiscard]] Tensor empty_strided(const Shape& shape, const Shape& strides, DType dtype, const Operator& op);
  /// Another tensor on the same storage, without autograd history.
  [[nodiscard]] Tensor alias(const Tensor& base, const Shape& shape, const Shape& strides, bool is_view);
  /// alias(), as a view, that reuses the handle of a temporary: the base would die with the operator.
  [[nodiscard]] Tensor become_view(Tensor& temporary, const Shape& shape, const Shape& strides);
  [[nodiscard]] Tensor detach(const Tensor& base) { return alias(base, base.shape(), base.strides(), false); }
  /// A module's parameter: a leaf whose gradient is kept if `trainable`.
  [[nodiscard]] Tensor parameter(const Shape& shape, DType dtype, bool trainable = true);
  /// tensor.data = tensor.data.to(dtype): new storage, then the old one dies. Keeps what autograd knows of a parameter.
  void convert(const Tensor& tensor, DType dtype, const Operator& op);
  /// A parameter that becomes one of another shape and type in its place: the storage of `from`, which dies, and what
  /// autograd knows of it; its own storage dies before.
  void replace_parameter(const Tensor& parameter, Tensor& from);
  /// Gives a tensor that was made on the meta device the storage of `from`, which dies.
  void take_storage(const Tensor& tensor, Tensor& from);
  /// Stands for a tensor of an earlier step: no allocation, only its free is recorded.
  [[nodiscard]] Tensor placeholder();
  /// A tensor on a resizable storage that is empty (Memory::resizable_storage).
  [[nodiscard]] Tensor empty_resizable(const Shape& shape, DType dtype);

  // --- copies in host memory (torch.autograd.graph.save_on_cpu)
  /// A copy in pinned host memory. No event of the trace but what the card needs for the copy.
  [[nodiscard]] Tensor to_host(const Tensor& tensor);
  [[nodiscard]] Tensor from_host(const Tensor& copy);

  const DeviceSpec& device;
  const Behaviors behaviors;  // of the frameworks' versions
  /// Of torch.distributed's default process group: those that accelerate's gather() collects from, and which this is.
  std::int64_t processes = 1;
  std::int64_t process_index = 0;
  Moment moment;
  KernelLog kernels{moment};
  Memory memory{cublas_workspaces(device, behaviors), moment};
  Autograd autograd{*this};
  Modes modes;

 private:
  friend class Tensor;

  [[nodiscard]] TensorImpl* new_impl();
  [[nodiscard]] Tensor new_tensor(const Shape& shape, const Shape& strides, DType dtype, const Operator& op,
                                  Category category);
  void release(TensorImpl* impl);

  Pool<TensorImpl> impls_;  // recycled through the free list
  std::vector<TensorImpl*> free_impls_;
};

inline void Tensor::reset() {
  if (impl_ == nullptr) return;
  TensorImpl* impl = std::exchange(impl_, nullptr);
  if (--impl->references == 0) impl->tape->release(impl);
}

}  // namespace memcalc
