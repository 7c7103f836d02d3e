// mode="reduce-overhead": forward and backward of a compiled model are each warmed up at their first call, recorded in
// a CUDA graph at the second, and replayed from the third on, all in one private pool on a side stream.
// Covered by tests/unit/cuda_graphs_test.cc.
// MIRRORS(torch, "_inductor/cudagraph_trees.py", "2.11.0")
// MIRRORS(torch, "aten/src/ATen/cuda/CUDAGraph.cpp", "2.11.0")
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/symbolic/cublas_workspaces.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc::compile {

class CudaGraphs {
 public:
  enum class Part : std::uint8_t { kForward, kBackward };

  explicit CudaGraphs(Tape& tape);

  /// Begins and ends a call of the code of a part. A replay asks for no memory: what it computes lies where it was
  /// recorded, and the allocator does not know of it any more.
  class Call {
   public:
    Call(CudaGraphs& graphs, Part part);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    CudaGraphs& graphs_;
    Part part_;
    OnStream stream_;
    OnMetaDevice replay_;
  };

  /// Whether the next call of the part records it: what it is given, but neither parameters nor results of a graph,
  /// is copied into the pool then.
  [[nodiscard]] bool will_record(Part part) const { return runs_[static_cast<std::size_t>(part)] == 1; }
  /// Such a copy, which the graph's code frees.
  [[nodiscard]] Tensor copy(Bytes bytes);
  /// That of a tensor of the batch: forward's first kernel reads it, or (`by_backward`) backward does, too.
  void copy_input(Bytes bytes, bool by_backward);
  /// The code runs a product: of each recording, and of each warm-up, the first takes workspaces, which are given back
  /// at its end.
  void use_cublas(bool with_lt);

 private:
  void make_tree();
  void clear_workspaces();

  Tape& tape_;
  CublasWorkspaces workspaces_;
  std::array<int, 2> runs_{};  // by part
  bool has_tree_ = false;
  std::vector<Tensor> for_good_;
  Tensor cublas_, cublaslt_;
  std::vector<Tensor> read_by_forward_, read_by_backward_;  // copies of the batch
};

}  // namespace memcalc::compile
