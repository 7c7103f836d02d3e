// MIRRORS(torch, "PadNd.cpp", "2.11.0")
// MIRRORS(torch, "cuda/Indexing.cu", "2.11.0")
// MIRRORS(torch, "cuda/Nonzero.cu", "2.11.0")
// MIRRORS(torch, "cuda/TensorTransformations.cu", "2.11.0")
// MIRRORS(torch, "native/TensorAdvancedIndexing.cpp", "2.11.0")
#include "memcalc/symbolic/ops/index.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

void move_kernel(const Operator& op, const Tensor& x) {
  x.tape().kernels.add(op, OperatorClass::kMovement, x.dtype(), 0, 2.0 * static_cast<double>(x.bytes()),
                       KernelKind::kStrided, static_cast<double>(x.elements()));
}

struct IndexPayload {
  Shape input;
  std::int64_t width = 1;     // elements of an indexed slice
  std::int64_t behind = 1;    // of these in the dimensions behind the indexed ones
  std::int64_t mask_set = 0;  // how many elements of the mask are set; 0: places are saved, and no mask
};

/// cuda/Nonzero.cu: they are counted, the host reads their number and asks for the result, and they are written.
Tensor places_of(const Tensor& mask, std::int64_t count) {
  Tape& tape = mask.tape();
  const Tensor rows = mask.is_contiguous() ? mask : tape.empty(mask.shape(), mask.dtype(), aten::kNonzero);
  const Tensor number = tape.empty({1}, DType::kInt32, aten::kNonzero);
  tape.memory.scratch(sum_bytes(mask.elements(), tape.device.multiprocessors), aten::kNonzero);
  tape.kernels.synchronize(aten::kNonzero);
  Tensor places = tape.empty({count, mask.rank()}, DType::kInt64, aten::kNonzero);
  tape.memory.scratch(select_bytes(mask.elements()), aten::kNonzero);
  move_kernel(aten::kNonzero, places);
  // cub's DeviceSelect::Flagged is two, write_indices the third
  if (Kernel* kernel = tape.kernels.last()) kernel->launches = 3;
  return places;
}

bool is_on_host(const Tensor& x) { return x.block() == kNoBlock && x.elements() > 0; }

/// native/TensorAdvancedIndexing.cpp, make_info: indices of the host are brought to the card, and those of 32 bits made
/// 64 wide, for as long as the operator runs.
std::vector<Tensor> brought(const Tensor& x, std::span<const Tensor* const> indices) {
  std::vector<Tensor> copies;
  if (is_on_host(x)) return copies;
  for (const Tensor* each : indices) {
    if (is_on_host(*each) || each->dtype() == DType::kInt32) {
      copies.push_back(x.tape().empty(each->shape(), DType::kInt64, aten::kIndex));
    }
  }
  return copies;
}

/// cuda/Indexing.cu, index_put_with_sort_kernel: indices are made linear and sorted, so that sums are in order. The
/// sort looks at as many bits as the largest index has.
void index_backward(BackwardCall& call) {  // saved: one index for each of the leading dimensions, or a mask of them
  Tape& tape = call.tape;
  const auto& payload = call.payload<IndexPayload>();
  const std::int64_t set = payload.mask_set;
  const std::int64_t n = set > 0 ? set : call.saved(0).elements();
  const int count = set > 0 ? call.saved(0).rank() : call.node.saved_count;
  const auto indices = [&] { return tape.empty({n}, DType::kInt64, aten::kIndexPutImpl); };
  Tensor result = tape.empty(payload.input, call.gradient().dtype(), aten::kNewZeros);
  tape.kernels.add(aten::kNewZeros, OperatorClass::kMovement, result.dtype(), 0, static_cast<double>(result.bytes()));
  Tensor places;
  if (set > 0) places = places_of(call.saved(0), n);
  Tensor linear;
  for (int i = 0; i < count; ++i) {
    // computeLinearIndex brings an index of the host to the card once it is scaled.
    const bool comes = set == 0 && is_on_host(call.saved(i));
    Tensor remainder = comes ? Tensor{} : indices();
    Tensor scaled = indices();
    remainder.reset();
    if (!linear.defined()) linear = std::move(scaled);  // the others are added to it in place
  }
  places.reset();
  Tensor values = contiguous(call.gradient());
  Tensor sorted = indices();
  Tensor order = indices();
  Tensor range = indices();
  const std::int64_t rows = payload.input.elements() / payload.width;
  // largestIndex() knows of slices behind the index alone: x[:, i] counts those before it, too.
  const std::int64_t largest = (payload.input.elements() - 1) / payload.behind;
  const int bits = std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(largest, 1)));
  tape.memory.scratch(radix_sort_bytes(n, bits), aten::kIndexPutImpl);
  range.reset();
  move_kernel(aten::kIndexPutImpl, values);
  tape.kernels.describe(work::EmbeddingGradient{.indices = n, .width = payload.width, .table_rows = rows});
  // remainder, mul and div_ of the indices, arange, the sort, the sums
  if (Kernel* kernel = tape.kernels.last()) kernel->launches = 2 * count + 3 + radix_sort_launches(n, bits);
  drop(order, sorted, values, linear);
  call.set(0, std::move(result));
}

