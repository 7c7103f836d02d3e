#include "memcalc/train/parallel/deepspeed_zero.h"

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/train/loop.h"
#include "memcalc/train/optimizers/lists.h"

namespace memcalc {

namespace {

constexpr Operator kFlatten{"deepspeed::flatten_dense_tensors_aligned"};
constexpr Operator kBucket{"deepspeed::setup_buckets"}, kPartition{"deepspeed::copy_grads_in_partition"};
constexpr Operator kOffload{"deepspeed::temp_grad_buffer_for_gpu_offload"}, kOverflow{"deepspeed::has_overflow"};
constexpr Operator kReduce{"c10d::allreduce_"}, kGather{"c10d::_allgather_base_"};

/// Of [begin, begin + elements) what lies in the part of `rank`.
std::int64_t elements_in_part(std::int64_t begin, std::int64_t elements, std::int64_t rank, std::int64_t partition) {
  const std::int64_t end = std::min(begin + elements, (rank + 1) * partition);
  return std::max<std::int64_t>(end - std::max(begin, rank * partition), 0);
}

/// tensor.data = a part of `whole`; what it had before dies.
void move_into(Tape& tape, const Tensor& tensor, const Tensor& whole) {
  const Tensor part = tape.alias(whole, tensor.shape(), tensor.strides(), false);
  std::swap(tensor.impl()->block, part.impl()->block);
}

}  // namespace

std::int64_t DeepSpeedZero1And2::flat_elements(std::int64_t parameters, std::int64_t ranks) {
  constexpr std::int64_t kStartAlignment = 2;  // nccl_start_alignment_factor
  return round_up(parameters, kStartAlignment * ranks);
}

std::vector<Holding> deepspeed_holdings(const Model& model, const RunSpec& run, std::int64_t ranks) {
  std::array<std::vector<std::int64_t>, 2> groups;  // DeepSpeedEngine::parameter_groups
  for (const Parameter& parameter : model.parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    groups[DeepSpeedEngine::group_of(parameter, run)].push_back(parameter.tensor.elements());
  }
  std::vector<Holding> holdings;
  std::vector<std::int64_t> held;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    held.clear();
    for (const std::vector<std::int64_t>& elements : groups) {
      std::int64_t total = 0;
      for (const std::int64_t each : elements) total = checked_add(total, each);
      const std::int64_t partition = DeepSpeedZero1And2::flat_elements(total, ranks) / ranks;
      std::int64_t begin = 0;
      for (const std::int64_t each : elements) {
        held.push_back(elements_in_part(begin, each, rank, partition));
        begin += each;
      }
    }
    add_rank(holdings, held);
  }
  return holdings;
}

std::vector<bool> deepspeed_heaviest(const Model& model, const RunSpec& run, std::span<const Holding> holdings) {
  const bool at_end = run.parallel.data_parallel == DataParallel::kDsZero1;
  std::array<std::vector<std::size_t>, 2> groups;  // places among the trainable parameters
  std::vector<std::int64_t> sizes;
  for (const Parameter& parameter : model.parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    groups[DeepSpeedEngine::group_of(parameter, run)].push_back(sizes.size());
    sizes.push_back(parameter.tensor.elements());
  }
  std::vector<std::size_t> place_of(groups[0]);  // of each parameter of a holding
  place_of.insert(place_of.end(), groups[1].begin(), groups[1].end());
  // Stage 1 reduces in the order of the groups, stage 2 as backward makes gradients: the last parameter first.
  std::vector<std::size_t> order(place_of);
  if (!at_end) std::sort(order.begin(), order.end(), std::greater<>());
  std::vector<std::int64_t> bucket_of(sizes.size());
  std::int64_t bucket = 0, elements = 0;
  for (const std::size_t place : order) {
    if (elements > 0 && elements + sizes[place] > run.parallel.deepspeed().reduce_bucket_size) {
      ++bucket;
      elements = 0;
    }
    elements += sizes[place];
    bucket_of[place] = bucket;
  }
  struct Kept {
    std::int64_t elements = 0;
    std::int64_t from = 0;
  };
  std::vector<Kept> kept;
  for (const Holding& holding : holdings) {
    Kept& each = kept.emplace_back(Kept{.from = bucket + 1});
    for (std::size_t i = 0; i < place_of.size(); ++i) {
      if (holding.elements[i] == 0) continue;
      each.elements += sizes[place_of[i]];
      each.from = std::min(each.from, bucket_of[place_of[i]]);
    }
  }
  std::vector<bool> heaviest;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    bool beaten = false;
    for (std::size_t k = 0; k < kept.size(); ++k) {
      const bool more = kept[k].elements > kept[i].elements || kept[k].from < kept[i].from || k < i;
      beaten = beaten || (k != i && kept[k].elements >= kept[i].elements && kept[k].from <= kept[i].from && more);
    }
    heaviest.push_back(!beaten);
  }
  return heaviest;
}

