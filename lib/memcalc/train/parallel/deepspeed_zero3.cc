// MIRRORS(deepspeed, "runtime/zero/partition_parameters.py", "0.19.8")
#include "memcalc/train/parallel/deepspeed_zero3.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/deepspeed_linear.h"
#include "memcalc/train/optimizers/lists.h"

namespace memcalc {

namespace {

constexpr Operator kGather{"c10d::_allgather_base_"}, kReduceScatter{"c10d::_reduce_scatter_base_"};
constexpr Operator kBucket{"deepspeed::ipg_bucket"};
constexpr Operator kPostBackward{"PostBackwardFunctionModuleBackward"};

/// tensor.data = data
void set_data(const Tensor& tensor, const Tensor& data) {
  const Tensor alias = tensor.tape().alias(data, tensor.shape(), tensor.strides(), false);
  std::swap(tensor.impl()->block, alias.impl()->block);
}

}  // namespace

CudaStream DeepSpeedZero3::gather_stream() const { return overlaps() ? CudaStream::kAllGather : CudaStream::kDefault; }

CudaStream DeepSpeedZero3::reduction_stream() const {
  return overlaps() ? CudaStream::kReduceScatter : CudaStream::kDefault;
}

// --- __init__

void DeepSpeedZero3::wrap(Model& model) {
  const DeepSpeedZero& options = run.parallel.deepspeed();
  partition_parameters(model);
  overflow_ = tape.empty({1}, DType::kBool, aten::kZeros);
  make_masters();
  bucket_ = tape.empty({options.reduce_bucket_size}, reduce_dtype, kBucket, Category::kCommunication);
  {
    const OnMetaDevice on_meta(tape.memory, offloads_states());
    gradients_ = tape.empty({part_elements_}, dtype, aten::kZeros, Category::kGradients);
  }
  make_optimizers();
  for (const int number : in_model_order_) {
    const auto i = static_cast<std::size_t>(number);
    if (!params_[i].trains) continue;
    if (ranks > 1) {  // gathered to be hooked, parts on the host through a copy on the card
      const Tensor whole = tape.empty({params_[i].part * ranks}, params_[i].dtype, kGather);
      if (offloads_parameters()) tape.memory.scratch(bytes_of_part(params_[i]), aten::kToCopy);
    }
    tape.autograd.after_gradient_of(params_[i].tensor, [this, i] { gradient_ready(i); });
  }
  make_coordinator({.prefetch_bucket = options.prefetch_bucket_size,
                    .max_live = options.max_live_parameters,
                    .max_reuse_distance = options.max_reuse_distance});
  // The model with its head and the base model; around them peft's two.
  for (int i = 0; i < (run.fine_tuning.lora ? 4 : 2); ++i) outer_.push_back(coordinator_->add_module({}));
  if (run.fine_tuning.quantization != Quantization::kNone) {
    assumptions.emplace_back("each card holds the whole quantised model before DeepSpeed parts it");
  } else if (run.uses_trainer()) {
    assumptions.emplace_back("from_pretrained builds the model under deepspeed.zero.Init, in parts from the beginning");
  } else {
    assumptions.emplace_back(
        "each card holds the whole model before deepspeed.initialize() parts it; the peaks are those of the steps "
        "(where "
        "it does not fit, build it under deepspeed.zero.Init)");
  }
  assumptions.emplace_back(
      "DeepSpeed's reduce_bucket_size " + std::to_string(options.reduce_bucket_size) +
      ", stage3_prefetch_bucket_size " + std::to_string(options.prefetch_bucket_size) +
      ", stage3_param_persistence_threshold " + std::to_string(options.param_persistence_threshold) +
      ", stage3_max_live_parameters " + std::to_string(options.max_live_parameters) + ", stage3_max_reuse_distance " +
      std::to_string(options.max_reuse_distance) + (overlaps() ? ", overlap_comm" : "") + " (--deepspeed)");
}

void DeepSpeedZero3::make_coordinator(const ParameterCoordinator::Limits& limits) {
  std::vector<std::int64_t> elements;
  std::vector<bool> persists;
  for (const SharedParameter& each : params_) {
    elements.push_back(each.elements);
    persists.push_back(each.persists);
  }
  coordinator_ = std::make_unique<ParameterCoordinator>(std::move(elements), std::move(persists), limits, *this);
  for (std::size_t i = 0; i < params_.size(); ++i) {
    if (!params_[i].trains) coordinator_->set_frozen(static_cast<int>(i));
  }
}

// An engine without an optimizer (DeepSpeedZeRoOffload alone).
void DeepSpeedZero3::wrap_reference(Model& model) {
  is_reference_ = true;
  const DeepSpeedZero& options = run.parallel.deepspeed();
  for (const Parameter& parameter : model.parameters) tape.autograd.set_trainable(parameter.tensor, false);
  partition_parameters(model);
  make_coordinator({.prefetch_bucket = options.prefetch_bucket_size_of_reference,
                    .max_live = options.max_live_parameters,
                    .max_reuse_distance = options.max_reuse_distance});
  for (int i = 0; i < 2; ++i) outer_.push_back(coordinator_->add_module({}));
}

// --- forward and backward of modules

ModelOutput DeepSpeedZero3::forward(const ModuleForward& module, const Batch& batch, bool /*sync*/) {
  if (!is_reference_) begin_forward();
  coordinator_->begin_pass();
  for (const int outer : outer_) coordinator_->fetch(outer, false);
  ModuleHooks* const hooks = std::exchange(tape.modes.module_hooks, this);
  LayerHooks* const layer_hooks = tape.modes.layer_hooks;
  if (run.fine_tuning.lora && !is_reference_) tape.modes.layer_hooks = this;
  ModelOutput output = module(batch);
  if (!std::exchange(checked_, true)) check_every_parameter_is_hooked();
  coordinator_->release(model_with_head(), false);
  if (is_reference_) {  // the others' are there in backward, too, for layers that are recomputed
    tape.modes.module_hooks = hooks;
    tape.modes.layer_hooks = layer_hooks;
  }
  const auto hook = [this](const Tensor& tensor) {
    if (!tensor.defined() || !tensor.requires_grad()) return;
    tape.autograd.before_backward_of(tensor, [this] {
      in_backward_ = true;
      for (std::size_t i = 0; i + 1 < outer_.size(); ++i) coordinator_->fetch(outer_[i], true);
    });
  };
  if (output.fused.log_probs.defined()) {  // its loss is not what is trained on
    hook(output.fused.log_probs);
    hook(output.fused.entropy);
  } else {  // of what the module returns, each tensor; the loss is the first that backward meets
    hook(output.loss.defined() ? output.loss : output.logits);
  }
  return output;
}

// ZeROOrderedDict.__getitem__ (parameter_offload.py): a parameter that is read in a forward pass while it is shared out
// is gathered at once, and is from then on an external parameter of the module whose forward reads it: the model with
// its head. So TRL's own maybe_gather_lm_head_ctx finds it gathered, in backward, too.
Tensor DeepSpeedZero3::before_direct_read(const Tensor& parameter) {
  const int number = number_of_.at(parameter.impl());
  if (coordinator_->is_available(number)) return parameter;
  SharedParameter& shared = param(number);
  if (ranks == 1 && !offloads_parameters()) {
    set_data(shared.tensor, shared.trains ? weights_ : shared.own_part);
  } else {
    const Tensor whole = tape.empty({shared.part * ranks}, shared.dtype, kGather, Category::kGatheredWeights);
    if (offloads_parameters()) tape.memory.scratch(bytes_of_part(shared), aten::kToCopy);
    tape.kernels.collective(kGather, Collective::kAllGather, shared.dtype, bytes_of_part(shared) * ranks, ranks);
    set_data(shared.tensor, whole);
    read_directly_.push_back(whole.block());
  }
  coordinator_->add_external(model_with_head(), number);
  return parameter;
}

void DeepSpeedZero3::check_every_parameter_is_hooked() const {
  for (std::size_t i = 0; i < params_.size(); ++i) {
    if (coordinator_->was_fetched(static_cast<int>(i))) continue;
    throw refusal(rules::kZero3Hooks, {params_[i].name});
  }
}

// A parameter that a module uses of another is gathered when it is first met, in the middle of the module, and from
// then on with the module's own (ZeROOrderedDict.__getitem__, register_external_parameter): here from the first step
// on.
Tensor DeepSpeedZero3::before_module(const void* module, std::span<const Tensor* const> parameters,
                                     const Tensor& input) {
  HookedModule& hooked = modules_[module];
  if (hooked.owner == nullptr) {
    std::vector<int> numbers;
    for (const Tensor* each : parameters) {
      if (each->defined()) numbers.push_back(number_of_.at(each->impl()));
    }
    const auto count = static_cast<std::int64_t>(numbers.size());
    hooked = {.owner = this, .number = coordinator_->add_module(std::move(numbers)), .parameters = count};
  }
  record_host_work(tape, HostWork::kZeroFetched, hooked.parameters);
  coordinator_->fetch(hooked.number, false, tape.moment.recomputing);
  return register_post_backward(hooked, input);
}

Tensor DeepSpeedZero3::register_post_backward(const HookedModule& hooked, const Tensor& input) {
  if (!input.defined() || !tape.modes.grad_enabled || !input.requires_grad()) return input;
  const Tensor* const inputs[] = {&input};
  Node* node = tape.autograd.record(kPostBackward, &DeepSpeedZero3::run_post_backward, inputs, 1);
  Tensor output = tape.alias(input, input.shape(), input.strides(), true);
  if (node == nullptr) return output;
  node->payload.set(hooked);
  tape.autograd.set_history(node, output);
  return output;
}

// A layer holds no parameters itself, but what comes next is gathered when it begins.
void DeepSpeedZero3::before_layer(std::int64_t layer, KeptTensors& arguments) {
  HookedModule& hooked = layers_[layer];
  if (hooked.owner == nullptr) hooked = {.owner = this, .number = coordinator_->add_module({}), .parameters = 0};
  coordinator_->fetch(hooked.number, false, tape.moment.recomputing);
  Tensor& hidden = arguments.front();
  if (hidden.defined()) hidden = register_post_backward(hooked, hidden);
}

void DeepSpeedZero3::after_layer(std::int64_t layer, const Tensor& output) {
  const int number = layers_.at(layer).number;
  coordinator_->release(number, false);
  if (output.requires_grad()) {
    tape.autograd.before_backward_of(output, [this, number] { coordinator_->fetch(number, true); });
  }
}

void DeepSpeedZero3::run_post_backward(BackwardCall& call) {
  const auto& hooked = call.payload<HookedModule>();
  record_host_work(call.tape, HostWork::kZeroFetchedBackward, hooked.parameters);
  hooked.owner->coordinator_->release(hooked.number, true);
  call.set(0, call.take_gradient());
}

void DeepSpeedZero3::after_module(const void* module, const Tensor& output) {
  const int number = modules_.at(module).number;
  coordinator_->release(number, false);
  if (output.requires_grad()) {
    tape.autograd.before_backward_of(output, [this, number] { coordinator_->fetch(number, true); });
  }
}

Tensor DeepSpeedZero3::linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return deepspeed_linear(x, weight, bias);
}