/// `places`: elements of the result for each slice that is taken.
/// `behind`: elements of x behind the indexed dimensions; 0: of the whole slice.
Tensor index(const Tensor& x, std::span<const Tensor* const> indices, const Shape& shape, std::int64_t places,
             std::int64_t behind = 0) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kIndex, index_backward, inputs, 1);
  if (node != nullptr) {
    const std::int64_t width = places == 0 ? 1 : shape.elements() / places;
    node->payload.set(IndexPayload{.input = x.shape(), .width = width, .behind = behind > 0 ? behind : width});
    for (const Tensor* each : indices) tape.autograd.save(*node, *each);
  }
  const std::vector<Tensor> copies = brought(x, indices);
  Tensor result = tape.empty(shape, x.dtype(), aten::kIndex);
  move_kernel(aten::kIndex, result);
  // cuda/IndexKernel.cu: slices of 16 bytes and their multiples are gathered a row at a time.
  constexpr Bytes kVector = 16;
  const std::int64_t width = shape.elements() / std::max<std::int64_t>(places, 1);
  if (places > 0 && width * size_of(x.dtype()) % kVector == 0) {
    tape.kernels.describe(work::Rows{.count = places, .width = width});
  }
  tape.autograd.set_history(node, result);
  return result;
}

void gather_backward(BackwardCall& call) {  // saved: index; scattered into zeros
  Tensor result = call.tape.empty(call.payload<InputShape>().shape, call.gradient().dtype(), aten::kNewZeros);
  move_kernel(aten::kGather, result);
  call.set(0, std::move(result));
}

/// TensorAdvancedIndexing.cpp, masked_fill: both are expanded to one shape, and that is copied row by row.
Tensor filled_copy(const Tensor& x, const Tensor& mask) {
  Tensor result = x.tape().empty(broadcast_shapes(x.shape(), mask.shape()), x.dtype(), aten::kMaskedFill);
  x.tape().kernels.add(aten::kClone, OperatorClass::kMovement, result.dtype(), 0,
                       static_cast<double>(x.bytes() + result.bytes()), copy_kind(x, result),
                       static_cast<double>(result.elements()));
  move_kernel(aten::kMaskedFill, result);
  return result;
}

void masked_fill_backward(BackwardCall& call) { call.set(0, filled_copy(call.gradient(), call.saved(0))); }

Node* record_masked_fill(const Tensor& x, const Tensor& mask) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kMaskedFill, masked_fill_backward, inputs, 1);
  if (node != nullptr) tape.autograd.save(*node, mask);
  return node;
}

/// derivatives.yaml: grad.index_select(dim, index).expand_as(source), for which it keeps the source.
void index_copy_backward(BackwardCall& call) {  // saved: index, source
  Tensor result = call.tape.empty(call.saved(1).shape(), call.gradient().dtype(), aten::kIndexSelect);
  move_kernel(aten::kIndexSelect, result);
  call.set(0, std::move(result));
}

