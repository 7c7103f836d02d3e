// The two training loops: what surrounds the model in a step.
#pragma once

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// A plain loop with torch's defaults:
///   out = model(**batch); out.loss.backward(); optimizer.step(); optimizer.zero_grad()
void run_bare_loop(Tape& tape, Model& model, const RunSpec& run);

/// transformers' Trainer with accelerate (transformers 5.17, accelerate 1.15).
void run_trainer_loop(Tape& tape, Model& model, const RunSpec& run);

/// A gradient of one for a scalar loss: torch.ones_like(loss).
[[nodiscard]] Tensor ones_like(const Tensor& loss);

}  // namespace memcalc
