// MIRRORS(torch, "distributed/fsdp/_flat_param.py", "2.11.0")
// MIRRORS(torch, "distributed/fsdp/_init_utils.py", "2.11.0")
// MIRRORS(torch, "distributed/fsdp/_limiter_utils.py", "2.11.0")
// MIRRORS(torch, "distributed/fsdp/_unshard_param_utils.py", "2.11.0")
// MIRRORS(torch, "engine.cpp", "2.11.0")
#include "memcalc/train/parallel/fsdp1.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/parallel.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/train/parallel/ddp.h"
#include "memcalc/train/parallel/fsdp1_units.h"
#include "memcalc/train/parallel/shard_kernels.h"
#include "memcalc/train/parallel/units.h"

namespace memcalc {

namespace {

constexpr Operator kAllGather{"c10d::_allgather_base_"}, kReduceScatter{"c10d::_reduce_scatter_base_"};
constexpr Operator kHooks{"_FreeEventQueue.dequeue_if_needed"};
constexpr CudaStream kPreUnshard = CudaStream::kAllGatherCopyIn;
constexpr CudaStream kUnshard = CudaStream::kAllGather;
constexpr CudaStream kPostBackward = CudaStream::kReduceScatter;
constexpr std::size_t kMostInFlight = 2;  // _limiter_utils.py, _FreeEventQueue

/// Whether `op` asked for the block, which lives.
bool is_made_by(const Trace& trace, BlockId block, const Operator& op) {
  const auto made = std::find_if(trace.events.rbegin(), trace.events.rend(), [block](const Event& event) {
    return event.block == block && event.kind == EventKind::kAllocate;
  });
  return made != trace.events.rend() && made->op == &op;
}

}  // namespace

// --- construction

void Fsdp1::wrap(Model& model) {
  for (const Parameter& parameter : model.parameters) {
    whole_shapes.push_back(parameter.tensor.shape());
    // _init_utils.py, _verify_managed_params
    if (parameter.tensor.rank() == 0) throw refusal(rules::kFsdp1Scalar, {parameter.name});
  }
  ranks_ = sharing_ranks(run.parallel);
  tied_ = tied_embedding(model, run);
  if (!comes_from_host()) {
    assumptions.emplace_back(
        "each card holds the whole model before it is wrapped; the peaks are those of the steps (where it does not "
        "fit, build it on the meta device)");
  }
  const bool reads_reference = run.uses_trl() && run.generates() && run.training().reference == Reference::kModel &&
                               run.training().loop != Loop::kTrlOnlineDpo;
  if (reads_reference) {
    assumptions.emplace_back(
        "each process sees its own card alone: TRL 1.16 reads the reference under FSDP with device_map=\"auto\", which "
        "spreads it over all that are seen, and FSDP1 refuses that (seen on two cards)");
  }
  wrap_units(model);
}

// models/utils.py, prepare_fsdp: as accelerate's, but that nobody turns its shards into float32.
void Fsdp1::wrap_reference(Model& model) {
  is_reference_ = true;
  ranks_ = sharing_ranks(run.parallel);
  wrap_units(model);
}

void Fsdp1::wrap_units(Model& model) {
  Fsdp1Units units = fsdp1_units_of(model, run.fine_tuning.lora && !is_reference_);
  if (units.rest.empty() || (units.layers.empty() && !model.layer_paths)) throw refusal(rules::kFsdp1Layers);
  layers_ = units.layers.size();
  if (layers_ == 0) assumptions.emplace_back(kOneUnit);
  if (!units.leaves.empty()) {
    assumptions.emplace_back(
        "FSDP1 wraps a model with adapters by peft's fsdp_auto_wrap_policy, as the Trainer does: each lora_A and each "
        "lora_B is a unit of its own, and frozen layers stay in the type in which they were loaded");
  }
  handles_.resize(layers_ + units.leaves.size() + 1);
  handles_.back().is_root = true;
  by_module_.assign(1, &handles_.back());
  // Modules inside of a module are wrapped before it (wrap.py, _recursive_wrap).
  std::size_t next = 0;
  for (std::size_t i = 0; i <= layers_; ++i) {
    if (i < layers_) by_module_.push_back(&handles_[i]);
    for (; next < units.leaves.size() && units.leaves[next].layer == i; ++next) {
      Handle& leaf = handles_[layers_ + next];
      leaf.is_leaf = true;
      leaves_.emplace(units.leaves[next].parameters.front()->tensor.impl(), &leaf);
      flatten(leaf, units.leaves[next].parameters);
      by_module_.push_back(&leaf);
    }
    flatten(i < layers_ ? handles_[i] : handles_.back(), i < layers_ ? units.layers[i] : units.rest);
  }
  for (const Tensor& buffer : model.buffers) {
    if (!comes_from_host()) break;
    Tensor storage = tape.empty(buffer.shape(), buffer.dtype(), aten::kToCopy, Category::kWeights);
    tape.take_storage(buffer, storage);
  }
  upcast();
}

bool Fsdp1::comes_from_host() const {
  // TRL reads the models by from_pretrained without a device map (create_model_from_path).
  if (run.fine_tuning.quantization != Quantization::kNone) return false;  // packed on the card
  return is_reference_ || run.uses_trl() || (run.uses_trainer() && reads_on_host(run.training().loading));
}

// _init_utils.py, _move_states_to_device, with accelerate's device_id: each tensor by itself;
// _init_param_handle_from_params.
Tensor Fsdp1::shard_of(const std::vector<Parameter*>& parameters, DType dtype) const {
  std::vector<Tensor> moved;
  {
    const OnMetaDevice is_there(tape.memory, !comes_from_host());
    for (const Parameter* each : parameters) {
      moved.push_back(tape.empty({flattened_elements(each->tensor, run)}, dtype, aten::kToCopy, Category::kWeights));
    }
  }
  // sync_module_states, which the Trainer sets (training_args.py, 5.17)
  if (run.uses_trainer()) broadcast_coalesced(moved, ranks_);
  const std::int64_t elements = flat_layout_of(parameters, run, ranks_).elements;
  const Tensor flat = tape.empty({elements}, dtype, aten::kCat, Category::kWeights);
  return tape.empty({elements / ranks_}, dtype, aten::kClone, Category::kWeights);
}

std::optional<DType> Fsdp1::cast_from(const Handle& handle, DType stored) const {
  const bool casts = !is_reference_ && handle.trains && run.uses_trainer() && mixed_precision_of(run).param_dtype;
  if (!casts) return std::nullopt;
  const std::optional<DType> loaded = run.training().sharded_from;
  return loaded || !is_half(stored) ? loaded : stored;
}

// accelerator.py (accelerate 1.15), prepare_model, once all is wrapped. The module's parameters stay views of what was
// loaded until they are sharded views once more.
void Fsdp1::upcast() {
  for (Handle* each : by_module_) {
    if (!each->loaded_shard.defined()) continue;
    tape.memory.fill_storage(each->local_shard.block(), each->local_shard.bytes(), aten::kToCopy, Category::kWeights);
    cast_kernel(tape, each->elements / ranks_, each->loaded_shard.dtype(), each->local_shard.dtype());
  }
}

bool Fsdp1::gather_state() {
  if (run.training().saving == ModelSaving::kSharded) {
    cut_states();
  } else {
    gather_full_state();
  }
  return true;
}

// ShardedStateDictConfig(offload_to_cpu) (_state_dict_utils.py, _sharded_pre_state_dict_hook): every rank gathers a
// unit and clones its rows of each parameter, one after the other, which it copies to its host. A unit is whole while
// those inside of it are gathered: the root all the time, a layer while its adapters are. Of the optimizer's states
// likewise (_optim_utils.py, _allgather_orig_param_states).
void Fsdp1::cut_states() {
  const auto whole = [this](const Handle& handle) {
    return tape.empty({handle.elements}, handle.local_shard.dtype(), kAllGather, Category::kGatheredWeights);
  };
  const auto cut = [this](const Handle& handle) {
    for (const Tensor& param : handle.params) {
      const std::int64_t rows = ceil_div(param.size(0), ranks_);
      const std::int64_t own = std::clamp<std::int64_t>(param.size(0) - rank * rows, 0, rows);
      if (own == 0) continue;
      const std::int64_t elements = flattened_elements(param, run);
      const Bytes bytes =
          checked_multiply(ceil_div(elements * own, param.size(0)), size_of(handle.local_shard.dtype()));
      tape.memory.scratch(bytes, aten::kClone, Category::kGatheredWeights);
    }
  };
  {
    const Tensor root = whole(handles_.back());
    const Handle* layer = nullptr;
    Tensor of_layer;
    const auto leave = [&] {
      if (layer != nullptr) cut(*std::exchange(layer, nullptr));
      of_layer.reset();
    };
    for (const Handle* handle : by_module_) {
      if (handle->is_root) continue;
      if (handle->is_leaf) {
        const Tensor unit = whole(*handle);
        cut(*handle);
        continue;
      }
      leave();
      layer = handle;
      of_layer = whole(*handle);
    }
    leave();
    cut(handles_.back());
  }
  for (const Handle& handle : handles_) {
    if (!handle.trains) continue;
    const Tensor gathered = whole(handle);
    const Tensor own = tape.empty({handle.elements / ranks_}, handle.local_shard.dtype(), aten::kCat);
    cut(handle);
  }
}

// accelerate's get_state_dict and save_fsdp_optimizer (full_state_dict, offload_to_cpu, rank0_only): unit by unit, in
// the parameters' own type, whole on each rank; rank 0 copies it to its host, and back when the state dict is made.
void Fsdp1::gather_full_state() {
  const auto unit = [this](const Handle& handle) {
    const Bytes whole = checked_multiply(handle.elements, size_of(handle.local_shard.dtype()));
    tape.memory.scratch(whole, kAllGather, Category::kGatheredWeights);
  };
  unit(handles_.back());
  for (std::size_t i = 0; i + 1 < handles_.size(); ++i) {
    unit(handles_[i]);
    if (rank == 0) unit(handles_[i]);
  }
  if (rank == 0) unit(handles_.back());
  for (const Handle& handle : handles_) {  // _optim_utils.py, _allgather_orig_param_states: of each state
    if (!handle.trains) continue;
    const Tensor own = tape.empty({handle.elements / ranks_}, handle.local_shard.dtype(), aten::kCat);
    unit(handle);
  }
}

// _init_flat_param_and_metadata, shard, _use_sharded_views.
void Fsdp1::flatten(Handle& handle, std::vector<Parameter*>& parameters) {
  if (!is_reference_) check_fsdp1_unit(parameters, run);
  handle.trains = parameters.front()->tensor.requires_grad();
  const DType stored = flattened_dtype(parameters.front()->tensor, run);
  const std::optional<DType> loaded = cast_from(handle, stored);
  const DType dtype = loaded ? DType::kFloat32 : stored;
  const DType param_dtype = mixed_precision_of(run).param_dtype.value_or(dtype);
  const FlatLayout layout = flat_layout_of(parameters, run, ranks_);
  handle.elements = layout.elements;
  const std::int64_t shard = handle.elements / ranks_;
  (loaded ? handle.loaded_shard : handle.local_shard) = shard_of(parameters, loaded.value_or(stored));
  if (loaded) handle.local_shard = tape.empty_resizable({shard}, dtype);
  handle.full_param_padded = tape.empty_resizable({handle.elements}, param_dtype);
  handle.mp_shard = tape.empty_resizable({shard}, param_dtype);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& whole = parameters[i]->tensor;
    const std::int64_t count = elements_in_shard(layout.offsets[i], flattened_elements(whole, run), shard, rank);
    Tensor piece = count > 0 ? tape.alias(handle.local_shard, {count}, {1}, false)
                             : tape.empty({0}, dtype, aten::kEmpty, Category::kWeights);
    piece.impl()->requires_grad = handle.trains;
    if (!is_flattened_packed(whole)) {
      const OnMetaDevice on_meta(tape.memory);  // param.data = …: nothing is allocated, the original dies
      tape.convert(whole, param_dtype, aten::kEmpty);
    }
    Tensor view = tape.alias(handle.full_param_padded, whole.shape(), whole.strides(), false);
    std::swap(whole.impl()->block, view.impl()->block);  // what is packed dies with the view
    view.reset();
    if (handle.trains) {
      tape.autograd.after_gradient_of(whole, [this, &handle, whole] { gradient_arrived(handle, whole); });
    }
    handle.params.push_back(whole);
    handle.pieces.push_back(piece);
    parameters[i]->tensor = piece;
  }
  use_sharded_views(handle);
}