// --- all-gather and release (partition_parameters.py)

/// dtype_params, in the order of sort_dtypes(): by name.
std::vector<std::vector<int>> DeepSpeedZero3::by_dtype(std::span<const int> parameters) const {
  std::map<std::string_view, std::vector<int>> groups;
  for (const int i : parameters) groups[name_of(params_[static_cast<std::size_t>(i)].dtype)].push_back(i);
  std::vector<std::vector<int>> sorted;
  for (auto& [dtype, group] : groups) sorted.push_back(std::move(group));
  return sorted;
}

// all_gather_coalesced: one parameter into its own buffer, several into one of each type that is taken apart when it
// has arrived.
void DeepSpeedZero3::gather(std::span<const int> parameters) {
  streams_are_done();
  if (ranks == 1 && !offloads_parameters()) {  // NoGatherHandle
    for (const int i : parameters) set_data(param(i).tensor, param(i).trains ? weights_ : param(i).own_part);
    return;
  }
  const OnStream on_gather(tape.moment, gather_stream());
  if (parameters.size() == 1) {
    SharedParameter& only = param(parameters.front());
    const Tensor buffer = tape.empty({only.part * ranks}, only.dtype, kGather, Category::kGatheredWeights);
    if (offloads_parameters() && ranks > 1) {
      only.moved = tape.empty({only.part}, only.dtype, aten::kToCopy, Category::kCommunication);
    }
    set_data(only.tensor, buffer);
    tape.kernels.collective(kGather, Collective::kAllGather, only.dtype, bytes_of_part(only) * ranks, ranks);
    return;
  }
  std::vector<Tensor>& flats = flats_[parameters.front()];
  for (const std::vector<int>& group : by_dtype(parameters)) {
    std::int64_t elements = 0;
    for (const int i : group) elements += param(i).part * ranks;
    const DType type = param(group.front()).dtype;
    flats.push_back(tape.empty({elements}, type, kGather, Category::kCommunication));
    std::vector<Tensor> moved;
    for (const int i : group) {
      if (!offloads_parameters()) break;
      moved.push_back(tape.empty({param(i).part}, type, aten::kToCopy, Category::kCommunication));
    }
    tape.kernels.collective(kGather, Collective::kAllGather, type, checked_multiply(elements, size_of(type)), ranks);
  }
}

