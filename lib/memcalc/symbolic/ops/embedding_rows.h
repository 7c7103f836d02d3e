// The sorted gradient of an embedding's table.
#pragma once

#include <cstdint>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// cuda/EmbeddingBackwardKernel.cu, which embedding bags always take and embeddings of many indices: gradients of equal
/// indices are summed in partial segments before they reach the table. Which sizes are requested depends on the number
/// of indices, not on their values.
[[nodiscard]] Tensor sorted_table_gradient(Tape& tape, DType dtype, std::int64_t n, const Shape& table);

}  // namespace memcalc
