// MIRRORS(torch, "ReduceLogicKernel.cu", "2.11.0")
// MIRRORS(torch, "ReduceOps.cpp", "2.11.0")
#include "memcalc/symbolic/ops/reduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr int kMaxThreads = 512;  // mnt_wrapper<T>::MAX_NUM_THREADS
constexpr std::int64_t kWarpSize = 32;
constexpr std::int64_t kMinValuesPerThread = 16;
constexpr std::int64_t kMaxValuesPerThread = 256;
constexpr std::int64_t kOutputVector = 4;  // widest vector over outputs

std::int64_t last_power_of_2(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
}

struct IteratorDim {
  std::int64_t size = 1;
  std::int64_t stride = 0;         // of the input, in elements
  std::int64_t output_stride = 0;  // 0 where reduced
  bool reduced = false;
};

/// TensorIterator's view of the reduction: size-1 dimensions gone, reduced dimensions first, each group by stride,
/// neighbours that continue each other in memory merged.
struct Iterator {
  std::array<IteratorDim, kMaxDims> dims{};
  int rank = 0;
  int reduce_rank = 0;
};

Iterator make_iterator(const Tensor& x, unsigned reduced) {
  Iterator it;
  std::int64_t output_step = 1;
  for (int i = x.rank() - 1; i >= 0; --i) {
    const bool is_reduced = (reduced >> i & 1U) != 0;
    if (x.size(i) != 1) {
      it.dims[static_cast<std::size_t>(it.rank++)] = {x.size(i), x.strides()[i], is_reduced ? 0 : output_step,
                                                      is_reduced};
    }
    if (!is_reduced) output_step *= x.size(i);
  }
  const auto begin = it.dims.begin();
  std::stable_sort(begin, begin + it.rank, [](const IteratorDim& a, const IteratorDim& b) {
    if (a.reduced != b.reduced) return a.reduced;
    if (!a.reduced && a.output_stride != b.output_stride) return a.output_stride < b.output_stride;
    return a.stride < b.stride;
  });
  int kept = 0;
  for (int i = 1; i < it.rank; ++i) {
    IteratorDim& last = it.dims[static_cast<std::size_t>(kept)];
    const IteratorDim& next = it.dims[static_cast<std::size_t>(i)];
    if (last.reduced == next.reduced && last.size * last.stride == next.stride &&
        last.size * last.output_stride == next.output_stride) {
      last.size *= next.size;
    } else {
      it.dims[static_cast<std::size_t>(++kept)] = next;
    }
  }
  it.rank = it.rank == 0 ? 0 : kept + 1;
  for (int i = 0; i < it.rank; ++i) it.reduce_rank += it.dims[static_cast<std::size_t>(i)].reduced ? 1 : 0;
  return it;
}

std::int64_t output_vector_size(const Iterator& it) {
  std::int64_t size = kOutputVector;  // the base address is a multiple of 512 bytes
  const auto limit = [&size](std::int64_t n) {
    while (n % size != 0) size /= 2;
  };
  limit(it.dims[static_cast<std::size_t>(it.reduce_rank)].size);
  for (int i = 0; i < it.rank; ++i) {
    if (i != it.reduce_rank) limit(it.dims[static_cast<std::size_t>(i)].stride);
  }
  return size;
}

struct Scratch {
  Bytes staging = 0;
  Bytes semaphores = 0;
};