void DeepSpeedZero3::arrive(std::span<const int> parameters) {
  if (parameters.size() == 1) param(parameters.front()).moved.reset();
  if (parameters.size() == 1 || (ranks == 1 && !offloads_parameters())) return;
  const OnStream on_gather(tape.moment, gather_stream());
  for (const std::vector<int>& group : by_dtype(parameters)) {
    for (const int i : group) {
      const Tensor whole = tape.empty({param(i).elements}, param(i).dtype, aten::kCat, Category::kGatheredWeights);
      pass_kernel(param(i).elements, param(i).dtype);
      set_data(param(i).tensor, whole);
    }
  }
}

// deepspeed.zero.GatheredParameters(model.parameters()): what is not there is gathered, each in a buffer of its own;
// the hooks are taken off, so that generation fetches nothing.
bool DeepSpeedZero3::gather_for_generation() {
  for (const int i : in_model_order_) {
    if (coordinator_->is_available(i)) continue;
    SharedParameter& each = param(i);
    if (ranks == 1 && !offloads_parameters()) {
      set_data(each.tensor, each.trains ? weights_ : each.own_part);
      continue;
    }
    const Tensor whole = tape.empty({each.part * ranks}, each.dtype, kGather, Category::kGatheredWeights);
    if (offloads_parameters()) tape.memory.scratch(bytes_of_part(each), aten::kToCopy);
    tape.kernels.collective(kGather, Collective::kAllGather, each.dtype, bytes_of_part(each) * ranks, ranks);
    set_data(each.tensor, whole);
  }
  return true;
}

