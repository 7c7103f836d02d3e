// torch.amp.GradScaler: loss scaling for float16 (torch/amp/grad_scaler.py).
#pragma once

#include "memcalc/symbolic/tape.h"
#include "memcalc/train/optimizer.h"

namespace memcalc {

class GradScaler {
 public:
  GradScaler(Tape& tape, bool enabled) : tape_(tape), enabled_(enabled) {}

  /// loss * scale: the tensor to run backward from. The loss itself where disabled.
  [[nodiscard]] Tensor scale(const Tensor& loss);
  /// Divides the gradients by the scale and looks for infinities; needed before clipping.
  void unscale();
  /// Steps the optimizer; unscales first if that has not happened.
  void step(OptimizerSteps& optimizer);
  void update();

 private:
  [[nodiscard]] Tensor scalar(DType dtype, const Operator& op);

  Tape& tape_;
  bool enabled_;
  Tensor scale_, growth_tracker_;
  Tensor found_inf_;  // of this step, once unscaled
};

}  // namespace memcalc
