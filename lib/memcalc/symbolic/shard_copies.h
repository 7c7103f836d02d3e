// The copies of fully_shard that are one kernel each (native/cuda/TensorShape.cu, torch 2.11): train/ issues them,
// cost/ knows them by their address. Covered by tests/unit/kernel_time_test.cc.
#pragma once

#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// Takes apart what was gathered.
inline constexpr Operator kSplitWithSizesCopy{"fsdp::split_with_sizes_copy"};
/// Puts gradients together that are scattered.
inline constexpr Operator kChunkCat{"fsdp::chunk_cat"};

}  // namespace memcalc
