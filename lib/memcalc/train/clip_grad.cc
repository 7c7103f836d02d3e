#include "memcalc/train/clip_grad.h"

#include <algorithm>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/train/optimizers/lists.h"

namespace memcalc {

namespace {

/// torch._foreach_norm: the partial norms of every chunk of every tensor, as many chunks for each as the largest has.
void append_norms(Tape& tape, const ParameterGroup& parameters, TensorList& norms) {
  constexpr std::int64_t kChunk = 65536;  // elements that one thread block of a foreach kernel handles
  std::int64_t largest = 0;
  for (const Parameter* each : parameters) largest = std::max(largest, each->tensor.elements());
  const auto count = static_cast<std::int64_t>(parameters.size());
  const Tensor partial = tape.empty({count * ceil_div(largest, kChunk)}, DType::kFloat32, aten::kForeachNorm);
  for (const Parameter* each : parameters) norms.push_back(scalar(tape, each->tensor.dtype(), aten::kForeachNorm));
  list_kernel(tape, aten::kForeachNorm, parameters, 1);
}

/// torch._foreach_mul_(grads, clip_coef_clamped).
void scale_gradients(Tape& tape, const ParameterGroup& parameters) {
  list_kernel(tape, aten::kForeachMulInPlace, parameters, 2);
}

}  // namespace

Tensor clip_grad_norm(Tape& tape, const std::vector<Parameter>& parameters) {
  ParameterGroup with_gradient;
  for (const Parameter& parameter : parameters) {
    if (parameter.tensor.impl()->grad.defined()) with_gradient.push_back(&parameter);
  }
  // Of gradients that were sent to the host (FSDP2's CPUOffloadPolicy) norms are there, too.
  const auto is_on_host = [](const Parameter* each) { return each->tensor.impl()->grad.block() == kNoBlock; };
  const bool on_host = !with_gradient.empty() && std::all_of(with_gradient.begin(), with_gradient.end(), is_on_host);
  const OnMetaDevice there(tape.memory, on_host);
  TensorList norms;
  const std::vector<ParameterGroup> groups = by_dtype(with_gradient);
  for (const ParameterGroup& group : groups) append_norms(tape, group, norms);
  // torch.stack promotes norms of several dtypes.
  const DType dtype = groups.size() == 1 ? groups.front().front()->tensor.dtype() : DType::kFloat32;
  Tensor stacked = tape.empty({static_cast<std::int64_t>(with_gradient.size())}, dtype, aten::kStack);
  Tensor total_norm = scalar(tape, dtype, aten::kLinalgVectorNorm);
  // Python reads each gradient twice, moves each norm to the first one's device and stacks them: 2.1 ms of 201
  // parameters on the reference host, 1.4 ms of 111 (tests/measured/host_trainer_h200.jsonl, over 1.45, what a bare
  // loop's forward and backward of the same models took there).
  constexpr std::int64_t kLoops = 2;
  record_host_work(tape, HostWork::kOptimizerTensor, kLoops * static_cast<std::int64_t>(with_gradient.size()));
  for (std::size_t i = 0; i < with_gradient.size(); ++i) tape.kernels.pass_view();
  constexpr int kSmallKernels = 6;  // of as many numbers as parameters, or of one
  for (int i = 0; i < kSmallKernels; ++i) {
    tape.kernels.add(i == 0 ? aten::kStack : aten::kLinalgVectorNorm, OperatorClass::kOptimizer, dtype, 0, 4);
  }
  stacked.reset();
  norms.reset();
  Tensor sum = scalar(tape, dtype, aten::kAdd);
  Tensor reciprocal = scalar(tape, dtype, aten::kReciprocal);
  Tensor coefficient = scalar(tape, dtype, aten::kMul);
  drop(reciprocal, sum);
  Tensor clamped = scalar(tape, dtype, aten::kClamp);
  for (const ParameterGroup& group : groups) scale_gradients(tape, group);
  drop(coefficient, clamped);
  return total_norm;
}

}  // namespace memcalc
