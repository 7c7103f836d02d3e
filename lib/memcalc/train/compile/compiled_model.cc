#include "memcalc/train/compile/compiled_model.h"

#include <algorithm>
#include <utility>

#include "memcalc/symbolic/capture.h"
#include "memcalc/train/compile/joint_graph.h"
#include "memcalc/train/compile/partition.h"

namespace memcalc::compile {

namespace {

constexpr Operator kCompiledFunction{"CompiledFunctionBackward"};
constexpr Operator kAdd{"aten::add"}, kClone{"aten::clone"}, kZeros{"aten::zeros"}, kOnesLike{"aten::ones_like"};

std::size_t index(NodeIndex i) { return static_cast<std::size_t>(i); }

/// Buffers are flat tensors of bytes; a gradient has its parameter's shape and type.
Tensor shaped_like(const TensorImpl& parameter, const Tensor& buffer) {
  Tensor shaped = buffer.tape().alias(buffer, parameter.shape, parameter.strides, false);
  shaped.impl()->dtype = parameter.dtype;
  return shaped;
}

/// AccumulateGrad: the first gradient is kept, a later one is added to it in place.
void accumulate(TensorImpl& parameter, Tensor gradient) {
  Tape& tape = *parameter.tape;
  if (parameter.grad.defined()) {
    const auto bytes = static_cast<double>(parameter.grad.bytes());
    return tape.kernel(kAdd, OperatorClass::kElementwise, parameter.dtype, static_cast<double>(parameter.elements),
                       3.0 * bytes);
  }
  parameter.grad = shaped_like(parameter, gradient);
  tape.set_category(parameter.grad, Category::kGradients);
  if (parameter.drops_gradient) {
    gradient.reset();
    parameter.grad.reset();
  }
}

}  // namespace

CompiledModel::CompiledModel(Tape& tape, Autocast autocast, const Forward& forward) : tape_(tape) {
  capture(autocast, forward);
  saved_ = partition(graph_);
  std::vector<NodeIndex> results = graph_.outputs;
  results.insert(results.end(), saved_.begin(), saved_.end());
  forward_ = make_schedule(graph_, results, {}, false);
  std::vector<NodeIndex> gradients;
  for (const auto& [parameter, gradient] : graph_.gradients) gradients.push_back(gradient);
  gradients.insert(gradients.end(), graph_.handed_over.begin(), graph_.handed_over.end());
  std::vector<NodeIndex> given = saved_;
  given.insert(given.end(), graph_.tangents.begin(), graph_.tangents.end());
  backward_ = make_schedule(graph_, gradients, given, true);
}

void CompiledModel::capture(Autocast autocast, const Forward& forward) {
  GraphCapture capture;
  KernelList before = std::exchange(tape_.kernels, {});
  const bool recorded = std::exchange(tape_.record_kernels, true);
  const Phase phase = std::exchange(tape_.phase, Phase::kForward);
  tape_.capture = &capture;
  {
    ModelOutput output = forward();
    forward_kernels_ = std::exchange(tape_.kernels, {});
    loss_shape_ = output.loss.shape();
    loss_dtype_ = output.loss.dtype();
    std::vector<std::int32_t> outputs;
    const auto returned = [&](const Tensor& tensor) {
      if (tensor.defined()) outputs.push_back(capture.value_of(tensor));
    };
    returned(output.loss);
    returned(output.logits);
    output.past_key_values.for_each(returned);
    returned(output.encoder_last_hidden_state);
    // Eager's backward, for the products that it runs and the scratch memory of its kernels.
    tape_.phase = Phase::kBackward;
    std::vector<TensorImpl*> without_gradient;
    for (const CapturedValue& value : capture.values) {
      if (value.parameter != nullptr && !value.parameter->grad.defined()) without_gradient.push_back(value.parameter);
    }
    tape_.backward(output.loss, tape_.empty(loss_shape_, loss_dtype_, kOnesLike));
    for (TensorImpl* parameter : without_gradient) parameter->grad.reset();
    backward_kernels_ = std::exchange(tape_.kernels, {});
    if (autocast == Autocast::kInside) capture.autocast.reset();
    graph_ = build_joint_graph(capture, outputs);
  }
  for (const CapturedValue& value : capture.values) {
    if (value.parameter != nullptr) value.parameter->graph_value = -1;
  }
  tape_.capture = nullptr;
  tape_.phase = phase;
  tape_.record_kernels = recorded;
  tape_.kernels = std::move(before);
}

Tensor CompiledModel::make(NodeIndex i) const {
  const GraphNode& node = graph_[i];
  if (node.bytes == 0) return {};
  return tape_.empty({node.bytes}, DType::kUInt8, *node.op);
}

void CompiledModel::launch(std::vector<Tensor>& buffers, const Launch& launch) const {
  const GraphNode& node = graph_[launch.node];
  if (node.calls_cublas) tape_.use_cublas(node.fuses_bias && tape_.phase == Phase::kForward);
  if (launch.in_place != kNone) {
    buffers[index(launch.node)] = std::move(buffers[index(launch.in_place)]);
  } else {
    buffers[index(launch.node)] = make(launch.node);
  }
  // A kernel with several results holds its scratch memory beside all of them.
  if (node.kind == NodeKind::kItem) {
    const GraphNode& kernel = graph_[node.inputs.front()];
    if (kernel.scratch > 0 && kernel.users.back() == launch.node) {
      tape_.scratch(kernel.scratch, *kernel.op, Category::kWorkspaces);
    }
  }
  for (const NodeIndex dead : launch.dead_after) buffers[index(dead)].reset();
}

void CompiledModel::run(std::vector<Tensor>& buffers, const Schedule& schedule) const {
  for (const NodeIndex each : schedule.never_read) buffers[index(each)].reset();
  for (const Launch& each : schedule.launches) launch(buffers, each);
}

void CompiledModel::count_kernels(const KernelList& kernels) const {
  if (!tape_.record_kernels) return;
  for (const Kernel& kernel : kernels) {
    Kernel& counted = tape_.kernels.emplace_back(kernel);
    counted.repeats = tape_.kernel_repeats;
  }
}

Tensor CompiledModel::forward() {
  std::vector<Tensor> buffers(index(graph_.size()));
  run(buffers, forward_);
  count_kernels(forward_kernels_);
  // What is not saved dies as Python drops the model's output, all but the loss.
  const NodeIndex loss_node = graph_.storage_of(graph_.outputs.front());
  Tensor loss = tape_.alias(buffers[index(loss_node)], loss_shape_, Shape{}, false);
  loss.impl()->dtype = loss_dtype_;
  auto saved = std::make_shared<Saved>();
  saved->model = this;
  saved->buffers.resize(buffers.size());
  for (const NodeIndex each : saved_) {
    const std::size_t storage = index(graph_.storage_of(each));
    saved->buffers[storage] = buffers[storage];
    if (buffers[storage].defined()) tape_.mark_saved(buffers[storage]);
  }
  buffers.clear();
  TensorImpl* first = graph_.gradients.front().first;
  ++first->references;
  const Tensor parameter(first);
  const Tensor* inputs[] = {&parameter};
  Node* node = tape_.record(kCompiledFunction, run_backward, inputs, 1);
  if (node == nullptr) throw Error(ErrorCode::kInternal, "a compiled forward pass without gradients");
  node->context = saved.get();
  node->owner = saved;
  tape_.set_history(node, loss);
  return loss;
}

void CompiledModel::run_backward(BackwardCall& call) {
  auto& saved = *static_cast<Saved*>(call.node.owner.get());
  const CompiledModel& model = *saved.model;
  Tape& tape = call.tape;
  std::vector<Tensor> buffers = std::move(saved.buffers);
  // Results that got no gradient get zeros (autograd.Function materialises them).
  const auto& tangents = model.graph_.tangents;
  buffers[index(tangents.front())] = call.gradient();
  for (auto tangent = tangents.begin() + 1; tangent != tangents.end(); ++tangent) {
    buffers[index(*tangent)] = tape.empty({model.graph_[*tangent].bytes}, DType::kUInt8, kZeros);
  }
  // backward(ctx, *flat_args): what Python gave lives until it returns, whatever the compiled code lets go.
  std::vector<Tensor> flat_args;
  for (const NodeIndex tangent : tangents) flat_args.push_back(buffers[index(tangent)]);
  model.run(buffers, model.backward_);
  model.count_kernels(model.backward_kernels_);
  std::vector<Tensor> gradients;
  for (const auto& [parameter, gradient] : model.graph_.gradients) {
    gradients.push_back(buffers[index(model.graph_.storage_of(gradient))]);
  }
  buffers.clear();
  flat_args.clear();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    TensorImpl& parameter = *model.graph_.gradients[i].first;
    // Equal gradients are one buffer (two biases that are added): accumulate_grad.h steals only what nobody else holds.
    const auto shares = [&](const Tensor& other) { return other.defined() && other.impl() == gradients[i].impl(); };
    if (std::any_of(gradients.begin() + static_cast<std::ptrdiff_t>(i) + 1, gradients.end(), shares)) {
      gradients[i] = tape.empty({gradients[i].bytes()}, DType::kUInt8, kClone);
    }
    if (i == 0) {  // autograd hands this one on
      Tensor shaped = shaped_like(parameter, gradients[i]);
      gradients[i].reset();
      call.set(0, std::move(shaped));
      continue;
    }
    accumulate(parameter, std::move(gradients[i]));
  }
}

}  // namespace memcalc::compile
