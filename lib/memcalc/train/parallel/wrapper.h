// ParallelWrapper: what a run on several GPUs puts around the module and the optimizer on one rank, as the frameworks
// do it: hooks, buffers, shards in the place of parameters. One file here for each mode. To add one, copy the nearest
// neighbour and give it a line in wrapper.cc.
// MIRRORS(accelerate, "utils/dataclasses.py", "1.15.0")
// MIRRORS(torch, "distributed/fsdp/_fully_shard/_fsdp_state.py", "2.11.0")
// MIRRORS(torch, "distributed/fsdp/_runtime_utils.py", "2.11.0")
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/optimizers/rule.h"
#include "memcalc/train/step.h"

namespace memcalc {

/// The module that is wrapped: its forward, with whatever the loop put around that.
using ModuleForward = std::function<ModelOutput(const Batch&)>;

class ParallelWrapper {
 public:
  ParallelWrapper(Tape& owner, const RunSpec& spec, std::int64_t rank) : tape(owner), run(spec), rank(rank) {}
  virtual ~ParallelWrapper() = default;
  ParallelWrapper(const ParallelWrapper&) = delete;
  ParallelWrapper& operator=(const ParallelWrapper&) = delete;

  /// Wraps the module. Afterwards model.parameters are what the optimizer is given.
  virtual void wrap(Model& model) = 0;
  /// The same of a model that never trains: the reference of TRL's trainers (trl 1.16, models/utils.py,
  /// prepare_deepspeed, prepare_fsdp). make_reference_wrapper() says of which wrappers.
  virtual void wrap_reference(Model& /*model*/) {}
  /// from_pretrained, where the framework shares the model out while it is made; false: each rank has it whole on its
  /// host.
  [[nodiscard]] virtual bool load(Model& /*model*/) { return false; }
  /// Gathers the state dict of a checkpoint; false: it is there.
  [[nodiscard]] virtual bool gather_state() { return false; }
  /// wrapped(**batch); without `sync`, in no_sync(): the gradients of this micro-batch are not exchanged.
  [[nodiscard]] virtual ModelOutput forward(const ModuleForward& module, const Batch& batch, bool sync) = 0;
  /// Whether Trainer.model is what was wrapped, so that evaluation and generation pass through it: FSDP's modules are
  /// changed in place, ZeRO-3's have hooks.
  [[nodiscard]] virtual bool changes_module() const { return false; }
  /// unwrap_model_for_generation and summon_full_params (trl 1.16, models/utils.py and trainer/grpo_trainer.py): true:
  /// has made the model whole for generation, which then does not pass through what was wrapped; false: it is whole, or
  /// generation passes through it.
  [[nodiscard]] virtual bool gather_for_generation() { return false; }
  /// Behind the generation.
  virtual void part_after_generation() {}
  /// Whether the optimizer of this rank updates a parameter that trains.
  [[nodiscard]] virtual bool updates(const Parameter& /*parameter*/) const { return true; }
  /// What the optimizer of this rank is given, in its order.
  [[nodiscard]] virtual ParameterGroup optimizer_parameters(const Model& model) const;
  /// What it keeps between steps, where it lays that out itself; empty: what follows from the parameters.
  [[nodiscard]] virtual std::vector<HeldRow> held() const { return {}; }
  /// Of the same what is in host memory.
  [[nodiscard]] virtual std::vector<HeldRow> held_on_host() const { return {}; }
  /// What backward() starts from.
  [[nodiscard]] virtual Tensor averaged_loss(const Tensor& loss);
  /// After the backward pass of a micro-batch, `last` of this step.
  virtual void after_backward(bool /*last*/) {}
  /// Clips gradients and steps an optimizer of its own in the place of the loop's; false: it has none.
  [[nodiscard]] virtual bool step() { return false; }
  /// After optimizer.step().
  virtual void after_step() {}
  /// PipelineStage.backward_maybe_with_nosync: the backward of the last micro-batch comes, all forwards were in
  /// no_sync().
  virtual void before_last_backward() {}
  /// PipelineStage.perform_reduce_grad: what no backward pass has reduced yet.
  virtual void reduce_gradients() {}
  /// A schedule's UNSHARD of a whole stage, the wait for it in front of the stage's first use, and RESHARD.
  virtual void gather_parameters() {}
  virtual void await_parameters() {}
  virtual void release_parameters() {}
  /// What the module computes with in the place of one of the optimizer's parameters, while it is gathered.
  [[nodiscard]] virtual Tensor in_module(const Tensor& parameter) const { return parameter; }

  /// Of model.parameters before wrap(), where it replaced them.
  std::vector<Shape> whole_shapes;
  std::vector<std::string> assumptions;
  /// torch.cuda.empty_cache() once the module is wrapped, as the measured loops had it.
  bool empties_cache = true;

 protected:
  Tape& tape;
  const RunSpec& run;
  const std::int64_t rank;
};

/// Of `rank` among those that share parameters, gradients and optimizer states. Ranks are numbered as
/// init_device_mesh(("pp", "dp", "cp", "tp")) has it: the ranks of a tensor-parallel group are neighbours.
[[nodiscard]] std::int64_t place_among_sharing(const Parallel& parallel, std::int64_t rank);

/// FSDP's mixed precision: in which types parameters are gathered, gradients reduced, and what the root returns cast;
/// absent: their own.
struct MixedPrecisionPolicy {
  std::optional<DType> param_dtype, reduce_dtype, output_dtype;
};

/// The run's, or what accelerate makes of the Trainer's bf16=True (accelerate/utils/dataclasses.py,
/// set_mixed_precision).
[[nodiscard]] MixedPrecisionPolicy mixed_precision_of(const RunSpec& run);

/// What the root's forward gets under mixed precision: floating-point inputs in `dtype`, copied where they have another
/// one (_fsdp_state.py, cast_forward_inputs; _runtime_utils.py, _root_cast_forward_input).
[[nodiscard]] Batch cast_inputs(const Batch& batch, std::optional<DType> dtype);

/// Null on one GPU, and where nothing but a pipeline uses the others.
[[nodiscard]] std::unique_ptr<ParallelWrapper> make_wrapper(Tape& tape, const RunSpec& run, std::int64_t rank);

/// Around the reference of TRL's trainers, which is shared out as the model is: FSDP2 and ZeRO-3.
[[nodiscard]] std::unique_ptr<ParallelWrapper> make_reference_wrapper(Tape& tape, const RunSpec& run,
                                                                      std::int64_t rank);

/// The same around the `chunk`-th stage of a rank's pipeline. Context parallelism is around the whole schedule.
[[nodiscard]] std::unique_ptr<ParallelWrapper> make_stage_wrapper(Tape& tape, const RunSpec& run, std::int64_t rank,
                                                                  std::int64_t chunk);

}  // namespace memcalc
