// Attention whose queries, keys and values are split over ranks by position: torch.distributed.tensor.experimental
// context_parallel (PyTorch 2.11, _context_parallel/_attention.py), with its head-tail load balancing.
// Covered by tests/measured/parallel_rows_test.cc.
// MIRRORS(torch, "distributed/tensor/experimental/_context_parallel/_attention.py", "2.11.0")
#pragma once

#include "memcalc/symbolic/ops/attention.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// As scaled_dot_product_attention, of the sequence's part on ContextRanks::rank. Throws Error(kUsage) for what
/// context_parallel refuses: a mask, attention that is not causal, operands that no fused kernel takes.
[[nodiscard]] Tensor ring_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                    const SdpaOptions& options, SdpaBackend backend);

}  // namespace memcalc
