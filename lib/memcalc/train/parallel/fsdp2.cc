// MIRRORS(torch, "distributed/fsdp/_fully_shard/_fsdp_common.py", "2.11.0")
// MIRRORS(torch, "distributed/pipelining/stage.py", "2.11.0")
#include "memcalc/train/parallel/fsdp2.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/parallel.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/dtensor.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/train/optimizers/host_step.h"
#include "memcalc/train/optimizers/rule.h"
#include "memcalc/train/parallel/shard_kernels.h"
#include "memcalc/train/parallel/units.h"

namespace memcalc {

namespace {

constexpr Operator kRegisterPostBackward{"RegisterPostBackwardFunctionBackward"};

/// _fsdp_common.py, _get_dim_chunked_size: rows of `rank`, as torch.chunk cuts them.
std::int64_t rows_of(std::int64_t rows, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t chunk = ceil_div(rows, ranks);
  return std::clamp<std::int64_t>(rows - rank * chunk, 0, chunk);
}

Shape with_rows(Shape shape, std::int64_t rows) {
  shape[0] = rows;
  return shape;
}

}  // namespace

std::vector<Holding> fsdp2_holdings(const Model& model, std::int64_t ranks) {
  std::vector<Holding> holdings;
  std::vector<std::int64_t> elements;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    elements.clear();
    for (const Parameter& parameter : model.parameters) {
      const Shape& shape = parameter.tensor.shape();
      if (shape.rank > 0) elements.push_back(with_rows(shape, rows_of(shape[0], ranks, rank)).elements());
    }
    add_rank(holdings, elements);
  }
  return holdings;
}

Fsdp2::Fsdp2(Tape& tape, const RunSpec& run, std::int64_t rank, std::int64_t root)
    : ParallelWrapper(tape, run, rank), root_(root) {
  const std::int64_t ranks = sharing_ranks(run.parallel);
  shards_ = run.parallel.torch().hsdp_shard > 0 ? run.parallel.torch().hsdp_shard : ranks;
  replicas_ = ranks / shards_;
  const MixedPrecisionPolicy policy = mixed_precision_of(run);  // in the Trainer it takes the place of autocast
  param_dtype_ = policy.param_dtype;
  reduce_dtype_ = policy.reduce_dtype;
  output_dtype_ = policy.output_dtype;
}

// CPUOffloadPolicy: shards, gradients and with them the optimizer are on the host.
ParameterGroup Fsdp2::optimizer_parameters(const Model& model) const {
  return offloads() ? ParameterGroup{} : ParallelWrapper::optimizer_parameters(model);
}

// --- fully_shard

void Fsdp2::wrap(Model& model) {
  for (const Parameter& parameter : model.parameters) whole_shapes.push_back(parameter.tensor.shape());
  Units units = units_of(model);
  if (units.layers.empty() && !model.layer_paths) throw refusal(rules::kFsdp2Layers);
  layers_ = units.layers.size();
  if (layers_ == 0) assumptions.emplace_back(kOneUnit);
  for (std::vector<Parameter*>& layer : units.layers) order_children_first(layer);
  if (run.uses_trainer()) return shard_as_accelerate(model, units);
  assumptions.emplace_back(
      "each card holds the whole model before it is sharded; the peaks are those of the steps (where it does not fit, "
      "build it on the meta device)");
  order_children_first(units.rest);
  groups_.resize(layers_ + 1);
  for (std::size_t i = 0; i < layers_; ++i) shard(groups_[i], units.layers[i], true);
  shard(groups_.back(), units.rest, false);
  if (run.parallel.torch().keep_last_layer && layers_ > 0) groups_[layers_ - 1].reshards_after_forward = false;
}

// fully_shard of the whole model as one unit: it has been read on the host, and is moved to the card first.
void Fsdp2::wrap_reference(Model& model) {
  std::vector<Parameter*> all;
  for (Parameter& parameter : model.parameters) {
    whole_shapes.push_back(parameter.tensor.shape());
    all.push_back(&parameter);
  }
  order_children_first(all);
  groups_.resize(1);
  shard(groups_.back(), all, false);
}

std::vector<HeldRow> Fsdp2::held_on_host() const {
  if (!offloads()) return {};
  Bytes shards = 0, gradients = 0;
  StateBytes states;
  for (const Group& group : groups_) {
    for (const ShardedParameter& each : group.params) {
      const OptimizedTensor shard{.shape = {each.shard_elements}, .dtype = each.sharded.dtype()};
      shards = checked_add(shards, shard.bytes());
      if (!each.trains) continue;
      gradients = checked_add(gradients, shard.bytes());
      states.add(rule_of(run.training().optimizer).state_bytes(shard, run.training().loop));
    }
  }
  return {{"offloaded parameters", shards, "this rank's shards, pinned", true},
          {"offloaded gradients", gradients, "of these, pinned", true},
          {"offloaded optimizer states", checked_add(states.tensors, states.scalars),
           rule_of(run.training().optimizer).states}};
}

