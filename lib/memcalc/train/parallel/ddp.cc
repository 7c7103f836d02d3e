// MIRRORS(torch, "reducer.cpp", "2.11.0")
#include "memcalc/train/parallel/ddp.h"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/spec/parallel.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/elementwise.h"

namespace memcalc {

namespace {

constexpr Operator kAllReduce{"c10d::allreduce_"}, kBroadcast{"c10d::broadcast_"};
constexpr Operator kReducer{"Reducer"};
constexpr Operator kSinkBackward{"_DDPSinkBackward"};

/// `tensors` by the types in which they appear.
std::vector<std::vector<std::size_t>> by_type(std::span<const Tensor> tensors) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto same = [&](const auto& group) { return tensors[group.front()].dtype() == tensors[i].dtype(); };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) group = groups.emplace(group);
    group->push_back(i);
  }
  return groups;
}

}  // namespace

std::vector<std::vector<std::size_t>> bucket_assignment(std::span<const Tensor> tensors,
                                                        std::span<const Bytes> limits) {
  struct Open {
    std::vector<std::size_t> tensors;
    Bytes bytes = 0;
    std::size_t limit = 0;
    DType dtype = DType::kFloat32;
  };
  std::vector<std::vector<std::size_t>> result;
  std::vector<Open> open;  // by type
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    auto bucket = std::find_if(open.begin(), open.end(), [&](const Open& o) { return o.dtype == tensors[i].dtype(); });
    if (bucket == open.end()) bucket = open.insert(bucket, Open{.dtype = tensors[i].dtype()});
    bucket->tensors.push_back(i);
    bucket->bytes = checked_add(bucket->bytes, tensors[i].bytes());
    if (bucket->bytes < limits[bucket->limit]) continue;
    result.push_back(std::exchange(bucket->tensors, {}));
    bucket->bytes = 0;
    if (bucket->limit + 1 < limits.size()) ++bucket->limit;
  }
  for (Open& bucket : open) {
    if (!bucket.tensors.empty()) result.push_back(std::move(bucket.tensors));
  }
  return result;
}

/// A packed weight has the shape of what it stands for; of 4 bits it is half as many bytes.
Tensor Ddp::as_stored(const Tensor& tensor) const {
  const Quantization kind = run.fine_tuning.quantization;
  const bool is_nf4 = kind == Quantization::kNf4 || kind == Quantization::kNf4Double;
  if (!is_nf4 || tensor.dtype() != DType::kUInt8) return tensor;
  return tape.alias(tensor, {ceil_div(tensor.elements(), 2)}, {1}, false);
}

// DistributedDataParallel.__init__
void Ddp::wrap(Model& model) {
  std::vector<Tensor> states;
  for (const Parameter& parameter : model.parameters) {
    states.push_back(as_stored(parameter.tensor));
    if (parameter.tensor.requires_grad()) params_.push_back(parameter.tensor);
  }
  buffers_ = model.buffers;
  states.insert(states.end(), buffers_.begin(), buffers_.end());
  broadcast_coalesced(states, sharing_ranks(run.parallel));  // _sync_module_states
  // Without a search for unused parameters the first iteration has one bucket a type.
  std::vector<std::vector<std::size_t>> assignment =
      finds_unused() ? bucket_assignment(params_, std::array{kFirstBucketBytes, kBucketBytes}) : by_type(params_);
  if (finds_unused()) used_map_ = tape.empty({static_cast<std::int64_t>(params_.size())}, DType::kInt32, aten::kEmpty);
  std::reverse(assignment.begin(), assignment.end());
  initialize_buckets(assignment);
  for (std::size_t i = 0; i < params_.size(); ++i) {
    tape.autograd.after_gradient_of(params_[i], [this, i] { gradient_ready(i); });
  }
}

// reducer.cpp, broadcast_coalesced: two buckets are in flight.
void broadcast_coalesced(std::span<const Tensor> tensors, std::int64_t ranks) {
  constexpr std::size_t kMostInFlight = 2;
  if (tensors.empty()) return;
  Tape& tape = tensors.front().tape();
  std::deque<Tensor> in_flight;
  for (const std::vector<std::size_t>& bucket : bucket_assignment(tensors, std::array{kBroadcastBytes})) {
    if (in_flight.size() == kMostInFlight) in_flight.pop_front();
    std::int64_t elements = 0;
    for (const std::size_t i : bucket) elements += tensors[i].elements();
    const Tensor& first = tensors[bucket.front()];
    in_flight.push_back(bucket.size() == 1
                            ? tape.detach(first)  // a view of the tensor itself
                            : tape.empty({elements}, first.dtype(), aten::kCat, Category::kCommunication));
    tape.kernels.collective(kBroadcast, Collective::kBroadcast, first.dtype(), elements * size_of(first.dtype()),
                            ranks);
  }
  while (!in_flight.empty()) in_flight.pop_front();
}

