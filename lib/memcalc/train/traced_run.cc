#include "memcalc/train/traced_run.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/models/module.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/symbolic/ops/conv_workspace.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/train/clip_grad.h"
#include "memcalc/train/grad_scaler.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/optimizer.h"
#include "memcalc/train/repeat.h"

namespace memcalc {
namespace {

constexpr Operator kBuffer{"buffer"}, kInput{"input"};
constexpr Operator kConvolution{"aten::cudnn_convolution"}, kConvolutionBackward{"aten::convolution_backward"};

/// Operators are told apart by their address, and reports name them after the run: each name gets one for good.
const Operator& operator_named(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, Operator> known;
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = known.try_emplace(name);
  if (is_new) place->second.name = place->first.c_str();
  return place->second;
}

Shape shape_of(const TracedParameter& parameter) {
  Shape shape;
  if (parameter.shape.size() > static_cast<std::size_t>(kMaxDims)) {
    throw refusal(rules::kTracedDimensions, {parameter.name, std::to_string(kMaxDims)});
  }
  for (const std::int64_t size : parameter.shape) shape.dims[static_cast<std::size_t>(shape.rank++)] = size;
  return shape;
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  std::int64_t stride = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    strides[i] = stride;
    stride = checked_multiply(stride, shape[i]);
  }
  return strides;
}

// A convolution whose tensors are no larger than any that was ever trained: the workspaces' formulas multiply their
// sizes.
bool is_sound(const TracedConvolution& call) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 40U, kMostOfASize = std::int64_t{1} << 24U;
  for (const auto* sizes : {&call.input, &call.weight, &call.output}) {
    std::int64_t elements = 1;
    for (const std::int64_t size : *sizes) {
      if (size < 1 || size > kMostOfASize) return false;
      if (__builtin_mul_overflow(elements, size, &elements) || elements > kMostElements) return false;
    }
  }
  const auto within = [](std::int64_t value, std::int64_t least) { return value >= least && value <= kMostOfASize; };
  return within(call.stride, 1) && within(call.padding, 0) && within(call.groups, 1);
}

bool is_sound(const TracedParameter& parameter) {
  return std::all_of(parameter.shape.begin(), parameter.shape.end(), [](std::int64_t size) { return size >= 0; });
}

bool are_sizes(const std::vector<Bytes>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](Bytes size) { return size >= 0; });
}

void check(const TracedStep& traced) {
  const bool has_sizes = traced.batch_size >= 1 && are_sizes(traced.buffers) && are_sizes(traced.inputs) &&
                         std::all_of(traced.parameters.begin(), traced.parameters.end(),
                                     [](const auto& each) { return is_sound(each); }) &&
                         std::all_of(traced.convolutions.begin(), traced.convolutions.end(),
                                     [](const auto& each) { return is_sound(each); });
  if (!has_sizes) throw Error(ErrorCode::kInput, traced.name + ": a trace with a size that no tensor has");
  const auto within = [](std::int32_t index, std::size_t size) {
    return index >= 0 && static_cast<std::size_t>(index) < size;
  };
  bool sound = within(traced.loss, traced.block_count);
  for (const auto* pass : {&traced.forward, &traced.backward}) {
    for (const TracedEvent& event : *pass) {
      const bool computes = event.kind == TracedEventKind::kCompute;
      const std::size_t places =
          event.kind == TracedEventKind::kWorkspace ? traced.convolutions.size() : traced.block_count;
      sound = sound && (computes || within(event.block, places));
      if (computes || event.kind == TracedEventKind::kAllocate) {
        sound = sound && within(event.operator_index, traced.operators.size()) && event.bytes >= 0 && event.flops >= 0;
      }
      if (event.kind == TracedEventKind::kGradient) sound = sound && within(event.parameter, traced.parameters.size());
    }
  }
  if (!sound) throw Error(ErrorCode::kInput, traced.name + ": a trace that refers to what it does not have");
}

/// The module and its recorded passes on a tape.
class TracedModule {
 public:
  TracedModule(Tape& tape, const TracedStep& traced)
      : tape_(tape), traced_(traced), blocks_(traced.block_count), gradient_of_(traced.block_count, -1) {
    for (const std::string& name : traced.operators) operators_.push_back(&operator_named(name));
    for (const TracedParameter& each : traced.parameters) {
      parameters.push_back({each.name, tape.parameter(shape_of(each), each.dtype, each.trainable)});
    }
    for (const Bytes bytes : traced.buffers) {
      state_.push_back(tape.empty({bytes}, DType::kUInt8, kBuffer, Category::kWeights));
    }
    for (const TracedEvent& event : traced.backward) {
      if (event.kind == TracedEventKind::kGradient) gradient_of_[index(event.block)] = event.parameter;
    }
  }