// The optimizer of the shards in host memory. finalize_backward() has waited for the gradients' copies
// (grad_offload_event in _fsdp_param_group.py).
void Fsdp2::after_step() {
  if (!offloads()) return;
  tape.kernels.synchronize(aten::kToCopy);
  std::int64_t tensors = 0, elements = 0, size = size_of(DType::kFloat32);
  for (const Group& group : groups_) {
    for (const ShardedParameter& each : group.params) {
      if (!each.trains) continue;
      ++tensors;
      elements += each.shard_elements;
      size = size_of(each.sharded.dtype());
    }
  }
  if (run.uses_trainer() || run.training().max_grad_norm) record_host_clipping(tape, run, elements, size);
  record_host_step_of_dtensors(tape, run, tensors, elements, size);
}

void Fsdp2::shard(Group& group, std::vector<Parameter*>& parameters, bool is_layer) {
  group.owner = this;
  group.reshards_after_forward = run.parallel.torch().reshard_after_forward;
  std::vector<Tensor> originals;  // fully_shard's own list, until the call returns; freed in its order, as recorded
  for (Parameter* parameter : parameters) {
    originals.push_back(tape.detach(parameter->tensor));
    group.params.push_back(shard(*parameter, is_layer));
  }
  for (Tensor& original : originals) original.reset();
}

// FSDPParam._init_sharded_param, and the storage of the unsharded parameter, which the first all-gather makes.
Fsdp2::ShardedParameter Fsdp2::shard(Parameter& parameter, bool in_layer) {
  const Tensor& whole = parameter.tensor;
  if (is_packed(whole)) return shard_packed(parameter);
  if (whole.rank() == 0) throw refusal(rules::kFsdp2Scalar, {parameter.name});
  const std::int64_t rows = ceil_div(whole.size(0), shards_);
  const std::int64_t own = rows_of(whole.size(0), shards_, place_among_sharing(run.parallel, rank) % shards_);
  const DType orig_dtype = whole.dtype();
  ShardedParameter param;
  param.unsharded = whole;
  param.trains = whole.requires_grad();
  if (offloads()) tape.memory.scratch(with_rows(whole.shape(), rows).elements() * size_of(orig_dtype), aten::kNewZeros);
  {
    // The shard moves to pinned host memory at once, or gets its storage when it has been sent.
    const OnMetaDevice on_meta(tape.memory, offloads() || is_sent_by_rank_0());
    param.sharded = tape.parameter(with_rows(whole.shape(), rows), orig_dtype, param.trains);
  }
  param.shard_elements = param.sharded.elements();
  if (own != rows) {
    param.sharded.impl()->shape[0] = own;
    param.sharded.impl()->elements = param.sharded.shape().elements();
  }
  const DType param_dtype = param_dtype_.value_or(orig_dtype);
  // Matrices of a layer are those of its linear modules. To autograd what is gathered has the policy's type.
  param.in_float8 = run.training().float8 == Float8::kTensorwiseGather && in_layer && whole.rank() == 2;
  param.gathered =
      tape.empty_resizable({param.shard_elements * shards_}, param.in_float8 ? DType::kUInt8 : param_dtype);
  {
    const OnMetaDevice on_meta(tape.memory);  // the module's tensor changes its type and its storage
    tape.convert(whole, param_dtype, aten::kEmpty);
  }
  Tensor view = tape.alias(param.gathered, whole.shape(), whole.strides(), false);
  tape.take_storage(whole, view);
  parameter.tensor = param.sharded;
  return param;
}

// --- FSDPState: hooks around modules

ModelOutput Fsdp2::forward(const ModuleForward& module, const Batch& batch, bool sync) {
  reduces_ = sync;
  if (run.parallel.pipeline > 1) is_last_backward_ = reshards_after_backward_ = false;
  Group& root = groups_.back();
  const Batch inputs = cast_inputs(batch, param_dtype_);
  pre_forward(root);
  ModelOutput output = [&] {
    const Scoped<LayerHooks*> around_layers(tape.modes.layer_hooks, layers_ > 0 ? this : nullptr);
    const bool has_ends = tail_ != nullptr || embedding_ != nullptr;
    const Scoped<ModuleHooks*> around_modules(tape.modes.module_hooks, has_ends ? this : nullptr);
    return module(inputs);
  }();
  if (layers_ > 0 && tape.modes.checkpointable_layers != static_cast<std::int64_t>(layers_)) {
    throw refusal(rules::kFsdp2Layers);
  }
  post_forward(root);
  register_pre_backward(root, output);
  all_gather_state_.reset();
  cast_outputs(output);
  return output;
}

