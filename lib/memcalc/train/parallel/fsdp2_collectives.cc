// What a group of FSDP2 gathers and reduces, and on which streams: torch/distributed/fsdp/_fully_shard/
// _fsdp_collectives.py and the methods of _fsdp_param_group.py that call it.
// MIRRORS(accelerate, "utils/fsdp_utils.py", "1.15.0")
// MIRRORS(torch, "aten/native/cuda/TensorShape.cu", "2.11.0")
// MIRRORS(torch, "distributed/fsdp/_fully_shard/_fsdp_collectives.py", "2.11.0")
// MIRRORS(torch, "distributed/fsdp/_fully_shard/_fsdp_param_group.py", "2.11.0")
#include <algorithm>
#include <cmath>
#include <utility>

#include "memcalc/base/bytes.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/shard_copies.h"
#include "memcalc/train/parallel/fsdp2.h"
#include "memcalc/train/parallel/shard_kernels.h"

namespace memcalc {

namespace {

constexpr Operator kCopyIn{"fsdp::all_gather_copy_in"};
constexpr Operator kAllGather{"c10d::_allgather_base_"}, kReduceScatter{"c10d::_reduce_scatter_base_"};
constexpr Operator kAllReduce{"c10d::allreduce_"};

/// FSDPParam.all_gather_inputs with offloaded parameters: from pinned memory.
void copy_from_host(Tape& tape, const Tensor& moved) {
  tape.kernels.pinned_copy(aten::kToCopy, moved.dtype(), moved.bytes(), KernelKind::kCopyToDevice);
}

/// fsdp_pre_all_gather of a float8 weight's shard (torchao, fsdp_utils.py) with the scale that was computed after the
/// last optimizer step: the product with it and its clamped copy are float32, the shard's own type.
Tensor cast_to_float8(Tape& tape, const Tensor& shard) {
  const Shape flat{shard.elements()};
  const Tensor scaled = tape.empty(flat, shard.dtype(), aten::kMul, Category::kCommunication);
  const Tensor clamped = tape.empty(flat, shard.dtype(), aten::kClamp, Category::kCommunication);
  return tape.empty(flat, DType::kUInt8, aten::kToCopy, Category::kCommunication);
}

/// A kernel over a list of `tensors` that moves `bytes`, read and written.
void copy_kernel(Tape& tape, const Operator& op, DType dtype, Bytes bytes, std::size_t tensors,
                 KernelKind kind = KernelKind::kMultiTensor) {
  tape.kernels.add(op, OperatorClass::kMovement, dtype, 0, static_cast<double>(bytes), kind);
  tape.kernels.describe(work::TensorList{.tensors = static_cast<std::int64_t>(tensors)});
}

constexpr Bytes kBlockBytes = 128 * 16;  // BLOCK_SIZE threads of BYTES_PER_THREAD: aten/native/cuda/TensorShape.cu

/// What split_with_sizes_copy_out_cuda_contiguous_no_cast tells its kernel, packed into one tensor of int64: two
/// addresses and a size of each split, the split of each block, and the sums of blocks. `chunks`: bytes of each split
/// in one of the `ranks` parts.
void copy_out_metadata(Tape& tape, const std::vector<Bytes>& chunks, std::int64_t ranks) {
  const std::int64_t most_blocks =
      std::int64_t{tape.device.multiprocessors} * tape.device.max_threads_per_multiprocessor / 128 * 2;
  std::int64_t blocks = 0;
  for (const Bytes chunk : chunks) blocks += ceil_div(chunk, kBlockBytes);
  const std::int64_t iterations =
      std::max<std::int64_t>(ceil_div(blocks * ranks, std::max(most_blocks, std::int64_t{1})), 1);
  const auto per_block = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(iterations))));
  const std::int64_t per_chunk = ceil_div(iterations, std::min(per_block, ranks));
  blocks = 0;
  for (const Bytes chunk : chunks) blocks += ceil_div(chunk, kBlockBytes * per_chunk);
  const auto splits = static_cast<std::int64_t>(chunks.size());
  tape.memory.scratch((3 * splits + blocks + splits + 1) * 8, kSplitWithSizesCopy, Category::kCommunication);
}