/// setReduceConfig for one launch: block shape, then how many blocks share an output.
Scratch launch_scratch(const Iterator& it, DType dtype, std::int64_t accumulator_size, const DeviceSpec& device) {
  std::int64_t outputs = 1;
  std::int64_t inputs = 1;  // per output
  for (int i = 0; i < it.rank; ++i) {
    const IteratorDim& dim = it.dims[static_cast<std::size_t>(i)];
    (dim.reduced ? inputs : outputs) *= dim.size;
  }
  if (it.reduce_rank == 0) return {};

  // Block x runs along the dimension that is densest in memory.
  bool along_inputs = true;
  std::int64_t dim0 = inputs;
  std::int64_t dim1 = outputs;
  std::int64_t fastest_stride = it.dims[0].stride;
  if (it.reduce_rank < it.rank && it.dims[0].stride >= it.dims[static_cast<std::size_t>(it.reduce_rank)].stride) {
    along_inputs = false;
    std::swap(dim0, dim1);
    fastest_stride = it.dims[static_cast<std::size_t>(it.reduce_rank)].stride;
  }
  std::int64_t output_vector = 1;
  if (fastest_stride == 1) {
    if (along_inputs && dim0 >= 128 && it.reduce_rank == 1) {
      dim0 /= is_half(dtype) ? 8 : 4;  // input_vec_size
    } else if (!along_inputs) {
      output_vector = output_vector_size(it);
      dim0 /= output_vector;
    }
  }

  const std::int64_t max_threads = kMaxThreads / output_vector;
  const std::int64_t dim0_power = dim0 < max_threads ? last_power_of_2(dim0) : max_threads;
  const std::int64_t dim1_power = dim1 < max_threads ? last_power_of_2(dim1) : max_threads;
  std::int64_t block_width = std::min(dim0_power, kWarpSize);
  const std::int64_t block_height = std::min(dim1_power, max_threads / block_width);
  block_width = std::min(dim0_power, max_threads / block_height);

  std::int64_t step_input = 1;
  std::int64_t step_output = 1;
  (along_inputs ? step_input : step_output) *= block_width;
  const auto values_per_thread = [&] { return ceil_div(inputs, step_input); };
  const bool split_across_warps = values_per_thread() >= std::min<std::int64_t>(block_height * 16, kMaxValuesPerThread);
  (split_across_warps ? step_input : step_output) *= block_height;

  const std::int64_t blocks_per_multiprocessor = device.max_threads_per_multiprocessor / (block_width * block_height);
  const std::int64_t target_grid = device.multiprocessors * blocks_per_multiprocessor;
  const std::int64_t grid = ceil_div(outputs / output_vector, step_output);
  if (!split_across_warps || values_per_thread() < kMaxValuesPerThread || grid > target_grid) return {};

  const std::int64_t by_grid = ceil_div(target_grid, grid);
  const std::int64_t at_least_16 = ceil_div(values_per_thread(), kMinValuesPerThread);
  const std::int64_t at_most_256 = ceil_div(values_per_thread(), kMaxValuesPerThread);
  const std::int64_t blocks_per_output = std::max(std::min(by_grid, at_least_16), at_most_256);
  if (blocks_per_output <= 1) return {};

  Scratch scratch;
  scratch.staging = checked_multiply(accumulator_size * blocks_per_output, outputs);
  if (!along_inputs) scratch.staging = checked_multiply(scratch.staging, block_width * output_vector);
  scratch.semaphores = 4 * grid;
  return scratch;
}

/// A kernel indexes with 32 bits: tensors beyond 2 GiB are reduced in halves of their largest extent
/// (TensorIterator::with_32bit_indexing).
bool fits_32_bits(const Iterator& it, std::int64_t element_size) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 31) - 1;
  std::int64_t elements = 1;
  std::int64_t input_end = 1;
  std::int64_t output_end = 1;
  for (int i = 0; i < it.rank; ++i) {
    const IteratorDim& dim = it.dims[static_cast<std::size_t>(i)];
    elements *= dim.size;
    input_end += (dim.size - 1) * dim.stride * element_size;
    output_end += (dim.size - 1) * dim.output_stride * element_size;
  }
  return elements <= kLimit && input_end <= kLimit && output_end <= kLimit;
}

/// Below this depth both halves ask for the same but for rounding, so one stands for all: work must not grow with size.
constexpr int kSplitDepth = 6;

void launch(const Iterator& it, const Tensor& x, std::int64_t accumulator_size, const Operator& op, int depth = 0) {
  Tape& tape = x.tape();
  if (!fits_32_bits(it, size_of(x.dtype()))) {
    int largest = 0;
    std::int64_t extent = -1;
    for (int i = it.rank - 1; i >= 0; --i) {
      const IteratorDim& dim = it.dims[static_cast<std::size_t>(i)];
      const std::int64_t reach = (dim.size - 1) * std::max(dim.stride, dim.output_stride);
      if (reach > extent) {
        extent = reach;
        largest = i;
      }
    }
    Iterator first = it;
    Iterator second = it;
    const std::int64_t size = it.dims[static_cast<std::size_t>(largest)].size;
    first.dims[static_cast<std::size_t>(largest)].size = size / 2;
    second.dims[static_cast<std::size_t>(largest)].size = size - size / 2;
    if (depth < kSplitDepth) launch(first, x, accumulator_size, op, depth + 1);
    launch(second, x, accumulator_size, op, depth + 1);
    return;
  }
  const Scratch scratch = launch_scratch(it, x.dtype(), accumulator_size, tape.device);
  if (scratch.staging == 0) return;
  Tensor staging = tape.empty({scratch.staging}, DType::kUInt8, op);
  Tensor semaphores = tape.empty({scratch.semaphores}, DType::kUInt8, op);
  drop(semaphores, staging);
}

}  // namespace

