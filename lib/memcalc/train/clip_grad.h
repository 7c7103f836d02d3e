// torch/nn/utils/clip_grad.py
// MIRRORS(torch, "nn/utils/clip_grad.py", "2.11.0")
#pragma once

#include <vector>

#include "memcalc/models/module.h"

namespace memcalc {

/// torch.nn.utils.clip_grad_norm_ (foreach); returns the total norm. Pre: some parameter has a gradient.
Tensor clip_grad_norm(Tape& tape, const std::vector<Parameter>& parameters);

}  // namespace memcalc
