#include "memcalc/train/optimizers/lists.h"

#include <algorithm>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/reduce.h"

namespace memcalc {

namespace {

constexpr std::int64_t kFloatAccumulator = 4;

Tensor reduce_dim(const Tensor& tensor, int dim, const Operator& op) {
  Tensor result = tensor.tape().empty(reduced(tensor.shape(), dim), tensor.dtype(), op);
  reduction_scratch(tensor, 1U << (tensor.rank() + dim), kFloatAccumulator, op);
  return result;
}

}  // namespace

void list_kernel(Tape& tape, const Operator& op, const ParameterGroup& parameters, double tensors) {
  if (parameters.empty()) return;
  double elements = 0;
  for (const Parameter* each : parameters) elements += static_cast<double>(each->tensor.elements());
  const DType dtype = parameters.front()->tensor.dtype();
  tape.kernels.add(op, OperatorClass::kOptimizer, dtype, elements,
                   tensors * static_cast<double>(size_of(dtype)) * elements, KernelKind::kMultiTensor, elements);
  tape.kernels.describe(work::TensorList{.tensors = static_cast<std::int64_t>(parameters.size())});
}

TensorList list_like(Tape& tape, const ParameterGroup& parameters, const Operator& op) {
  TensorList list;
  for (const Parameter* each : parameters) {
    list.push_back(tape.empty(each->tensor.shape(), each->tensor.dtype(), op));
  }
  return list;
}

std::vector<ParameterGroup> by_dtype(const ParameterGroup& parameters) {
  std::vector<ParameterGroup> groups;
  for (const Parameter* each : parameters) {
    const auto same = [&](const ParameterGroup& group) {
      return group.front()->tensor.dtype() == each->tensor.dtype();
    };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) group = groups.insert(groups.begin(), ParameterGroup{});
    group->push_back(each);
  }
  return groups;
}

Tensor like(const Tensor& tensor, const Operator& op) { return like(tensor, tensor.dtype(), op); }

Tensor like(const Tensor& tensor, DType dtype, const Operator& op) {
  return tensor.tape().empty_strided(tensor.shape(), tensor.strides(), dtype, op);
}

Tensor scalar(Tape& tape, DType dtype, const Operator& op) { return tape.empty({}, dtype, op); }

Tensor norm(const Tensor& tensor) {
  Tensor result = scalar(tensor.tape(), tensor.dtype(), aten::kLinalgVectorNorm);
  reduction_scratch(tensor, (1U << tensor.rank()) - 1, kFloatAccumulator, aten::kLinalgVectorNorm);
  return result;
}

Tensor norm(const Tensor& tensor, int dim) { return reduce_dim(tensor, dim, aten::kLinalgVectorNorm); }

Tensor mean(const Tensor& tensor, int dim) { return reduce_dim(tensor, dim, aten::kMean); }

Shape reduced(Shape shape, int dim) {
  shape[dim] = 1;
  return shape;
}

void make_states(OptimizerMemory& memory, const ParameterGroup& group, int states) {
  for (const Parameter* each : group) {
    for (int i = 0; i < states; ++i) memory.state(each->tensor.shape(), each->tensor.dtype(), aten::kZerosLike);
  }
}

StateBytes two_states(const OptimizedTensor& tensor, Loop /*loop*/) { return {.tensors = 2 * tensor.bytes()}; }

void step_by_two_moments(OptimizerMemory& memory, const ParameterGroup& group) {
  make_states(memory, group, 2);
  TensorList roots;
  for (const ParameterGroup& params : by_dtype(group)) roots = list_like(memory.tape, params, aten::kForeachSqrt);
}

}  // namespace memcalc