void Ddp::initialize_buckets(const std::vector<std::vector<std::size_t>>& assignment) {
  buckets_.clear();
  bucket_of_.assign(params_.size(), 0);
  for (const std::vector<std::size_t>& params : assignment) {
    std::int64_t elements = 0;
    for (const std::size_t i : params) {
      elements += params_[i].elements();
      bucket_of_[i] = buckets_.size();
    }
    buckets_.push_back(
        {.params = params,
         .flat = tape.empty({elements}, params_[params.front()].dtype(), aten::kEmpty, Category::kCommunication),
         .pending = params.size()});
  }
}

// In the order in which the gradients arrived.
void Ddp::rebuild_buckets() {
  std::vector<Tensor> ordered;
  for (const std::size_t i : ready_order_) ordered.push_back(params_[i]);
  std::vector<std::vector<std::size_t>> assignment =
      bucket_assignment(ordered, std::array{kFirstBucketBytes, kBucketBytes});
  for (std::vector<std::size_t>& bucket : assignment) {
    for (std::size_t& i : bucket) i = ready_order_[i];
  }
  // NCCL's watchdog looks every 100 ms for collectives that are done, and drops their tensors then. The first iteration
  // takes longer; a static graph rebuilds after the second, whose buckets then live on for a while.
  if (run.parallel.torch().ddp_static_graph) {
    for (const Bucket& bucket : buckets_) in_flight_.push_back(bucket.flat);
  }
  initialize_buckets(assignment);
  ready_order_.clear();
  rebuilt_ = true;
}

ModelOutput Ddp::forward(const ModuleForward& module, const Batch& batch, bool sync) {
  syncs_ = sync;
  if (!rebuilt_ && !ready_order_.empty()) rebuild_buckets();
  if (sync && !buffers_.empty()) broadcast_coalesced(buffers_, sharing_ranks(run.parallel));  // _sync_buffers
  for (Bucket& bucket : buckets_) bucket.pending = bucket.params.size();
  ModelOutput output = module(batch);
  const bool sinks = finds_unused() || (run.parallel.torch().ddp_static_graph && backward_passes_ == 0);
  return sinks ? through_sink(std::move(output)) : std::move(output);
}

// _DDPSink clones what the module returned: in each iteration where unused parameters are searched for, in the first of
// a static graph. Of what has no history the module's own is returned (_post_forward). One node has all that have one:
// as long as one clone lives, what the others were made of lives, too.
ModelOutput Ddp::through_sink(ModelOutput output) {
  std::vector<Tensor*> returned = {&output.loss, &output.logits};
  FusedHead& fused = output.fused;
  for (Tensor* each : {&fused.log_probs, &fused.entropy, &fused.log_sum_sq_probs, &fused.mean_logits, &fused.is_top1,
                       &fused.label_mask}) {
    returned.push_back(each);
  }
  std::vector<Tensor> copies;
  std::vector<std::size_t> with_history;
  for (std::size_t i = 0; i < returned.size(); ++i) {
    const Tensor& tensor = *returned[i];
    copies.emplace_back();
    if (!tensor.defined()) continue;
    if (tensor.requires_grad()) with_history.push_back(i);
    copies[i] = tape.empty_strided(tensor.shape(), tensor.strides(), tensor.dtype(), aten::kClone);
  }
  for (std::size_t first = 0; first < with_history.size(); first += kMaxEdges) {
    const std::size_t count = std::min<std::size_t>(kMaxEdges, with_history.size() - first);
    std::array<const Tensor*, kMaxEdges> sources{};
    for (std::size_t i = 0; i < count; ++i) sources[i] = returned[with_history[first + i]];
    Node* node = tape.autograd.record(kSinkBackward, &Ddp::sink_backward, sources.data(), static_cast<int>(count));
    for (std::size_t i = 0; i < count; ++i) tape.autograd.set_history(node, copies[with_history[first + i]]);
  }
  // A node each, of which the model's other results keep nothing alive.
  const auto cloned = [&](const Tensor& tensor) {
    if (!tensor.defined() || !tensor.requires_grad()) return tensor;
    const Tensor* const source[] = {&tensor};
    Node* node = tape.autograd.record(kSinkBackward, &Ddp::sink_backward, source, 1);
    Tensor copy = tape.empty_strided(tensor.shape(), tensor.strides(), tensor.dtype(), aten::kClone);
    tape.autograd.set_history(node, copy);
    return copy;
  };
  EncoderDecoderCache& cache = output.past_key_values;
  cache.cross_attention = cache.cross_attention.copied(cloned);
  cache.self_attention = cache.self_attention.copied(cloned);
  if (output.encoder_last_hidden_state.defined()) {
    output.encoder_last_hidden_state = cloned(output.encoder_last_hidden_state);
  }
  for (const std::size_t i : with_history) *returned[i] = std::move(copies[i]);
  return output;
}

