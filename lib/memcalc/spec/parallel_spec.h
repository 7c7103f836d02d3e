// How a run is split over GPUs. The option names of the command line are in comments.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "memcalc/base/dtype.h"
#include "memcalc/spec/deepspeed_spec.h"
#include "memcalc/spec/megatron_spec.h"

namespace memcalc {

/// --parallel: what the ranks that see different data do with parameters, gradients and optimizer states. kDs*:
/// DeepSpeed's ZeRO stages; kMegatronDist: Megatron's distributed optimizer.
enum class DataParallel : std::uint8_t {
  kNone,
  kDdp,
  kDp,  // nn.DataParallel: one process, replicas made anew in each step
  kZero1,
  kFsdp1,
  kFsdp2,
  kDsZero1,
  kDsZero2,
  kDsZero3,
  kMegatronDist,
};

/// --framework: whose parallel modules and operators run.
enum class Framework : std::uint8_t { kTorch, kDeepSpeed, kMegatron };

/// --schedule of the pipeline. kZeroBubbleV: two stages a rank, the pipeline turns back at its last one.
enum class PipelineSchedule : std::uint8_t { kGpipe, kOneForwardOneBackward, kInterleaved, kZeroBubble, kZeroBubbleV };

/// --cp-type: how attention sees the keys of other ranks.
enum class ContextParallel : std::uint8_t { kAllGather, kRing, kUlysses };

/// Where what is sharded lives between uses. --offload-states, --offload-parameters
enum class OffloadTo : std::uint8_t { kNowhere, kHost, kNvme };

struct Parallel {
  std::int64_t gpus = 1;   // in all; --gpus
  std::int64_t nodes = 1;  // --nodes
  DataParallel data_parallel = DataParallel::kNone;
  Framework framework = Framework::kTorch;
  std::int64_t tensor = 1;         // --tp
  bool sequence_parallel = false;  // norms and residuals between tensor-parallel regions hold a part of it; --sp
  bool loss_parallel = false;      // torch: logits stay split by vocabulary; --loss-parallel
  std::int64_t context = 1;        // --cp
  ContextParallel context_type = ContextParallel::kAllGather;
  std::int64_t expert = 1;    // --ep
  std::int64_t pipeline = 1;  // --pp
  PipelineSchedule schedule = PipelineSchedule::kOneForwardOneBackward;
  std::int64_t virtual_stages = 1;  // model chunks per rank, interleaved; --virtual-stages
  std::int64_t micro_batches = 0;   // per step and pipeline; 0: as many as stages; --micro-batches
  /// Of each stage, in their order; empty: even. --stage-layers
  std::vector<std::int64_t> stage_layers;

  MegatronOptions megatron;    // --megatron
  DeepSpeedOptions deepspeed;  // --deepspeed

  // FSDP
  std::int64_t hsdp_shard = 0;             // ranks that share one copy; 0: all; --hsdp-shard
  std::optional<DType> fsdp_param_dtype;   // MixedPrecisionPolicy; --fsdp-param-dtype
  std::optional<DType> fsdp_reduce_dtype;  // --fsdp-reduce-dtype
  bool reshard_after_forward = true;       // --no-reshard-after-forward
  bool keep_last_layer = false;            // but not of the last layer, as torchtitan; --keep-last-layer
  // DDP
  bool ddp_bucket_view = false;   // gradient_as_bucket_view; --ddp-bucket-view
  bool ddp_static_graph = false;  // --ddp-static-graph
  // Offload of sharded states
  OffloadTo offload_states = OffloadTo::kNowhere;
  OffloadTo offload_parameters = OffloadTo::kNowhere;

  /// DeepSpeed shards, offloads and keeps its buffers on one GPU too.
  [[nodiscard]] bool is_parallel() const { return gpus > 1 || framework == Framework::kDeepSpeed; }
};

}  // namespace memcalc
