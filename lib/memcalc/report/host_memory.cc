// MIRRORS(torch, "utils/data/dataloader.py", "2.11.0")
#include "memcalc/report/host_memory.h"

#include <string>
#include <utility>

#include "memcalc/report/quantity.h"

namespace memcalc {
namespace {

struct BatchBytes {
  Bytes plain = 0;
  Bytes pinned = 0;  // each tensor in a block of its own (CachingHostAllocator.h: powers of two)
};

BatchBytes batch_bytes(const SymbolicRun& symbolic) {
  BatchBytes batch;
  for (const Bytes tensor : symbolic.batch_tensors) {
    batch.plain = checked_add(batch.plain, tensor);
    batch.pinned = checked_add(batch.pinned, power_of_two_from(tensor));
  }
  return batch;
}

}  // namespace

HostMemory host_memory_of(const SymbolicRun& symbolic, const RunSpec& run) {
  HostMemory host;
  const auto add = [&](std::string name, Bytes bytes, bool pinned, std::string rule) {
    if (bytes == 0) return;
    host.total = checked_add(host.total, bytes);
    if (pinned) host.pinned = checked_add(host.pinned, bytes);
    host.rows.push_back({std::move(name), bytes, pinned, std::move(rule)});
  };
  const HostCopies& copies = symbolic.host_copies;
  add("offloaded activations", copies.pinned_bytes, true,
      std::to_string(copies.count) + " saved " + plural(copies.count, "tensor") + " of " +
          std::to_string(copies.bytes) + " bytes, each in a pinned block of a power of two");
  const HostOptimizer& optimizer = symbolic.host_optimizer;
  const std::string each = std::to_string(optimizer.tensors) + " " + plural(optimizer.tensors, "parameter") +
                           " of 4096 elements or more, each ";
  add("offloaded parameters", optimizer.pinned_parameters, true, each + "in a pinned block of a power of two");
  add("offloaded gradients", optimizer.pinned_gradients, true, each + "in a pinned block of a power of two");
  add("offloaded optimizer states", optimizer.states, false, each + "with two moments and a step counter");
  for (const HeldRow& row : symbolic.held_on_host) add(row.name, row.bytes, row.pinned, row.rule);
  // dataloader.py, _MultiProcessingDataLoaderIter: at most workers x prefetch_factor batches are under way.
  const BatchBytes batch = batch_bytes(symbolic);
  const Bytes ahead = checked_multiply(run.dataloader_workers, run.prefetch_factor);
  const std::string under_way = std::to_string(run.dataloader_workers) + " " +
                                plural(run.dataloader_workers, "worker") + " x " + std::to_string(run.prefetch_factor) +
                                (run.prefetch_factor == 1 ? " batch of " : " batches of ") +
                                std::to_string(batch.plain) + " bytes";
  add("prefetched batches", checked_multiply(ahead, batch.plain), false, under_way + " in shared memory, at most");
  if (run.pin_memory) {
    constexpr Bytes kHeldByTheLoop = 2;  // the batch in use and the one that replaces it
    const std::string rule = "each tensor in a block of a power of two, at most ";
    add("pinned batches", checked_multiply(ahead + kHeldByTheLoop, batch.pinned), true,
        rule + std::to_string(ahead + kHeldByTheLoop) + " batches: those prefetched, the one in use, the next");
  }
  return host;
}

}  // namespace memcalc