// _build_accelerator_args: it is off where a PreTrainedModel recomputes; peft's model is none.
bool Ddp::finds_unused() const {
  const bool recomputes = run.checkpointing() != Checkpointing::kNone && !run.fine_tuning.lora;
  return run.uses_trainer() && !recomputes && !run.parallel.torch().ddp_static_graph;
}

void Ddp::sink_backward(BackwardCall& call) {
  for (int i = 0; i < call.node.edge_count; ++i) call.set(i, call.gradient(i));
}

// Reducer::autograd_hook
void Ddp::gradient_ready(std::size_t param) {
  if (run.parallel.torch().ddp_static_graph && backward_passes_ == 0) {
    if (!std::exchange(delayed_, true)) tape.autograd.at_end_of_backward([this] { delay_all_reduce(); });
    return;
  }
  if (!syncs_) return;
  if (!std::exchange(finalizes_, true)) {
    tape.autograd.at_end_of_backward([this] { finalize(); });
  }
  if (!rebuilt_ && !finds_unused()) ready_order_.push_back(param);
  mark_ready(param);
  Bucket& bucket = buckets_[bucket_of_[param]];
  if (--bucket.pending == 0) all_reduce(bucket);
}

void Ddp::delay_all_reduce() {
  for (std::size_t i = 0; i < params_.size(); ++i) mark_ready(i);
  for (Bucket& bucket : buckets_) all_reduce(bucket);
  ++backward_passes_;
}

// mark_variable_ready_dense: the gradient is copied into its bucket, or becomes a view of it.
void Ddp::mark_ready(std::size_t param) {
  Tensor& gradient = params_[param].impl()->grad;
  record_host_work(tape, HostWork::kReducedTensor);
  copy_kernel(param);
  if (!run.parallel.torch().ddp_bucket_view || !gradient.defined()) return;
  const Tensor& flat = buckets_[bucket_of_[param]].flat;
  if (gradient.block() == flat.block()) return;
  gradient = tape.alias(flat, params_[param].shape(), params_[param].strides(), true);
}

// mul_out into the bucket, and divides; copy_ out of it.
void Ddp::copy_kernel(std::size_t param) {
  const Tensor& tensor = params_[param];
  tape.kernels.add(kReducer, OperatorClass::kMovement, tensor.dtype(), 0, 2 * static_cast<double>(tensor.bytes()));
}

// finalize_backward: waits for one bucket after the other; where gradients are no views of them, they are copied back,
// beside what is still on its way.
void Ddp::finalize() {
  for (Bucket& bucket : buckets_) {
    const std::size_t reduce = std::exchange(bucket.reduce, 0);
    if (run.parallel.torch().ddp_bucket_view) continue;
    tape.kernels.await(reduce);
    for (const std::size_t param : bucket.params) copy_kernel(param);
  }
  finalizes_ = false;
}

void Ddp::all_reduce(Bucket& bucket) {
  const OnStream on_reduction(tape.moment, CudaStream::kAllReduce);  // of ProcessGroupNCCL: the reducer's are async_op
  bucket.reduce = tape.kernels.collective(kAllReduce, Collective::kAllReduce, bucket.flat.dtype(), bucket.flat.bytes(),
                                          sharing_ranks(run.parallel));
}

}  // namespace memcalc
