// MIRRORS(deepspeed, "runtime/sequence_parallel/ulysses_sp.py", "0.19.8")
// MIRRORS(deepspeed, "utils/groups.py", "0.19.8")
#include "memcalc/report/nccl_memory.h"

#include <algorithm>
#include <numeric>

#include "memcalc/spec/parallel.h"

namespace memcalc {

namespace {

// Bytes of NCCL's buffers of a channel between two ranks (2.28.9: init.cc, DEFAULT_*_BUFFSIZE; transport/p2p.cc,
// p2pSendSetup and p2pRecvSetup). Over NVLink on Hopper the sender writes: all three lie with the receiver.
constexpr Bytes kLowLatency = 8 * 512 * 8 * 16;          // lines a thread, threads, steps, bytes a line
constexpr Bytes kLowLatency128 = 120 * 640 * 8 * 8;      // elements a thread, threads, steps, bytes
constexpr Bytes kSimple = Bytes{4} << 20;                // NCCL_BUFFSIZE
constexpr Bytes kControl = 4096;                         // ncclSendMem, ncclRecvMem
constexpr std::int64_t kAllocationsOfAChannel = 3;       // channel.cc, initChannel: peers twice, the ring's ranks
constexpr std::int64_t kAllocationsOfACommunicator = 2;  // init.cc, devCommSetup

/// Each allocation is at least a granule of the driver's (CUDA_IPC_MIN, cuMemCreate).
Bytes granules(const NcclMemory& nccl, Bytes bytes) { return round_up(bytes, nccl.granularity_bytes); }

Bytes receive_buffer(const NcclMemory& nccl) {
  return granules(nccl, kControl + kLowLatency + kLowLatency128 + kSimple);
}

Bytes send_buffer(const NcclMemory& nccl) { return granules(nccl, kControl); }

Bytes communicator_bytes(const NcclMemory& nccl, const Communicator& communicator) {
  const std::int64_t initialised = communicator.ranks > 1 ? nccl.p2p_channels : nccl.channels_alone;
  Bytes bytes = (kAllocationsOfAChannel * initialised + kAllocationsOfACommunicator) * nccl.granularity_bytes;
  if (communicator.ranks > 1 && communicator.collectives) {
    bytes += nccl.channels * (send_buffer(nccl) + receive_buffer(nccl));  // to the next, from the previous rank
  }
  return bytes + nccl.p2p_channels *
                     (communicator.sent_to * send_buffer(nccl) + communicator.received_from * receive_buffer(nccl));
}

bool broadcasts_parameters(const Parallel& p) {
  return p.data_parallel == DataParallel::kDdp || p.data_parallel == DataParallel::kZero1;
}

// ulysses_sp.py, parallel_state_sp.initialize_sequence_parallel: a group of the ranks that share a sequence, one of
// all, which ZeRO then takes; else ZeRO takes a clone of the world's group (deepspeed/utils/groups.py).
Communication of_deepspeed(const Parallel& p) {
  Communication result{
      .communicators = {{.ranks = p.gpus, .collectives = true}, {.ranks = p.gpus, .collectives = true}},
      .broadcasts = true};
  if (p.context > 1) {
    const std::int64_t others = p.context - 1;
    result.communicators.push_back(
        {.ranks = p.context, .collectives = true, .sent_to = others, .received_from = others});
  }
  return result;
}

/// torch.distributed.tensor.parallel: distribute_tensor scatters each matrix from the first rank. Of the ranks that
/// which takes most: the first, or one that receives.
Communicator tensor_parallel(const Parallel& p) {
  Communicator group{.ranks = p.tensor, .collectives = true};
  constexpr std::int64_t kReceivesAsMuchAsSends = 5;  // buffers of 10 and 2 MiB
  if (p.tensor - 1 > kReceivesAsMuchAsSends) {
    group.sent_to = p.tensor - 1;
  } else {
    group.received_from = 1;
  }
  return group;
}

/// context_parallel: keys and values are gathered or passed on, their gradients are always passed on.
Communicator context_parallel(const Parallel& p) {
  return {.ranks = p.context,
          .collectives = p.context_type == ContextParallel::kAllGather,
          .sent_to = 1,
          .received_from = 1};
}

/// torch.distributed.pipelining: a stage sends to and receives from its neighbours; with several stages a rank the last
/// rank is the first one's.
Communicator pipeline(const Parallel& p, std::int64_t rank) {
  const std::int64_t stage = rank / (p.gpus / p.pipeline);
  std::int64_t neighbours = (stage > 0 ? 1 : 0) + (stage + 1 < p.pipeline ? 1 : 0);
  if (p.virtual_stages > 1) neighbours = std::min<std::int64_t>(2, p.pipeline - 1);
  return {.ranks = p.pipeline, .sent_to = neighbours, .received_from = neighbours};
}

// init_device_mesh makes a group for each dimension of several; of one it takes the default group.
Communication of_torch(const Parallel& p, std::int64_t rank) {
  const std::int64_t data = data_parallel_size(p);
  std::vector<Communicator> dimensions;
  if (p.pipeline > 1) dimensions.push_back(pipeline(p, rank));
  if (const std::int64_t shard = p.torch().hsdp_shard; shard > 0) {
    dimensions.push_back({.ranks = data / shard, .collectives = true});
    dimensions.push_back({.ranks = shard, .collectives = true});
  } else if (data > 1) {
    dimensions.push_back({.ranks = data, .collectives = p.context == 1});  // beside cp it is that of both that reduces
  }
  if (p.context > 1) dimensions.push_back(context_parallel(p));
  if (p.tensor > 1) dimensions.push_back(tensor_parallel(p));
  Communication result{.communicators = {}, .broadcasts = broadcasts_parameters(p)};
  if (dimensions.size() < 2) {
    Communicator world = dimensions.empty() ? Communicator{.ranks = p.gpus} : dimensions.front();
    world.collectives = true;  // at least a barrier
    result.communicators = {world};
    return result;
  }
  result.communicators = std::move(dimensions);
  result.communicators.push_back({.ranks = p.gpus, .collectives = true});
  const bool flattened = data > 1 && p.context > 1 && data * p.context < p.gpus;  // else it is the world's
  if (flattened) result.communicators.push_back({.ranks = data * p.context, .collectives = true});
  return result;
}

}  // namespace

Communication communication_of(const Parallel& parallel, std::int64_t rank) {
  switch (parallel.framework()) {
    case Framework::kDeepSpeed: return of_deepspeed(parallel);
    case Framework::kTorch: return of_torch(parallel, rank);
    default: break;
  }
  return {.communicators = {{.ranks = parallel.gpus, .collectives = true}}};
}

Bytes nccl_bytes(const NcclMemory& nccl, const Communication& communication) {
  const std::vector<Communicator>& all = communication.communicators;
  const auto any = [&all](auto holds) { return std::any_of(all.begin(), all.end(), holds); };
  Bytes bytes = nccl.library_bytes;
  for (const Communicator& each : all) bytes = checked_add(bytes, communicator_bytes(nccl, each));
  if (!any([](const Communicator& each) { return each.ranks > 1; })) return bytes;
  bytes += nccl.first_kernel_bytes;
  // The stack of the kernel of send and receive is the largest; a broadcast's lies within it.
  if (any([](const Communicator& each) { return each.sent_to + each.received_from > 0; })) {
    return bytes + nccl.send_receive_kernel_bytes;
  }
  return communication.broadcasts ? bytes + nccl.broadcast_kernel_bytes : bytes;
}

}  // namespace memcalc