// _register_pre_backward_hook: of a fused head the log-probabilities and entropies are trained on, not its loss.
void Fsdp2::register_pre_backward(Group& root, ModelOutput& output) {
  const auto hook = [this, &root](const Tensor& tensor) {
    if (tensor.defined() && tensor.requires_grad()) {
      tape.autograd.before_backward_of(tensor, [this, &root] { pre_backward(root); });
    }
  };
  if (!output.fused.log_probs.defined()) return hook(output.loss.defined() ? output.loss : output.logits);
  hook(output.fused.log_probs);
  hook(output.fused.entropy);
}

// _cast_fp_tensor of what the root returns. Of other outputs only a loss of one number would change its type.
void Fsdp2::cast_outputs(ModelOutput& output) const {
  FusedHead& fused = output.fused;
  if (!output_dtype_ || !fused.log_probs.defined()) return;
  std::vector<Tensor> casts;  // what they are made of lives until all are there
  const std::array members = {&output.loss, &fused.log_probs, &fused.entropy, &fused.log_sum_sq_probs,
                              &fused.mean_logits};
  for (const Tensor* each : members) casts.push_back(each->defined() ? to_dtype(*each, *output_dtype_) : Tensor());
  for (std::size_t i = 0; i < members.size(); ++i) *members[i] = std::move(casts[i]);
}

void Fsdp2::before_layer(std::int64_t layer, KeptTensors& arguments) {
  Group& group = groups_[static_cast<std::size_t>(layer)];
  if (group.state == State::kPreBackward) {  // recomputation
    if (!group.is_unsharded) {
      unshard(group);
      wait_for_unshard(group);
    }
    return;
  }
  if (const auto dtype = param_dtype_) {  // cast_forward_inputs
    for (Tensor& argument : arguments) {
      if (argument.defined() && is_floating(argument.dtype()) && argument.dtype() != *dtype) {
        argument = to_dtype(argument, *dtype);
      }
    }
  }
  pre_forward(group);
  for (Tensor& argument : arguments) {
    if (tape.modes.grad_enabled && argument.defined() && argument.requires_grad()) {
      argument = register_post_backward(group, argument);
    }
  }
}

void Fsdp2::after_layer(std::int64_t layer, const Tensor& output) {
  Group& group = groups_[static_cast<std::size_t>(layer)];
  if (group.state == State::kPreBackward) return;
  post_forward(group);
  if (output.requires_grad()) tape.autograd.before_backward_of(output, [this, &group] { pre_backward(group); });
}

// RegisterPostBackwardFunction: the input itself, with a node of its own.
Tensor Fsdp2::register_post_backward(Group& group, const Tensor& input) {
  const Tensor* const inputs[] = {&input};
  Node* node = tape.autograd.record(kRegisterPostBackward, &Fsdp2::run_post_backward, inputs, 1);
  Tensor output = tape.alias(input, input.shape(), input.strides(), true);
  if (node == nullptr) return output;
  node->payload.set(std::ref(group));
  tape.autograd.set_history(node, output);
  return output;
}

void Fsdp2::run_post_backward(BackwardCall& call) {
  Group& group = call.payload<std::reference_wrapper<Group>>();
  group.owner->post_backward(group);
  call.set(0, call.take_gradient());
}

void Fsdp2::register_final_callback() {
  if (std::exchange(final_callback_queued_, true)) return;
  tape.autograd.at_end_of_backward([this] { root_post_backward(); });
}

std::vector<Fsdp2::Group*> Fsdp2::by_module() {
  std::vector<Group*> all = {&groups_.back()};
  if (embedding_ != nullptr) all.push_back(embedding_);
  for (std::size_t i = 0; i < layers_; ++i) all.push_back(&groups_[i]);
  if (tail_ != nullptr) all.push_back(tail_);
  return all;
}