/// The gradient padded by as much less than nothing: PadNd.cpp then clones what is left, as it is laid out.
void pad_backward(BackwardCall& call) {
  const Tensor& gradient = call.gradient();
  const Shape& input = call.payload<InputShape>().shape;
  Tensor result =
      call.tape.empty_strided(input, like_strides(input, gradient.strides()), gradient.dtype(), aten::kConstantPadNd);
  move_kernel(aten::kConstantPadNd, result);
  call.set(0, std::move(result));
}

Tensor roll_twice(const Tensor& x) {
  const Tensor first = x.tape().empty(x.shape(), x.dtype(), aten::kRoll);
  Tensor second = x.tape().empty(x.shape(), x.dtype(), aten::kRoll);
  move_kernel(aten::kRoll, first);
  move_kernel(aten::kRoll, second);
  return second;
}

void roll_backward(BackwardCall& call) { call.set(0, roll_twice(call.gradient())); }

}  // namespace

Tensor index_rows(const Tensor& table, const Tensor& rows) {
  Shape shape = table.shape();
  shape[0] = rows.elements();
  const Tensor* indices[] = {&rows};
  return index(table, indices, shape, shape[0]);
}

Tensor index_pairs(const Tensor& x, const Tensor& first, Arg second) {
  const OperatorCall call(second);
  const Tensor* indices[] = {&first, &*second};
  return index(x, indices, {first.elements(), x.size(2)}, first.elements());
}

namespace {

/// native/TensorAdvancedIndexing.cpp, AdvancedIndex: on a card several indices must have the same strides once they are
/// broadcast; else all of them are made contiguous, for as long as the operator runs.
std::vector<Tensor> laid_out_alike(std::span<const std::pair<int, Tensor>> places, const Shape& found) {
  std::vector<Tensor> all;
  if (places.size() < 2) return all;
  for (const auto& [dim, each] : places) all.push_back(each.shape() == found ? each : expand(each, found));
  const auto same = [&](const Tensor& each) { return each.strides() == all.front().strides(); };
  if (std::all_of(all.begin(), all.end(), same)) return {};
  for (Tensor& each : all) each = contiguous(each);
  return all;
}

}  // namespace

// native/TensorAdvancedIndexing.cpp: neighbouring dimensions are replaced where they are, others come first.
Tensor index(const Tensor& x, std::span<const std::pair<int, Tensor>> places) {
  Shape found = places.front().second.shape();
  bool neighbours = true;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!(places[i].second.shape() == found)) found = broadcast_shapes(found, places[i].second.shape());
    neighbours = neighbours && places[i].first == places.front().first + static_cast<int>(i);
  }
  const auto is_indexed = [&](int dim) {
    return std::any_of(places.begin(), places.end(), [dim](const auto& place) { return place.first == dim; });
  };
  Shape shape;
  const auto append = [&](std::int64_t size) { shape.dims[static_cast<std::size_t>(shape.rank++)] = size; };
  const auto append_found = [&] {
    for (int i = 0; i < found.rank; ++i) append(found[i]);
  };
  if (!neighbours) append_found();
  for (int dim = 0; dim < x.rank(); ++dim) {
    if (neighbours && dim == places.front().first) append_found();
    if (!is_indexed(dim)) append(x.size(dim));
  }
  const std::vector<Tensor> copies = laid_out_alike(places, found);
  std::vector<const Tensor*> indices;
  for (std::size_t i = 0; i < places.size(); ++i) indices.push_back(&places[i].second);
  std::int64_t behind = 1;  // where indexed dimensions are not neighbours they are brought to the front
  for (int dim = neighbours ? places.back().first + 1 : 0; dim < x.rank(); ++dim) {
    if (!is_indexed(dim)) behind *= x.size(dim);
  }
  return index(x, indices, shape, found.elements(), behind);
}

void index_put_in_place(const Tensor& x, const Tensor& source, std::span<const std::pair<int, Tensor>> places) {
  std::vector<const Tensor*> indices;
  for (const auto& [dim, each] : places) indices.push_back(&each);
  const std::vector<Tensor> copies = brought(x, indices);
  x.tape().kernels.add(aten::kIndexPutImpl, OperatorClass::kMovement, x.dtype(), 0,
                       2.0 * static_cast<double>(source.bytes()), KernelKind::kStrided,
                       static_cast<double>(source.elements()));
}

