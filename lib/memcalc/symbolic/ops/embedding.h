// Table look-up and its dense backward.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// F.embedding: weight [rows, width], int64 indices of any shape.
[[nodiscard]] Tensor embedding(const Tensor& weight, Arg indices);

/// aten::embedding_dense_backward: the gradient of a table [rows, width].
[[nodiscard]] Tensor embedding_table_gradient(Tape& tape, const Tensor& indices, const Tensor& gradient,
                                              const Shape& table);

}  // namespace memcalc