void reduction_scratch(const Tensor& x, unsigned reduced, std::int64_t accumulator_size, const Operator& op) {
  const Iterator it = make_iterator(x, reduced);
  Tensor accumulation;
  if (is_half(x.dtype()) && !fits_32_bits(it, size_of(x.dtype()))) {
    // 16-bit results cannot hold the halves' partial sums.
    std::int64_t outputs = 1;
    for (int i = 0; i < it.rank; ++i) {
      const IteratorDim& dim = it.dims[static_cast<std::size_t>(i)];
      outputs = std::max(outputs, dim.size * dim.output_stride);
    }
    accumulation = x.tape().empty({outputs * accumulator_size}, DType::kUInt8, op);
  }
  launch(it, x, accumulator_size, op);
}

namespace {

/// Any and argmax read what they are given.
bool is_summed(const Operator& op) { return &op == &aten::kSum || &op == &aten::kMean; }

/// Over the last dimension where another one is the innermost in memory, threads that sum side by side read far apart:
/// 0.13 T elements a second where 0.52 and, over other dimensions, 0.76 are usual (mamba2 on an H100,
/// tests/measured/network_profiles_h100.jsonl.gz).
KernelKind reduction_kind(const Tensor& x, unsigned reduced) {
  if (x.rank() == 0) return KernelKind::kRowSum;
  if ((reduced >> (x.rank() - 1) & 1U) == 0) return KernelKind::kColumnSum;
  const auto stride = [&](int dim) { return x.strides()[dim]; };
  for (int dim = 0; dim < x.rank() - 1; ++dim) {
    const bool kept = (reduced >> dim & 1U) == 0 && x.size(dim) > 1;
    if (kept && stride(dim) > 0 && stride(dim) < stride(x.rank() - 1)) return KernelKind::kTurned;
  }
  return KernelKind::kRowSum;
}

/// The reduction itself: result, then staging and semaphores for the time of the kernel.
Tensor reduce(const Operator& op, const Tensor& x, unsigned reduced, bool keep_dims,
              std::optional<DType> dtype = std::nullopt) {
  Tape& tape = x.tape();
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    const bool is_reduced = (reduced >> i & 1U) != 0;
    if (is_reduced && !keep_dims) continue;
    shape.dims[static_cast<std::size_t>(shape.rank++)] = is_reduced ? 1 : x.size(i);
  }
  Tensor result = tape.empty(shape, dtype.value_or(x.dtype()), op);
  // ReduceOps.cpp, make_reduction_from_ty: what its kernel cannot read as the result's type is converted before.
  const bool reads_it = x.dtype() == result.dtype() || is_half(x.dtype()) || !is_summed(op);
  Tensor converted;
  if (!reads_it) {
    converted = tape.empty_strided(x.shape(), like_strides(x.shape(), x.strides()), result.dtype(), aten::kToCopy);
  }
  const Tensor& read = reads_it ? x : converted;
  // ReduceLogicKernel.cu accumulates a boolean in a byte, the others at least a float.
  const std::int64_t accumulator_size =
      read.dtype() == DType::kBool ? 1 : std::max<std::int64_t>(size_of(read.dtype()), 4);
  reduction_scratch(read, reduced, accumulator_size, op);
  tape.kernels.add(op, OperatorClass::kElementwise, x.dtype(), static_cast<double>(x.elements()),
                   static_cast<double>(x.bytes() + result.bytes()), reduction_kind(x, reduced),
                   static_cast<double>(x.elements()));
  return result;
}

struct ReductionPayload {
  Shape input;
  unsigned dropped = 0;  // the dimensions that were not kept, a bit each
};

/// unsqueeze_multiple: the gradient with the dimensions that the reduction dropped.
Tensor with_dropped(Tensor gradient, unsigned dropped) {
  for (int dim = 0; dim < kMaxDims; ++dim) {
    if ((dropped >> dim & 1) != 0) gradient = unsqueeze(std::move(gradient), dim);
  }
  return gradient;
}

void mean_backward(BackwardCall& call) {  // grad.expand(sizes) / n
  const auto& [input, dropped] = call.payload<ReductionPayload>();
  const Tensor kept = with_dropped(call.gradient(), dropped);
  const Tensor expanded = expand(kept, input);
  call.set(0, pointwise(aten::kDiv, {&expanded}, 1));
}