// _use_sharded_views: between its runs a module's parameters are views of the shard, in the type of that. peft looks at
// lora_A's before it calls it (lora/layer.py, _cast_input_dtype).
void Fsdp1::use_sharded_views(Handle& handle) {
  if (handle.is_leaf) set_views(handle, handle.full_param_padded, handle.local_shard.dtype());
}

// In the first forward's _lazy_init: each tensor is made, and its storage freed.
void Fsdp1::init_flat_param_attributes() {
  if (std::exchange(initialized_, true)) return;
  const auto init = [this](const Handle& handle) {
    const DType dtype = handle.local_shard.dtype();
    const bool mixed = handle.full_param_padded.dtype() != dtype;
    if (mixed) tape.memory.scratch(handle.mp_shard.bytes(), aten::kEmptyLike, Category::kGatheredWeights);
    tape.memory.scratch(handle.full_param_padded.bytes(), aten::kEmpty, Category::kGatheredWeights);
    if (mixed) tape.memory.scratch(handle.elements * size_of(dtype), aten::kEmpty, Category::kGatheredWeights);
  };
  for (const Handle* handle : by_module_) init(*handle);
}

// _reset_flat_param_grad_info_if_needed: the flat gradient outlives zero_grad().
void Fsdp1::reset_gradient(Handle& handle) {
  const auto has_gradient = [](const Tensor& piece) { return piece.impl()->grad.defined(); };
  if (std::none_of(handle.pieces.begin(), handle.pieces.end(), has_gradient)) handle.saved_grad_shard.reset();
}

