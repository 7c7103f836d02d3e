// DeepSpeed's ZeRO, stage 3: deepspeed/runtime/zero/stage3.py (DeepSpeedZeroOptimizer_Stage3) and
// partition_parameters.py, 0.19.8. Each rank keeps its part of every parameter; modules gather theirs before they run
// (parameter_coordinator.h says which and when); gradients pass through a bucket and are kept in parts.
// Covered by tests/unit/deepspeed_test.cc.
// MIRRORS(deepspeed, "runtime/zero/partition_parameters.py", "0.19.8")
// MIRRORS(deepspeed, "runtime/zero/stage3.py", "0.19.8")
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "memcalc/symbolic/layer_hooks.h"
#include "memcalc/symbolic/module_hooks.h"
#include "memcalc/train/parallel/deepspeed_engine.h"
#include "memcalc/train/parallel/parameter_coordinator.h"

namespace memcalc {

class DeepSpeedZero3 : public DeepSpeedEngine,
                       public ModuleHooks,
                       public LayerHooks,
                       public ParameterCoordinator::Memory {
 public:
  using DeepSpeedEngine::DeepSpeedEngine;

  void wrap(Model& model) override;
  void wrap_reference(Model& model) override;
  [[nodiscard]] bool load(Model& model) override;
  [[nodiscard]] bool gather_state() override;
  [[nodiscard]] ModelOutput forward(const ModuleForward& module, const Batch& batch, bool sync) override;
  [[nodiscard]] bool changes_module() const override { return true; }
  [[nodiscard]] bool gather_for_generation() override;
  void part_after_generation() override;
  void after_backward(bool last) override;
  [[nodiscard]] bool step() override;
  [[nodiscard]] std::vector<HeldRow> held() const override;
  [[nodiscard]] std::vector<HeldRow> held_on_host() const override;

  [[nodiscard]] Tensor before_module(const void* module, std::span<const Tensor* const> parameters,
                                     const Tensor& input) override;
  void after_module(const void* module, const Tensor& output) override;
  [[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) override;
  [[nodiscard]] bool hooks_adapters() const override { return true; }
  [[nodiscard]] Tensor before_direct_read(const Tensor& parameter) override;
  [[nodiscard]] bool hooks_used_parameters() const override { return true; }

  void before_layer(std::int64_t layer, KeptTensors& arguments) override;
  void after_layer(std::int64_t layer, const Tensor& output) override;

  void gather(std::span<const int> parameters) override;
  void arrive(std::span<const int> parameters) override;
  void forget(std::span<const int> parameters) override;
  void release(int parameter) override;

 private:
  struct SharedParameter {
    std::string name;
    Tensor tensor;              // the module's
    std::int64_t elements = 0;  // of what it is stored as: packed weights are bytes
    std::int64_t part = 0;      // of every rank, padding included
    DType dtype = DType::kFloat32;
    bool trains = true;
    bool persists = false;
    Tensor own_part;  // of a frozen one: a block of its own; the others' are in one buffer
    Tensor moved;     // of a part in host memory its copy on the card, until the collective is done
  };
  /// A module with parameters of its own, for its hooks.
  struct HookedModule {
    DeepSpeedZero3* owner = nullptr;
    int number = 0;
    std::int64_t parameters = 0;
  };
  [[nodiscard]] Tensor register_post_backward(const HookedModule& hooked, const Tensor& input);
  static void run_post_backward(BackwardCall& call);

  [[nodiscard]] bool offloads_parameters() const { return run.parallel.offload_parameters != OffloadTo::kNowhere; }
  [[nodiscard]] bool overlaps() const { return run.parallel.deepspeed().overlap_comm.value_or(true); }
  [[nodiscard]] CudaStream gather_stream() const;
  [[nodiscard]] CudaStream reduction_stream() const;
  [[nodiscard]] SharedParameter& param(int i) { return params_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] Bytes sizes(std::int64_t elements) const { return checked_multiply(elements, size_of(dtype)); }
  [[nodiscard]] static Bytes bytes_of_part(const SharedParameter& param) {
    return checked_multiply(param.part, size_of(param.dtype));
  }
  /// …ForCausalLM, of the modules in outer_: in front of the base model.
  [[nodiscard]] int model_with_head() const { return outer_[outer_.size() - 2]; }
  [[nodiscard]] Bytes frozen_bytes() const;
  [[nodiscard]] Bytes persistent_bytes() const;
  [[nodiscard]] std::vector<std::vector<int>> by_dtype(std::span<const int> parameters) const;
  [[nodiscard]] bool is_own_part(BlockId block, const SharedParameter& param) const;

  void partition_parameters(Model& model);
  void make_coordinator(const ParameterCoordinator::Limits& limits);
  void build_under_zero_init(Model& model);
  void make_replaced_head(const Model& model);
  void build_in_parts(const std::vector<std::vector<const Parameter*>>& modules, const Model& model);
  void add_adapters(Model& model);
  void gather_whole(std::span<const int> parameters);
  void partition_quantized(Model& model);
  void make_adapters(const std::vector<Parameter*>& adapters);
  void add_shared(const Parameter& parameter, DType type);
  void partition(SharedParameter& param);
  void defragment(Model& model);
  void make_masters();
  void check_every_parameter_is_hooked() const;
  void gradient_ready(std::size_t i);
  void reduce_bucket();
  void keep_part(const SharedParameter& param);
  void wait_for_streams(const Tensor& tensor);
  void streams_are_done();
  void check_overflow();
  void step_sub_group(std::size_t i);
  void gather_persistent();

  std::vector<SharedParameter> params_;
  std::unordered_map<const TensorImpl*, int> number_of_;
  std::unique_ptr<ParameterCoordinator> coordinator_;
  std::unordered_map<const void*, HookedModule> modules_;
  std::unordered_map<std::int64_t, HookedModule> layers_;
  std::vector<int> outer_;  // modules around the base model, then that; without parameters: what comes next is gathered
  std::vector<std::vector<std::int64_t>> sub_groups_;  // elements of the parts in each
  std::int64_t part_elements_ = 0;                     // of all parameters that train on a rank
  DType trained_dtype_ = DType::kFloat32;              // of the parameters that train
  std::vector<int> in_model_order_;
  std::vector<std::vector<int>> of_modules_;  // as they were built: what each module holds
  Tensor replaced_head_part_;                 // of a head in whose place the embedding came, until it is collected
  bool is_reference_ = false, is_loaded_ = false;
  std::vector<BlockId> read_directly_;  // gathered on the current stream, not on that of the collectives

  Tensor weights_;    // lp_param_buffer: the parts, flat
  Tensor gradients_;  // grad_partitions_flat_buffer
  Tensor bucket_;     // ipg bucket: always there
  Tensor overflow_;   // inf_or_nan_tracker
  std::int64_t bucket_elements_ = 0;
  std::vector<std::size_t> bucket_params_;
  std::unordered_map<int, std::vector<Tensor>> flats_;  // of gathers of several parameters, by their first
  std::vector<BlockId> waiting_;                        // freed, but other streams are not known to be done with them
  bool in_backward_ = false;
  bool adds_gradients_ = false;  // micro_step_id > 0: of a micro-batch after the first of a step
  bool checked_ = false;
};

}  // namespace memcalc
