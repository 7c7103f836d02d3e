// What losses on embeddings are made of: the length of vectors, their inner products, and sums of exponentials.
// Covered by tests/unit/vectors_test.cc.
#pragma once

#include <optional>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// torch.linalg.vector_norm(x, 2, dims, keepdim): bit i of `dims` stands for dimension i.
[[nodiscard]] Tensor vector_norm(const Tensor& x, unsigned dims, bool keep_dims,
                                 std::optional<DType> dtype = std::nullopt);
/// The same of order 1.
[[nodiscard]] Tensor one_norm(const Tensor& x, unsigned dims, bool keep_dims,
                              std::optional<DType> dtype = std::nullopt);
/// The same of any other order; 0 counts what is not zero and has no gradient.
[[nodiscard]] Tensor norm_of_order(const Tensor& x, double order, unsigned dims, bool keep_dims,
                                   std::optional<DType> dtype = std::nullopt);
/// torch.logsumexp(x, dims, keepdim); float32 under autocast.
[[nodiscard]] Tensor log_sum_exp(Arg x, unsigned dims, bool keep_dims);
/// torch.dot of two vectors.
[[nodiscard]] Tensor dot(Arg a, Arg b);
/// F.normalize(x, p=2, dim=1) of [rows, width].
[[nodiscard]] Tensor normalized_rows(const Tensor& x);

}  // namespace memcalc
