// MIRRORS(torch, "_functorch/_aot_autograd/runtime_wrappers.py", "2.11.0")
// MIRRORS(torch, "_inductor/runtime/benchmarking.py", "2.11.0")
// MIRRORS(torch, "_inductor/runtime/triton_heuristics.py", "2.11.0")
#include "memcalc/train/compile/program.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "memcalc/base/bytes.h"
#include "memcalc/base/error.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/capture.h"
#include "memcalc/symbolic/compiled_code.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/train/compile/added_products.h"
#include "memcalc/train/compile/fusion.h"
#include "memcalc/train/compile/joint_graph.h"
#include "memcalc/train/compile/partition.h"

namespace memcalc::compile {

namespace {

constexpr Operator kCompiledFunction{"CompiledFunctionBackward"}, kTimedKernel{"benchmark_all_configs"};

std::size_t index(NodeIndex i) { return static_cast<std::size_t>(i); }

/// Buffers are flat tensors of bytes; a result has shape and type.
Tensor shaped(const Tensor& buffer, const Shape& shape, const Shape& strides, DType dtype) {
  Tensor result = buffer.tape().alias(buffer, shape, strides, false);
  result.impl()->dtype = dtype;
  return result;
}

Tensor shaped_like(const TensorImpl& parameter, const Tensor& buffer) {
  return shaped(buffer, parameter.shape, parameter.strides, parameter.dtype);
}

/// AccumulateGrad: the first gradient is kept, a later one is added to it in place.
void accumulate(TensorImpl& parameter, Tensor gradient) {
  Tape& tape = *parameter.tape;
  if (parameter.grad.defined()) {
    const auto bytes = static_cast<double>(parameter.grad.bytes());
    return tape.kernels.add(aten::kAdd, OperatorClass::kElementwise, parameter.dtype,
                            static_cast<double>(parameter.elements), 3.0 * bytes);
  }
  parameter.grad = shaped_like(parameter, gradient);
  tape.memory.set_category(parameter.grad.block(), Category::kGradients);
  if (parameter.drops_gradient) {
    gradient.reset();
    parameter.grad.reset();
  }
}

/// An argument that has a gradient, in the order of the node's edges.
struct DifferentiableArgument {
  std::size_t place = 0;
  Shape shape, strides;
  DType dtype = DType::kFloat32;
};

/// What a call keeps for its backward: a tensor for each node that was saved. Lives as long as the autograd node.
struct Saved {
  const Program* program;
  CudaGraphs* graphs = nullptr;
  std::span<TensorImpl* const> parameters;
  std::vector<DifferentiableArgument> arguments;
  std::vector<Tensor> buffers;  // by node
};

/// L2_cache_size of torch.cuda.get_device_properties: asked of an H200 on 2026-12-01; an H100's is its datasheet's. 0:
/// of a card that nobody asked.
Bytes second_level_cache_of(const DeviceSpec& device) {
  if (device.name == "h200-sxm") return 60 * kMiB;
  return device.name == "h100-sxm" ? 50 * kMiB : 0;
}

/// Runs launches of one of a program's two parts on buffers by node.
class Execution {
 public:
  Execution(Tape& tape, const Program& program, std::vector<Tensor>& buffers, CudaGraphs* graphs)
      : tape_(tape), program_(program), graph_(program.graph), buffers_(buffers), graphs_(graphs) {}

  void drop_what_nothing_reads(const Schedule& schedule) {
    for (const NodeIndex each : schedule.never_read) buffers_[index(each)].reset();
  }

  /// Within CUDA graphs where there are any.
  void run(std::span<const Launch> launches, CudaGraphs::Part part) {
    std::optional<CudaGraphs::Call> call;
    if (graphs_ != nullptr) call.emplace(*graphs_, part);
    for (const Launch& each : launches) launch(each);
  }