CudaStream DeepSpeedZero1And2::reduction_stream() const {
  return overlaps() ? CudaStream::kReduceScatter : CudaStream::kDefault;
}

// --- __init__

void DeepSpeedZero1And2::wrap(Model& model) {
  if (run.uses_trainer() && run.fine_tuning.quantization == Quantization::kNone) {
    move_to_host(model);
    for (const Parameter& parameter : model.parameters) move_to_card(parameter.tensor);
    for (const Tensor& buffer : model.buffers) move_to_card(buffer);
  } else if (run.uses_trainer()) {
    cast_on_card(model);
  }
  for (const std::vector<Parameter*>& parameters : parameter_groups(model)) {
    FlatGroup group{.first = params_.size()};
    for (const Parameter* each : parameters) {
      params_.push_back({.tensor = each->tensor, .group = groups_.size(), .begin = group.elements});
      group.elements = checked_add(group.elements, each->tensor.elements());
      largest_ = std::max(largest_, each->tensor.elements());
    }
    group.last = params_.size();
    group.flat = flat_elements(group.elements, ranks);
    group.partition = group.flat / ranks;
    groups_.push_back(std::move(group));
  }
  micro_batches_ = static_cast<std::int64_t>(executed_micro_batches(run.training().accumulation_steps).size());
  for (FlatGroup& group : groups_) flatten_group(group);
  if (offloads_states()) {
    offload_buffer_ = tape.empty({largest_}, dtype, kOffload, Category::kCommunication);
  } else {
    std::vector<Tensor> zeros;  // initialize_optimizer_states
    for (const FlatGroup& group : groups_)
      zeros.push_back(tape.empty({group.partition}, DType::kFloat32, aten::kZeros));
    for (Tensor& each : zeros) each.reset();
  }
  make_optimizers();
  for (std::size_t i = 0; i < params_.size(); ++i) {
    tape.autograd.after_gradient_of(params_[i].tensor, [this, i] {  // process_gradients
      make_buckets();
      if (partitions_gradients()) put_into_bucket(i);
    });
  }
  assumptions.emplace_back("DeepSpeed's buckets of " + std::to_string(bucket_size()) +
                           " elements, contiguous gradients, reduce_scatter" +
                           (overlaps() ? ", overlap_comm" : ", no overlap_comm") + " (--deepspeed)");
}

void DeepSpeedZero1And2::flatten_group(FlatGroup& group) {
  tape.memory.empty_cache();
  const auto params = std::span(params_).subspan(group.first, group.last - group.first);
  {
    Tensor padding = tape.empty({group.flat - group.elements}, dtype, aten::kZeros);
    const Tensor flat = tape.empty({group.flat}, dtype, kFlatten, Category::kWeights);
    padding.reset();
    for (const FlatParameter& param : params) move_into(tape, param.tensor, flat);
  }
  for (FlatParameter& param : params) {
    param.own = elements_in_part(param.begin, param.tensor.elements(), rank, group.partition);
    if (param.own > 0) own_elements_ += param.tensor.elements();
  }
  const Tensor copy = tape.empty({group.partition}, dtype, aten::kClone);
  add_master(group.partition);
}

ModelOutput DeepSpeedZero1And2::forward(const ModuleForward& module, const Batch& batch, bool /*sync*/) {
  ++micro_batch_;
  begin_forward();
  return module(batch);
}

// --- backward: gradients pass through the bucket

// setup_buckets: at the first gradient after they were released.
void DeepSpeedZero1And2::make_buckets() {
  if (!buckets_.empty()) return;
  for (int i = 0; i < (overlaps() ? 2 : 1); ++i) {
    buckets_.push_back(tape.empty({bucket_size()}, dtype, kBucket, Category::kCommunication));
  }
  bucket_ = 0;
}

// reduce_independent_p_g_buckets_and_remove_grads. A parameter larger than the bucket stays where it is.
void DeepSpeedZero1And2::put_into_bucket(std::size_t i) {
  const Tensor& param = params_[i].tensor;
  Tensor& gradient = param.impl()->grad;
  if (!gradient.defined()) return;
  record_host_work(tape, HostWork::kZeroReduced);
  if (bucket_elements_ + param.elements() > bucket_size()) {
    reduce_bucket();
    if (overlaps()) bucket_ = 1 - bucket_;
  }
  if (param.elements() <= bucket_size()) {
    gradient = tape.alias(buckets_[bucket_], param.shape(), param.strides(), true);
    pass_kernel(param.elements(), dtype);  // new_grad_tensor.copy_(grad_reduc.view(-1))
  }
  bucket_elements_ += param.elements();
  bucket_params_.push_back(i);
}

