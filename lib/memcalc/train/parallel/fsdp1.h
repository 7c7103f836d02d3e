// FSDP1 on one rank: torch/distributed/fsdp/{_flat_param,_runtime_utils}.py (PyTorch 2.11): FullyShardedDataParallel of
// each layer and of the root, use_orig_params=True, FULL_SHARD, BACKWARD_PRE prefetch, limited all-gathers; of adapters
// each of their matrices, too (peft 0.21, utils/other.py, fsdp_auto_wrap_policy). Names follow the source. Covered by
// tests/unit/parallel_test.cc, tests/unit/fsdp1_test.cc and tests/measured/parallel_rows_test.cc.
// MIRRORS(peft, "utils/other.py", "0.21.2")
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "memcalc/symbolic/layer_hooks.h"
#include "memcalc/symbolic/module_hooks.h"
#include "memcalc/train/parallel/wrapper.h"

namespace memcalc {

class Fsdp1 : public ParallelWrapper, public LayerHooks, public ModuleHooks {
 public:
  /// `root`: of several that a process wraps, each with streams of its own.
  Fsdp1(Tape& tape, const RunSpec& run, std::int64_t rank, std::int64_t root)
      : ParallelWrapper(tape, run, rank), root_(root) {}

  void wrap(Model& model) override;
  void wrap_reference(Model& model) override;
  [[nodiscard]] bool gather_state() override;
  [[nodiscard]] ModelOutput forward(const ModuleForward& module, const Batch& batch, bool sync) override;
  [[nodiscard]] bool changes_module() const override { return true; }
  [[nodiscard]] bool gather_for_generation() override;
  void part_after_generation() override;
  void after_step() override { synchronize(); }
  void before_layer(std::int64_t layer, KeptTensors& arguments) override;
  void after_layer(std::int64_t layer, const Tensor& output) override;

  [[nodiscard]] Tensor before_module(const void* module, std::span<const Tensor* const> parameters,
                                     const Tensor& input) override;
  void after_module(const void* module, const Tensor& output) override;
  [[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) override;
  [[nodiscard]] bool hooks_adapters() const override { return true; }

 private:
  /// FlatParamHandle
  struct Handle {
    std::vector<Tensor> params;  // the module's: views of `full_param_padded`
    std::vector<Tensor> pieces;  // the optimizer's: what of each lies in this rank's shard; views of `local_shard`
    Tensor local_shard;          // flat, in the parameters' own type
    Tensor loaded_shard;         // the same in the type that accelerate casts it from; until the first reshard
    Tensor mp_shard;             // the same in param_dtype; resizable
    Tensor full_param_padded;    // resizable
    Tensor unsharded_grad;       // of micro-batches in no_sync()
    Tensor saved_grad_shard;
    std::int64_t elements = 0;  // of the whole, alignment included: a multiple of the ranks
    std::size_t gather = 0;     // the place of the last all-gather among the kernels, until it is waited for
    std::size_t arrived = 0;    // gradients of this backward pass
    std::size_t post_forward_index = 0;
    std::size_t awaited = 0;  // inputs whose gradients the reshard of a frozen unit waits for
    bool awaits_inputs = false;
    bool trains = true;
    bool is_leaf = false;  // a module without children
    bool is_root = false;
    bool is_unsharded = false;
    bool is_prefetched = false;
    bool in_backward = false;
    bool needs_pre_backward_unshard = false;
    bool ran_pre_backward_hook = false;
  };

  /// from_pretrained has left the model on the host.
  [[nodiscard]] bool comes_from_host() const;
  /// This rank's shard of a unit, which is moved where it comes from the host.
  [[nodiscard]] Tensor shard_of(const std::vector<Parameter*>& parameters, DType dtype) const;
  /// The type of what is loaded, where accelerate casts the shard of it.
  [[nodiscard]] std::optional<DType> cast_from(const Handle& handle, DType stored) const;
  void upcast();
  void gather_full_state();
  void cut_states();
  [[nodiscard]] Handle& handle_of(std::int64_t layer);
  void wrap_units(Model& model);
  void flatten(Handle& handle, std::vector<Parameter*>& parameters);
  void init_flat_param_attributes();
  static void reset_gradient(Handle& handle);
  void reset_gradients();
  void unshard(Handle& handle);
  void await(Handle& handle);
  void reshard(Handle& handle, bool frees);
  void pre_forward(Handle& handle, std::span<const Tensor> inputs);
  void register_reshard(Handle& handle, std::span<const Tensor> inputs);
  /// `outputs`: those that may be trained on.
  void post_forward(Handle& handle, std::span<const Tensor> outputs);
  void pre_backward(Handle& handle);
  void gradient_arrived(Handle& handle, const Tensor& param);
  void free_gradient(Tensor& gradient);
  void post_backward(Handle& handle, Tensor gradient);
  void reduce(Handle& handle, Tensor gradient);
  void finish_backward();
  void forget_order();
  void use_sharded_views(Handle& handle);
  void set_views(const Handle& handle, const Tensor& flat, DType dtype);
  /// The CPU waits for what was recorded: blocks that waited for streams until then can be handed out again.
  void wait_for(std::size_t frees);
  void synchronize();
  void free_later(BlockId block);
  [[nodiscard]] CudaStream own(CudaStream stream) const { return stream_of_root(stream, root_); }

  std::int64_t root_ = 0;
  bool is_reference_ = false;
  std::int64_t ranks_ = 1;
  std::vector<Handle> handles_;  // the layers, then modules that are units by themselves, then the root
  std::size_t layers_ = 0;
  std::vector<Handle*> by_module_;                         // as module.modules() has them, the root first
  std::unordered_map<const TensorImpl*, Handle*> leaves_;  // units of single modules, by the first parameter
  std::unordered_map<const void*, Handle*> running_;       // of these
  std::vector<Handle*> post_forward_order_;
  Tensor summoned_;  // the root's parameters while it generates, in their own type
  LayerHooks* outer_layer_hooks_ = nullptr;
  ModuleHooks* outer_module_hooks_ = nullptr;
  /// An event of the rate limiter: what had been freed and which kernels had been issued when it was recorded.
  struct FreeEvent {
    std::size_t frees = 0;
    std::int64_t kernels = 0;
  };
  std::deque<FreeEvent> free_event_queue_;
  std::vector<BlockId> waiting_;      // freed, and not handed out again yet
  std::size_t freed_ = 0;             // blocks that have left `waiting_` or are in it
  const TensorImpl* tied_ = nullptr;  // the embedding that is the head's weight, too
  bool initialized_ = false;
  bool syncs_ = true;
  bool callback_queued_ = false;
};

}  // namespace memcalc
