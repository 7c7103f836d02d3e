// What a DTensor's redistribute() allocates where a tensor's layout over tensor-parallel ranks changes (PyTorch 2.11,
// torch/distributed/tensor/_redistribute.py, placement_types.py, _functional_collectives.py): a collective moves along
// the first dimension, so that along another one there is a copy behind a gather and in front of a scatter.
// MIRRORS(torch, "distributed/_functional_collectives.py", "2.11.0")
// MIRRORS(torch, "distributed/tensor/_redistribute.py", "2.11.0")
// MIRRORS(torch, "distributed/tensor/parallel/loss.py", "2.11.0")
#pragma once

#include <cstdint>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// funcol.all_reduce of values without a gradient: a copy, reduced in place.
[[nodiscard]] Tensor all_reduce(const Tensor& x, std::int64_t ranks);

/// DTensor.from_local in front of a norm: x itself. Gradients that meet at it are added to a new tensor: the engine's
/// input buffer does not change subclasses of Tensor in place.
[[nodiscard]] Tensor distributed(const Tensor& x);
/// DTensor.from_local(x, [Replicate()]) in front of a product that is split by columns: a view, whose gradient is
/// partial and summed over the ranks (_api.py, _FromTorchTensor).
[[nodiscard]] Tensor replicated(const Tensor& x, std::int64_t ranks);
/// A product that is split by columns reads a gathered sequence, which is a DTensor already: the host's work alone.
void read_as_dtensor(const Tensor& x);
/// A partial product to Replicate() (_redistribute.py): its gradient stays as it is.
[[nodiscard]] Tensor summed_over_ranks(const Tensor& partial, std::int64_t ranks);
/// Shard(dim) to Replicate() of what products read that are split over the ranks: their gradients are partial sums,
/// which are reduced and scattered; several that meet are added to a new tensor.
/// `linears`: of DTensors, whose time of the host counts here.
[[nodiscard]] Tensor gather_for_products(const Tensor& x, int dim, std::int64_t ranks, std::int64_t linears = 0);
/// Shard(dim) to Replicate() of what every rank goes on with: the gradient is cut.
[[nodiscard]] Tensor gather_for_all(const Tensor& x, int dim, std::int64_t ranks);
/// A partial sum to Shard(dim): its gradient is gathered.
[[nodiscard]] Tensor reduce_and_scatter(const Tensor& partial, int dim, std::int64_t ranks, std::int64_t linears);

/// RowwiseParallel of an nn.Embedding with output_layouts=Shard(1): `weight` is this rank's part of the table, ids
/// [batch, sequence] are whole, the result is [batch, sequence / ranks, width]. The gradient is that of the whole table
/// on every rank (a DTensor that is replicated), which the parameter keeps until the optimizer's step.
[[nodiscard]] Tensor vocabulary_parallel_embedding(const Tensor& weight, const Tensor& ids, std::int64_t ranks);

/// cross_entropy inside of loss_parallel() (parallel/loss.py): float32 `logits` [rows, vocabulary / ranks] of this
/// rank, `targets` [rows].
[[nodiscard]] Tensor loss_parallel_cross_entropy(const Tensor& logits, const Tensor& targets, std::int64_t ranks);

/// A gradient as its parameter is laid out (_get_grad_inner_tensor): the part of a whole one, the sum of partial ones.
[[nodiscard]] Tensor gradient_in_layout(const Tensor& parameter, Tensor gradient, std::int64_t ranks);

}  // namespace memcalc