// All of it is parted, what persists, too, which comes back when it is fetched; add_hooks() invalidates the trace.
void DeepSpeedZero3::part_after_generation() {
  for (const SharedParameter& each : params_) drop_data(each.tensor);
  coordinator_->begin_anew();
}

void DeepSpeedZero3::forget(std::span<const int> parameters) { flats_.erase(parameters.front()); }

/// Where nothing is gathered a parameter lies on this rank's part, which stays.
bool DeepSpeedZero3::is_own_part(BlockId block, const SharedParameter& param) const {
  return block == (param.trains ? weights_ : param.own_part).impl()->block;
}

// free_param: made on the stream of the collectives, used on the current one, whose events the allocator waits for. The
// card is taken to keep up with the host: they are done by the next collective.
void DeepSpeedZero3::release(int parameter) {
  const SharedParameter& released = param(parameter);
  const BlockId block = released.tensor.impl()->block;
  const bool on_current_stream = std::erase(read_directly_, block) > 0;
  const bool waits = block != kNoBlock && overlaps() && !is_own_part(block, released) && !on_current_stream;
  if (waits) wait_for_streams(released.tensor);
  drop_data(released.tensor);
}

void DeepSpeedZero3::wait_for_streams(const Tensor& tensor) {
  tape.memory.record_stream(tensor.block());
  waiting_.push_back(tensor.block());
}

void DeepSpeedZero3::streams_are_done() {
  // What a recomputed layer saved are detached tensors, which keep a gathered weight until its own backward.
  std::vector<BlockId> held;
  for (const BlockId block : waiting_) {
    if (tape.memory.is_held(block)) {
      held.push_back(block);
    } else {
      tape.memory.streams_done(block);
    }
  }
  waiting_.swap(held);
}

// --- gradients

// reduce_independent_p_g_buckets_and_remove_grads, __add_grad_to_ipg_bucket
void DeepSpeedZero3::gradient_ready(std::size_t i) {
  streams_are_done();
  const SharedParameter& param = params_[i];
  Tensor& gradient = param.tensor.impl()->grad;
  const std::int64_t bucket_size = bucket_.elements();
  if (bucket_elements_ + param.elements > bucket_size && bucket_elements_ > 0) reduce_bucket();
  if (bucket_elements_ + param.elements <= bucket_size) {
    if (overlaps()) wait_for_streams(gradient);
    const OnStream on_reduction(tape.moment, reduction_stream());
    pass_kernel(param.elements, gradient.dtype(), bucket_.dtype());  // new_grad_tensor.copy_(param.grad)
    gradient = tape.alias(bucket_, param.tensor.shape(), param.tensor.strides(), true);
  }
  bucket_params_.push_back(i);
  bucket_elements_ += param.elements;
}