namespace {

/// What index_put_ needs to know of its source.
struct PutPayload {
  Shape source;
  int dim = 0;  // from which on the mask stands
};

/// derivatives.yaml, index_put: grad.index_put(indices, zeros_like(values)) and grad.index(indices). Each makes places
/// of the mask anew.
void put_by_mask_backward(BackwardCall& call) {  // inputs: what is changed, the source; saved: the mask
  Tape& tape = call.tape;
  const Tensor& gradient = call.gradient();
  const auto& payload = call.payload<PutPayload>();
  const std::int64_t count = payload.source[payload.dim];
  if (call.needs(0)) {
    const Tensor zeros = tape.empty(payload.source, gradient.dtype(), aten::kZeros);
    Tensor result = tape.empty_strided(gradient.shape(), like_strides(gradient.shape(), gradient.strides()),
                                       gradient.dtype(), aten::kClone);
    move_kernel(aten::kClone, result);
    {
      const Tensor places = places_of(call.saved(0), count);
      move_kernel(aten::kIndexPutImpl, zeros);
    }
    call.set(0, std::move(result));
  }
  if (call.needs(1)) {
    const Tensor places = places_of(call.saved(0), count);
    Tensor result = tape.empty(payload.source, gradient.dtype(), aten::kIndex);
    move_kernel(aten::kIndex, result);
    call.set(1, std::move(result));
  }
}

}  // namespace

Tensor put_by_mask(const Tensor& x, int dim, const Tensor& mask, const Tensor& source) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x, &source};
  Node* node = tape.autograd.record(aten::kIndexPutInPlace, put_by_mask_backward, inputs, 2);
  if (node != nullptr) {
    node->payload.set(PutPayload{source.shape(), dim});
    tape.autograd.save(*node, mask);
  }
  {
    const Tensor places = places_of(mask, source.size(dim));  // IndexingUtils.h, expandTensors
    move_kernel(aten::kIndexPutImpl, source);
  }
  Tensor result = tape.detach(x);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor nonzero(const Tensor& mask, std::int64_t count) { return places_of(mask, count); }

Tensor index_by_mask(const Tensor& x, int dim, const Tensor& mask, std::int64_t count) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kIndex, index_backward, inputs, 1);
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == dim) shape.dims[static_cast<std::size_t>(shape.rank++)] = count;
    if (i < dim || i >= dim + mask.rank()) shape.dims[static_cast<std::size_t>(shape.rank++)] = x.size(i);
  }
  if (node != nullptr) {
    const std::int64_t width = count == 0 ? 1 : shape.elements() / count;
    node->payload.set(IndexPayload{.input = x.shape(), .width = width, .behind = width, .mask_set = count});
    tape.autograd.save(*node, mask);
  }
  const Tensor places = places_of(mask, count);  // IndexingUtils.h, expandTensors
  Tensor result = tape.empty(shape, x.dtype(), aten::kIndex);
  move_kernel(aten::kIndex, result);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor index_select(const Tensor& x, int dim, const Tensor& places) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kIndexSelect, gather_backward, inputs, 1);  // index_add into zeros
  if (node != nullptr) {
    node->payload.set(InputShape{x.shape()});
    tape.autograd.save(*node, places);
  }
  Shape shape = x.shape();
  shape[dim] = places.elements();
  Tensor result = tape.empty(shape, x.dtype(), aten::kIndexSelect);
  move_kernel(aten::kIndexSelect, result);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor masked_select(const Tensor& x, const Tensor& mask, std::int64_t count) {
  const Tensor places = places_of(mask.shape() == x.shape() ? mask : expand(mask, x.shape()), count);
  Tensor result = x.tape().empty({count}, x.dtype(), aten::kIndex);
  move_kernel(aten::kIndex, result);
  return result;
}

Tensor gather(const Tensor& x, const Tensor& index) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kGather, gather_backward, inputs, 1);
  if (node != nullptr) {
    node->payload.set(InputShape{x.shape()});
    tape.autograd.save(*node, index);
    tape.autograd.save(*node, x);  // derivatives.yaml: gather_backward(grad, self, …), for its sizes
  }
  Tensor result = tape.empty(index.shape(), x.dtype(), aten::kGather);
  move_kernel(aten::kGather, result);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor masked_fill(Arg x, const Tensor& mask) {
  const OperatorCall call(x);
  Node* node = record_masked_fill(*x, mask);
  Tensor result = filled_copy(*x, mask);
  x->tape().autograd.set_history(node, result);
  return result;
}

