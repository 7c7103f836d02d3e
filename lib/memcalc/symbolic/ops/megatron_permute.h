// What brings tokens to experts and back without TransformerEngine's fused kernels: Megatron-core's permute() and
// unpermute(), and the gathering that its all-gather dispatcher begins with.
// MIRRORS(megatron, "core/tensor_parallel/mappings.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/moe/moe_utils.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/moe/token_dispatcher.py", "0.14.0")
#pragma once

#include "memcalc/symbolic/ops/megatron_memory.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// mappings.py, gather_from_sequence_parallel_region(use_global_buffer=True): x [tokens, h] of every rank, in the
/// buffer "mpu"; its gradient is reduced and scattered.
[[nodiscard]] Tensor gather_in_global_buffer(MegatronMemory& memory, const Tensor& x, std::int64_t ranks);

/// token_dispatcher.py, preprocess() and _maybe_dtoh_and_synchronize(): each expert's tokens are counted, the ranks
/// tell each other, and the host waits for the counts, by which it splits what is exchanged.
void exchange_token_counts(Tape& tape, std::int64_t tokens, std::int64_t experts, std::int64_t ranks);

/// Rows [n, h] by index_select, and the int64 indices [n] by which unpermute_by_indices() goes back.
struct IndexedRows {
  Tensor rows, indices;
};
/// permute(): x [tokens, h] to the rows that `experts` experts get.
[[nodiscard]] IndexedRows permute_by_indices(const Tensor& x, std::int64_t experts, std::int64_t rows);
/// probs.T.contiguous().masked_select(routing_map.T): [tokens, experts] to [n].
[[nodiscard]] Tensor select_probabilities(const Tensor& probabilities, std::int64_t rows);
/// unpermute(): zeros [tokens, h] to which rows [n, h] are added.
[[nodiscard]] Tensor unpermute_by_indices(const Tensor& rows, const Tensor& indices, std::int64_t tokens);

}  // namespace memcalc