// __reduce_and_partition_ipg_grads: reduce_scatter_coalesced interleaves the parts of several gradients in a new
// tensor.
void DeepSpeedZero3::reduce_bucket() {
  if (bucket_params_.empty()) return;
  const OnStream on_reduction(tape.moment, reduction_stream());
  std::int64_t elements = 0;
  for (const std::size_t i : bucket_params_) elements += params_[i].part * ranks;
  const bool in_place = bucket_params_.size() == 1 && params_[bucket_params_.front()].elements % ranks == 0;
  const bool converts = reduce_dtype != dtype;
  Tensor converted;  // a gradient that the bucket, which has that type, has no room for
  const Tensor& largest = params_[bucket_params_.front()].tensor.impl()->grad;
  if (largest.dtype() != reduce_dtype) {
    converted = tape.empty(largest.shape(), reduce_dtype, aten::kToCopy, Category::kCommunication);
    pass_kernel(largest.elements(), largest.dtype(), reduce_dtype);
  }
  Tensor interleaved;
  if (!in_place) {
    interleaved = tape.empty({elements}, reduce_dtype, aten::kCat, Category::kCommunication);
    pass_kernel(elements, reduce_dtype);
  }
  pass_kernel(elements, reduce_dtype);  // tensor_partition_flat_buffer.div_(world_sz)
  tape.kernels.collective(kReduceScatter, Collective::kReduceScatter, reduce_dtype, elements * size_of(reduce_dtype),
                          ranks);
  std::vector<Tensor> parts;  // in the gradients' type again
  for (std::size_t i = 0; converts && i < bucket_params_.size(); ++i) {
    const std::int64_t part = params_[bucket_params_[i]].part;
    parts.push_back(tape.empty({part}, dtype, aten::kToCopy, Category::kCommunication));
    pass_kernel(part, reduce_dtype, dtype);  // g.to(gradient_accumulation_dtype)
  }
  if (converts) drop(converted, interleaved);
  for (const std::size_t i : bucket_params_) {
    keep_part(params_[i]);
    Tensor& gradient = params_[i].tensor.impl()->grad;
    const bool is_larger = gradient.block() != bucket_.block();  // than the bucket
    if (overlaps() && is_larger) wait_for_streams(gradient);
    gradient.reset();
  }
  bucket_params_.clear();
  bucket_elements_ = 0;
}

// partition_grads: into the flat gradients, or added to what earlier micro-batches left there; of those in host memory
// a copy on the card, its norm, its float32 copy.
void DeepSpeedZero3::keep_part(const SharedParameter& param) {
  if (!offloads_states()) {  // grad_buffer.copy_() or grad_buffer.add_()
    return adds_gradients_ ? add_kernel(param.part) : pass_kernel(param.part, dtype);
  }
  const Tensor copy = tape.empty({param.part}, dtype, aten::kToCopy);
  constexpr std::int64_t kNormBuffer = 250'000'000;  // _constant_buffered_norm2
  tape.memory.scratch(std::min(param.part, kNormBuffer) * size_of(DType::kFloat64), aten::kNorm);
  const Bytes wide = param.part * size_of(DType::kFloat32);
  if (dtype != DType::kFloat32) tape.memory.scratch(wide, aten::kToCopy);
  tape.kernels.add(aten::kToCopy, OperatorClass::kMovement, DType::kFloat32, 0, static_cast<double>(wide),
                   KernelKind::kCopyToHost);
}

void DeepSpeedZero3::after_backward(bool last) {
  in_backward_ = false;
  reduce_bucket();
  tape.kernels.synchronize(kReduceScatter);  // independent_gradient_partition_epilogue: the reductions' stream
  adds_gradients_ = !last;
  coordinator_->release_leftovers();
  tape.modes.module_hooks = nullptr;
  tape.modes.layer_hooks = nullptr;
  DeepSpeedEngine::after_backward(last);
}

// _post_step: small parameters stay whole until the next step. _allgather_params_coalesced() ends with a synchronize():
// the next forward pass begins without a lead of the host.
void DeepSpeedZero3::gather_persistent() {
  bool gathers = false;
  for (const int i : in_model_order_) {
    const SharedParameter& each = param(i);
    if (!each.persists) continue;
    if (ranks == 1 && !offloads_parameters()) {
      set_data(each.tensor, each.trains ? weights_ : each.own_part);
    } else {
      const Tensor whole = tape.empty({each.part * ranks}, each.dtype, kGather, Category::kGatheredWeights);
      tape.kernels.collective(kGather, Collective::kAllGather, each.dtype, bytes_of_part(each) * ranks, ranks);
      set_data(each.tensor, whole);
      gathers = true;
    }
    coordinator_->set_available(i);
  }
  if (gathers) tape.kernels.synchronize(kGather);
}

}  // namespace memcalc