  void take_batch() {
    for (const Bytes bytes : traced_.inputs) {
      state_.push_back(tape_.empty({bytes}, DType::kUInt8, kInput, Category::kInputs));
    }
  }

  [[nodiscard]] Tensor forward() {
    replay(traced_.forward);
    Tensor loss = std::exchange(blocks_[index(traced_.loss)], Tensor());
    if (!loss.defined()) throw Error(ErrorCode::kInput, traced_.name + ": a trace whose forward pass leaves no loss");
    return loss;
  }

  void backward() { replay(traced_.backward); }

  std::vector<Parameter> parameters;

 private:
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

  void replay(const std::vector<TracedEvent>& events) {
    for (const TracedEvent& event : events) {
      switch (event.kind) {
        case TracedEventKind::kAllocate: blocks_[index(event.block)] = allocated(event); break;
        case TracedEventKind::kFree: blocks_[index(event.block)].reset(); break;
        case TracedEventKind::kCompute: compute(event); break;
        case TracedEventKind::kGradient: accumulate(event); break;
        case TracedEventKind::kWorkspace: convolve(traced_.convolutions[index(event.block)]); break;
      }
    }
  }

  Tensor allocated(const TracedEvent& event) {
    const Operator& op = *operators_[index(event.operator_index)];
    if (event.block == traced_.loss) return tape_.empty({}, traced_.loss_dtype, op);
    if (const std::int32_t parameter = gradient_of_[index(event.block)]; parameter >= 0) {
      const Tensor& weight = parameters[index(parameter)].tensor;
      if (weight.bytes() == event.bytes) return tape_.empty(weight.shape(), weight.dtype(), op, Category::kGradients);
    }
    return tape_.empty({event.bytes}, DType::kUInt8, op, event.category);
  }

  void compute(const TracedEvent& event) {
    const Operator& op = *operators_[index(event.operator_index)];
    if (event.cublas != TracedCublas::kNone) tape_.memory.use_cublas(event.cublas == TracedCublas::kWithLt);
    tape_.kernels.add(op, event.is_contraction ? OperatorClass::kContraction : OperatorClass::kElementwise, event.dtype,
                      event.flops, static_cast<double>(event.bytes));
  }

  /// As ops/conv.cc: cuDNN's workspace lives while the result is computed.
  void convolve(const TracedConvolution& call) {
    const ConvolutionShape shape{.batch = call.input[0],
                                 .in_channels = call.input[1],
                                 .height = call.input[2],
                                 .width = call.input[3],
                                 .out_channels = call.output[1],
                                 .out_height = call.output[2],
                                 .out_width = call.output[3],
                                 .groups = call.groups,
                                 .kernel_height = call.weight[2],
                                 .kernel_width = call.weight[3],
                                 .stride = call.stride,
                                 .padding = call.padding,
                                 .channels_last = call.channels_last};
    if (uses_depthwise_kernel(shape, call.dtype)) return;
    const auto pass = static_cast<ConvolutionPass>(call.pass);
    tape_.memory.scratch(convolution_workspace(shape, pass, call.dtype, tape_.kernels.allow_tf32),
                         pass == ConvolutionPass::kForward ? kConvolution : kConvolutionBackward,
                         Category::kWorkspaces);
  }

  /// AccumulateGrad: the first gradient is taken over, a later one added to it.
  void accumulate(const TracedEvent& event) {
    const Tensor& weight = parameters[index(event.parameter)].tensor;
    Tensor& gradient = weight.impl()->grad;
    Tensor& block = blocks_[index(event.block)];
    if (!gradient.defined() && block.defined()) {
      const bool is_whole = block.shape() == weight.shape() && block.dtype() == weight.dtype();
      // Else it lies within a larger block, as the parts of a product that is split do.
      gradient = is_whole ? block : tape_.alias(block, weight.shape(), contiguous_strides(weight.shape()), true);
    }
    block.reset();
  }

  Tape& tape_;
  const TracedStep& traced_;
  std::vector<const Operator*> operators_;
  std::vector<Tensor> state_;   // buffers, then the batch
  std::vector<Tensor> blocks_;  // by number, while they live
  std::vector<std::int32_t> gradient_of_;
};