/// The same of _chunk_cat_out_cuda_contiguous, get_chunk_cat_metadata; gone before the kernel runs.
void chunk_cat_metadata(Tape& tape, const std::vector<Bytes>& chunks) {
  std::int64_t blocks = 0;
  for (const Bytes chunk : chunks) blocks += ceil_div(chunk, kBlockBytes);
  const auto tensors = static_cast<std::int64_t>(chunks.size());
  tape.memory.scratch((4 * tensors + 2 * (tensors + 1) + blocks) * 8, kChunkCat, Category::kCommunication);
}

}  // namespace

// foreach_all_gather, on the streams of get_all_gather_streams. Its output holds its input as a slice.
void Fsdp2::unshard(Group& group, bool ahead) {
  if (group.all_gather_result.defined() || group.is_unsharded || group.params.empty()) return;
  const OnStream on_copy_in(tape.moment, ahead ? tape.moment.stream : own(CudaStream::kAllGatherCopyIn));
  std::int64_t cast_elements = 0;
  Bytes bytes = 0;  // of this rank's part
  std::vector<Tensor> inputs;
  DType dtype = group.params.front().gathered.dtype();
  for (const ShardedParameter& param : group.params) {
    if (param.gathered.dtype() != dtype) dtype = DType::kUInt8;
  }
  for (const ShardedParameter& param : group.params) {
    const DType gathered = param.gathered.dtype();
    const bool casts = gathered != param.sharded.dtype();
    bytes += param.shard_elements * size_of(gathered);
    if (param.in_float8) {
      inputs.push_back(cast_to_float8(tape, param.sharded));
    } else if (offloads()) {  // FSDPParam.all_gather_inputs, one by one
      Tensor moved = tape.empty({param.shard_elements}, param.sharded.dtype(), aten::kToCopy, Category::kCommunication);
      copy_from_host(tape, moved);
      if (casts) moved = tape.empty({param.shard_elements}, gathered, aten::kToCopy, Category::kCommunication);
      inputs.push_back(std::move(moved));
    } else if (casts) {
      cast_elements += param.shard_elements;
    }
  }
  if (cast_elements > 0) {  // one flat tensor of the run's param_dtype, by torch._foreach_copy_
    inputs.push_back(tape.empty({cast_elements}, *param_dtype_, aten::kEmpty, Category::kCommunication));
    const DType sharded = group.params.front().sharded.dtype();
    copy_kernel(tape, kCopyIn, dtype, cast_elements * (size_of(sharded) + size_of(dtype)), group.params.size());
  }
  group.all_gather_result = tape.empty({bytes * shards_ / size_of(dtype)}, dtype, kCopyIn, Category::kCommunication);
  copy_kernel(tape, kCopyIn, dtype, 2 * bytes, group.params.size());  // all_gather_copy_in_cuda: torch._foreach_copy_
  const OnStream on_all_gather(tape.moment, ahead ? tape.moment.stream : own(CudaStream::kAllGather));
  group.gather = tape.kernels.collective(kAllGather, Collective::kAllGather, dtype, bytes * shards_, shards_);
  while (!inputs.empty()) inputs.pop_back();
}

void Fsdp2::wait_for_unshard(Group& group) {
  if (!group.all_gather_result.defined()) return;
  Tensor previous;  // prev_all_gather_state, which Python holds until the function returns
  if (group.state == State::kForward) previous = std::move(all_gather_state_);
  std::vector<Bytes> chunks;
  for (const ShardedParameter& param : group.params) {
    tape.memory.fill_storage(param.gathered.block(), param.gathered.bytes(), kSplitWithSizesCopy,
                             Category::kGatheredWeights);
    chunks.push_back(param.shard_elements * size_of(param.gathered.dtype()));
  }
  copy_out_metadata(tape, chunks, shards_);
  tape.kernels.await(std::exchange(group.gather, 0));
  copy_kernel(tape, kSplitWithSizesCopy, group.all_gather_result.dtype(), 2 * group.all_gather_result.bytes(),
              group.params.size());
  group.is_unsharded = true;
  if (group.state == State::kForward) all_gather_state_ = group.all_gather_result;
  group.all_gather_result.reset();
}