 private:
  void launch(const Launch& launch) {
    const GraphNode& node = graph_[launch.node];
    if (node.calls_cublas) use_cublas(node.fuses_bias && tape_.moment.phase == Phase::kForward);
    Tensor& buffer = buffers_[index(launch.node)];
    if (launch.in_place != kNone) {
      buffer = std::move(buffers_[index(launch.in_place)]);
    } else {
      buffer = node.bytes == 0 ? Tensor() : tape_.empty({node.bytes}, DType::kUInt8, *node.op);
    }
    // A kernel with several results holds its scratch memory beside all of them.
    if (node.kind == NodeKind::kItem) {
      const GraphNode& kernel = graph_[node.inputs.front()];
      if (kernel.scratch > 0 && kernel.users.back() == launch.node) {
        tape_.memory.scratch(kernel.scratch, *kernel.op, Category::kWorkspaces);
      }
    }
    if (times(launch)) time(launch);
    for (const NodeIndex dead : launch.dead_after) buffers_[index(dead)].reset();
  }

  /// Whether the compiler times the launch's kernel. Where the second step compiles the model anew, nearly all kernels
  /// are those of the first: of BERT, the first large one of backward, which writes over a buffer, is another.
  [[nodiscard]] bool times(const Launch& launch) {
    constexpr Bytes kLarge = 1 << 20;
    const GraphNode& node = graph_[launch.node];
    const bool fused = node.kind == NodeKind::kPointwise || node.kind == NodeKind::kReduction;
    const bool again = program_.compiles_again && tape_.moment.step == 1 && tape_.moment.phase == Phase::kBackward;
    return again && fused && node.bytes >= kLarge && !std::exchange(timed_, true);
  }

  /// triton_heuristics.py, benchmark_all_configs, and benchmarking.py, benchmark_gpu: beside a buffer of the size of
  /// the second-level cache, which is written between the runs, and a copy of what the kernel writes over.
  void time(const Launch& launch) {
    const Bytes cache = second_level_cache_of(tape_.device);
    if (cache == 0) return;
    const Tensor copy = tape_.empty({graph_[launch.node].bytes}, DType::kUInt8, aten::kClone);
    tape_.memory.scratch(cache, kTimedKernel, Category::kWorkspaces);
  }

  void use_cublas(bool with_lt) {
    if (graphs_ != nullptr) {
      graphs_->use_cublas(with_lt);
    } else {
      tape_.memory.use_cublas(with_lt);
    }
  }

