// MIRRORS(torch, "_utils.py", "2.11.0")
// MIRRORS(torch, "torch/csrc/cuda/comm.cpp", "2.11.0")
#include "memcalc/train/parallel/data_parallel.h"

#include <array>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/train/parallel/ddp.h"

namespace memcalc {

namespace {

constexpr Operator kGather{"comm::gather"}, kBroadcast{"comm::broadcast"};
constexpr Operator kReduce{"nccl::reduce"}, kGatherBackward{"GatherBackward"};
constexpr Operator kBroadcastBackward{"BroadcastBackward"};

constexpr Bytes kBufferBytes = 10 * kMiB;  // comm.py, buffer_size

/// torch/_utils.py, _take_tensors: as many as fit the buffer, at least one.
std::vector<std::vector<Tensor>> take_tensors(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<Tensor>> chunks(1);
  Bytes bytes = 0;
  for (const Tensor& tensor : tensors) {
    if (bytes + tensor.bytes() > kBufferBytes && bytes > 0) {
      chunks.emplace_back();
      bytes = 0;
    }
    chunks.back().push_back(tensor);
    bytes += tensor.bytes();
  }
  return chunks;
}

std::int64_t elements_of(const std::vector<Tensor>& tensors) {
  std::int64_t elements = 0;
  for (const Tensor& tensor : tensors) elements += tensor.elements();
  return elements;
}

void pass_part(BackwardCall& call) {  // this GPU's slice of the gathered gradient
  call.set(0, call.tape.empty(call.payload<InputShape>().shape, call.gradient().dtype(), aten::kToCopy));
}

void mean_backward(BackwardCall& call) {
  call.set(0, call.tape.empty(call.payload<InputShape>().shape, call.gradient().dtype(), aten::kMean));
}

}  // namespace

void DataParallelModule::wrap(Model& model) {
  for (const Parameter& parameter : model.parameters) params_.push_back(parameter.tensor);
  for (std::vector<std::size_t>& params : bucket_assignment(params_, std::array{kBufferBytes})) {
    chunks_.push_back({.params = std::move(params)});
  }
  if (is_first()) return;
  for (Chunk& chunk : chunks_) {
    std::vector<Tensor> parts;
    for (const std::size_t i : chunk.params) parts.push_back(params_[i]);
    chunk.flat = tape.empty_resizable({elements_of(parts)}, parts.front().dtype());
    for (const std::size_t i : chunk.params) {
      const Tensor& param = params_[i];
      {
        const OnMetaDevice on_meta(tape.memory);  // nothing is here between steps
        tape.convert(param, param.dtype(), kBroadcast);
      }
      Tensor view = tape.alias(chunk.flat, param.shape(), param.strides(), false);
      tape.take_storage(param, view);
      if (model.parameters[i].is_embedding || !param.requires_grad()) continue;
      ++chunk.saved;
      tape.autograd.after_gradient_of(param, [this, &chunk] {
        if (--chunk.pending == 0) let_go(chunk);
      });
    }
  }
}

// The last view of it dies: those that autograd kept, and the replica's own, which dies as DataParallel.forward
// returns.
void DataParallelModule::let_go(Chunk& chunk) { (void)tape.memory.empty_storage(chunk.flat.block()); }

bool DataParallelModule::updates(const Parameter& parameter) const {
  return is_first() && parameter.tensor.requires_grad();
}

ParameterGroup DataParallelModule::optimizer_parameters(const Model& model) const {
  return is_first() ? ParallelWrapper::optimizer_parameters(model) : ParameterGroup{};
}

// replicate(): GPU 0 flattens chunks (torch/csrc/cuda/comm.cpp, broadcast_coalesced) and keeps its own weights; the
// others receive new ones.
void DataParallelModule::broadcast_weights() {
  for (Chunk& chunk : chunks_) {
    std::int64_t elements = 0;
    for (const std::size_t i : chunk.params) elements += params_[i].elements();
    const DType dtype = params_[chunk.params.front()].dtype();
    if (is_first()) {
      if (chunk.params.size() > 1) tape.memory.scratch(elements * size_of(dtype), aten::kCat, Category::kCommunication);
    } else {
      tape.memory.fill_storage(chunk.flat.block(), chunk.flat.bytes(), kBroadcast, Category::kGatheredWeights);
      chunk.pending = chunk.saved;
    }
    tape.kernels.collective(kBroadcast, Collective::kBroadcast, dtype, elements * size_of(dtype), run.parallel.gpus);
  }
}

ModelOutput DataParallelModule::forward(const ModuleForward& module, const Batch& batch, bool /*sync*/) {
  Batch own = batch;
  Tensor whole_ids;
  Tensor whole_labels;
  if (is_first()) {  // the loader's whole batch, of which each GPU gets a part
    const std::int64_t others = run.parallel.gpus - 1;
    const auto rest = [&](const Tensor& part) {
      return part.defined() ? tape.empty({others, part.elements()}, part.dtype(), aten::kToCopy, Category::kInputs)
                            : Tensor();
    };
    whole_ids = rest(batch.input_ids);
    whole_labels = rest(batch.labels);
  }
  broadcast_weights();
  ModelOutput output = module(own);
  if (is_first()) gather(output);
  for (Chunk& chunk : chunks_) {
    if (!is_first() && chunk.saved == 0) let_go(chunk);
  }
  // parallel_apply ran the replicas in threads of their own.
  if (!std::exchange(ran_, true)) tape.memory.forward_thread_ended();
  tape.autograd.at_end_of_backward([this] { reduce_to_first(); });
  return output;
}

// Gather.apply of each output on GPU 0: the losses become a vector, whose mean is the loss.
void DataParallelModule::gather(ModelOutput& output) {
  const std::int64_t gpus = run.parallel.gpus;
  const auto gathered = [&](Tensor& part, Shape shape) {
    const Tensor* const inputs[] = {&part};
    Node* node = tape.autograd.record(kGatherBackward, &pass_part, inputs, 1);
    Tensor whole = tape.empty(shape, part.dtype(), kGather);
    if (node != nullptr) {
      node->payload.set(InputShape{part.shape()});
      tape.autograd.set_history(node, whole);
    }
    part = std::move(whole);
  };
  Tensor replica_loss = output.loss;
  gathered(output.loss, {gpus});
  if (output.logits.defined()) {
    Shape shape = output.logits.shape();
    shape[0] *= gpus;
    gathered(output.logits, shape);
  }
  const Tensor* const inputs[] = {&output.loss};
  Node* node = tape.autograd.record(aten::kMeanOfAll, &mean_backward, inputs, 1);
  Tensor mean = tape.empty({}, output.loss.dtype(), aten::kMean);
  if (node != nullptr) {
    node->payload.set(InputShape{output.loss.shape()});
    tape.autograd.set_history(node, mean);
  }
  output.loss = std::move(mean);
}

// Broadcast.backward, once all gradients of all replicas are there: comm.reduce_add_coalesced onto GPU 0.
void DataParallelModule::reduce_to_first() {
  tape.moment.node = &kBroadcastBackward;
  std::vector<Tensor> trained;
  std::vector<Tensor> gradients;
  for (const Tensor& param : params_) {
    if (!param.impl()->grad.defined()) continue;
    trained.push_back(param);
    gradients.push_back(param.impl()->grad);
  }
  std::vector<Tensor> reduced;
  Tensor flat;
  for (const std::vector<Tensor>& chunk : take_tensors(gradients)) {
    if (chunk.empty()) break;
    const DType dtype = chunk.front().dtype();
    Tensor next = chunk.size() > 1 ? tape.empty({elements_of(chunk)}, dtype, aten::kCat, Category::kCommunication)
                                   : tape.detach(chunk.front());
    flat = std::move(next);
    if (is_first()) {
      const Tensor sum = tape.empty({elements_of(chunk)}, dtype, kReduce, Category::kGradients);
      for (const Tensor& each : chunk) reduced.push_back(tape.alias(sum, each.shape(), each.strides(), true));
    }
    tape.kernels.collective(kReduce, Collective::kAllReduce, dtype, elements_of(chunk) * size_of(dtype),
                            run.parallel.gpus);
  }
  flat.reset();
  gradients.clear();
  for (std::size_t i = 0; i < trained.size(); ++i) {
    trained[i].impl()->grad = is_first() ? reduced[i] : Tensor();
  }
  for (Chunk& chunk : chunks_) {
    if (!is_first() && chunk.pending > 0) let_go(chunk);  // of parameters that got no gradient
  }
  tape.moment.node = nullptr;
}

}  // namespace memcalc