void Fsdp1::reset_gradients() {
  for (Handle& handle : handles_) reset_gradient(handle);
}

// --- forward

ModelOutput Fsdp1::forward(const ModuleForward& module, const Batch& batch, bool sync) {
  syncs_ = sync;
  if (summoned_.defined()) return module(batch);  // the bare module's, in whose layers hooks are
  init_flat_param_attributes();
  reset_gradients();
  Handle& root = handles_.back();
  const Batch inputs = cast_inputs(batch, mixed_precision_of(run).param_dtype);
  pre_forward(root, {});
  const bool has_layers = layers_ > 0;
  // A recomputation runs the adapters' modules, too.
  ModuleHooks* const outer_hooks = std::exchange(tape.modes.module_hooks, leaves_.empty() ? nullptr : this);
  ModelOutput output = [&] {
    const Scoped<LayerHooks*> hooks(tape.modes.layer_hooks, has_layers ? this : tape.modes.layer_hooks);
    return module(inputs);
  }();
  if (leaves_.empty() || !tape.modes.grad_enabled) tape.modes.module_hooks = outer_hooks;
  if (has_layers && tape.modes.checkpointable_layers != static_cast<std::int64_t>(layers_)) {
    throw refusal(rules::kFsdp1Layers);
  }
  // _register_pre_backward_hooks. TRL trains on what its head returns beside the loss, or on logits.
  const FusedHead& fused = output.fused;
  const Tensor& whole = output.loss.defined() ? output.loss : output.logits;
  const Tensor outputs[] = {fused.log_probs.defined() ? fused.log_probs : whole, fused.entropy};
  post_forward(root, outputs);
  if (is_reference_) forget_order();  // no backward pass goes through it
  synchronize();
  return output;
}

