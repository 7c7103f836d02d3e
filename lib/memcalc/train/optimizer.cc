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

void OptimizerSteps::step(Tape& tape) {
  tape.current_node = &kStep;
  for (const ParameterGroup& group : groups_) {
    if (!has_states_) make_states(tape, group);
    const double elements = elements_of(group);
    const DType dtype = group.empty() ? DType::kFloat32 : group.front().dtype();
    const auto width = static_cast<double>(size_of(dtype));
    if (kind_ == Optimizer::kAdamWForeach) {
      // adamw.py, _multi_tensor_adamw: denominators for all parameters at once, dropped last to first.
      std::vector<Tensor> denominators;
      denominators.reserve(group.size());
      for (const Tensor& parameter : group) {
        denominators.push_back(tape.empty(parameter.shape(), parameter.dtype(), kForeachSqrt));
      }
      while (!denominators.empty()) denominators.pop_back();
    } else if (kind_ == Optimizer::kAdamWForLoop) {
      for (const Tensor& parameter : group) {
        Tensor root = tape.empty(parameter.shape(), parameter.dtype(), kSqrt);
        Tensor scaled = tape.empty(parameter.shape(), parameter.dtype(), kDiv);
        drop(root, scaled);
      }
    }
    switch (kind_) {
      case Optimizer::kAdamWForeach:
      case Optimizer::kAdamWForLoop: tape.kernel(kStep, OperatorClass::kOptimizer, dtype, 14 * elements, 18 * width * elements); break;
      case Optimizer::kAdamWFused: tape.kernel(kFused, OperatorClass::kOptimizer, dtype, 14 * elements, 7 * width * elements); break;
      case Optimizer::kSgd: tape.kernel(kStep, OperatorClass::kOptimizer, dtype, 2 * elements, 3 * width * elements); break;
      case Optimizer::kSgdMomentum: tape.kernel(kStep, OperatorClass::kOptimizer, dtype, 4 * elements, 6 * width * elements); break;
    }
  }
  has_states_ = true;
  tape.current_node = nullptr;
}

void OptimizerSteps::zero_grad() {
  for (const ParameterGroup& group : groups_) {
    for (const Tensor& parameter : group) parameter.impl()->grad.reset();
  }
}

void clip_grad_norm(Tape& tape, const std::vector<Parameter>& parameters) {
  (void)parameters;
  (void)tape;
}

}  // namespace memcalc