/// As loop_bare.cc: optimizer.zero_grad(); loss = module(…); loss.backward(); (clip); optimizer.step().
void run_loop(Tape& tape, TracedModule& module, const RunSpec& run) {
  module.take_batch();
  tape.memory.empty_cache();
  ParameterGroup all;
  for (const Parameter& parameter : module.parameters) {
    if (parameter.tensor.requires_grad()) all.push_back(&parameter);
  }
  OptimizerSteps optimizer(tape, run, {std::move(all)});
  GradScaler scaler(tape, run.precision == Precision::kAmpFp16, 0);
  tape.kernels.recording = true;
  tape.moment.step = 0;
  CarriedVariables carried;
  const auto variables = [&](auto visit) {
    for (const Parameter& parameter : module.parameters) {
      if (parameter.tensor.requires_grad()) visit(parameter.tensor.impl()->grad);
    }
    optimizer.visit_carried(visit);
  };
  carried.place(tape, variables);
  const std::size_t first_event = tape.memory.trace.events.size();
  const std::size_t first_block = tape.memory.trace.blocks.size();
  tape.moment.phase = Phase::kZero;
  optimizer.zero_grad();
  for (const ExecutedMicroBatch& micro_batch : executed_micro_batches(run.training().accumulation_steps)) {
    tape.kernels.repeats = micro_batch.stands_for;
    tape.moment.phase = Phase::kForward;
    Tensor loss = module.forward();
    tape.moment.phase = Phase::kBackward;
    {
      Tensor averaged = run.training().accumulation_steps > 1 ? divide_scalar(loss) : loss;
      const Tensor scaled = scaler.scale(averaged);
      averaged.reset();
      module.backward();
    }
    tape.moment.phase = Phase::kDelete;
    loss.reset();
  }
  tape.kernels.repeats = 1;
  tape.moment.phase = Phase::kOptimizer;
  if (run.training().max_grad_norm) {
    scaler.unscale(optimizer);
    clip_grad_norm(tape, module.parameters);
  }
  scaler.step(optimizer);
  scaler.update();
  carried.collect(variables);
  repeat_step(tape, first_event, first_block, carried, kSteps - 1);
  tape.memory.stop();
}

}  // namespace

ResolvedRun resolve(const TracedStep& traced, const RunOptions& options) {
  ResolvedRun resolved;
  RunSpec& run = resolved.run;
  if (options.precision && *options.precision != traced.precision) {
    throw refusal(rules::kTracedPrecision, {name_of(traced.precision), name_of(*options.precision)});
  }
  if (options.batch_size && *options.batch_size != traced.batch_size) {
    throw refusal(rules::kTracedBatch, {std::to_string(traced.batch_size), std::to_string(*options.batch_size)});
  }
  if (options.loop == Loop::kTrainer) {
    throw refusal(rules::kTracedLoop);
  }
  run.task = Task::kCustom;
  run.batch_size = traced.batch_size;
  run.sequence_length = 1;  // one sample, whatever it is
  run.precision = traced.precision;
  Training& training = run.training();
  training.loop = Loop::kBare;
  training.optimizer = options.optimizer.value_or(Optimizer::kAdamWForeach);
  if (!options.optimizer) resolved.assumptions.emplace_back("optimizer: foreach AdamW, torch's default (--optimizer)");
  training.accumulation_steps = options.accumulation_steps.value_or(1);
  if (options.max_grad_norm.value_or(0) > 0) training.max_grad_norm = options.max_grad_norm;
  run.expandable_segments = options.expandable_segments;
  return resolved;
}

SymbolicRun run_symbolically(const TracedStep& traced, const RunSpec& run, const DeviceSpec& device) {
  check(traced);
  Tape tape(device);
  tape.kernels.allow_tf32 = run.precision == Precision::kTf32;
  SymbolicRun result;
  {
    TracedModule module(tape, traced);
    run_loop(tape, module, run);
    for (const Parameter& parameter : module.parameters) {
      result.parameters.push_back({parameter.name, parameter.tensor.elements(), parameter.tensor.dtype(),
                                   parameter.tensor.requires_grad(), parameter.tensor.shape(), false});
    }
    result.batch_tensors = traced.inputs;
    result.trace = std::move(tape.memory.trace);
    result.kernels = tape.kernels.take();
    result.managed_bytes = tape.memory.managed_bytes;
    tape.memory.stop();
  }
  result.assumptions.emplace_back("operators and lifetimes are those that PyTorch showed for this module");
  result.not_modelled = {
      "temporaries inside the operators of a traced module; cuDNN's workspaces where they are not of "
      "2-D convolutions",
      "which attention kernel the card takes: the memory-efficient one is assumed"};
  return result;
}

}  // namespace memcalc
