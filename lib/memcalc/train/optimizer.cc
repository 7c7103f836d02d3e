#include "memcalc/train/optimizer.h"

#include <algorithm>

namespace memcalc {

namespace {

constexpr Operator kStep{"Optimizer.step"}, kZeros{"aten::zeros_like"}, kForeachSqrt{"aten::_foreach_sqrt"};
constexpr Operator kFused{"aten::_fused_adamw_"}, kClone{"aten::clone"}, kSqrt{"aten::sqrt"}, kDiv{"aten::div"};
constexpr Operator kForeachNorm{"aten::_foreach_norm"}, kStack{"aten::stack"}, kNorm{"aten::linalg_vector_norm"};
constexpr Operator kAdd{"aten::add"}, kReciprocal{"aten::reciprocal"}, kMul{"aten::mul"}, kClamp{"aten::clamp"};

double elements_of(const ParameterGroup& group) {
  double elements = 0;
  for (const Tensor& parameter : group) elements += static_cast<double>(parameter.elements());
  return elements;
}

}  // namespace

void OptimizerSteps::make_states(Tape& tape, const ParameterGroup& group) {
  const auto state_like = [&](const Tensor& parameter, const Operator& op) {
    states_.push_back(tape.empty(parameter.shape(), parameter.dtype(), op, Category::kOptimizerStates));
  };
  for (const Tensor& parameter : group) {
    switch (kind_) {
      case Optimizer::kAdamWFused:  // the step counter lives on the card
        states_.push_back(tape.empty({}, DType::kFloat32, kZeros, Category::kOptimizerStates));
        [[fallthrough]];
      case Optimizer::kAdamWForeach:
      case Optimizer::kAdamWForLoop:
        state_like(parameter, kZeros);
        state_like(parameter, kZeros);
        break;
      case Optimizer::kSgdMomentum: state_like(parameter, kClone); break;
      case Optimizer::kSgd: break;
    }
  }
}

void OptimizerSteps::take_temporaries(Tape& tape, const ParameterGroup& group) const {
  if (kind_ == Optimizer::kAdamWForeach) {
    // adam.py, _multi_tensor_adam: the denominators of all parameters at once, dropped last to first.
    std::vector<Tensor> denominators;
    denominators.reserve(group.size());
    for (const Tensor& parameter : group) {
      denominators.push_back(tape.empty(parameter.shape(), parameter.dtype(), kForeachSqrt));
    }
    while (!denominators.empty()) denominators.pop_back();
  } else if (kind_ == Optimizer::kAdamWForLoop) {
    // _single_tensor_adam: a Python local keeps each denominator until the next one exists.
    Tensor denominator;
    for (const Tensor& parameter : group) {
      Tensor root = tape.empty(parameter.shape(), parameter.dtype(), kSqrt);
      Tensor quotient = tape.empty(parameter.shape(), parameter.dtype(), kDiv);
      root.reset();
      denominator = std::move(quotient);
    }
  }
}

void OptimizerSteps::step(Tape& tape) {
  tape.current_node = &kStep;
  for (const ParameterGroup& group : groups_) {
    if (group.empty()) continue;
    if (!has_states_) make_states(tape, group);
    take_temporaries(tape, group);
    // FLOPs and tensor passes per parameter, from the update formulas.
    double flops = 0;
    double passes = 0;
    switch (kind_) {
      case Optimizer::kAdamWForeach:
      case Optimizer::kAdamWForLoop: flops = 14, passes = 18; break;
      case Optimizer::kAdamWFused: flops = 14, passes = 7; break;
      case Optimizer::kSgd: flops = 2, passes = 3; break;
      case Optimizer::kSgdMomentum: flops = 4, passes = 6; break;
    }
    const double elements = elements_of(group);
    const DType dtype = group.front().dtype();
    tape.kernel(kind_ == Optimizer::kAdamWFused ? kFused : kStep, OperatorClass::kOptimizer, dtype, flops * elements,
                passes * elements * static_cast<double>(size_of(dtype)));
  }
  has_states_ = true;
  tape.current_node = nullptr;
}

void OptimizerSteps::zero_grad() {
  for (const ParameterGroup& group : groups_) {
    for (const Tensor& parameter : group) parameter.impl()->grad.reset();
  }
}

Tensor clip_grad_norm(Tape& tape, const std::vector<Parameter>& parameters) {
  constexpr std::int64_t kChunk = 65536;  // elements that one thread block of a foreach kernel handles
  std::vector<Tensor> norms;
  std::int64_t largest = 0;
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    ++count;
    largest = std::max(largest, parameter.tensor.elements());
  }
  const DType dtype = parameters.front().tensor.dtype();
  {
    const Tensor partial = tape.empty({count * ceil_div(largest, kChunk)}, DType::kFloat32, kForeachNorm);
    for (std::int64_t i = 0; i < count; ++i) norms.push_back(tape.empty({}, dtype, kForeachNorm));
  }
  Tensor stacked = tape.empty({count}, dtype, kStack);
  Tensor total_norm = tape.empty({}, dtype, kNorm);
  stacked.reset();
  while (!norms.empty()) norms.pop_back();
  Tensor sum = tape.empty({}, dtype, kAdd);
  Tensor reciprocal = tape.empty({}, dtype, kReciprocal);
  Tensor coefficient = tape.empty({}, dtype, kMul);
  drop(reciprocal, sum);
  Tensor clamped = tape.empty({}, dtype, kClamp);
  drop(coefficient, clamped);
  return total_norm;
}

}  // namespace memcalc
