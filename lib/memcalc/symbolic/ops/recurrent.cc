#include "memcalc/symbolic/ops/recurrent.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/recurrent_space.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// cudnn/RNN.cpp, get_dropout_state: once in a process, for good; its seed is drawn on the card. The size is what
/// cudnnDropoutGetStatesSize gives: 48 bytes (curandStateXORWOW_t) for each of 1,024 threads of a multiprocessor.
void make_dropout_state(Tape& tape) {
  if (std::exchange(tape.modes.has_dropout_state, true)) return;
  constexpr Bytes kStateOfThread = 48, kThreads = 1024;
  tape.memory.scratch(size_of(DType::kInt64), aten::kCudnnInitDropoutState);
  (void)tape.memory.allocate(kStateOfThread * kThreads * tape.device.multiprocessors, aten::kCudnnInitDropoutState,
                             Category::kWorkspaces);
}

/// What the node knows of its call.
struct Recorded {
  RecurrentOptions options;
  std::vector<Shape> weights;
  std::int64_t flat = 0;  // elements of all weights
  std::int64_t hidden = 0, projected = 0;
  bool has_cell = false;
  std::shared_ptr<std::vector<Tensor>> gradients;  // of each weight, where they are copied from that of all
};

/// Elements of cuDNN's one storage of all weights, biases among them though the network has none.
template <typename Weights>
std::int64_t stored_elements(RecurrentCell cell, const Weights& weights) {
  std::int64_t elements = 0, of_biases = 0;
  bool has_biases = false;
  // The third matrix of a layer projects: what the second one takes is as wide as what it gives. Other cells have none.
  const bool projects = cell == RecurrentCell::kLstm && weights.size() > 2 && weights[2].rank() == 2 &&
                        weights[2].size(0) == weights[1].size(1);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    elements += weights[i].elements();
    has_biases |= weights[i].rank() == 1;
    if (!projects || i % 3 != 2) of_biases += weights[i].size(0);
  }
  return has_biases ? elements : elements + of_biases;
}

/// The products of each layer and direction: the input's by its weights is one, of all steps. The hidden state's waits
/// for the step before (cuDNN's kernels of own-lstm: 128 products and as many cells a layer, forward and backward), and
/// with it what projects the state.
void count_steps(Tape& tape, const Operator& op, const Tensor& x, std::span<const Shape> weights, bool projects) {
  const std::int64_t steps = x.size(0), batch = x.size(1);
  int matrix = 0;
  for (const Shape& weight : weights) {
    if (weight.rank != 2) continue;
    const int place = matrix++ % (projects ? 3 : 2);  // the input's, the hidden state's, what projects it
    if (place == 0) {
      tape.kernels.product(op, x.dtype(), 1, steps * batch, weight[0], weight[1]);
      continue;
    }
    const std::int64_t gates = batch * weight[0];
    for (std::int64_t step = 0; step < steps; ++step) {
      tape.kernels.product(op, x.dtype(), 1, batch, weight[0], weight[1]);
      if (place == 2) continue;
      tape.kernels.add(op, OperatorClass::kElementwise, x.dtype(), 0,
                       static_cast<double>(2 * gates * size_of(x.dtype())), KernelKind::kVectorized,
                       static_cast<double>(gates));
    }
  }
}

/// The gradients of weights: a product each, of all steps.
void count_weight_gradients(Tape& tape, const Tensor& x, std::span<const Shape> weights) {
  const std::int64_t rows = x.elements() / x.size(-1);
  for (const Shape& weight : weights) {
    if (weight.rank == 2) tape.kernels.product(aten::kCudnnRnnBackward, x.dtype(), 1, rows, weight[0], weight[1]);
  }
}

// --- the weights' gradients ---------------------------------------------------------------------------------------

constexpr std::size_t kEdges = kMaxEdges;

/// The gradient of all weights is one storage, each weight's a tensor on it. A node has few edges, so that weights hang
/// below it by groups.
struct Part {
  std::shared_ptr<std::vector<Tensor>> gradients;  // Recorded::gradients; none: views of one
  std::size_t place = 0;                           // there, of the first
  std::vector<Shape> weights;
  std::vector<std::int64_t> sizes;  // of each edge: how many weights
};

