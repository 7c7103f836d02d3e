// MIRRORS(torch, "optim/_adafactor.py", "2.11.0")
// MIRRORS(transformers, "optimization.py", "5.17.0")
#include "memcalc/train/optimizers/looped_step.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// What an operator goes over: the parameter, a number for each of its rows or columns, a number.
enum class Over : std::uint8_t { kAll, kRows, kColumns, kNumber };
/// For which parameters it is called.
enum class Of : std::uint8_t { kEach, kMatrix, kVector, kHalf };

struct Launch {
  const Operator* op = nullptr;
  KernelKind kind = KernelKind::kVectorized;
  Over over = Over::kAll;
  double passes = 2;  // tensors of that size that are read or written
  Of of = Of::kEach;
  bool waits = false;  // .item(), bool(tensor)
  std::int32_t views = 0;
};

using enum KernelKind;

// Adafactor.step(), line by line.
constexpr Launch kOfTransformers[] = {
    {&aten::kToCopy, kConverting, Over::kAll, 2, Of::kHalf},  // grad.float()
    {&aten::kToCopy, kConverting, Over::kAll, 2, Of::kHalf},  // p_data_fp32.float()
    {&aten::kLinalgVectorNorm, kRowSum, Over::kAll, 1},       // state["RMS"]
    {&aten::kDiv, kVectorized, Over::kNumber},
    {&aten::kPow, kVectorized},  // update = (grad**2) + eps
    {&aten::kAdd, kVectorized},
    {&aten::kMul, kVectorized, Over::kRows, 2, Of::kMatrix},  // exp_avg_sq_row
    {&aten::kMean, kRowSum, Over::kAll, 1, Of::kMatrix},
    {&aten::kAdd, kVectorized, Over::kRows, 3, Of::kMatrix},
    {&aten::kMul, kVectorized, Over::kColumns, 2, Of::kMatrix},  // exp_avg_sq_col
    {&aten::kMean, kColumnSum, Over::kAll, 1, Of::kMatrix},
    {&aten::kAdd, kVectorized, Over::kColumns, 3, Of::kMatrix},
    {&aten::kMean, kRowSum, Over::kRows, 1, Of::kMatrix},  // _approx_sq_grad: r_factor
    {&aten::kDiv, kVectorized, Over::kRows, 2, Of::kMatrix},
    {&aten::kRsqrt, kVectorized, Over::kRows, 2, Of::kMatrix},
    {&aten::kRsqrt, kVectorized, Over::kColumns, 2, Of::kMatrix, false, 2},  // c_factor
    {&aten::kMul, kStrided, Over::kAll, 1, Of::kMatrix},
    {&aten::kMul, kVectorized, Over::kAll, 3, Of::kMatrix},  // update.mul_(grad)
    {&aten::kMul, kVectorized, Over::kAll, 2, Of::kVector},  // exp_avg_sq
    {&aten::kAdd, kVectorized, Over::kAll, 3, Of::kVector},
    {&aten::kRsqrt, kVectorized, Over::kAll, 2, Of::kVector},  // update
    {&aten::kMul, kVectorized, Over::kAll, 3, Of::kVector},
    {&aten::kLinalgVectorNorm, kRowSum, Over::kAll, 1},  // _rms(update)
    {&aten::kDiv, kVectorized, Over::kNumber},
    {&aten::kDiv, kVectorized, Over::kNumber},  // / clip_threshold
    {&aten::kClamp, kVectorized, Over::kNumber},
    {&aten::kDiv, kStrided},     // update.div_(a tensor)
    {&aten::kMul, kVectorized},  // * lr
    {&aten::kNeg, kVectorized},
    {&aten::kAdd, kVectorized, Over::kAll, 3},               // p_data_fp32.add_
    {&aten::kCopy, kConverting, Over::kAll, 2, Of::kHalf}};  // p.copy_

// _single_tensor_adafactor
constexpr Launch kOfTorch[] = {{&aten::kLinalgVectorNorm, kRowSum, Over::kAll, 1, Of::kEach, true},
                               {&aten::kLinalgVectorNorm, kRowSum, Over::kAll, 1, Of::kMatrix},  // row_mean
                               {&aten::kPow, kVectorized, Over::kRows, 2, Of::kMatrix},
                               {&aten::kDiv, kVectorized, Over::kRows, 2, Of::kMatrix},
                               {&aten::kLerp, kVectorized, Over::kRows, 3, Of::kMatrix},
                               {&aten::kLinalgVectorNorm, kColumnSum, Over::kAll, 1, Of::kMatrix},  // col_mean
                               {&aten::kPow, kVectorized, Over::kColumns, 2, Of::kMatrix},
                               {&aten::kDiv, kVectorized, Over::kColumns, 2, Of::kMatrix},
                               {&aten::kLerp, kVectorized, Over::kColumns, 3, Of::kMatrix},
                               {&aten::kMm, kMatrixProduct, Over::kAll, 1, Of::kMatrix},  // var_estimate
                               {&aten::kMean, kRowSum, Over::kRows, 1, Of::kMatrix},
                               {&aten::kClamp, kVectorized, Over::kNumber, 2, Of::kMatrix},
                               {&aten::kDiv, kStrided, Over::kAll, 2, Of::kMatrix},
                               {&aten::kMul, kVectorized, Over::kAll, 3, Of::kVector},  // grad_squared
                               {&aten::kLerp, kVectorized, Over::kAll, 3, Of::kVector},
                               {&aten::kClone, kVectorized, Over::kAll, 2, Of::kVector},
                               {&aten::kClamp, kVectorized},  // update
                               {&aten::kRsqrt, kVectorized},
                               {&aten::kMul, kVectorized, Over::kAll, 3},
                               {&aten::kLinalgVectorNorm, kRowSum, Over::kAll, 1, Of::kEach, true},  // denom
                               {&aten::kAdd, kVectorized, Over::kAll, 3}};                           // param.add_

