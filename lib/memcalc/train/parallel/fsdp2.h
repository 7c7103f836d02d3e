// FSDP2 on one rank: torch/distributed/fsdp/_fully_shard/ (PyTorch 2.11), fully_shard of each layer and of the root.
// Names follow the source. Covered by tests/unit/parallel_test.cc and tests/measured/parallel_rows_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "memcalc/symbolic/layer_hooks.h"
#include "memcalc/symbolic/module_hooks.h"
#include "memcalc/train/parallel/holdings.h"
#include "memcalc/train/parallel/units.h"
#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

/// Elements of each parameter on a rank, for each rank, padding left out.
[[nodiscard]] std::vector<Holding> fsdp2_holdings(const Model& model, std::int64_t ranks);

class Fsdp2 : public ParallelWrapper, public LayerHooks, public ModuleHooks {
 public:
  /// `root`: which of the rank's roots it is; each has streams of its own (FSDPCommContext).
  Fsdp2(Tape& tape, const RunSpec& run, std::int64_t rank, std::int64_t root = 0);

  void wrap(Model& model) override;
  void wrap_reference(Model& model) override;
  [[nodiscard]] ModelOutput forward(const ModuleForward& module, const Batch& batch, bool sync) override;
  [[nodiscard]] bool changes_module() const override { return true; }
  [[nodiscard]] ParameterGroup optimizer_parameters(const Model& model) const override;
  void before_layer(std::int64_t layer, KeptTensors& arguments) override;
  void after_layer(std::int64_t layer, const Tensor& output) override;
  [[nodiscard]] Tensor before_module(const void* module, std::span<const Tensor* const> parameters,
                                     const Tensor& input) override;
  void after_module(const void* module, const Tensor& output) override;
  [[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) override;
  [[nodiscard]] Tensor before_direct_read(const Tensor& parameter) override;
  void reduce_gradients() override;
  void gather_parameters() override;
  void await_parameters() override;
  void release_parameters() override;
  [[nodiscard]] Tensor in_module(const Tensor& parameter) const override;
  [[nodiscard]] std::vector<HeldRow> held_on_host() const override;
  void after_step() override;

 private:
  enum class State : std::uint8_t { kIdle, kForward, kPreBackward, kPostBackward };

  /// FSDPParam
  struct ShardedParameter {
    Tensor unsharded;                 // the module's: on the storage of `gathered`
    Tensor gathered;                  // all_gather_outputs: flat, padded, resizable
    Tensor sharded;                   // the optimizer's
    Tensor accumulated;               // unsharded_accumulated_grad
    std::int64_t shard_elements = 0;  // of every rank, padding included
    bool trains = false;
    bool in_float8 = false;  // gathered so: WeightWithDynamicFloat8CastTensor
  };

  /// FSDPParamGroup
  struct Group {
    std::vector<ShardedParameter> params;
    State state = State::kIdle;
    bool is_unsharded = false;
    bool reshards_after_forward = true;
    Tensor all_gather_result;  // between unshard() and wait_for_unshard()
    std::size_t gather = 0;    // likewise: the place of what makes it among the kernels
    std::vector<std::size_t> post_forward_indices;
    Tensor all_reduce_state;  // HSDP: what was all-reduced, until the end of backward
    int modules = 0;          // of several modules that are one unit: fully_shard([norm, head])
    int modules_to_run = 0;   // of them in this forward pass; 0: none has run
    Fsdp2* owner = nullptr;
  };
  static void run_post_backward(BackwardCall& call);

  void shard(Group& group, std::vector<Parameter*>& parameters, bool is_layer);
  void shard_as_accelerate(Model& model, Units& units);
  void receive_from_rank_0(Model& model, bool is_tied);
  void leave_out_packed_bytes(std::vector<Parameter*>& unit) const;
  void move_to_host(Model& model);
  void move_to_card(const std::vector<Parameter*>& parameters);
  /// What the whole model takes there.
  Bytes note_packed_on_host(const Model& model);
  void move_packed_to_card(const Tensor& parameter);
  [[nodiscard]] Group* unit_of(const Tensor& parameter) const;
  [[nodiscard]] ShardedParameter shard(Parameter& parameter, bool in_layer);
  [[nodiscard]] ShardedParameter shard_packed(Parameter& parameter);
  /// A weight of 4 bits, whose storage holds two numbers a byte.
  [[nodiscard]] bool is_packed(const Tensor& parameter) const {
    return quantized_ && parameter.dtype() == DType::kUInt8;
  }

  [[nodiscard]] Tensor full_tensor(const ShardedParameter& param);

  void pre_forward(Group& group);
  void post_forward(Group& group);
  void pre_backward(Group& group);
  void post_backward(Group& group);
  void root_post_backward();
  void register_final_callback();
  void register_pre_backward(Group& root, ModelOutput& output);
  void cast_outputs(ModelOutput& output) const;
  [[nodiscard]] Tensor register_post_backward(Group& group, const Tensor& input);

  /// `ahead`: asked for by unshard(async_op=True), which gathers on the current stream.
  void unshard(Group& group, bool ahead = false);
  void wait_for_unshard(Group& group);
  void reshard(Group& group);
  void backward_prefetch(Group& group);
  void reduce(Group& group, std::vector<ShardedParameter*>& with_gradient, std::vector<Tensor>& gradients);

  /// The root comes first among a module's modules.
  [[nodiscard]] std::vector<Group*> by_module();
  [[nodiscard]] CudaStream own(CudaStream stream) const { return stream_of_root(stream, root_); }
  /// accelerate's cpu_ram_efficient_loading: the model is sharded on the meta device.
  [[nodiscard]] bool is_sent_by_rank_0() const { return run.training().loading == ModelLoading::kRank0; }
  [[nodiscard]] bool offloads() const { return run.parallel.offload_parameters == OffloadTo::kHost; }

  std::int64_t root_ = 0;
  std::int64_t shards_ = 1;    // ranks that share one copy
  std::int64_t replicas_ = 1;  // HSDP: copies
  std::vector<Group> groups_;  // the layers, of the Trainer both below, the root
  std::size_t layers_ = 0;
  bool quantized_ = false;  // some weights are packed
  std::unordered_map<const TensorImpl*, QuantizedWeight*> packed_on_host_;
  Group* embedding_ = nullptr;                             // accelerate's unit of an embedding with its own weight
  Group* tail_ = nullptr;                                  // and that of final norm and head
  std::unordered_map<const TensorImpl*, Group*> unit_of_;  // of the parameters in both
  std::unordered_map<const void*, Group*> running_;        // of the modules in both that are in their forward
  std::optional<DType> param_dtype_, reduce_dtype_, output_dtype_;  // MixedPrecisionPolicy
  bool reduces_ = true;                                             // set_requires_gradient_sync
  bool reshards_after_backward_ = true;                             // set_reshard_after_backward
  bool is_last_backward_ = true;                                    // set_is_last_backward
  bool final_callback_queued_ = false;
  std::vector<Group*> post_forward_order_;
  Tensor all_gather_state_;      // FSDPCommContext: kept until the next group's copy-out
  Tensor reduce_scatter_state_;  // input of the last reduce-scatter
  std::size_t last_reduce_ = 0;  // its place among the kernels
};

}  // namespace memcalc