Tensor flat_view(const Tensor& gradient, const Shape& shape) {
  return gradient.tape().alias(gradient, shape, contiguous_strides(shape), false);
}

void hand_out(BackwardCall& call) {
  const auto& part = call.payload<Part>();
  std::size_t first = 0;
  for (std::size_t i = 0; i < part.sizes.size(); ++i) {
    const auto count = static_cast<std::size_t>(part.sizes[i]);
    std::int64_t elements = 0;
    for (std::size_t j = first; j < first + count; ++j) elements += part.weights[j].elements();
    const Shape shape = count == 1 ? part.weights[first] : Shape{elements};
    Tensor gradient = count == 1 && part.gradients ? std::move((*part.gradients)[part.place + first])
                                                   : flat_view(call.gradient(), shape);
    call.set(static_cast<int>(i), std::move(gradient));
    first += count;
  }
}

/// One tensor that stands for all weights in the graph, on the storage of the first. `gradients`, `place`: as in Part.
Tensor joined(std::span<const Tensor> weights, const std::shared_ptr<std::vector<Tensor>>& gradients,
              std::size_t place = 0) {
  if (weights.size() == 1) return weights.front();
  const std::size_t count = std::min(weights.size(), kEdges);
  Part part;
  part.gradients = gradients;
  part.place = place;
  std::vector<Tensor> groups(count);
  std::array<std::size_t, kEdges + 1> bounds{};
  for (std::size_t i = 0; i <= count; ++i) bounds[i] = i * weights.size() / count;
  for (std::size_t i = count; i-- > 0;) {  // the engine runs the node that was recorded last: the first group's
    groups[i] = joined(weights.subspan(bounds[i], bounds[i + 1] - bounds[i]), gradients, place + bounds[i]);
  }
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < count; ++i) part.sizes.push_back(static_cast<std::int64_t>(bounds[i + 1] - bounds[i]));
  for (const Tensor& weight : weights) {
    part.weights.push_back(weight.shape());
    elements += weight.elements();
  }
  std::array<const Tensor*, kEdges> inputs{};
  for (std::size_t i = 0; i < count; ++i) inputs[i] = &groups[i];
  Tape& tape = weights.front().tape();
  Node* node = tape.autograd.record(aten::kCudnnRnn, hand_out, inputs.data(), static_cast<int>(count));
  Tensor all = tape.alias(weights.front(), {elements}, {1}, false);
  if (node != nullptr) node->payload.set(std::move(part));
  tape.autograd.set_history(node, all);
  return all;
}

/// cudnn/AutocastRNN.cpp: the weights are copied to one 16-bit storage, each with its own node.
std::vector<Tensor> flattened(RecurrentCell cell, std::span<const Tensor> weights, DType dtype, Tensor& storage) {
  Tape& tape = weights.front().tape();
  storage = tape.empty({stored_elements(cell, weights)}, dtype, aten::kZeros);
  tape.kernels.add(aten::kZeros, OperatorClass::kMovement, dtype, 0, static_cast<double>(storage.bytes()));
  std::vector<Tensor> copies;
  for (const Tensor& weight : weights) {
    const Tensor* inputs[] = {&weight};
    Node* node = tape.autograd.record(
        aten::kCopy,
        [](BackwardCall& call) { call.set(0, to_dtype(call.gradient(), call.payload<InputDType>().dtype)); }, inputs,
        1);
    if (node != nullptr) node->payload.set(InputDType{weight.dtype()});
    Tensor copy = tape.alias(storage, weight.shape(), contiguous_strides(weight.shape()), false);
    tape.kernels.add(aten::kCopy, OperatorClass::kMovement, dtype, 0,
                     static_cast<double>(weight.bytes() + copy.bytes()), KernelKind::kVectorized,
                     static_cast<double>(weight.elements()));
    tape.autograd.set_history(node, copy);
    copies.push_back(std::move(copy));
  }
  return copies;
}