// The bare module's generate() counts the layers of all tokens on (adapters').
Fsdp1::Handle& Fsdp1::handle_of(std::int64_t layer) { return handles_[static_cast<std::size_t>(layer) % layers_]; }

void Fsdp1::before_layer(std::int64_t layer, KeptTensors& arguments) {
  Handle& handle = handle_of(layer);
  if (!handle.in_backward) pre_forward(handle, arguments);
}

void Fsdp1::after_layer(std::int64_t layer, const Tensor& output) {
  Handle& handle = handle_of(layer);
  if (!handle.in_backward) post_forward(handle, std::span(&output, 1));
}

// Of a unit whose backward has begun nothing happens around its recomputation (HandleTrainingState.BACKWARD_PRE).
Tensor Fsdp1::before_module(const void* module, std::span<const Tensor* const> parameters, const Tensor& input) {
  const bool has_any = !parameters.empty() && parameters.front()->defined();
  const auto found = has_any ? leaves_.find(parameters.front()->impl()) : leaves_.end();
  if (found == leaves_.end() || found->second->in_backward) return input;
  running_[module] = found->second;
  pre_forward(*found->second, std::span(&input, 1));
  return input;
}

void Fsdp1::after_module(const void* module, const Tensor& output) {
  const auto found = running_.find(module);
  if (found == running_.end()) return;
  Handle& handle = *found->second;
  running_.erase(found);
  post_forward(handle, std::span(&output, 1));
}

