// torch.amp.GradScaler: loss scaling for float16.
#pragma once

#include "memcalc/symbolic/tape.h"
#include "memcalc/train/optimizer.h"

namespace memcalc {

class GradScaler {
 public:
  GradScaler(Tape& tape, bool enabled) : tape_(tape), enabled_(enabled) {}

  /// loss * scale: the tensor to run backward from.
  [[nodiscard]] Tensor scale(const Tensor& loss);
  void step(OptimizerSteps& optimizer);
  void update();

 private:
  Tape& tape_;
  bool enabled_;
  Tensor scale_, growth_tracker_;
};

}  // namespace memcalc
