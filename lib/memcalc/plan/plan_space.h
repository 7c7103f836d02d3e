// The space of a plan: every combination of layout, sharding, checkpointing, offload, micro-batch and schedule, as
// small values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memcalc/plan/plan.h"

namespace memcalc {

/// Whose modules run, and in which precision: what a closed form has to tell apart.
enum class Way : std::uint8_t {
  kAsAsked,    // torch, in the precision of the question
  kFsdpMixed,  // FSDP2's mixed precision instead of autocast
  kDeepSpeed,
  kMegatron,
};
inline constexpr std::size_t kWayCount = 4;

/// One candidate; run_of() makes a RunSpec of it.
struct Choice {
  std::int32_t tensor = 1, context = 1, pipeline = 1, expert = 1;
  std::int32_t micro_batch = 1;
  std::int32_t virtual_stages = 1;
  std::int32_t checkpoint_every = 1;
  DataParallel data_parallel = DataParallel::kNone;
  PipelineSchedule schedule = PipelineSchedule::kOneForwardOneBackward;
  Checkpointing checkpointing = Checkpointing::kNone;
  Way way = Way::kAsAsked;
  bool reshard = true;
  bool offload_activations = false;
  bool offload_states = false;
  bool offload_parameters = false;
  bool operator==(const Choice&) const = default;
};

/// All of them, in a fixed order: layouts whose product divides the GPUs, each with the modes that shard among the
/// ranks it leaves over, or none.
[[nodiscard]] std::vector<Choice> choices_of(const PlanQuestion& question);

/// Ranks that see different data.
[[nodiscard]] std::int64_t replicas_of(const PlanQuestion& question, const Choice& choice);

/// Micro-batches that a replica runs in one step; 0: the global batch cannot be divided so.
[[nodiscard]] std::int64_t micro_batches_of(const PlanQuestion& question, const Choice& choice);

/// Why a candidate makes no sense, whatever the library models; null otherwise.
[[nodiscard]] const char* contradiction_in(const PlanQuestion& question, const Choice& choice);

/// Why the settings that PlanQuestion::emit asks for cannot say a candidate, so that copying them would run another
/// one; null where they can.
[[nodiscard]] const char* unsaid_in_settings(const PlanQuestion& question, const Choice& choice);

[[nodiscard]] RunSpec run_of(const PlanQuestion& question, const Choice& choice);
/// With its model made on the meta device.
[[nodiscard]] Candidate candidate_of(const PlanQuestion& question, const Choice& choice);

/// The run on one GPU with the smallest batch that a closed form of this way begins with. `activations`: with the
/// precision in which activations are kept.
[[nodiscard]] RunSpec run_of(const PlanQuestion& question, Way way, bool activations);

}  // namespace memcalc