/// `x` has its steps first.
RecurrentShape recurrent_shape(const Tensor& x, std::int64_t hidden, std::int64_t projected,
                               const RecurrentOptions& options) {
  return {.cell = options.cell,
          .dtype = x.dtype(),
          .steps = x.size(0),
          .batch = x.size(1),
          .inputs = x.size(2),
          .hidden = hidden,
          .layers = options.layers,
          .bidirectional = options.bidirectional,
          .dropout = options.dropout > 0,
          .projected = projected};
}

Tensor without_batch_first(const Tensor& x, bool batch_first) {
  if (!batch_first) return x;
  Shape shape = x.shape(), strides = x.strides();
  std::swap(shape[0], shape[1]);
  std::swap(strides[0], strides[1]);
  return x.tape().alias(x, shape, strides, true);
}

/// cudnn/RNN.cpp, _cudnn_rnn_backward_input, then _cudnn_rnn_backward_weight. What did not arrive is zeros.
/// inputs: x, the weights together; saved, as they are released (by name, then the results): cell state, hidden state,
/// x, output, reserve, weights.
void recurrent_backward(BackwardCall& call) {
  const auto& recorded = call.payload<Recorded>();
  const RecurrentOptions& options = recorded.options;
  Tape& tape = call.tape;
  const int first = recorded.has_cell ? 1 : 0;
  const Tensor& hidden = call.saved(first);
  const Tensor& input = call.saved(first + 1);
  const auto or_zeros = [&](int output, const Tensor& like) {
    if (call.gradient(output).defined()) return call.gradient(output);
    return tape.empty(like.shape(), like.dtype(), aten::kZeros);
  };
  const Tensor grad_output = or_zeros(0, call.saved(first + 2));
  const Tensor grad_hidden = or_zeros(1, hidden);
  Tensor grad_cell;
  if (recorded.has_cell) grad_cell = or_zeros(2, call.saved(0));
  Tensor dx;
  const Tensor by_step = without_batch_first(input, options.batch_first);
  const Bytes workspace = recurrent_workspace(recurrent_shape(by_step, recorded.hidden, recorded.projected, options),
                                              RecurrentPass::kBackward);
  Tensor dhx, dcx;
  {
    const Tensor x = contiguous(by_step);
    const Tensor dy = contiguous(without_batch_first(grad_output, options.batch_first));
    dx = tape.empty(by_step.shape(), by_step.dtype(), aten::kCudnnRnnBackward);
    const Tensor dhy = contiguous(grad_hidden);
    dhx = tape.empty(hidden.shape(), hidden.dtype(), aten::kCudnnRnnBackward);
    if (recorded.has_cell) dcx = tape.empty(call.saved(0).shape(), hidden.dtype(), aten::kCudnnRnnBackward);
    tape.memory.scratch(workspace, aten::kCudnnRnnBackward, Category::kWorkspaces);
    count_steps(tape, aten::kCudnnRnnBackward, x, recorded.weights, recorded.projected > 0);
  }
  if (options.batch_first) dx = without_batch_first(dx, true);
  if (call.needs(1)) {
    const Tensor x = contiguous(by_step);
    Tensor dw = tape.empty({recorded.flat}, input.dtype(), aten::kZeros);
    Tensor space = tape.empty({workspace}, DType::kUInt8, aten::kCudnnRnnBackward, Category::kWorkspaces);
    count_weight_gradients(tape, x, recorded.weights);
    if (recorded.gradients) {  // RNN.cpp, _copyParams: biases that are none lie between those of the weights
      recorded.gradients->clear();
      for (const Shape& weight : recorded.weights)
        recorded.gradients->push_back(tape.empty(weight, input.dtype(), aten::kCopy));
      dw = tape.alias(recorded.gradients->front(), {recorded.flat}, {1}, false);
    }
    space.reset();
    call.set(1, std::move(dw));
  }
  call.set(0, std::move(dx));
}

}  // namespace

void flatten_parameters(Tape& tape, RecurrentCell cell, std::vector<Tensor>& weights) {
  if (weights.empty() || weights.front().dtype() == DType::kBFloat16) return weights.clear();
  const Tensor storage =
      tape.empty({stored_elements(cell, weights)}, weights.front().dtype(), aten::kZeros, Category::kWeights);
  for (const Tensor& weight : weights) {
    Tensor part = tape.alias(storage, weight.shape(), contiguous_strides(weight.shape()), false);
    tape.replace_parameter(weight, part);
  }
  weights.clear();
}