Tensor masked_fill_in_place(const Tensor& x, const Tensor& mask) {
  Node* node = record_masked_fill(x, mask);
  Tensor result = x.tape().detach(x);
  move_kernel(aten::kMaskedFill, x);
  x.tape().autograd.set_history(node, result);
  return result;
}

Tensor pad_to(const Tensor& x, const Shape& shape) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kConstantPadNd, pad_backward, inputs, 1);
  if (node != nullptr) node->payload.set(InputShape{x.shape()});
  bool grows = false;
  for (int i = 0; i < shape.rank; ++i) grows = grows || shape[i] > x.size(i);
  Tensor result = grows ? tape.empty(shape, x.dtype(), aten::kConstantPadNd)
                        : tape.empty_strided(shape, like_strides(shape, x.strides()), x.dtype(),
                                             aten::kConstantPadNd);  // PadNd.cpp: a clone
  move_kernel(aten::kConstantPadNd, result);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor roll(const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kRoll, roll_backward, inputs, 1);
  Tensor result = roll_twice(x);
  tape.autograd.set_history(node, result);
  return result;
}

namespace {

void roll_once_backward(BackwardCall& call) {
  Tensor result = call.tape.empty(call.gradient().shape(), call.gradient().dtype(), aten::kRoll);
  move_kernel(aten::kRoll, result);
  call.set(0, std::move(result));
}

/// cuda/TensorTransformations.cu, flip: a result laid out as x is.
Tensor flipped(const Tensor& x) {
  Tensor result = x.tape().empty_strided(x.shape(), like_strides(x.shape(), x.strides()), x.dtype(), aten::kFlip);
  move_kernel(aten::kFlip, result);
  return result;
}

void flip_backward(BackwardCall& call) { call.set(0, flipped(call.gradient())); }

/// RepeatBackward0: the gradient's parts, summed; where all is repeated once there are none (FunctionsManual.cpp,
/// repeat_backward).
void repeat_backward(BackwardCall& call) {
  if (call.gradient().shape() == call.payload<InputShape>().shape) return call.set(0, call.take_gradient());
  Tensor result = call.tape.empty(call.payload<InputShape>().shape, call.gradient().dtype(), aten::kSum);
  move_kernel(aten::kSum, call.gradient());
  call.set(0, std::move(result));
}

}  // namespace

Tensor roll_once(const Tensor& x) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kRoll, roll_once_backward, inputs, 1);
  Tensor result = tape.empty(x.shape(), x.dtype(), aten::kRoll);
  move_kernel(aten::kRoll, result);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor flip(const Tensor& x) {
  const Tensor* inputs[] = {&x};
  Node* node = x.tape().autograd.record(aten::kFlip, flip_backward, inputs, 1);
  Tensor result = flipped(x);
  x.tape().autograd.set_history(node, result);
  return result;
}

Tensor repeat(const Tensor& x, const Shape& times) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kRepeat, repeat_backward, inputs, 1);
  if (node != nullptr) node->payload.set(InputShape{x.shape()});
  Shape shape = times;
  for (int i = 0; i < x.rank(); ++i) shape[times.rank - x.rank() + i] *= x.size(i);
  Tensor result = tape.empty(shape, x.dtype(), aten::kRepeat);
  move_kernel(aten::kRepeat, result);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor index_copy_to_zeros(Arg source, const Tensor& columns, std::int64_t width) {
  const OperatorCall call(source);
  Tape& tape = source->tape();
  const Shape shape{source->size(0), width};
  const Tensor zeros = tape.empty(shape, source->dtype(), aten::kNewZeros);
  const Tensor* inputs[] = {&*source};
  Node* node = tape.autograd.record(aten::kIndexCopy, index_copy_backward, inputs, 1);
  if (node != nullptr) {
    tape.autograd.save(*node, columns);
    tape.autograd.save(*node, *source);
  }
  Tensor result = tape.empty(shape, source->dtype(), aten::kIndexCopy);
  move_kernel(aten::kIndexCopy, result);
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
