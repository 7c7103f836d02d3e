// The matrix product of mixtures of experts: each group of rows with a matrix of its own.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// F.grouped_mm: x [rows, in], sorted by group, times matrices [groups, in, out] (row-major, or a transposed view);
/// `offsets` [groups] int32 are the groups' ends. No autocast: both have one dtype.
[[nodiscard]] Tensor grouped_mm(Arg x, Arg matrices, const Tensor& offsets);

/// transformers' operator of the same meaning, which a compiled model of other weights than bfloat16 calls: a product
/// for each group, into a result of zeros.
[[nodiscard]] Tensor grouped_mm_fallback(const Tensor& x, const Tensor& matrices, const Tensor& offsets);

/// x.clamp_(max=number) of expert ids: in place.
void clamp_ids_in_place(const Tensor& x);

/// torch.histc with one bin for each of `bins` whole numbers, int32.
[[nodiscard]] Tensor count_values(const Tensor& x, std::int64_t bins);

}  // namespace memcalc