void sum_backward(BackwardCall& call) {
  const auto& [input, dropped] = call.payload<ReductionPayload>();
  const Tensor gradient = with_dropped(call.take_gradient(), dropped);
  call.set(0, expand(gradient, input));
}

Node* record_reduction(const AtenOperator& op, BackwardFunction backward, const Tensor& x, unsigned reduced,
                       bool keep_dims) {
  const Tensor* inputs[] = {&x};
  Node* node = x.tape().autograd.record(op, backward, inputs, 1);
  if (node != nullptr) node->payload.set(ReductionPayload{.input = x.shape(), .dropped = keep_dims ? 0 : reduced});
  return node;
}

}  // namespace

Tensor sum_to(Arg x, const Shape& shape) {
  const OperatorCall call(x);
  const int leading = x->rank() - shape.rank;
  unsigned reduced = 0;
  for (int i = 0; i < x->rank(); ++i) {
    if (i < leading || (shape[i - leading] == 1 && x->size(i) != 1)) reduced |= 1U << i;
  }
  Tensor sum = reduce(aten::kSum, *x, reduced, true);
  return leading > 0 ? x->tape().alias(sum, shape, contiguous_strides(shape), true) : sum;
}

namespace {

void as_strided_backward(BackwardCall& call) {
  call.set(0, call.tape.empty(call.gradient().shape(), call.gradient().dtype(), aten::kNewZeros));
}

}  // namespace

Tensor mean(const Tensor& x, unsigned reduced, bool keep_dims) {
  Node* node = record_reduction(aten::kMean, mean_backward, x, reduced, keep_dims);
  Tensor result = reduce(aten::kMean, x, reduced, keep_dims);
  x.tape().autograd.set_history(node, result);
  return result;
}

Tensor sum(const Tensor& x, unsigned reduced, bool keep_dims, std::optional<DType> dtype) {
  Node* node = record_reduction(aten::kSum, sum_backward, x, reduced, keep_dims);
  // The kernel converts what it reads.
  Tensor result = reduce(aten::kSum, x, reduced, keep_dims, dtype.value_or(autocast_result(aten::kSum, x)));
  x.tape().autograd.set_history(node, result);
  return result;
}

Tensor reduced(const Operator& op, const Tensor& x, unsigned reduced, bool keep_dims, std::optional<DType> dtype) {
  return reduce(op, x, reduced, keep_dims, dtype);
}

Tensor mean_last(Arg x) {
  const OperatorCall call(x);
  return mean(*x, 1U << (x->rank() - 1), true);
}

Tensor mean_over(Arg x, int dim) {
  const OperatorCall call(x);
  return mean(*x, 1U << dim, false);
}

Tensor mean_pixels(Arg x) {
  const OperatorCall call(x);
  Tensor result = mean(*x, 3U << (x->rank() - 2), true);
  // adaptive_avg_pool2d gives channels-last images a channels-last result with as_strided_.
  const bool channels_last = !x->is_contiguous() && x->strides()[1] == 1 && x->size(1) > 1;
  if (!channels_last || !result.requires_grad()) return result;
  const Tensor* inputs[] = {&result};
  Node* node = x->tape().autograd.record(aten::kAsStridedCopy, as_strided_backward, inputs, 1);
  Tensor strided = x->tape().detach(result);
  x->tape().autograd.set_history(node, strided);
  return strided;
}

Tensor sum_over(Arg x, int dim, bool keep_dim) {
  const OperatorCall call(x);
  return sum(*x, 1U << (dim < 0 ? dim + x->rank() : dim), keep_dim);
}

Tensor argmax_last(Arg x) {
  const OperatorCall call(x);
  constexpr std::int64_t kPair = 16;  // ReduceAllOps.h, ArgMaxOps: a value and an int64 index
  Shape shape = x->shape();
  --shape.rank;
  Tensor result = x->tape().empty(shape, DType::kInt64, aten::kArgmax);
  reduction_scratch(*x, 1U << (x->rank() - 1), kPair, aten::kArgmax);
  x->tape().kernels.add(aten::kArgmax, OperatorClass::kElementwise, x->dtype(), static_cast<double>(x->elements()),
                        static_cast<double>(x->bytes() + result.bytes()));
  return result;
}

Tensor sum_all(Arg x) {
  const OperatorCall call(x);
  return reduce(aten::kSum, *x, (1U << x->rank()) - 1, false);
}

}  // namespace memcalc
