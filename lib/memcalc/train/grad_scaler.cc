#include "memcalc/train/grad_scaler.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"

namespace memcalc {

namespace {}  // namespace

Tensor GradScaler::scalar(DType dtype, const Operator& op) { return tape_.empty({}, dtype, op); }

Tensor GradScaler::scale(const Tensor& loss) {
  if (!enabled_) return loss;
  if (!scale_.defined()) {
    scale_ = tape_.empty({}, DType::kFloat32, aten::kFull, Category::kOptimizerStates);
    growth_tracker_ = tape_.empty({}, DType::kInt32, aten::kFull, Category::kOptimizerStates);
  }
  return loss * scale_;
}

void GradScaler::unscale(OptimizerSteps& optimizer) {
  if (!enabled_ || found_inf_.defined()) return;
  optimizer.record_unscale();
  // inv_scale = scale.double().reciprocal().float(); then a copy of it and of found_inf per device.
  Tensor wide = scalar(DType::kFloat64, aten::kToCopy);
  Tensor inverse = scalar(DType::kFloat64, aten::kReciprocal);
  wide.reset();
  Tensor inverse_scale = scalar(DType::kFloat32, aten::kToCopy);
  inverse.reset();
  Tensor found_inf = scalar(DType::kFloat32, aten::kFull);
  found_inf_ = scalar(DType::kFloat32, aten::kToCopy);
  Tensor inverse_copy = scalar(DType::kFloat32, aten::kToCopy);
  drop(inverse_copy, inverse_scale, found_inf);
}

void GradScaler::step(OptimizerSteps& optimizer) {
  if (!enabled_) return optimizer.step();
  const bool unscaled_before = found_inf_.defined();
  if (!optimizer.takes_loss_scale()) {
    unscale(optimizer);
    read_on_host(tape_);  // _maybe_opt_step: sum(v.item() for v in found_inf_per_device)
    if (steps_++ >= skipped_steps_) optimizer.step();
    return;
  }
  // A fused optimizer divides by the scale itself, and its kernel skips the step: _check_inf_per_device looks for
  // infinities with a scale of 1.
  if (!unscaled_before) {
    Tensor one = scalar(DType::kFloat32, aten::kFull), found_inf = scalar(DType::kFloat32, aten::kFull);
    optimizer.record_unscale();
    found_inf_ = scalar(DType::kFloat32, aten::kToCopy);
    Tensor one_copy = scalar(DType::kFloat32, aten::kToCopy);
    drop(one_copy, found_inf, one);
  }
  // It is handed found_inf and the scale as tensors.
  Tensor sum = scalar(DType::kFloat32, aten::kAdd), scale;
  if (!unscaled_before) scale = scalar(DType::kFloat32, aten::kMul);
  optimizer.step();
  drop(sum, scale);
}

void GradScaler::update() { found_inf_.reset(); }

}  // namespace memcalc
