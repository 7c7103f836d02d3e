// DeepSpeed's ZeRO, stages 1 and 2: deepspeed/runtime/zero/stage_1_and_2.py (DeepSpeedZeroOptimizer, 0.19.8).
// Parameters lie in one flat buffer; each rank has a float32 copy of its part, whose optimizer states are the only
// ones; gradients pass through a bucket (IPG) and are kept for the rank's part. Covered by
// tests/unit/deepspeed_test.cc.
// MIRRORS(deepspeed, "runtime/zero/stage_1_and_2.py", "0.19.8")
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memcalc/train/parallel/deepspeed_engine.h"
#include "memcalc/train/parallel/holdings.h"

namespace memcalc {

/// Elements of each trainable parameter in a rank's part, for each rank.
[[nodiscard]] std::vector<Holding> deepspeed_holdings(const Model& model, const RunSpec& run, std::int64_t ranks);

/// For each holding, whether no other rank has at least its gradients from an earlier bucket on. A rank allocates the
/// gradients of all parameters that reach into its part when the first of them is reduced; else ranks are alike.
[[nodiscard]] std::vector<bool> deepspeed_heaviest(const Model& model, const RunSpec& run,
                                                   std::span<const Holding> holdings);

class DeepSpeedZero1And2 : public DeepSpeedEngine {
 public:
  using DeepSpeedEngine::DeepSpeedEngine;

  void wrap(Model& model) override;
  /// accelerate's get_state_dict clones it on the host.
  [[nodiscard]] bool gather_state() override { return true; }
  [[nodiscard]] ModelOutput forward(const ModuleForward& module, const Batch& batch, bool sync) override;
  void after_backward(bool last) override;
  [[nodiscard]] bool step() override;
  [[nodiscard]] std::vector<HeldRow> held() const override;

  /// Elements of the flat buffer: the parameters, padded so that its parts are equal and 4-byte aligned.
  [[nodiscard]] static std::int64_t flat_elements(std::int64_t parameters, std::int64_t ranks);

 private:
  struct FlatParameter {
    Tensor tensor;
    std::size_t group = 0;   // of the optimizer's
    std::int64_t begin = 0;  // in the group's flat buffer
    std::int64_t own = 0;    // elements of it in this rank's part
  };

  /// A param_group: parameters in one flat buffer, whose parts are the ranks'.
  struct FlatGroup {
    std::size_t first = 0, last = 0;  // of its parameters, the last one excluded
    std::int64_t elements = 0;        // of the parameters
    std::int64_t flat = 0;            // of the flat buffer
    std::int64_t partition = 0;       // of a rank's part
    Tensor padding;                   // zeros at the end of the last part
  };

  /// Neighbours of a bucket that belong to one rank each.
  struct Slices {
    std::int64_t count = 0;
    std::int64_t elements = 0;
    std::int64_t own = 0;  // of them this rank's
  };

  void flatten_group(FlatGroup& group);
  [[nodiscard]] std::vector<std::int64_t> pieces_of(const FlatGroup& group) const;
  void step_group(std::size_t i);
  [[nodiscard]] bool partitions_gradients() const { return run.parallel.data_parallel == DataParallel::kDsZero2; }
  [[nodiscard]] bool overlaps() const { return run.parallel.deepspeed().overlap_comm.value_or(false); }
  [[nodiscard]] bool at_boundary() const { return micro_batch_ == micro_batches_; }
  [[nodiscard]] std::int64_t bucket_size() const { return run.parallel.deepspeed().reduce_bucket_size; }
  [[nodiscard]] CudaStream reduction_stream() const;

  void make_buckets();
  void put_into_bucket(std::size_t i);
  void reduce_bucket();
  void average_bucket();
  void all_reduce(const Slices& slices);
  void keep_gradient(std::size_t i);
  void move_gradient_to_host(const FlatParameter& param);
  void finish_micro_batch(bool last);
  void take_offloaded_norm();

  std::vector<FlatParameter> params_;  // group by group
  std::vector<FlatGroup> groups_;
  std::int64_t own_elements_ = 0;  // of the parameters that reach into this rank's part, whole
  std::int64_t largest_ = 0;       // parameter
  Tensor offload_buffer_;          // temp_grad_buffer_for_gpu_offload

  std::vector<Tensor> buckets_;  // two where reductions overlap with backward
  std::size_t bucket_ = 0;
  std::int64_t bucket_elements_ = 0;
  std::vector<std::size_t> bucket_params_;
  std::int64_t micro_batch_ = 0;    // of this step, from 1
  std::int64_t micro_batches_ = 0;  // that are executed in a step
  Tensor gradients_;                // grads_in_partition: of this micro-batch
  Tensor accumulated_;              // all_grad_tensors
  std::vector<Tensor> offloaded_norms_;
};

}  // namespace memcalc
