#include "memcalc/plan/plainness.h"

namespace memcalc {
namespace {

struct Strange {
  int steps;
  const char* why;
  bool (*is_in)(const Choice&);
};

constexpr Strange kStrange[] = {
    {1, "DeepSpeed: a library beside torch, with an engine in the place of the loop",
     [](const Choice& c) { return c.way == Way::kDeepSpeed; }},
    {2, "Megatron-core: the model has to be written, and its checkpoint converted, for it",
     [](const Choice& c) { return c.way == Way::kMegatron; }},
    {1, "torch's ZeroRedundancyOptimizer: FSDP2 has taken its place",
     [](const Choice& c) { return c.data_parallel == DataParallel::kZero1; }},
    {1, "parameters that stay gathered: an option of FSDP2 that few set", [](const Choice& c) { return !c.reshard; }},
    {2, "tensor parallelism under torch: a plan for each model's modules, by hand",
     [](const Choice& c) { return c.tensor > 1 && c.way != Way::kMegatron; }},
    {3, "a pipeline under torch: the model is cut by hand, and the loop is the schedule's",
     [](const Choice& c) { return c.pipeline > 1 && c.way != Way::kMegatron; }},
    {2, "context parallelism: attention, positions and the data loader change",
     [](const Choice& c) { return c.context > 1; }},
    {1, "expert parallelism", [](const Choice& c) { return c.expert > 1; }},
    {1, "several chunks of layers on a rank", [](const Choice& c) { return c.virtual_stages > 1; }},
    {2, "GPipe and zero bubble: schedules that few pipelines run",
     [](const Choice& c) {
       return c.pipeline > 1 && c.schedule != PipelineSchedule::kOneForwardOneBackward &&
              c.schedule != PipelineSchedule::kInterleaved;
     }},
    {1, "selective checkpointing, every second or fourth layer: an argument of few trainers",
     [](const Choice& c) {
       return c.checkpoint_every > 1 || (c.checkpointing == Checkpointing::kSelective && c.way != Way::kMegatron);
     }},
    {3, "activations on the host: the copies have to hide behind the computation",
     [](const Choice& c) { return c.offload_activations; }},
    {4, "states on the host: the optimizer steps there, and its time is not predicted",
     [](const Choice& c) { return c.offload_states || c.offload_parameters; }},
};

}  // namespace

int strangeness_of(const Choice& choice) {
  int steps = 0;
  for (const Strange& each : kStrange) steps += each.is_in(choice) ? each.steps : 0;
  return steps;
}

}  // namespace memcalc