Tensor Fsdp1::linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return memcalc::linear(x, weight, bias);
}

void Fsdp1::pre_forward(Handle& handle, std::span<const Tensor> inputs) {
  record_host_work(tape, HostWork::kFsdp1Forward);
  if (!handle.is_prefetched) unshard(handle);
  await(handle);
  if (!handle.trains) register_reshard(handle, inputs);
}

// _register_post_backward_reshard_only_hook: a frozen unit has no gradient after which it could be resharded, so that
// it waits for those of its inputs. These come behind the hook on the same tensor that gathers the unit before.
void Fsdp1::register_reshard(Handle& handle, std::span<const Tensor> inputs) {
  if (!tape.modes.grad_enabled || std::exchange(handle.awaits_inputs, true)) return;
  handle.awaited = 0;
  for (const Tensor& input : inputs) {
    if (!input.defined() || !input.requires_grad()) continue;
    ++handle.awaited;
    tape.autograd.before_backward_of(input, [this, &handle] {
      if (--handle.awaited > 0) return;
      record_host_work(tape, HostWork::kFsdp1Backward);
      if (handle.is_unsharded) reshard(handle, true);
    });
  }
}

void Fsdp1::post_forward(Handle& handle, std::span<const Tensor> outputs) {
  // record_post_forward: a unit that runs again (in a recomputation) keeps the place of its first run.
  if (handle.post_forward_index == 0) handle.post_forward_index = post_forward_order_.size();
  post_forward_order_.push_back(&handle);
  reshard(handle, !handle.is_root);
  handle.ran_pre_backward_hook = false;
  for (const Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    handle.needs_pre_backward_unshard = true;
    tape.autograd.before_backward_of(output, [this, &handle] { pre_backward(handle); });
  }
}

void Fsdp1::unshard(Handle& handle) {
  const bool mixed = handle.full_param_padded.dtype() != handle.local_shard.dtype();
  const bool needs_unshard = !handle.is_unsharded;
  if (needs_unshard && mixed) {
    const OnStream on_pre_unshard(tape.moment, own(kPreUnshard));
    tape.memory.fill_storage(handle.mp_shard.block(), handle.mp_shard.bytes(), aten::kResize, Category::kCommunication);
    cast_kernel(tape, handle.elements / ranks_, handle.local_shard.dtype(), handle.mp_shard.dtype());
  }
  if (free_event_queue_.size() >= kMostInFlight) {  // the rate limiter
    wait_for(free_event_queue_.front().frees);
    const std::int64_t kernels = free_event_queue_.front().kernels;
    // event.synchronize(): the host waits for what had been issued then
    if (kernels > 0) tape.kernels.synchronize(kHooks, kernels);
    free_event_queue_.pop_front();
  }
  if (!needs_unshard) return;
  const OnStream on_unshard(tape.moment, own(kUnshard));
  tape.memory.fill_storage(handle.full_param_padded.block(), handle.full_param_padded.bytes(), aten::kResize,
                           Category::kGatheredWeights);
  handle.is_unsharded = true;
  if (handle.is_leaf) set_views(handle, handle.full_param_padded, handle.full_param_padded.dtype());
  handle.gather = tape.kernels.collective(kAllGather, Collective::kAllGather, handle.full_param_padded.dtype(),
                                          handle.full_param_padded.bytes(), ranks_);
  if (mixed) free_later(tape.memory.empty_storage(handle.mp_shard.block()));
}

// current_stream().wait_stream(unshard_stream)
void Fsdp1::await(Handle& handle) { tape.kernels.await(std::exchange(handle.gather, 0)); }

void Fsdp1::reshard(Handle& handle, bool frees) {
  if (frees) {
    free_later(tape.memory.empty_storage(handle.full_param_padded.block()));
    handle.is_unsharded = false;
    use_sharded_views(handle);
    free_event_queue_.push_back({freed_, static_cast<std::int64_t>(tape.kernels.size())});
  }
  handle.loaded_shard.reset();
  handle.is_prefetched = false;
}

// --- backward

