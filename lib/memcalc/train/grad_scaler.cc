#include "memcalc/train/grad_scaler.h"

#include "memcalc/symbolic/ops/elementwise.h"

namespace memcalc {

namespace {
constexpr Operator kFull{"aten::full"};
}

Tensor GradScaler::scale(const Tensor& loss) {
  if (!enabled_) return loss;
  if (!scale_.defined()) {
    scale_ = tape_.empty({1}, DType::kFloat32, kFull, Category::kOptimizerStates);
    growth_tracker_ = tape_.empty({1}, DType::kInt32, kFull, Category::kOptimizerStates);
  }
  return loss * scale_;
}

void GradScaler::step(OptimizerSteps& optimizer) { optimizer.step(tape_); }

void GradScaler::update() {}

}  // namespace memcalc
