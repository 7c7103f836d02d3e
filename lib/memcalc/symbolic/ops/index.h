// Movements of whole rows and images: what window attention does beside its products.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// table[index] for a table [rows, width] and int64 indices [n]: [n, width].
[[nodiscard]] Tensor index_rows(const Tensor& table, const Tensor& index);
/// F.pad with zeros up to `shape`: a copy even where nothing is added.
[[nodiscard]] Tensor pad_to(const Tensor& x, const Shape& shape);
/// torch.roll over two dimensions: one after the other.
[[nodiscard]] Tensor roll(const Tensor& x);

}  // namespace memcalc