// _root_post_backward_final_callback
void Fsdp2::root_post_backward() {
  for (Group* group : by_module()) {
    if (group->state != State::kPostBackward) post_backward(*group);
    group->state = State::kIdle;
    group->modules_to_run = 0;
    if (!is_last_backward_) continue;
    group->all_reduce_state.reset();
    group->all_gather_result.reset();
    group->post_forward_indices.clear();
  }
  final_callback_queued_ = false;
  if (!is_last_backward_) return;
  post_forward_order_.clear();
  reduce_scatter_state_.reset();
  last_reduce_ = 0;
}

// In a pipeline gradients stay whole, and parameters gathered, until the last micro-batch's backward is done
// (pipelining/ stage.py, perform_reduce_grad).
void Fsdp2::reduce_gradients() {
  is_last_backward_ = reshards_after_backward_ = reduces_ = true;
  for (Group* group : by_module()) post_backward(*group);
  root_post_backward();
}

void Fsdp2::gather_parameters() {
  for (Group* group : by_module()) unshard(*group, true);
}

void Fsdp2::await_parameters() {
  for (Group* group : by_module()) wait_for_unshard(*group);
}

void Fsdp2::release_parameters() {
  for (Group* group : by_module()) reshard(*group);
}

Tensor Fsdp2::in_module(const Tensor& parameter) const {
  for (const Group& group : groups_) {
    for (const ShardedParameter& each : group.params) {
      if (each.sharded.impl() == parameter.impl()) return each.unsharded;
    }
  }
  return parameter;
}

// --- FSDPParamGroup

// Of a root without parameters of its own (a stage of nothing but layers) torch makes no group.
void Fsdp2::pre_forward(Group& group) {
  if (group.params.empty()) return;
  group.state = State::kForward;
  record_host_work(tape, HostWork::kFsdp2Forward);
  unshard(group);
  wait_for_unshard(group);
}

void Fsdp2::post_forward(Group& group) {
  if (group.params.empty()) return;
  reshard(group);
  group.post_forward_indices.push_back(post_forward_order_.size());
  post_forward_order_.push_back(&group);
  group.state = State::kIdle;
}

void Fsdp2::pre_backward(Group& group) {
  register_final_callback();
  if (group.state == State::kPreBackward || group.params.empty()) return;
  group.state = State::kPreBackward;
  unshard(group);  // nothing where it was prefetched
  wait_for_unshard(group);
  backward_prefetch(group);
}

void Fsdp2::backward_prefetch(Group& group) {
  if (group.post_forward_indices.empty()) return;
  const std::size_t current = group.post_forward_indices.back();
  group.post_forward_indices.pop_back();
  if (current > 0) unshard(*post_forward_order_[current - 1]);
}

void Fsdp2::post_backward(Group& group) {
  if (group.params.empty()) return;
  group.state = State::kPostBackward;
  record_host_work(tape, HostWork::kFsdp2Backward);
  std::vector<ShardedParameter*> with_gradient;
  std::vector<Tensor> gradients;
  for (ShardedParameter& param : group.params) {
    Tensor& gradient = param.unsharded.impl()->grad;
    if (param.accumulated.defined()) {  // accumulate_unsharded_grad_if_needed: in place
      if (gradient.defined()) accumulate_kernel(tape, gradient.elements(), param.accumulated.dtype());
      gradient.reset();
    }
    if (!reduces_) continue;
    if (param.accumulated.defined()) {
      gradients.push_back(std::move(param.accumulated));
    } else if (gradient.defined()) {
      const std::optional<SequenceSplit>& split = tape.modes.sequence_split;
      gradients.push_back(split ? gradient_in_layout(param.unsharded, std::move(gradient), split->ranks)
                                : std::move(gradient));
    } else {
      continue;
    }
    with_gradient.push_back(&param);
  }
  if (reshards_after_backward_) reshard(group);
  if (!reduces_) {  // to_accumulated_grad_if_needed: in the reduction's type
    for (ShardedParameter& param : group.params) {
      Tensor& gradient = param.unsharded.impl()->grad;
      if (!gradient.defined() || param.accumulated.defined()) continue;
      const DType dtype = reduce_dtype_.value_or(gradient.dtype());
      if (dtype == gradient.dtype()) continue;
      cast_kernel(tape, gradient.elements(), gradient.dtype(), dtype);
      Tensor cast = tape.empty(gradient.shape(), dtype, aten::kToCopy, Category::kGradients);
      gradient.reset();
      param.accumulated = std::move(cast);
    }
    return;
  }
  if (gradients.empty()) return;
  tape.kernels.await(std::exchange(last_reduce_, 0));  // current_stream().wait_event(reduce_scatter_state.event)
  reduce_scatter_state_.reset();
  group.all_reduce_state.reset();
  reduce(group, with_gradient, gradients);
}

}  // namespace memcalc
