// How a run is split over GPUs. The option names of the command line are in comments.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "memcalc/base/dtype.h"
#include "memcalc/spec/deepspeed_spec.h"
#include "memcalc/spec/megatron_spec.h"
#include "memcalc/spec/torch_spec.h"

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

/// One GPU under torch: nothing is shared out.
struct OneGpu {};

/// Whose modules share a run out, with what only they have: what does not apply to a run does not exist in it.
using Layout = std::variant<OneGpu, TorchMesh, DeepSpeedZero, MegatronLayout>;

struct Parallel {
  std::int64_t gpus = 1;   // in all; --gpus
  std::int64_t nodes = 1;  // --nodes
  DataParallel data_parallel = DataParallel::kNone;
  Layout layout;                   // --framework; DeepSpeed's and Megatron's also on one GPU
  std::int64_t tensor = 1;         // --tp
  bool sequence_parallel = false;  // norms and residuals between tensor-parallel regions hold a part of it; --sp
  std::int64_t context = 1;        // --cp
  ContextParallel context_type = ContextParallel::kAllGather;
  std::int64_t expert = 1;    // --ep
  std::int64_t pipeline = 1;  // --pp
  PipelineSchedule schedule = PipelineSchedule::kOneForwardOneBackward;
  std::int64_t virtual_stages = 1;  // model chunks per rank, interleaved; --virtual-stages
  std::int64_t micro_batches = 0;   // per step and pipeline; 0: as many as stages; --micro-batches
  /// Of each stage, in their order; empty: even. --stage-layers
  std::vector<std::int64_t> stage_layers;

  // Offload of sharded states
  OffloadTo offload_states = OffloadTo::kNowhere;
  OffloadTo offload_parameters = OffloadTo::kNowhere;

  [[nodiscard]] Framework framework() const {
    if (std::holds_alternative<DeepSpeedZero>(layout)) return Framework::kDeepSpeed;
    return std::holds_alternative<MegatronLayout>(layout) ? Framework::kMegatron : Framework::kTorch;
  }

  /// DeepSpeed shards, offloads and keeps its buffers on one GPU too.
  [[nodiscard]] bool is_parallel() const { return gpus > 1 || std::holds_alternative<DeepSpeedZero>(layout); }

  /// Of the layout that the run has: to ask for another one is a bug, and throws.
  [[nodiscard]] const TorchMesh& torch() const { return std::get<TorchMesh>(layout); }
  [[nodiscard]] const DeepSpeedZero& deepspeed() const { return std::get<DeepSpeedZero>(layout); }
  [[nodiscard]] const MegatronLayout& megatron() const { return std::get<MegatronLayout>(layout); }
  [[nodiscard]] TorchMesh& torch() { return std::get<TorchMesh>(layout); }
  [[nodiscard]] DeepSpeedZero& deepspeed() { return std::get<DeepSpeedZero>(layout); }
  [[nodiscard]] MegatronLayout& megatron() { return std::get<MegatronLayout>(layout); }

  /// The type in which FSDP gathers parameters; nothing where that is their own, or nothing is gathered so.
  [[nodiscard]] std::optional<DType> gathered_dtype() const {
    const auto* mesh = std::get_if<TorchMesh>(&layout);
    return mesh != nullptr ? mesh->fsdp_param_dtype : std::nullopt;
  }
};

}  // namespace memcalc
