// What DeepSpeed's ZeRO stages have in common: the engine's backward and step (deepspeed/runtime/engine.py, 0.19.8),
// the check for overflow, the norm in float64, the optimizer that sees flat float32 partitions alone.
// MIRRORS(deepspeed, "runtime/engine.py", "0.19.8")
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "memcalc/train/optimizer.h"
#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

/// In which it holds the weights: what its configuration says of 16 bits, of which the Trainer tells it.
[[nodiscard]] DType deepspeed_dtype(const RunSpec& run);

class DeepSpeedEngine : public ParallelWrapper {
 public:
  DeepSpeedEngine(Tape& tape, const RunSpec& run, std::int64_t rank);

  [[nodiscard]] bool updates(const Parameter& /*parameter*/) const override { return true; }
  /// The loop's own optimizer has nothing to do.
  [[nodiscard]] ParameterGroup optimizer_parameters(const Model& /*model*/) const override { return {}; }
  [[nodiscard]] Tensor averaged_loss(const Tensor& loss) override;
  void after_backward(bool last) override;
  [[nodiscard]] std::vector<HeldRow> held_on_host() const override;

  /// Of the optimizer's groups: the Trainer's are weights that decay, then the rest; else there is one.
  [[nodiscard]] static std::size_t group_of(const Parameter& parameter, const RunSpec& run) {
    return run.uses_trainer() && !parameter.decays ? 1 : 0;
  }

 protected:
  /// A flat part of the float32 weights on this rank, with the optimizer of its own.
  struct MasterPart {
    std::int64_t elements = 0;
    Parameter parameter;  // on the meta device where it is offloaded
  };

  /// The groups in which the optimizer was given the parameters that train; none is empty.
  [[nodiscard]] std::vector<std::vector<Parameter*>> parameter_groups(Model& model) const;
  /// The Trainer leaves the model in host memory; DeepSpeed casts it there.
  void move_to_host(Model& model);
  void cast_on_card(const Model& model) const;
  void move_to_card(const Tensor& tensor) const;
  void drop_data(const Tensor& tensor) const;
  /// Of gradients in host memory: the step there, and the weights' way back.
  void step_on_host() const;
  [[nodiscard]] bool offloads_states() const { return run.parallel.offload_states != OffloadTo::kNowhere; }
  /// engine.forward() of the model that trains: its timer waits for the card.
  void begin_forward() const;
  /// The first steps of fp16, whose loss scale is too large, end at the check for overflow.
  [[nodiscard]] bool overflows() const;
  /// What the optimizer of a part of this rank updates: a float32 copy, counted as optimizer state.
  void add_master(std::int64_t elements);
  void make_optimizers();
  /// optimizer.step() of a part whose gradient is set.
  void step_part(std::size_t part);

  /// has_inf_or_nan: two reductions and seven scalars.
  void check_finite(std::int64_t elements) const;
  /// The norms of tensors of so many elements, each through a copy in float64, and their norm.
  [[nodiscard]] Tensor norm_of(std::span<const std::int64_t> pieces);
  void take_norm(std::span<const std::int64_t> pieces);
  void wait_for_norm() const;
  /// scaled_global_norm over groups: their norms, combined where there are several.
  void take_norms(const std::vector<std::vector<std::int64_t>>& groups);
  // Kernels of the engine's own, which the card takes; what the host takes for them is in its HostWork.
  /// Reads elements and writes them elsewhere, in another type or the same: a copy, a cat, a division in place.
  void pass_kernel(std::int64_t elements, DType from, DType to) const;
  void pass_kernel(std::int64_t elements, DType of) const { pass_kernel(elements, of, of); }
  /// Adds gradients to what earlier micro-batches left of them.
  void add_kernel(std::int64_t elements) const;
  /// A part's gradients in the type of its float32 copy.
  [[nodiscard]] Tensor widened(const Tensor& gradients, std::int64_t elements) const;
  /// unscale_and_clip_grads: in place.
  void scale_gradients(std::int64_t elements) const;

  /// "in bfloat16", of the parameters.
  [[nodiscard]] std::string in_dtype() const { return "in " + std::string(name_of(dtype)); }
  [[nodiscard]] std::int64_t master_elements() const;
  /// The optimizer's states of all parts.
  [[nodiscard]] Bytes state_bytes() const;

  std::int64_t ranks = 1;
  DType dtype = DType::kFloat32;         // of parameters and gradients
  DType reduce_dtype = DType::kFloat32;  // in which gradients are reduced: beside Ulysses float32, else theirs
  std::deque<MasterPart> masters;

  Tensor global_norm_;  // _global_grad_norm: kept until the next step's

 private:
  Tensor gas_scaled_loss_;
  std::deque<OptimizerSteps> optimizers_;
};

}  // namespace memcalc