void Fsdp2::reshard(Group& group) {
  if (group.state == State::kForward && !group.reshards_after_forward) return;
  if (!std::exchange(group.is_unsharded, false)) return;
  for (const ShardedParameter& param : group.params) tape.memory.empty_storage(param.gathered.block());
}

// foreach_reduce
void Fsdp2::reduce(Group& group, std::vector<ShardedParameter*>& with_gradient, std::vector<Tensor>& gradients) {
  const DType reduce_dtype = reduce_dtype_.value_or(gradients.front().dtype());
  const DType orig_dtype = with_gradient.front()->sharded.dtype();
  std::int64_t elements = 0;  // of this rank's part
  std::vector<Bytes> chunks;
  for (const ShardedParameter* param : with_gradient) {
    elements += param->shard_elements;
    chunks.push_back(param->shard_elements * size_of(reduce_dtype));
  }
  reduce_scatter_state_ = tape.empty({elements * shards_}, reduce_dtype, kChunkCat, Category::kCommunication);
  const Bytes each = size_of(gradients.front().dtype()) + size_of(reduce_dtype);
  chunk_cat_metadata(tape, chunks);
  const bool converts = gradients.front().dtype() != reduce_dtype;
  copy_kernel(tape, kChunkCat, reduce_dtype, elements * shards_ * each, gradients.size(),
              converts ? KernelKind::kConverting : KernelKind::kMultiTensor);
  // The variable of the loop over unsharded_grads, which Python holds until the function returns.
  const Tensor unsharded_grad = shards_ > 1 ? gradients.back() : Tensor();
  while (!gradients.empty()) gradients.pop_back();

  const OnStream on_reduce_scatter(tape.moment, own(CudaStream::kReduceScatter));
  Tensor output = tape.empty({elements}, reduce_dtype, kReduceScatter, Category::kGradients);
  last_reduce_ = tape.kernels.collective(kReduceScatter, Collective::kReduceScatter, reduce_dtype,
                                         reduce_scatter_state_.bytes(), shards_);
  if (replicas_ > 1) {
    const OnStream on_all_reduce(tape.moment, own(CudaStream::kAllReduce));
    tape.kernels.collective(kAllReduce, Collective::kAllReduce, reduce_dtype, output.bytes(), replicas_, shards_);
    group.all_reduce_state = output;
  }
  const OnStream on_post_reduce(tape.moment, own(replicas_ > 1 ? CudaStream::kAllReduce : CudaStream::kReduceScatter));
  if (orig_dtype != reduce_dtype) {
    cast_kernel(tape, elements, reduce_dtype, orig_dtype);
    output = tape.empty({elements}, orig_dtype, aten::kToCopy, Category::kGradients);
  }
  for (ShardedParameter* param : with_gradient) {
    Tensor& gradient = param->sharded.impl()->grad;
    if (gradient.defined()) {  // += in place
      if (!offloads()) accumulate_kernel(tape, param->shard_elements, orig_dtype);
      continue;
    }
    if (offloads()) {
      const OnMetaDevice on_meta(tape.memory);
      gradient = tape.empty(param->sharded.shape(), orig_dtype, aten::kToCopy);
      tape.kernels.pinned_copy(aten::kToCopy, orig_dtype, gradient.bytes(), KernelKind::kCopyToHost);
    } else {
      gradient = tape.alias(output, param->sharded.shape(), contiguous_strides(param->sharded.shape()), true);
    }
  }
}

}  // namespace memcalc
