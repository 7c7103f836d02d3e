// What the rules are made of: lists of tensors as torch._foreach_ functions return them, and reductions.
#pragma once

#include <utility>
#include <vector>

#include "memcalc/train/optimizers/rule.h"

namespace memcalc {

/// A Python list of tensors. Assigned, the new list exists before the old one dies; a list drops its last element
/// first (CPython, list_dealloc).
class TensorList {
 public:
  TensorList() = default;
  TensorList(TensorList&& other) noexcept : tensors_(std::move(other.tensors_)) {}
  TensorList& operator=(TensorList&& other) noexcept {
    std::swap(tensors_, other.tensors_);
    other.reset();
    return *this;
  }
  TensorList(const TensorList&) = delete;
  TensorList& operator=(const TensorList&) = delete;
  ~TensorList() { reset(); }

  void push_back(Tensor tensor) { tensors_.push_back(std::move(tensor)); }
  void reset() {
    while (!tensors_.empty()) tensors_.pop_back();
  }

 private:
  std::vector<Tensor> tensors_;
};

/// What a torch._foreach_ function that is not in place returns: a tensor for each parameter.
/// The kernel of a foreach operator that passes `tensors` times over the parameters' elements.
void list_kernel(Tape& tape, const Operator& op, const ParameterGroup& parameters, double tensors);
[[nodiscard]] TensorList list_like(Tape& tape, const ParameterGroup& parameters, const Operator& op);

/// Optimizer._group_tensors_by_device_and_dtype on one card. It returns a std::unordered_map, which puts what comes
/// first at the end: of two dtypes the one seen last leads (measured; for three the order is not known).
[[nodiscard]] std::vector<ParameterGroup> by_dtype(const ParameterGroup& parameters);

/// _init_group: so many states like each parameter, moments, parameter by parameter.
void make_states(OptimizerMemory& memory, const ParameterGroup& group, int states);
[[nodiscard]] StateBytes two_states(const OptimizedTensor& tensor, Loop loop);
/// Two states, and of each dtype the list of the roots of the second ones.
void step_by_two_moments(OptimizerMemory& memory, const ParameterGroup& group);

/// A new tensor like `tensor`, by default of its dtype.
[[nodiscard]] Tensor like(const Tensor& tensor, const Operator& op);
[[nodiscard]] Tensor like(const Tensor& tensor, DType dtype, const Operator& op);
[[nodiscard]] Tensor scalar(Tape& tape, DType dtype, const Operator& op);

/// tensor.norm(): a scalar of its dtype.
[[nodiscard]] Tensor norm(const Tensor& tensor);
/// torch.norm(tensor, dim=dim, keepdim=True); dim < 0
[[nodiscard]] Tensor norm(const Tensor& tensor, int dim);
/// tensor.mean(dim=dim, keepdim=True), whose shape without the kept dimension asks for the same; dim < 0
[[nodiscard]] Tensor mean(const Tensor& tensor, int dim);

/// `shape` with 1 in the place of `dim`; dim < 0
[[nodiscard]] Shape reduced(Shape shape, int dim);

}  // namespace memcalc
