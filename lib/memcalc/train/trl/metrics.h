// What TRL's trainers look at in every step beside the loss, and log (trl 1.16). Each leaves its requests in the trace.
#pragma once

#include <vector>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// (sum / count).item() if count > 0 else 0.0
void look_at_mean(const Tensor& sum, const Tensor& count);

/// accelerator.gather(x).mean().item()
void look_at(const Tensor& x);

/// gathered_sum(x).item()
void look_at_sum(const Tensor& x);

/// x.chunk(2, dim=0)
[[nodiscard]] std::vector<Tensor> halves(const Tensor& x);

}  // namespace memcalc
