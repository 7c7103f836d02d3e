// Megatron's DistributedDataParallel and its optimizers: one contiguous gradient buffer, with the distributed optimizer
// one of parameters, too; float32 main parameters and Adam's moments, whole or a data-parallel rank's share.
// megatron/core/distributed/param_and_grad_buffer.py, optimizer/{optimizer,distrib_optimizer}.py (core_r0.14.0); Muon:
// optimizer/emerging_optimizers.py (core_v0.19.0), without the distributed optimizer.
// MIRRORS(megatron, "core/distributed/param_and_grad_buffer.py", "0.14.0")
// MIRRORS(megatron, "core/optimizer/distrib_optimizer.py", "0.14.0")
// MIRRORS(megatron, "core/optimizer/optimizer.py", "0.14.0")
// MIRRORS(megatron, "core/optimizer/clip_grads.py", "0.14.0")
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memcalc/models/megatron_config.h"
#include "memcalc/models/module.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/step.h"

namespace memcalc {

/// Where a parameter lies in its buffer, in elements.
struct BufferRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// How _ParamAndGradBuffer lays out parameters: in reverse order; with the distributed optimizer starts are multiples
/// of 64 elements and bucket ends divisible by the group and 128.
struct BufferLayout {
  std::vector<BufferRange> parameters;  // as given
  std::vector<BufferRange> buckets;
  std::int64_t elements = 0;
};
[[nodiscard]] BufferLayout lay_out_buffer(std::span<const std::int64_t> elements, std::int64_t group,
                                          bool distributed_optimizer, std::int64_t bucket_elements);

/// What `rank` of `group` ranks holds of a parameter: its part of each bucket's `group` equal pieces.
[[nodiscard]] std::int64_t elements_of_rank(const BufferLayout& layout, const BufferRange& parameter,
                                            std::int64_t group, std::int64_t rank);

/// Ranks over which a parameter is replicated: experts' parameters have fewer.
[[nodiscard]] std::int64_t replicas(const MegatronConfig& config, bool expert);

class MegatronOptimizer {
 public:
  /// DistributedDataParallel(model), then get_megatron_optimizer(): asks for the buffers and main parameters. `muon`:
  /// a momentum alone for matrices other than the embedding and the head; Adam for the rest.
  MegatronOptimizer(Tape& tape, const MegatronConfig& config, DType dtype, bool muon = false);
  /// One model chunk: buffers of its own.
  void wrap(std::span<const Parameter> parameters);
  /// After all chunks.
  void construct();
  void step();
  /// What it keeps between steps.
  [[nodiscard]] std::vector<HeldRow> held() const;

 private:
  struct Shard {
    std::int64_t elements = 0;
    bool has_square = true;  // exp_avg_sq
    Tensor main, exp_avg, exp_avg_sq;
  };

  struct Reduced {
    Bytes gradients = 0, values = 0;
    std::int64_t ranks = 1;
    bool experts = false;
  };
  /// What a step does to a whole gradient buffer, and to the `elements` of this rank's share. Nothing of it takes
  /// memory.
  void pass_over_buffer(const Reduced& buffer);
  void pass_over_share(double elements);

  Tape& tape_;
  const MegatronConfig& config_;
  DType dtype_;
  bool distributed_;
  bool muon_;
  std::vector<Tensor> buffers_;
  std::vector<Reduced> reduced_;  // for each gradient buffer
  Bytes weights_ = 0;             // of parameters, or of the buffer that they lie in
  Bytes gradients_ = 0;           // of the gradient buffers
  std::vector<Shard> shards_;
};

}  // namespace memcalc
