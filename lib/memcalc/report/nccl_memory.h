// What NCCL takes of a card outside of PyTorch's allocator: for each communicator that a rank is in what its channels
// take, their buffers for a ring and for each peer that is sent to or received from, and the kernels that were loaded
// (NCCL 2.28.9 within one host with NVLink, where all was measured: tests/measured/nccl_memory_h200.jsonl).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/parallel_spec.h"

namespace memcalc {

struct Communicator {
  std::int64_t ranks = 1;
  bool collectives = false;  // all-reduce, all-gather, reduce-scatter or broadcast: a ring
  std::int64_t sent_to = 0;  // ranks, by send/recv, which all-to-all and scatter are made of
  std::int64_t received_from = 0;
};

/// What a rank takes part in; of ranks that differ in nothing else that which takes most. None: nothing is known.
struct Communication {
  std::vector<Communicator> communicators;
  bool broadcasts = false;
};

[[nodiscard]] Communication communication_of(const Parallel& parallel, std::int64_t rank);

[[nodiscard]] Bytes nccl_bytes(const NcclMemory& nccl, const Communication& communication);

}  // namespace memcalc
