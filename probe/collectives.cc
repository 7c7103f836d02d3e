#include "collectives.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <memory>
#include <vector>

#include "device_memory.h"
#include "timing.h"

namespace memcalc::probe {

namespace {

// nccl.h, as far as it is called here: types and numbers of its stable interface.
using Communicator = void*;
constexpr int kFloat32 = 7, kSum = 0;

struct Nccl {
  int (*init_all)(Communicator*, int, const int*);
  int (*destroy)(Communicator);
  int (*group_start)();
  int (*group_end)();
  int (*all_reduce)(const void*, void*, std::size_t, int, int, Communicator, cudaStream_t);
  int (*all_gather)(const void*, void*, std::size_t, int, Communicator, cudaStream_t);
  int (*reduce_scatter)(const void*, void*, std::size_t, int, int, Communicator, cudaStream_t);

  [[nodiscard]] bool load() {
    void* library = dlopen("libnccl.so.2", RTLD_NOW);
    if (library == nullptr) return false;
    const auto take = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return take(init_all, "ncclCommInitAll") && take(destroy, "ncclCommDestroy") &&
           take(group_start, "ncclGroupStart") && take(group_end, "ncclGroupEnd") &&
           take(all_reduce, "ncclAllReduce") && take(all_gather, "ncclAllGather") &&
           take(reduce_scatter, "ncclReduceScatter");
  }
};

struct Rank {
  DeviceBuffer from, to;
  cudaStream_t stream = nullptr;
};

}  // namespace

std::string measure_collectives() {
  int cards = 0;
  MEMCALC_CUDA(cudaGetDeviceCount(&cards));
  Nccl nccl{};
  if (cards < 2 || !nccl.load()) return {};
  constexpr std::size_t kMost = std::size_t{1} << 28;
  std::vector<Communicator> communicators(static_cast<std::size_t>(cards));
  if (nccl.init_all(communicators.data(), cards, nullptr) != 0) return {};
  std::vector<Rank> ranks(static_cast<std::size_t>(cards));
  for (int card = 0; card < cards; ++card) {
    MEMCALC_CUDA(cudaSetDevice(card));
    Rank& rank = ranks[static_cast<std::size_t>(card)];
    rank.from = DeviceBuffer(kMost);
    rank.to = DeviceBuffer(kMost);
    MEMCALC_CUDA(cudaStreamCreate(&rank.stream));
  }
  MEMCALC_CUDA(cudaSetDevice(0));
  Stopwatch watch(ranks[0].stream);
  std::string rows;
  for (std::size_t bytes = 1 << 16; bytes <= kMost; bytes *= 4) {
    for (const char* op : {"all_reduce", "all_gather", "reduce_scatter"}) {
      const std::size_t part = bytes / sizeof(float) / static_cast<std::size_t>(cards);
      const double seconds = watch.seconds([&] {
        nccl.group_start();
        for (int card = 0; card < cards; ++card) {
          const Rank& rank = ranks[static_cast<std::size_t>(card)];
          Communicator communicator = communicators[static_cast<std::size_t>(card)];
          const void* from = rank.from.get();
          void* to = rank.to.get();
          if (op[4] == 'r') nccl.all_reduce(from, to, bytes / sizeof(float), kFloat32, kSum, communicator, rank.stream);
          if (op[4] == 'g') nccl.all_gather(from, to, part, kFloat32, communicator, rank.stream);
          if (op[0] == 'r') nccl.reduce_scatter(from, to, part, kFloat32, kSum, communicator, rank.stream);
        }
        nccl.group_end();
      });
      std::array<char, 200> row{};
      std::snprintf(row.data(), row.size(),
                    "{\"kind\": \"collective\", \"op\": \"%s\", \"world\": %d, \"bytes\": %zu, \"ms\": %.6f}\n", op,
                    cards, bytes, seconds * 1e3);
      rows += row.data();
    }
  }
  for (int card = 0; card < cards; ++card) {
    MEMCALC_CUDA(cudaSetDevice(card));
    nccl.destroy(communicators[static_cast<std::size_t>(card)]);
    cudaStreamDestroy(ranks[static_cast<std::size_t>(card)].stream);
  }
  MEMCALC_CUDA(cudaSetDevice(0));
  return rows;
}

}  // namespace memcalc::probe