  Tape& tape_;
  const Program& program_;
  const JointGraph& graph_;
  std::vector<Tensor>& buffers_;
  CudaGraphs* graphs_;
  bool timed_ = false;
};

/// The products, reductions and so on that a checkpoint has run again in backward.
KernelList recomputed_kernels(const GraphCapture& capture, const KernelList& forward) {
  KernelList again;
  for (std::size_t i = 0; i < capture.operators.size(); ++i) {
    if (capture.operators[i].recompute != Recompute::kPreferred) continue;
    const std::size_t end = i + 1 < capture.operators.size() ? capture.operators[i + 1].first_kernel : forward.size();
    for (std::size_t k = capture.operators[i].first_kernel; k < std::min(end, forward.size()); ++k) {
      Kernel& kernel = again.emplace_back(forward[k]);
      kernel.recomputed = true;
    }
  }
  return again;
}

/// The traced function's own arguments: leaves that take gradients.
KeptTensors leaves_of(Tape& tape, GraphCapture& capture, const KeptTensors& arguments) {
  KeptTensors leaves;
  for (const Tensor& argument : arguments) {
    Tensor& leaf = leaves.emplace_back();
    if (!argument.defined()) {
      capture.inputs.push_back(-1);
      continue;
    }
    leaf = tape.detach(argument);
    if (argument.requires_grad()) tape.autograd.require_gradient(leaf);
    capture.add_input(leaf);
  }
  return leaves;
}

/// `made` as results of the graph, whose outputs it appends to.
std::vector<Result> results_of(GraphCapture& capture, const KeptTensors& made, const KeptTensors& arguments,
                               std::vector<std::int32_t>& outputs) {
  std::vector<Result> results;
  for (const Tensor& tensor : made) {
    Result& result = results.emplace_back();
    if (!tensor.defined()) continue;
    const auto same = [&](const Tensor& argument) { return argument.impl() == tensor.impl(); };
    const auto argument = std::find_if(arguments.begin(), arguments.end(), same);
    if (argument != arguments.end()) {
      result.argument = static_cast<std::int32_t>(argument - arguments.begin());
      continue;
    }
    result.shape = tensor.shape();
    result.strides = tensor.strides();
    result.dtype = tensor.dtype();
    result.output = static_cast<std::int32_t>(outputs.size());
    outputs.push_back(capture.value_of(tensor));
  }
  return results;
}

NodeIndex tangent_of(const JointGraph& graph, const Result& result) {
  return result.output < 0 ? kNone : graph.tangent_of_output[static_cast<std::size_t>(result.output)];
}

/// The results of one call. Pre: the graph has run.
KeptTensors tensors_of(const JointGraph& graph, const std::vector<Result>& results, const std::vector<Tensor>& buffers,
                       const KeptTensors& arguments) {
  KeptTensors tensors;
  for (const Result& each : results) {
    Tensor& tensor = tensors.emplace_back();
    if (each.argument >= 0) tensor = arguments[static_cast<std::size_t>(each.argument)];
    if (each.output < 0) continue;
    const Tensor& buffer = buffers[index(graph.storage_of(graph.outputs[static_cast<std::size_t>(each.output)]))];
    if (!buffer.defined()) {
      throw Error(ErrorCode::kUnsupported, "a compiled graph that returns a parameter is not modelled");
    }
    tensor = shaped(buffer, each.shape, each.strides, each.dtype);
  }
  return tensors;
}

/// What the host does around the generated code, for each piece of it.
void record_call(Tape& tape, const Program& program, std::size_t tensors, const CudaGraphs* graphs) {
  for (std::int64_t piece = 0; piece < program.pieces; ++piece) {
    tape.kernels.add(kCompiledCall, OperatorClass::kMovement, DType::kFloat32, 0, 0, KernelKind::kPartOfPrevious,
                     piece == 0 ? static_cast<double>(tensors) : 0);
    if (Kernel* kernel = tape.kernels.last()) kernel->node = graphs != nullptr ? &kReplayedCode : &kCompiledCode;
  }
}

void run_backward(BackwardCall& call) {
  auto& saved = call.node.payload.get<Saved>();
  const Program& program = *saved.program;
  const JointGraph& graph = program.graph;
  Tape& tape = call.tape;
  std::vector<Tensor> buffers = std::move(saved.buffers);
  int output = 0;
  for (const Result& each : program.read) {
    const NodeIndex tangent = tangent_of(graph, each);
    if (tangent != kNone) buffers[index(tangent)] = call.gradient(output++);
  }
  const auto& tangents = graph.tangents;
  std::vector<NodeIndex> without_gradient;
  std::copy_if(tangents.begin(), tangents.end(), std::back_inserter(without_gradient),
               [&](NodeIndex tangent) { return !buffers[index(tangent)].defined(); });
  // backward(ctx, *flat_args): what Python gave lives until it returns, whatever the compiled code lets go.
  const auto given_tensors = [&] {
    std::vector<Tensor> flat_args;
    for (const NodeIndex tangent : tangents) flat_args.push_back(buffers[index(tangent)]);
    return flat_args;
  };
  const std::span<const Launch> launches = program.backward.launches;
  const std::size_t later = program.launches_of_later_pieces;
  Execution execution(tape, program, buffers, saved.graphs);
  if (later > 0) {
    const std::vector<Tensor> flat_args = given_tensors();
    execution.run(launches.first(later), CudaGraphs::Part::kBackward);
  }
  // Results that got no gradient get zeros (autograd.Function materialises them) when backward of their graph begins:
  // where Dynamo breaks the graph, of the first one's, as what backward starts from is the last one's.
  for (const NodeIndex tangent : without_gradient) {
    buffers[index(tangent)] = tape.empty({graph[tangent].bytes}, DType::kUInt8, aten::kZeros);
  }
  std::vector<Tensor> flat_args = given_tensors();
  if (saved.graphs != nullptr && saved.graphs->will_record(CudaGraphs::Part::kBackward)) {
    for (const NodeIndex tangent : tangents) buffers[index(tangent)] = saved.graphs->copy(graph[tangent].bytes);
  }
  execution.drop_what_nothing_reads(program.backward);
  execution.run(launches.subspan(later), CudaGraphs::Part::kBackward);
  record_call(tape, program, program.saved.size() + graph.gradients.size(), saved.graphs);
  tape.kernels.replay(program.backward_kernels);
  std::vector<Tensor> of_arguments;
  for (const DifferentiableArgument& each : saved.arguments) {
    const NodeIndex gradient = graph.input_gradients[each.place];
    of_arguments.push_back(gradient == kNone ? Tensor() : buffers[index(graph.storage_of(gradient))]);
  }
  std::vector<Tensor> gradients;
  for (const auto& [parameter, gradient] : graph.gradients) {
    gradients.push_back(buffers[index(graph.storage_of(gradient))]);
  }
  buffers.clear();
  flat_args.clear();
  int edge = 0;
  for (std::size_t i = 0; i < of_arguments.size(); ++i, ++edge) {
    if (!of_arguments[i].defined()) continue;
    const DifferentiableArgument& like = saved.arguments[i];
    call.set(edge, shaped(of_arguments[i], like.shape, like.strides, like.dtype));
    of_arguments[i].reset();
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    TensorImpl& parameter = *saved.parameters[i];
    // Equal gradients are one buffer (two biases that are added): accumulate_grad.h steals only what nobody else holds.
    const auto shares = [&](const Tensor& other) { return other.defined() && other.impl() == gradients[i].impl(); };
    if (std::any_of(gradients.begin() + static_cast<std::ptrdiff_t>(i) + 1, gradients.end(), shares)) {
      gradients[i] = tape.empty({gradients[i].bytes()}, DType::kUInt8, aten::kClone);
    }
    if (i == 0) {  // autograd hands this one on
      Tensor given = shaped_like(parameter, gradients[i]);
      gradients[i].reset();
      call.set(edge, std::move(given));
      continue;
    }
    accumulate(parameter, std::move(gradients[i]));
  }
}

}  // namespace

Program trace(Tape& tape, Autocast autocast, const KeptTensors& arguments, const Function& function) {
  Program program;
  GraphCapture capture;
  const SeparateKernels separate(tape.kernels);
  const Phase phase = std::exchange(tape.moment.phase, Phase::kForward);
  capture.float8 = tape.modes.float8;
  capture.tf32 = tape.kernels.products_in_tf32;
  {
    // A compiled call runs outside of autocast (runtime_wrappers.py, _DisableAutocast): weights are cast in the graph,
    // once, as equal casts are one, and what eager layers have cast before stays theirs.
    const Capturing capturing(tape, capture);
    KeptTensors leaves = leaves_of(tape, capture, arguments);
    FunctionResults results = function(leaves);
    tape.modes.autocast.clear_cache();
    program.forward_kernels = tape.kernels.take();
    std::vector<std::int32_t> outputs;
    program.read = results_of(capture, results.read, leaves, outputs);
    program.kept = results_of(capture, results.kept, leaves, outputs);
    (void)results_of(capture, results.dropped, leaves, outputs);
    // Eager's backward, for the products that it runs and the scratch memory of its kernels, from the first result that
    // the function has made: one may be an argument.
    const auto first = std::find_if(results.read.begin(), results.read.end(), [](const Tensor& each) {
      return each.defined() && each.requires_grad() && each.impl()->grad_fn != kNoNode;
    });
    tape.moment.phase = Phase::kBackward;
    std::vector<TensorImpl*> without_gradient;
    for (const CapturedValue& value : capture.values) {
      if (value.parameter != nullptr && !value.parameter->grad.defined()) without_gradient.push_back(value.parameter);
    }
    if (first != results.read.end()) {
      tape.autograd.backward(*first, tape.empty(first->shape(), first->dtype(), aten::kOnesLike));
    }
    for (TensorImpl* parameter : without_gradient) parameter->grad.reset();
    program.backward_kernels = recomputed_kernels(capture, program.forward_kernels);
    const KernelList of_backward = tape.kernels.take();
    program.backward_kernels.insert(program.backward_kernels.end(), of_backward.begin(), of_backward.end());
    if (autocast == Autocast::kInside && capture.breaks.empty()) capture.autocast.reset();
    program.graph = build_joint_graph(capture, outputs);
    program.pieces = 1 + static_cast<std::int64_t>(capture.breaks.size());
  }
  for (const CapturedValue& value : capture.values) {
    if (value.parameter != nullptr) value.parameter->graph_value = -1;
  }
  tape.moment.phase = phase;
  return program;
}

void cut(Program& program, const DeviceSpec& device) {
  // Of a card that nobody counted them of: a Hopper's.
  constexpr std::int64_t kUsual = 132;
  const std::int64_t multiprocessors = device.multiprocessors > 0 ? device.multiprocessors : kUsual;
  const JointGraph& graph = program.graph;
  program.saved = partition(graph);
  std::vector<NodeIndex> results = graph.outputs;
  results.insert(results.end(), program.saved.begin(), program.saved.end());
  program.forward = make_schedule(graph, results, {}, false);
  program.forward_kernels =
      fused_kernels(graph, program.forward, {}, results, program.forward_kernels, multiprocessors);
  if (program.pieces == 1) {
    const std::vector<std::int32_t> kernels = kernels_of_launches(graph, program.forward, {}, results, multiprocessors);
    program.forward = reordered({graph, results, {}, false}, std::move(program.forward), kernels, 0);
  }
  std::vector<NodeIndex> gradients;
  for (const NodeIndex gradient : graph.input_gradients) {
    if (gradient != kNone) gradients.push_back(gradient);
  }
  for (const auto& [parameter, gradient] : graph.gradients) gradients.push_back(gradient);
  gradients.insert(gradients.end(), graph.handed_over.begin(), graph.handed_over.end());
  std::vector<NodeIndex> given = program.saved;
  given.insert(given.end(), graph.tangents.begin(), graph.tangents.end());
  const std::optional<JointGraph> rewritten = with_added_products(graph);
  const JointGraph& of_backward = rewritten ? *rewritten : graph;
  program.backward = make_schedule(of_backward, gradients, given, true);
  const std::vector<Launch>& launches = program.backward.launches;
  for (const NodeIndex each : graph.handed_over) {
    const auto makes = [&](const Launch& launch) { return launch.node == graph.storage_of(each); };
    const auto at = std::find_if(launches.begin(), launches.end(), makes);
    if (at == launches.end()) continue;
    const auto end = static_cast<std::size_t>(at - launches.begin()) + 1;
    program.launches_of_later_pieces = std::max(program.launches_of_later_pieces, end);
  }
  program.backward_kernels =
      fused_kernels(of_backward, program.backward, given, gradients, program.backward_kernels, multiprocessors);
  const std::vector<std::int32_t> kernels =
      kernels_of_launches(of_backward, program.backward, given, gradients, multiprocessors);
  program.backward = reordered({of_backward, gradients, given, true}, std::move(program.backward), kernels,
                               program.launches_of_later_pieces);
}

bool is_same_code(const Program& a, const Program& b) {
  const auto same_node = [](const GraphNode& x, const GraphNode& y) {
    return x.kind == y.kind && x.op == y.op && x.bytes == y.bytes && x.dtype == y.dtype && x.inputs == y.inputs &&
           x.recompute == y.recompute && x.scratch == y.scratch;
  };
  if (a.graph.size() != b.graph.size() || a.graph.gradients.size() != b.graph.gradients.size()) return false;
  for (NodeIndex i = 0; i < a.graph.size(); ++i) {
    if (!same_node(a.graph[i], b.graph[i])) return false;
  }
  for (std::size_t i = 0; i < a.graph.gradients.size(); ++i) {
    if (a.graph.gradients[i].second != b.graph.gradients[i].second) return false;
  }
  const auto same_argument = [](const Result& x, const Result& y) { return x.argument == y.argument; };
  return a.graph.outputs == b.graph.outputs && a.graph.inputs == b.graph.inputs &&
         a.graph.input_gradients == b.graph.input_gradients &&
         std::equal(a.read.begin(), a.read.end(), b.read.begin(), b.read.end(), same_argument);
}

std::vector<TensorImpl*> trained_parameters(const Program& program) {
  std::vector<TensorImpl*> parameters;
  for (const auto& [parameter, gradient] : program.graph.gradients) parameters.push_back(parameter);
  return parameters;
}

RegionResults call(Tape& tape, const Program& program, std::span<TensorImpl* const> parameters,
                   const KeptTensors& arguments, CudaGraphs* graphs) {
  const JointGraph& graph = program.graph;
  std::vector<Tensor> buffers(index(graph.size()));
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.inputs[i] != kNone) buffers[index(graph.inputs[i])] = tape.detach(arguments[i]);
  }
  Execution execution(tape, program, buffers, graphs);
  execution.drop_what_nothing_reads(program.forward);
  execution.run(program.forward.launches, CudaGraphs::Part::kForward);
  record_call(tape, program, parameters.size() + arguments.size() + program.saved.size(), graphs);
  tape.kernels.replay(program.forward_kernels);
  // What is not saved dies as Python drops what the function returned, all but these.
  RegionResults results{tensors_of(graph, program.read, buffers, arguments),
                        tensors_of(graph, program.kept, buffers, arguments)};
  Saved saved;
  saved.program = &program;
  saved.graphs = graphs;
  saved.parameters = parameters;
  saved.buffers.resize(buffers.size());
  for (const NodeIndex each : program.saved) {
    const std::size_t storage = index(graph.storage_of(each));
    saved.buffers[storage] = buffers[storage];
    if (buffers[storage].defined()) tape.memory.mark_saved(buffers[storage].block());
  }
  buffers.clear();
  if (graph.tangents.empty()) return results;  // every parameter is frozen, and no argument has a gradient
  std::vector<Tensor> edges;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].defined() || !arguments[i].requires_grad()) continue;
    saved.arguments.push_back({i, arguments[i].shape(), arguments[i].strides(), arguments[i].dtype()});
    edges.push_back(arguments[i]);
  }
  if (!parameters.empty()) {
    ++parameters.front()->references;
    edges.emplace_back(parameters.front());
  }
  if (edges.size() > static_cast<std::size_t>(kMaxEdges)) {
    throw refusal(rules::kCompiledArguments, {std::to_string(kMaxEdges)});
  }
  const Tensor* inputs[kMaxEdges] = {};
  for (std::size_t i = 0; i < edges.size(); ++i) inputs[i] = &edges[i];
  Node* node = tape.autograd.record(kCompiledFunction, run_backward, inputs, static_cast<int>(edges.size()));
  if (node == nullptr) {  // seen of nnU-Net's layers, and not looked into
    throw Error(
        ErrorCode::kUnsupported,
        "torch.compile of layers that nothing with a gradient enters is not modelled; accepted: --compile-parts "
        "model, or no --compile");
  }
  node->payload.set(std::move(saved));
  for (std::size_t i = 0; i < results.read.size(); ++i) {
    if (tangent_of(graph, program.read[i]) != kNone) tape.autograd.set_history(node, results.read[i]);
  }
  return results;
}

}  // namespace memcalc::compile
