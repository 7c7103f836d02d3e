// torch.amp.GradScaler: loss scaling for float16 (torch/amp/grad_scaler.py).
// MIRRORS(torch, "amp/grad_scaler.py", "2.11.0")
#pragma once

#include <cstdint>

#include "memcalc/symbolic/tape.h"
#include "memcalc/train/optimizer.h"

namespace memcalc {

class GradScaler {
 public:
  /// `skipped_steps`: in so many first steps it finds infinities, as a new scaler does whose scale is still too high.
  GradScaler(Tape& tape, bool enabled, std::int64_t skipped_steps)
      : tape_(tape), enabled_(enabled), skipped_steps_(skipped_steps) {}

  /// loss * scale: the tensor to run backward from. The loss itself where disabled.
  [[nodiscard]] Tensor scale(const Tensor& loss);
  /// Divides the gradients by the scale and looks for infinities; needed before clipping.
  void unscale(OptimizerSteps& optimizer);
  /// Steps the optimizer unless the step is skipped; unscales first if that has not happened.
  void step(OptimizerSteps& optimizer);
  void update();

 private:
  [[nodiscard]] Tensor scalar(DType dtype, const Operator& op);

  Tape& tape_;
  bool enabled_;
  std::int64_t skipped_steps_;
  std::int64_t steps_ = 0;
  Tensor scale_, growth_tracker_;
  Tensor found_inf_;  // of this step, once unscaled
};

}  // namespace memcalc