// reduce_ipg_grads
void DeepSpeedZero1And2::reduce_bucket() {
  if (bucket_params_.empty()) return;
  const OnStream on_reduction(tape.moment, reduction_stream());
  average_bucket();
  for (const std::size_t i : bucket_params_) {
    if (params_[i].own > 0) {
      keep_gradient(i);
    } else if (partitions_gradients()) {
      params_[i].tensor.impl()->grad.reset();
    }
  }
  bucket_params_.clear();
  bucket_elements_ = 0;
}

// average_tensor, allreduce_and_scatter: what is in the bucket is divided by the ranks, then the slices of the ranks,
// which neighbours of one rank share, are flattened.
void DeepSpeedZero1And2::average_bucket() {
  Slices slices;
  std::int64_t last_rank = -1;
  pass_kernel(bucket_elements_, dtype);  // tensor.div_(world size)
  for (const std::size_t i : bucket_params_) {
    const FlatParameter& param = params_[i];
    const std::int64_t end = param.begin + param.tensor.elements();
    const std::int64_t partition = groups_[param.group].partition;
    for (std::int64_t at = param.begin; at < end;) {
      const std::int64_t owner = at / partition;
      const std::int64_t until = std::min(end, (owner + 1) * partition);
      if (owner != last_rank && slices.elements > bucket_size()) all_reduce(std::exchange(slices, {}));
      if (owner != last_rank) ++slices.count;
      last_rank = owner;
      slices.elements += until - at;
      if (owner == rank) slices.own += until - at;
      at = until;
    }
  }
  all_reduce(slices);
}

// Without overlap_comm on the current stream: nothing runs beside it.
void DeepSpeedZero1And2::all_reduce(const Slices& slices) {
  if (slices.count == 0) return;
  Tensor flat;  // of one tensor a view
  if (slices.count > 1) {
    flat = tape.empty({slices.elements}, dtype, aten::kCat, Category::kCommunication);
    pass_kernel(slices.elements, dtype);
  }
  Tensor converted;  // allreduce_bucket: what is reduced in another type is copied back
  if (reduce_dtype != dtype) {
    converted = tape.empty({slices.elements}, reduce_dtype, aten::kToCopy, Category::kCommunication);
    pass_kernel(slices.elements, dtype, reduce_dtype);
  }
  tape.kernels.collective(kReduce, Collective::kAllReduce, reduce_dtype, slices.elements * size_of(reduce_dtype),
                          ranks);
  if (reduce_dtype != dtype) pass_kernel(slices.elements, reduce_dtype, dtype);
  if (slices.count > 1) pass_kernel(slices.own, dtype);  // buf.copy_(synced); a view's has the same address
  flat.reset();
}

// copy_grads_in_partition
void DeepSpeedZero1And2::keep_gradient(std::size_t i) {
  const FlatParameter& param = params_[i];
  if (offloads_states()) return move_gradient_to_host(param);
  if (!gradients_.defined()) gradients_ = tape.empty({own_elements_}, dtype, kPartition, Category::kGradients);
  param.tensor.impl()->grad = tape.alias(gradients_, param.tensor.shape(), param.tensor.strides(), true);
  pass_kernel(param.tensor.elements(), dtype);
}

// At a boundary of accumulation: the norm, the check for overflow, and the copy, converted before it moves.
void DeepSpeedZero1And2::move_gradient_to_host(const FlatParameter& param) {
  if (!at_boundary()) return;  // added up in host memory, through the buffer on the card
  {
    const Tensor wide = tape.empty({param.own}, DType::kFloat64, aten::kToCopy);
    offloaded_norms_.push_back(scalar(tape, DType::kFloat64, aten::kNorm));
    reduction_scratch(wide, 1, size_of(DType::kFloat64), aten::kNorm);
  }
  check_finite(param.own);
  const Bytes wide = param.own * size_of(DType::kFloat32);
  if (dtype != DType::kFloat32) tape.memory.scratch(wide, aten::kToCopy);
  tape.kernels.add(aten::kToCopy, OperatorClass::kMovement, DType::kFloat32, 0, static_cast<double>(wide),
                   KernelKind::kCopyToHost);
  param.tensor.impl()->grad.reset();
}

// Stage 1 reduces at the boundary, all gradients one after the other (reduce_gradients).
void DeepSpeedZero1And2::after_backward(bool last) {
  if (!partitions_gradients()) {
    if (!last) return DeepSpeedEngine::after_backward(last);  // gradients add up, and the bucket stays
    for (std::size_t i = 0; i < params_.size(); ++i) put_into_bucket(i);
  }
  finish_micro_batch(last);
  DeepSpeedEngine::after_backward(last);
}

