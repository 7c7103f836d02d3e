// Tensor: a handle to a tensor without data: shape, strides, dtype, storage, and its place in the autograd graph.
// A handle in C++ has the lifetime of the Python variable it stands for: when the last one dies, the storage is
// freed and the trace records it, unless autograd saved the tensor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "memcalc/base/bytes.h"
#include "memcalc/base/dtype.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

class Tape;

inline constexpr int kMaxDims = 8;

/// Sizes or strides, outermost first, in elements. Negative indices count from the end, as in Python.
struct Shape {
  std::array<std::int64_t, kMaxDims> dims{};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) {
    for (const std::int64_t size : sizes) dims[static_cast<std::size_t>(rank++)] = size;
  }

  [[nodiscard]] std::int64_t operator[](int i) const { return dims[static_cast<std::size_t>(i < 0 ? i + rank : i)]; }
  [[nodiscard]] std::int64_t& operator[](int i) { return dims[static_cast<std::size_t>(i < 0 ? i + rank : i)]; }
  [[nodiscard]] std::int64_t elements() const {
    std::int64_t count = 1;
    for (int i = 0; i < rank; ++i) count = checked_multiply(count, dims[static_cast<std::size_t>(i)]);
    return count;
  }
  [[nodiscard]] bool operator==(const Shape& other) const {
    if (rank != other.rank) return false;
    for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) {
      if (dims[i] != other.dims[i]) return false;
    }
    return true;
  }
};

using NodeId = std::int32_t;  // index into the tape's nodes; kNoNode: none
inline constexpr NodeId kNoNode = -1;

struct TensorImpl;

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(TensorImpl* adopted) : impl_(adopted) {}
  Tensor(const Tensor& other);
  Tensor(Tensor&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
  Tensor& operator=(const Tensor& other);
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor() { reset(); }

  [[nodiscard]] bool defined() const { return impl_ != nullptr; }
  [[nodiscard]] TensorImpl* impl() const { return impl_; }
  [[nodiscard]] Tape& tape() const;
  /// Of its storage; kNoBlock: it has no elements, or none here (on the meta device, on the host).
  [[nodiscard]] BlockId block() const;
  [[nodiscard]] const Shape& shape() const;
  [[nodiscard]] const Shape& strides() const;
  [[nodiscard]] std::int64_t size(int dim) const { return shape()[dim]; }
  [[nodiscard]] int rank() const { return shape().rank; }
  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] DType dtype() const;
  [[nodiscard]] bool requires_grad() const;
  [[nodiscard]] bool is_contiguous() const;
  /// Bytes of the elements (not of the storage, which a view may share).
  [[nodiscard]] Bytes bytes() const { return elements() * size_of(dtype()); }

  /// Drops the handle, as `del` or leaving a Python function does.
  void reset();

 private:
  TensorImpl* impl_ = nullptr;
};

struct TensorImpl {
  Tape* tape = nullptr;
  std::int32_t references = 0;
  BlockId block = kNoBlock;
  NodeId grad_fn = kNoNode;           // the node that made this tensor; kNoNode for leaves
  NodeId grad_accumulator = kNoNode;  // parameters: their AccumulateGrad node
  std::int32_t cached_cast = -1;      // parameters: their place in autocast's weight cache
  std::int32_t graph_value = -1;      // its number in a graph that is being captured (compile/capture.h)
  std::uint8_t output_index = 0;      // which output of grad_fn
  DType dtype = DType::kFloat32;
  bool requires_grad = false;
  bool is_view = false;  // made by a view operator: its base's storage has a second owner
  bool is_parameter = false;
  bool drops_gradient = false;        // parameters: a hook takes the gradient to the host and lets it go
  bool has_partial_gradient = false;  // parameters: .grad is a DTensor whose ranks have yet to be summed
  std::int64_t elements = 0;          // of `shape`; times the element size it is known to fit 63 bits
  Shape shape;
  Shape strides;
  Tensor grad;  // parameters: .grad
};

inline const Shape& Tensor::shape() const { return impl_->shape; }
inline const Shape& Tensor::strides() const { return impl_->strides; }
inline std::int64_t Tensor::elements() const { return impl_->elements; }
inline DType Tensor::dtype() const { return impl_->dtype; }
inline bool Tensor::requires_grad() const { return impl_->requires_grad; }
inline BlockId Tensor::block() const { return impl_->block; }
inline Tape& Tensor::tape() const { return *impl_->tape; }
inline Tensor::Tensor(const Tensor& other) : impl_(other.impl_) {
  if (impl_ != nullptr) ++impl_->references;
}
inline Tensor& Tensor::operator=(const Tensor& other) {
  Tensor copy(other);
  std::swap(impl_, copy.impl_);
  return *this;
}
inline Tensor& Tensor::operator=(Tensor&& other) noexcept {
  Tensor moved(std::move(other));
  std::swap(impl_, moved.impl_);
  return *this;
}

/// Lets Python variables die in the given order (a Python function drops its locals in the order of their first
/// appearance, C++ in reverse; only where sizes differ does it show).
template <typename... Tensors>
void drop(Tensors&... tensors) {
  (tensors.reset(), ...);
}

/// A Python function's locals: they die in the given order when the scope is left, also where recomputation stops in
/// the middle of it (checkpoint.h). Declared after the variables.
template <std::size_t kCount>
class Locals {
 public:
  template <typename... Tensors>
  explicit Locals(Tensors&... tensors) : tensors_{&tensors...} {}
  ~Locals() {
    for (Tensor* tensor : tensors_) tensor->reset();
  }
  Locals(const Locals&) = delete;
  Locals& operator=(const Locals&) = delete;

 private:
  std::array<Tensor*, kCount> tensors_;
};
template <typename... Tensors>
Locals(Tensors&...) -> Locals<sizeof...(Tensors)>;

/// An operator's argument. A temporary (`mul(neg(x), y)`) dies when the operator returns, as Python's evaluation
/// stack drops it, not at the end of the C++ statement.
class Arg {
 public:
  Arg(const Tensor& tensor) : tensor_(&tensor) {}                           // NOLINT(google-explicit-constructor)
  Arg(Tensor&& temporary) : tensor_(&temporary), temporary_(&temporary) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] const Tensor& operator*() const { return *tensor_; }
  [[nodiscard]] const Tensor* operator->() const { return tensor_; }
  void release() const {
    if (temporary_ != nullptr) temporary_->reset();
  }
  /// The temporary itself, if nobody else holds it: a view may take its place.
  [[nodiscard]] Tensor* sole_owner() const;

 private:
  const Tensor* tensor_;
  Tensor* temporary_ = nullptr;
};

inline Tensor* Arg::sole_owner() const {
  return temporary_ != nullptr && temporary_->impl()->references == 1 ? temporary_ : nullptr;
}

}  // namespace memcalc