void Fsdp1::pre_backward(Handle& handle) {
  if (handle.ran_pre_backward_hook) return;
  if (!std::exchange(callback_queued_, true)) {
    tape.autograd.at_end_of_backward([this] { finish_backward(); });
    reset_gradients();
  }
  handle.in_backward = true;
  if (handle.needs_pre_backward_unshard && !handle.is_prefetched) unshard(handle);
  await(handle);
  handle.needs_pre_backward_unshard = false;
  // BACKWARD_PRE is FullyShardedDataParallel's default; accelerate's is NO_PREFETCH (FSDP_BACKWARD_PREFETCH).
  const bool prefetches = !run.uses_trainer() || run.parallel.torch().prefetches_backward;
  if (handle.post_forward_index > 0 && prefetches) {
    Handle& target = *post_forward_order_[handle.post_forward_index - 1];
    if (target.needs_pre_backward_unshard && !target.is_prefetched) {
      unshard(target);
      target.is_prefetched = true;
    }
  }
  handle.ran_pre_backward_hook = true;
}

// Made on one stream and consumed on another (engine.cpp records the consumer's).
void Fsdp1::free_gradient(Tensor& gradient) {
  const BlockId block = gradient.block();
  tape.memory.record_stream(gradient.block());
  gradient.reset();
  waiting_.push_back(block);
  ++freed_;
}

// The module's parameters are views of the flat one: SplitWithSizesBackward puts their gradients together once all are
// there, and the flat parameter's AccumulateGrad runs.
void Fsdp1::gradient_arrived(Handle& handle, const Tensor& param) {
  // Two gradients meet at a node of the unshard stream. Their sum is a third tensor, unless the first is the sole owner
  // of its memory, as TRL's head makes it (input_buffer.cpp, accumulate): a Linear layer's is the transpose of a
  // product.
  if (param.impl() == tied_ && is_made_by(tape.memory.trace, param.impl()->grad.block(), aten::kAdd)) {
    const OnStream on_unshard(tape.moment, own(kUnshard));
    Tensor sum = tape.empty(param.shape(), param.dtype(), aten::kAdd, Category::kGradients);
    free_gradient(param.impl()->grad);
    param.impl()->grad = std::move(sum);
  }
  if (++handle.arrived < handle.params.size()) return;
  handle.arrived = 0;
  tape.moment.node = &aten::kSplitWithSizes.node;
  // Autograd runs a node on the stream of its forward: the parameters were split on the unshard stream.
  const OnStream on_unshard(tape.moment, own(kUnshard));
  Tensor gradient = tape.empty({handle.elements}, handle.full_param_padded.dtype(), aten::kCat, Category::kGradients);
  cast_kernel(tape, handle.elements, gradient.dtype(), gradient.dtype());
  for (const Tensor& param : handle.params) free_gradient(param.impl()->grad);
  post_backward(handle, std::move(gradient));
}

void Fsdp1::post_backward(Handle& handle, Tensor gradient) {
  record_host_work(tape, HostWork::kFsdp1Backward);
  if (handle.unsharded_grad.defined()) {
    accumulate_kernel(tape, gradient.elements(), gradient.dtype());  // in place, by AccumulateGrad
    gradient = std::move(handle.unsharded_grad);
  }
  if (syncs_ || !handle.is_root) reshard(handle, true);
  if (!syncs_) {
    handle.unsharded_grad = std::move(gradient);
    return;
  }
  reduce(handle, std::move(gradient));
}

void Fsdp1::reduce(Handle& handle, Tensor gradient) {
  const OnStream on_post_backward(tape.moment, own(kPostBackward));
  const MixedPrecisionPolicy policy = mixed_precision_of(run);
  const DType reduce_dtype = policy.reduce_dtype.value_or(policy.param_dtype.value_or(gradient.dtype()));
  const BlockId computed = gradient.block();
  tape.memory.record_stream(gradient.block());
  cast_kernel(tape, handle.elements, gradient.dtype(), reduce_dtype);  // and divides
  Tensor unsharded = gradient.dtype() == reduce_dtype
                         ? gradient
                         : tape.empty({handle.elements}, reduce_dtype, aten::kToCopy, Category::kCommunication);
  Tensor sharded = tape.empty({handle.elements / ranks_}, reduce_dtype, aten::kEmptyLike, Category::kGradients);
  tape.kernels.collective(kReduceScatter, Collective::kReduceScatter, reduce_dtype, unsharded.bytes(), ranks_);
  if (reduce_dtype != handle.local_shard.dtype()) {
    cast_kernel(tape, sharded.elements(), reduce_dtype, handle.local_shard.dtype());
    sharded = tape.empty({handle.elements / ranks_}, handle.local_shard.dtype(), aten::kToCopy, Category::kGradients);
  }
  if (handle.saved_grad_shard.defined()) {
    accumulate_kernel(tape, sharded.elements(), sharded.dtype());  // _accumulate_sharded_grad: in place
  } else {
    handle.saved_grad_shard = sharded;
  }
  for (const Tensor& piece : handle.pieces) {
    if (piece.elements() == 0) continue;
    piece.impl()->grad = tape.alias(handle.saved_grad_shard, piece.shape(), piece.strides(), true);
  }
  unsharded.reset();
  gradient.reset();
  waiting_.push_back(computed);
  ++freed_;
}

