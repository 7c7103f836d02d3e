// DistributedDataParallel on one rank: torch/nn/parallel/distributed.py and torch/csrc/distributed/c10d/reducer.cpp
// (PyTorch 2.11). A plain loop leaves find_unused_parameters off; transformers' Trainer switches it on where nothing
// is checkpointed (trainer.py, _build_accelerator_args). ZeroRedundancyOptimizer beside it: zero1.h.
// Covered by tests/unit/parallel_test.cc and tests/measured/parallel_rows_test.cc.
// MIRRORS(torch, "nn/parallel/distributed.py", "2.11.0")
// MIRRORS(torch, "torch/csrc/distributed/c10d/reducer.cpp", "2.11.0")
// MIRRORS(transformers, "trainer.py", "5.17.0")
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

inline constexpr Bytes kFirstBucketBytes = kMiB;      // dist._DEFAULT_FIRST_BUCKET_BYTES
inline constexpr Bytes kBucketBytes = 25 * kMiB;      // bucket_cap_mb
inline constexpr Bytes kBroadcastBytes = 250 * kMiB;  // broadcast_bucket_size

/// reducer.cpp, compute_bucket_assignment_by_size: tensors of a type go to a bucket until it has its limit; the last
/// limit holds for all further buckets. Places in `tensors`; buckets that did not reach their limit come last.
[[nodiscard]] std::vector<std::vector<std::size_t>> bucket_assignment(std::span<const Tensor> tensors,
                                                                      std::span<const Bytes> limits);

/// Rank 0's tensors go to the others, in buckets that are flattened.
void broadcast_coalesced(std::span<const Tensor> tensors, std::int64_t ranks);

class Ddp : public ParallelWrapper {
 public:
  using ParallelWrapper::ParallelWrapper;

  void wrap(Model& model) override;
  [[nodiscard]] ModelOutput forward(const ModuleForward& module, const Batch& batch, bool sync) override;
  void after_step() override { in_flight_.clear(); }
  void before_last_backward() override { syncs_ = true; }

 private:
  struct Bucket {
    std::vector<std::size_t> params;  // places in params_
    Tensor flat;
    std::size_t pending = 0;
    std::size_t reduce = 0;  // its all-reduce: KernelLog::collective()
  };

  void initialize_buckets(const std::vector<std::vector<std::size_t>>& assignment);
  void rebuild_buckets();
  void gradient_ready(std::size_t param);
  void mark_ready(std::size_t param);
  void delay_all_reduce();
  void all_reduce(Bucket& bucket);
  void copy_kernel(std::size_t param);
  void finalize();
  [[nodiscard]] bool finds_unused() const;
  [[nodiscard]] Tensor as_stored(const Tensor& tensor) const;
  [[nodiscard]] ModelOutput through_sink(ModelOutput output);
  static void sink_backward(BackwardCall& call);

  std::vector<Tensor> params_;  // that get a gradient
  std::vector<Tensor> buffers_;
  Tensor used_map_;  // local_used_map_dev_
  std::vector<Bucket> buckets_;
  std::vector<Tensor> in_flight_;         // of collectives that NCCL's watchdog has not let go of
  std::vector<std::size_t> bucket_of_;    // by parameter
  std::vector<std::size_t> ready_order_;  // rebuilt_param_indices_
  bool rebuilt_ = false;
  bool syncs_ = true;
  bool finalizes_ = false;  // at the end of this backward pass
  bool delayed_ = false;    // static graph: the first iteration reduces when all gradients are there
  std::int64_t backward_passes_ = 0;
};

}  // namespace memcalc
