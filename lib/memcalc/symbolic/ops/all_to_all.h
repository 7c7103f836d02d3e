// The exchanges of DeepSpeed's Ulysses (deepspeed 0.19.8, deepspeed/sequence/layer.py).
// MIRRORS(deepspeed, "sequence/layer.py", "0.19.8")
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// _dim_zero_all_to_all: the i-th part of dimension 0 goes to rank i, as does that of the gradient on its way back.
/// Pre: dimension 0 is as long as there are ranks.
[[nodiscard]] Tensor dim_zero_all_to_all(const Tensor& x, std::int64_t ranks);

/// dist.all_gather of a tensor of this shape, which nobody differentiates: a list of each rank's. NCCL gathers into one
/// tensor, from which they are copied.
[[nodiscard]] std::vector<Tensor> all_gather(Tape& tape, const Shape& shape, DType dtype, std::int64_t ranks);

}  // namespace memcalc