void Fsdp1::finish_backward() {
  for (Handle* each : by_module_) {
    Handle& handle = *each;
    if (handle.arrived > 0) {
      throw Error(ErrorCode::kUnsupported,
                  "FSDP1: some parameters of a unit get no gradient and others do, which is not modelled; accepted: "
                  "--parallel fsdp2");
    }
    if (handle.is_unsharded) reshard(handle, true);
    handle.ran_pre_backward_hook = handle.needs_pre_backward_unshard = handle.is_prefetched = false;
    handle.in_backward = handle.awaits_inputs = false;
  }
  forget_order();
  if (tape.modes.module_hooks == this) tape.modes.module_hooks = nullptr;
  callback_queued_ = false;
  synchronize();
}

void Fsdp1::forget_order() {
  post_forward_order_.clear();
  for (Handle& handle : handles_) handle.post_forward_index = 0;
}

// --- generation: with summon_full_params(model, recurse=False) around generate() of the bare module

// _unshard_fsdp_state_params: the root's own parameters in the type in which they are stored, on the current stream;
// its gradient of the step before goes, those of the layers stay. The layers are gathered as they run.
bool Fsdp1::gather_for_generation() {
  init_flat_param_attributes();
  synchronize();
  Handle& root = handles_.back();
  reset_gradient(root);
  const DType dtype = root.local_shard.dtype();
  // What a forward pass without gradients has left (_get_padded_unsharded_flat_param).
  if (std::exchange(root.is_unsharded, false)) tape.memory.empty_storage(root.full_param_padded.block());
  summoned_ = tape.empty({root.elements}, dtype, kAllGather, Category::kGatheredWeights);
  tape.kernels.collective(kAllGather, Collective::kAllGather, dtype, summoned_.bytes(), ranks_);
  set_views(root, summoned_, dtype);
  outer_layer_hooks_ = std::exchange(tape.modes.layer_hooks, layers_ > 0 ? this : nullptr);
  outer_module_hooks_ = std::exchange(tape.modes.module_hooks, leaves_.empty() ? nullptr : this);
  return false;
}

void Fsdp1::part_after_generation() {
  tape.modes.layer_hooks = outer_layer_hooks_;
  tape.modes.module_hooks = outer_module_hooks_;
  Handle& root = handles_.back();
  cast_kernel(tape, root.elements / ranks_, summoned_.dtype(), summoned_.dtype());  // _writeback_to_local_shard
  set_views(root, root.full_param_padded, root.full_param_padded.dtype());
  root.loaded_shard.reset();
  summoned_.reset();
}

void Fsdp1::set_views(const Handle& handle, const Tensor& flat, DType dtype) {
  for (const Tensor& param : handle.params) {
    {
      const OnMetaDevice on_meta(tape.memory);  // param.data = …: nothing is allocated
      tape.convert(param, dtype, aten::kEmpty);
    }
    Tensor view = tape.alias(flat, param.shape(), param.strides(), false);
    tape.take_storage(param, view);
  }
}

// --- blocks that other streams use

void Fsdp1::free_later(BlockId block) {
  tape.memory.record_stream(block);
  waiting_.push_back(block);
  ++freed_;
}

void Fsdp1::wait_for(std::size_t frees) {
  const std::size_t returned = freed_ - waiting_.size();
  if (frees <= returned) return;
  const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(frees - returned);
  for (auto block = waiting_.begin(); block != end; ++block) tape.memory.streams_done(*block);
  waiting_.erase(waiting_.begin(), end);
}

// The events of the queue stay: they are waited for when their turn comes, which is at once.
void Fsdp1::synchronize() { wait_for(freed_); }

}  // namespace memcalc