std::vector<Tensor> recurrent(const Tensor& x, std::span<const Tensor> states, std::span<const Tensor> weights,
                              const RecurrentOptions& options) {
  Tape& tape = x.tape();
  if (options.dropout > 0 && tape.modes.training) make_dropout_state(tape);
  const bool casts = tape.modes.autocast.is_on() && is_floating(x.dtype());
  const auto cast = [&](const Tensor& tensor) { return casts ? to_dtype(tensor, DType::kFloat16) : tensor; };
  Tensor storage;
  std::vector<Tensor> used(weights.begin(), weights.end());
  if (casts && weights.front().dtype() != DType::kFloat16)
    used = flattened(options.cell, weights, DType::kFloat16, storage);
  Tensor cell;
  if (states.size() > 1) cell = cast(states[1]);
  const Tensor hidden = cast(states[0]);
  const Tensor input = cast(x);
  Recorded recorded;
  if (!options.has_biases) recorded.gradients = std::make_shared<std::vector<Tensor>>();
  const Tensor all = joined(used, recorded.gradients);
  recorded.options = options;
  recorded.hidden = cell.defined() ? cell.size(-1) : hidden.size(-1);
  recorded.projected = hidden.size(-1) == recorded.hidden ? 0 : hidden.size(-1);
  recorded.has_cell = cell.defined();
  recorded.flat = stored_elements(options.cell, used);
  for (const Tensor& weight : used) recorded.weights.push_back(weight.shape());
  const Tensor* inputs[] = {&input, &all};
  Node* node = tape.autograd.record(aten::kCudnnRnn, recurrent_backward, inputs, 2);
  const Tensor by_step = without_batch_first(input, options.batch_first);
  Tensor output, last_hidden, last_cell, reserve;
  {
    Tensor row_major;
    {
      const NoGrad no_grad(tape.modes);
      row_major = contiguous(by_step);
    }
    const std::int64_t width = hidden.size(-1) * (options.bidirectional ? 2 : 1);
    output = tape.empty({by_step.size(0), by_step.size(1), width}, input.dtype(), aten::kCudnnRnn);
    last_hidden = tape.empty(hidden.shape(), hidden.dtype(), aten::kCudnnRnn);
    if (cell.defined()) last_cell = tape.empty(cell.shape(), cell.dtype(), aten::kCudnnRnn);
    const RecurrentShape shape = recurrent_shape(by_step, recorded.hidden, recorded.projected, options);
    if (!casts && input.dtype() == DType::kBFloat16)  // the weights lie apart (flatten_parameters)
      storage = tape.empty({recorded.flat}, input.dtype(), aten::kZeros);
    const Tensor workspace = tape.empty(
        {recurrent_workspace(shape, tape.modes.training ? RecurrentPass::kForward : RecurrentPass::kInference)},
        DType::kUInt8, aten::kCudnnRnn, Category::kWorkspaces);
    if (tape.modes.training) reserve = tape.empty({recurrent_reserve(shape)}, DType::kUInt8, aten::kCudnnRnn);
    count_steps(tape, aten::kCudnnRnn, row_major, recorded.weights, recorded.projected > 0);
  }
  if (options.batch_first) output = without_batch_first(output, true);
  tape.autograd.set_history(node, output);
  tape.autograd.set_history(node, last_hidden);
  if (last_cell.defined()) tape.autograd.set_history(node, last_cell);
  if (node != nullptr) {
    node->payload.set(std::move(recorded));
    if (cell.defined()) tape.autograd.save(*node, cell);
    tape.autograd.save(*node, hidden);
    tape.autograd.save(*node, input);
    tape.autograd.save(*node, output);
    if (!reserve.defined()) reserve = tape.empty({0}, DType::kUInt8, aten::kCudnnRnn);
    tape.autograd.save(*node, reserve);
    tape.autograd.save(*node, storage.defined() ? storage : weights.front());
  }
  std::vector<Tensor> results{std::move(output), std::move(last_hidden)};
  if (last_cell.defined()) results.push_back(std::move(last_cell));
  return results;
}

}  // namespace memcalc