// independent_gradient_partition_epilogue
void DeepSpeedZero1And2::finish_micro_batch(bool last) {
  reduce_bucket();
  if (!offloads_states()) {
    if (!accumulated_.defined()) {
      accumulated_ = gradients_;
    } else {
      add_kernel(own_elements_);  // to what earlier micro-batches left
    }
    for (FlatGroup& group : groups_) {
      const std::int64_t begin = rank * group.partition;
      const std::int64_t missing = begin + group.partition - std::max(group.elements, begin);
      if (last && missing > 0) group.padding = tape.empty({missing}, dtype, aten::kZeros, Category::kGradients);
    }
  }
  buckets_.clear();
  for (const FlatParameter& param : params_) param.tensor.impl()->grad.reset();
  gradients_.reset();
}

// --- step()

bool DeepSpeedZero1And2::step() {
  record_host_work(tape, HostWork::kZeroStepped, static_cast<std::int64_t>(params_.size()));
  micro_batch_ = 0;
  if (dtype != DType::kFloat32) {
    const Tensor count = scalar(tape, DType::kFloat32, kOverflow);
    for (const FlatGroup& group : groups_) {
      if (offloads_states()) break;
      for (const std::int64_t elements : pieces_of(group)) check_finite(elements);
      if (group.padding.defined()) check_finite(group.padding.elements());
    }
    const Tensor flag = scalar(tape, DType::kUInt8, kOverflow);
    tape.kernels.synchronize(kOverflow);
  }
  if (overflows()) {
    offloaded_norms_.clear();
    accumulated_.reset();
    for (FlatGroup& group : groups_) group.padding.reset();
    global_norm_.reset();
    return true;
  }
  if (offloads_states()) {
    take_offloaded_norm();
    step_on_host();
  } else {
    std::vector<std::vector<std::int64_t>> pieces;
    for (const FlatGroup& group : groups_) pieces.push_back(pieces_of(group));
    take_norms(pieces);
    for (std::size_t i = 0; i < groups_.size(); ++i) step_group(i);
  }
  for (const FlatGroup& group : groups_) {
    if (ranks > 1) tape.kernels.collective(kGather, Collective::kAllGather, dtype, group.flat * size_of(dtype), ranks);
  }
  return true;
}

/// Elements of each of its gradients on this rank.
std::vector<std::int64_t> DeepSpeedZero1And2::pieces_of(const FlatGroup& group) const {
  std::vector<std::int64_t> pieces;
  for (std::size_t i = group.first; i < group.last; ++i) {
    if (params_[i].own > 0) pieces.push_back(params_[i].own);
  }
  return pieces;
}

// The gradients of all groups are in one storage, which the last group lets go.
void DeepSpeedZero1And2::step_group(std::size_t i) {
  FlatGroup& group = groups_[i];
  const Tensor& master = masters[i].parameter.tensor;
  const bool flattens = pieces_of(group).size() + (group.padding.defined() ? 1 : 0) > 1;
  Tensor flat = flattens ? tape.empty({group.partition}, dtype, aten::kCat, Category::kGradients) : accumulated_;
  if (flattens) pass_kernel(group.partition, dtype);
  master.impl()->grad = widened(flat, group.partition);
  flat.reset();
  if (i + 1 == groups_.size()) accumulated_.reset();
  group.padding.reset();
  scale_gradients(group.partition);
  step_part(i);
  pass_kernel(group.partition, DType::kFloat32, dtype);  // bit16_partitions[partition_id].data.copy_()
  master.impl()->grad.reset();
}

// complete_grad_norm_calculation_for_cpu_offload: a float32 sum of what was taken in backward.
void DeepSpeedZero1And2::take_offloaded_norm() {
  const Tensor total = scalar(tape, DType::kFloat32, aten::kNorm);
  tape.kernels.synchronize(aten::kNorm);
  offloaded_norms_.clear();
}

std::vector<HeldRow> DeepSpeedZero1And2::held() const {
  Bytes weights = 0, copy = 0;
  for (const FlatGroup& group : groups_) {
    weights = checked_add(weights, checked_multiply(group.flat, size_of(dtype)));
    copy = checked_add(copy, checked_multiply(group.partition, size_of(DType::kFloat32)));
  }
  std::vector<HeldRow> rows = {
      {"weights", weights, "all parameters " + in_dtype() + ", in one flat buffer padded for the ranks"},
      {"gradients", 0, "none between steps; inside one, " + in_dtype()}};
  if (offloads_states()) {
    rows.push_back({"gradient buffer", offload_buffer_.bytes(), "of the largest parameter, on its way to the host"});
  } else {
    rows.push_back({"optimizer states", checked_add(copy, state_bytes()),
                    "a float32 copy of this rank's part and the optimizer's states of it"});
  }
  return rows;
}

}  // namespace memcalc