// _get_lr with scale_parameter: max(eps, RMS) asks whether one tensor is above the other, and lr is a tensor then.
constexpr Launch kAboveEpsilon{&aten::kGt, kVectorized, Over::kNumber, 2, Of::kEach, true};
constexpr Launch kOfLearningRate{&aten::kMul, kVectorized, Over::kNumber};

// Python of the loop around these operators, in what _init_group takes for a parameter: 28 us, 3.1 (lists of 24 small
// parameters that took turns with a tiny LLaMA on an H200's host, matrices and vectors, both Adafactors, float32 and
// bfloat16, 2026-11-29: tests/measured/expert_parts_h200.jsonl.gz).
constexpr std::int64_t kPythonOfParameter = 9;

bool is_for(Of of, const Tensor& parameter) {
  switch (of) {
    case Of::kEach: return true;
    case Of::kMatrix: return parameter.rank() > 1;
    case Of::kVector: return parameter.rank() < 2;
    case Of::kHalf: return is_half(parameter.dtype());
  }
  return true;
}

double elements_of(Over over, const Tensor& parameter) {
  const auto all = static_cast<double>(parameter.elements());
  switch (over) {
    case Over::kAll: return all;
    case Over::kRows: return all / static_cast<double>(std::max<std::int64_t>(parameter.size(-1), 1));
    case Over::kColumns: return all / static_cast<double>(std::max<std::int64_t>(parameter.size(-2), 1));
    case Over::kNumber: return 1;
  }
  return all;
}

/// Of tensors that are of the parameter's type in torch's, of float32 in transformers' Adafactor.
class LoopedStep {
 public:
  LoopedStep(const Tensor& parameter, DType dtype, double flops)
      : tape_(parameter.tape()), parameter_(parameter), dtype_(dtype), flops_(flops) {}

  void launch(const Launch& of) {
    if (!is_for(of.of, parameter_)) return;
    const double elements = elements_of(of.over, parameter_);
    if (of.kind == kMatrixProduct) {
      multiply(of);
    } else {
      const double item = static_cast<double>(size_of(dtype_));
      const double bytes =
          of.kind == kConverting ? static_cast<double>(size_of(parameter_.dtype())) + item : of.passes * item;
      const double results = of.kind == kColumnSum ? elements_of(Over::kColumns, parameter_) * item : 0;
      tape_.kernels.add(*of.op, OperatorClass::kOptimizer, dtype_, 0, bytes * elements + results, of.kind, elements);
    }
    Kernel* const kernel = tape_.kernels.last();
    if (kernel != nullptr) {
      kernel->operator_class = OperatorClass::kOptimizer;
      kernel->views += of.views;
      kernel->flops = flops_;  // all of them, at the first
    }
    flops_ = 0;
    if (of.waits) tape_.kernels.synchronize(aten::kItem);
  }

 private:
  /// A column by a row, for each matrix of a stack.
  void multiply(const Launch& of) {
    const std::int64_t rows = parameter_.size(-2), columns = parameter_.size(-1);
    if (parameter_.elements() == 0) return;
    tape_.kernels.product(*of.op, dtype_, parameter_.elements() / (rows * columns), rows, columns, 1);
  }

  Tape& tape_;
  const Tensor& parameter_;
  DType dtype_;
  double flops_ = 0;
};

}  // namespace

bool is_looped(Optimizer optimizer) {
  return optimizer == Optimizer::kAdafactor || optimizer == Optimizer::kAdafactorRelative ||
         optimizer == Optimizer::kAdafactorTorch;
}

void record_looped_step(const OptimizerRule& rule, const Tensor& parameter) {
  record_host_work(parameter.tape(), HostWork::kOptimizerTensor, kPythonOfParameter);
  const bool of_torch = rule.optimizer == Optimizer::kAdafactorTorch;
  const auto elements = static_cast<double>(parameter.elements());
  LoopedStep step(parameter, of_torch ? parameter.dtype() : DType::kFloat32, rule.flops * elements);
  if (of_torch) {
    for (const Launch& each : kOfTorch) step.launch(each);
    return;
  }
  const bool relative = rule.optimizer == Optimizer::kAdafactorRelative;
  bool first = true;
  for (const Launch& each : kOfTransformers) {
    step.launch(each);
    if (!relative || each.op != &aten::kDiv || !std::exchange(first, false)) continue;
    step.launch(kAboveEpsilon);
    step.launch(kOfLearningRate);
  }
}

}  // namespace memcalc
