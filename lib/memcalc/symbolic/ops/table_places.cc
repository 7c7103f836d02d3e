// Rows of the operator table that write or read at places of a tensor, beyond those that families call: index_put,
// scatter_reduce, index_fill, select_scatter, grid_sample, embedding_bag. Sources:
// aten/src/ATen/native/TensorAdvancedIndexing.cpp, EmbeddingBag.cu, GridSampler.cu and
// torch/csrc/autograd/FunctionsManual.cpp of torch 2.11.
// MIRRORS(torch, "torch/csrc/autograd/FunctionsManual.cpp", "2.11.0")
// MIRRORS(torch, "native/TensorAdvancedIndexing.cpp", "2.11.0")
#include "memcalc/symbolic/ops/put.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/embedding_rows.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/recorded_input.h"

namespace memcalc {
namespace {

Tensor pw(const Operator& op, std::initializer_list<const Tensor*> inputs) { return pointwise(op, inputs, 1); }
Tensor mask(const Operator& op, std::initializer_list<const Tensor*> inputs) {
  return pointwise(op, inputs, 1, DType::kBool);
}

void move_kernel(const Operator& op, const Tensor& x) {
  x.tape().kernels.add(op, OperatorClass::kMovement, x.dtype(), 0, 2.0 * static_cast<double>(x.bytes()),
                       KernelKind::kStrided, static_cast<double>(x.elements()));
}

// --- index_put
// --------------------------------------------------------------------------------------------------------

struct PutPayload {
  Shape values;
  DType dtype = DType::kFloat32;
  bool adds = false;
  bool fills = false;  // a number at a mask's places: masked_fill_ (canDispatchToMaskedFill), there and back
};

/// derivatives.yaml: self: grad.index_put(indices, zeros_like(values)), or grad where values are added; values:
/// grad.index(indices).
void put_backward(BackwardCall& call) {  // inputs: self, values; saved: indices
  const auto& [values, dtype, adds, fills] = call.payload<PutPayload>();
  const Tensor& gradient = call.gradient();
  if (call.needs(0)) {
    if (adds) {
      call.set(0, gradient);
    } else if (fills) {
      call.set(0, moved_like(gradient, aten::kClone));
    } else {
      const Tensor zeros = filled(call.tape, values, dtype, aten::kZerosLike);
      call.set(0, moved_like(gradient, aten::kClone));
      move_kernel(aten::kIndexPutImpl, zeros);
    }
  }
  if (call.node.edge_count > 1 && call.needs(1)) {
    call.set(1, filled(call.tape, values, gradient.dtype(), aten::kIndex));
  }
}

Node* record_put(const Tensor& x, std::span<const Tensor> indices, const Tensor& values, bool adds) {
  Node* node = values.defined() ? record(aten::kIndexPutOf, put_backward, {&x, &values})
                                : record(aten::kIndexPutOf, put_backward, {&x});
  if (node == nullptr) return nullptr;
  const bool fills = !values.defined() && indices.size() == 1 && indices.front().dtype() == DType::kBool;
  node->payload.set(PutPayload{values.defined() ? values.shape() : Shape{}, x.dtype(), adds, fills});
  for (const Tensor& each : indices) x.tape().autograd.save(*node, each);
  return node;
}

/// cuda/Indexing.cu, index_put_with_sort_kernel, as of an index's derivative (index.cc): sums are in order.
void put_scratch(const Tensor& x, std::span<const Tensor> indices) {
  Tape& tape = x.tape();
  const std::int64_t n = indices.front().elements();
  const auto numbers = [&] { return tape.empty({n}, DType::kInt64, aten::kIndexPutImpl); };
  Tensor linear;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    Tensor remainder = numbers(), scaled = numbers();
    remainder.reset();
    if (!linear.defined()) linear = std::move(scaled);
  }
  const Tensor sorted = numbers(), order = numbers(), range = numbers();
  const int bits = std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(x.elements() - 1, 1)));
  tape.memory.scratch(radix_sort_bytes(n, bits), aten::kIndexPutImpl);
}

template <bool in_place>
void index_put_row(RecordedCall& call) {  // input indices values accumulate
  std::array<Tensor, 2> operands{call.tensor(0), call.tensor(2)};
  if (!in_place) autocast_promote(aten::kIndexPutOf, operands);
  const auto& [x, values] = operands;
  if (call.slot(1).kind != BoundArgument::Kind::kList) call.refuse("no list of indices");
  std::vector<Tensor> indices;
  for (const BoundArgument& each : call.slot(1).items) {
    if (RecordedCall::is_tensor(each)) indices.push_back(call.tensor(each));
  }
  const auto is_mask = [](const Tensor& each) { return each.dtype() == DType::kBool; };
  if (indices.empty() || indices.size() > kMaxSaved || std::any_of(indices.begin(), indices.end(), is_mask)) {
    call.refuse("a mask");
  }
  if (in_place && is_followed(x) && x.impl()->is_view) call.refuse("a part of a tensor that is differentiated");
  const bool adds = call.boolean_or(3, false);
  Node* node = record_put(x, indices, values, adds);
  Tensor result = in_place ? call.tape.detach(x) : moved_like(x, aten::kClone);
  if (adds) put_scratch(x, indices);
  move_kernel(aten::kIndexPutImpl, values);
  call.returns(finish(node, std::move(result)));
}

// --- scatter_reduce
// ---------------------------------------------------------------------------------------------------

struct ReducePayload {
  enum class Kind : std::uint8_t { kSum, kMean, kExtremum } kind = Kind::kSum;
  bool includes_self = true;
};

/// scatter_reduce_backward of FunctionsManual.cpp.
void scatter_reduce_backward(BackwardCall& call) {  // inputs: self, src; saved: index, self, src, result
  const auto [kind, includes_self] = call.payload<ReducePayload>();
  const Tensor &gradient = call.gradient(), &index = call.saved(0), &source = call.saved(2);
  const auto gathered = [&] { return filled(call.tape, index.shape(), gradient.dtype(), aten::kGather); };
  // grad_self.scatter(dim, index, 0), where what is reduced does not count
  const auto of_places_left = [&, kept = includes_self](Tensor of_self) {
    return kept ? of_self : moved_like(of_self, aten::kScatter);
  };
  switch (kind) {
    case ReducePayload::Kind::kSum:
      if (call.needs(1)) call.set(1, gathered());
      if (call.needs(0)) call.set(0, of_places_left(gradient));
      return;
    case ReducePayload::Kind::kMean: {
      Tensor count;
      {
        const Tensor start = moved_like(gradient, aten::kOnesLike), ones = moved_like(source, aten::kOnesLike);
        count = moved_like(gradient, aten::kScatterAdd);
      }
      { const Tensor none = mask(aten::kEq, {&count}); }
      Tensor of_self = pw(aten::kDiv, {&gradient, &count});
      const Tensor counts = gathered(), chosen = gathered();
      call.set(1, pw(aten::kDiv, {&chosen, &counts}));
      call.set(0, of_places_left(std::move(of_self)));
      return;
    }
    case ReducePayload::Kind::kExtremum: {
      const auto number = [&](const Tensor& of) {  // where it is the result, as a number
        const Tensor is_result = mask(aten::kEq, {&of});
        return pointwise(aten::kToCopy, {&is_result}, 0, gradient.dtype());
      };
      const Tensor value = gathered(), of_self = number(call.saved(1)), of_source = number(source);
      const Tensor count = moved_like(gradient, aten::kScatterAdd);
      const Tensor share = pw(aten::kDiv, {&gradient, &count});
      const auto masked = [&](const Tensor& of, const Tensor& shared) {
        const Tensor is_result = mask(aten::kEq, {&of});
        return pw(aten::kMul, {&is_result, &shared});
      };
      Tensor of_both = masked(call.saved(1), share);
      const Tensor chosen = gathered();
      call.set(1, masked(source, chosen));
      call.set(0, of_places_left(std::move(of_both)));
      return;
    }
  }
}

template <bool in_place>
void scatter_reduce_row(RecordedCall& call) {  // input dim index src reduce include_self
  const Tensor &x = call.tensor(0), &index = call.tensor(2), &source = call.tensor(3);
  const std::string_view how = call.text_or(4, "");
  if (how == "prod") call.refuse("a product");
  if (in_place && is_followed(x) && x.impl()->is_view) call.refuse("a part of a tensor that is differentiated");
  const Tensor before = in_place && (is_followed(x) || is_followed(source)) ? moved_like(x, aten::kClone) : x;
  Node* node = record(aten::kScatterReduce, scatter_reduce_backward, {&x, &source}, {&index, &before, &source});
  if (node != nullptr) {
    using Kind = ReducePayload::Kind;
    node->payload.set(ReducePayload{.kind = how == "sum"    ? Kind::kSum
                                            : how == "mean" ? Kind::kMean
                                                            : Kind::kExtremum,
                                    .includes_self = call.boolean_or(5, true)});
  }
  Tensor result = in_place ? call.tape.detach(x) : moved_like(x, aten::kScatterReduce);
  if (how == "mean") {  // how many fall on each place
    const Tensor ones = moved_like(source, aten::kOnesLike), counts = moved_like(result, aten::kScatterAdd);
    const Tensor none = mask(aten::kEq, {&counts});
  }
  move_kernel(aten::kScatterReduce, source);
  call.returns(finish(node, std::move(result), true));
}

// --- whole slices
// -----------------------------------------------------------------------------------------------------

void index_fill_row(RecordedCall& call) {  // input dim index value
  const Tensor &x = call.tensor(0), &index = call.tensor(2);
  if (call.is_tensor(3) && is_followed(call.tensor(3))) call.refuse("a value that is differentiated");
  Node* node =
      record(aten::kIndexFill, [](BackwardCall& back) { back.set(0, moved_like(back.gradient(), aten::kIndexFill)); },
             {&x}, {&index});
  call.returns(finish(node, moved_like(x, aten::kIndexFill)));
}

/// self: grad.index_fill(dim, index, 0); source: grad.index_select(dim, index).
void index_copy_backward(BackwardCall& call) {  // saved: index, source
  if (call.needs(0)) call.set(0, moved_like(call.gradient(), aten::kIndexFill));
  if (call.needs(1)) {
    call.set(1, filled(call.tape, call.saved(1).shape(), call.gradient().dtype(), aten::kIndexSelect));
  }
}

template <bool in_place>
void index_copy_row(RecordedCall& call) {  // input dim index source
  const Tensor &x = call.tensor(0), &index = call.tensor(2), &source = call.tensor(3);
  if (in_place && is_followed(x) && x.impl()->is_view) call.refuse("a part of a tensor that is differentiated");
  Node* node = record(aten::kIndexCopyOf, index_copy_backward, {&x, &source},
                      {&index, source.requires_grad() ? &source : nullptr});
  call.returns(finish(node, in_place ? call.tape.detach(x) : moved_like(x, aten::kIndexCopyOf)));
  move_kernel(aten::kIndexCopyOf, source);
}

/// torch.take_along_dim: indices are brought into range first, then gathered by.
void take_along_row(RecordedCall& call) {  // input indices dim
  const Tensor& x = call.tensor(0);
  if (!call.has(2)) call.refuse("no dimension");
  if (x.rank() != call.tensor(1).rank()) call.refuse("another number of dimensions");
  const int dim = call.dimension(2, x.rank(), 0);
  Shape of_places = call.tensor(1).shape(), of_x = x.shape();  // _take_along_dim_helper: both are expanded
  for (int i = 0; i < x.rank(); ++i) {
    if (i == dim) continue;
    of_places[i] = of_x[i] = std::max(of_places[i], of_x[i]);
  }
  const Tensor expanded = expand(call.tensor(1), of_places);
  const Tensor places = pw(aten::kRemainder, {&expanded});
  call.returns(gather(of_x == x.shape() ? x : expand(x, of_x), places));
}

/// select_scatter, slice_scatter: a copy, into a part of which another tensor is written.
void part_scatter_backward(BackwardCall& call) {  // self: the same of zeros_like(src); src: that part of the gradient
  const Shape& source = call.payload<InputShape>().shape;
  if (call.needs(0)) {
    const Tensor zeros = filled(call.tape, source, call.gradient().dtype(), aten::kZerosLike);
    call.set(0, moved_like(call.gradient(), aten::kSliceScatter));
  }
  if (call.needs(1)) {
    const Tensor& gradient = call.gradient();
    Shape strides = gradient.strides();
    if (source.rank < gradient.rank()) strides = contiguous_strides(source);
    call.set(1, call.tape.alias(gradient, source, strides, true));
  }
}

template <const AtenOperator& op>
void part_scatter_row(RecordedCall& call) {  // input src …
  const Tensor &x = call.tensor(0), &source = call.tensor(1);
  Node* node = record(op, part_scatter_backward, {&x, &source});
  if (node != nullptr) node->payload.set(InputShape{source.shape()});
  call.returns(finish(node, moved_like(x, op)));
}

// --- images and tables
// ------------------------------------------------------------------------------------------------

/// GridSampler.cu: the gradients of both, whichever is needed.
void grid_sample_backward(BackwardCall& call) {  // saved: grid, input
  Tensor of_input = filled(call.tape, call.saved(1).shape(), call.saved(1).dtype(), aten::kGridSampler2dBackward);
  Tensor of_grid = filled(call.tape, call.saved(0).shape(), call.saved(0).dtype(), aten::kGridSampler2dBackward);
  call.set(0, std::move(of_input));
  call.set(1, std::move(of_grid));
}

void grid_sample_row(RecordedCall& call) {  // input grid mode padding_mode align_corners
  std::array<Tensor, 2> operands{call.tensor(0), call.tensor(1)};
  autocast_promote(aten::kGridSampler2d, operands);
  const auto& [x, grid] = operands;
  Node* node = record(aten::kGridSampler2d, grid_sample_backward, {&x, &grid}, {&grid, &x});
  Shape shape = x.shape();
  for (int dim = 2; dim < shape.rank; ++dim) shape[dim] = grid.size(dim - 1);
  call.returns(finish(node, filled(call.tape, shape, x.dtype(), aten::kGridSampler2d)));
}

struct BagPayload {
  Shape table;
};

/// EmbeddingBag.cu: of the largest each gradient goes to its row, of sums and means the indices are sorted.
void embedding_bag_backward(BackwardCall& call) {  // saved: indices, offsets, bags, bag sizes, largest
  const Shape& table = call.payload<BagPayload>().table;
  const DType dtype = call.gradient().dtype();
  const bool sorts = call.node.saved_count < 5;
  call.set(0, sorts ? sorted_table_gradient(call.tape, dtype, call.saved(0).elements(), table)
                    : filled(call.tape, table, dtype, aten::kEmbeddingBagBackward));
}

void embedding_bag_row(RecordedCall& call) {
  // input weight offsets max_norm norm_type scale_grad_by_freq mode sparse per_sample_weights include_last_offset
  const Tensor& table = call.tensor(1);
  Tensor indices = call.tensor(0);
  refuse_sparse_gradient(call, table, 7);
  if (call.has(8)) call.refuse("a weight for each sample");
  const std::string_view mode = call.text_or(6, "mean");
  const bool rows = indices.rank() == 2;
  if (!rows && !call.has(2)) call.refuse("no offsets");
  Tape& tape = call.tape;
  const Tensor offsets = rows ? filled(tape, {indices.size(0)}, DType::kInt64, aten::kArange) : call.tensor(2);
  if (rows) indices = contiguous(indices);  // nn/functional.py: input.reshape(-1)
  const std::int64_t bags = offsets.elements() - (call.boolean_or(9, false) ? 1 : 0);
  Node* node = record(aten::kEmbeddingBag, embedding_bag_backward, {&table}, {&indices, &offsets});
  const Tensor sizes = tape.empty({bags}, DType::kInt64, aten::kEmbeddingBag);
  const Tensor bag_of = tape.empty({indices.elements()}, DType::kInt64, aten::kEmbeddingBag);
  Tensor result = filled(tape, {bags, table.size(1)}, table.dtype(), aten::kEmbeddingBag);
  Tensor largest;
  if (mode == "max") largest = tape.empty({bags, table.size(1)}, DType::kInt64, aten::kEmbeddingBag);
  result = finish(node, std::move(result));
  if (node != nullptr) {
    node->payload.set(BagPayload{table.shape()});
    tape.autograd.save(*node, bag_of);
    tape.autograd.save(*node, sizes);
    if (largest.defined()) tape.autograd.save(*node, largest);
  }
  call.returns(std::move(result));
}

struct WindowPayload {
  int dim = 0;
  std::int64_t size = 1, step = 1;
};

/// Its gradient are the windows of the gradient: a view.
void windows_backward(BackwardCall& call) {
  const auto& [dim, size, step] = call.payload<WindowPayload>();
  const Tensor& gradient = call.gradient();
  Shape shape = gradient.shape(), strides = gradient.strides();
  shape[dim] = (gradient.size(dim) - size) / step + 1;
  const std::int64_t stride = gradient.strides()[dim];
  strides[dim] = step * stride;
  shape.dims[static_cast<std::size_t>(shape.rank++)] = size;
  strides.dims[static_cast<std::size_t>(strides.rank++)] = stride;
  call.set(0, call.tape.alias(gradient, shape, strides, false));
}

/// What istft calls: zeros, to which windows are added where they lie.
void unfold_backward_row(RecordedCall& call) {  // grad_in input_sizes dim size step
  const Tensor& windows = call.tensor(0);
  const Shape shape = call.shape(1);
  Node* node = record(aten::kUnfoldBackwardOf, windows_backward, {&windows});
  if (node != nullptr)
    node->payload.set(WindowPayload{call.dimension(2, shape.rank, 0), call.integer(3), call.integer(4)});
  call.returns(finish(node, filled(call.tape, shape, windows.dtype(), aten::kUnfoldBackwardOf)));
}

void masked_scatter_in_place_row(RecordedCall& call) {  // input mask source
  const Tensor& x = call.tensor(0);
  if (is_followed(x) && x.impl()->is_view) call.refuse("a part of a tensor that is differentiated");
  call.returns(masked_scatter_in_place(x, call.tensor(1), call.tensor(2)));
}

constexpr OperatorRow kRows[] = {
    {"index_put", "input indices values accumulate", index_put_row<false>},
    {"index_put_", "input indices values accumulate", index_put_row<true>},
    {"scatter_reduce", "input dim index src reduce include_self", scatter_reduce_row<false>},
    {"scatter_reduce_", "input dim index src reduce include_self", scatter_reduce_row<true>},
    {"index_fill", "input dim index value", index_fill_row},
    {"index_copy", "input dim index source", index_copy_row<false>},
    {"index_copy_", "input dim index source", index_copy_row<true>},
    {"take_along_dim", "input indices dim", take_along_row},
    {"select_scatter", "input src dim index", part_scatter_row<aten::kSelectScatter>},
    {"slice_scatter", "input src dim start end step", part_scatter_row<aten::kSliceScatterOf>},
    {"grid_sample", "input grid mode padding_mode align_corners", grid_sample_row},
    {"embedding_bag",
     "input weight offsets max_norm norm_type scale_grad_by_freq mode sparse per_sample_weights include_last_offset "
     "padding_idx",
     embedding_bag_row},
    {"unfold_backward", "grad_in input_sizes dim size step", unfold_backward_row},
    {"masked_scatter_", "input mask source", masked_scatter_in_place_row},
};

}  // namespace

Tensor inverse_permutation(const Tensor& permutation) {
  Tape& tape = permutation.tape();
  Tensor inverse = no_grad::empty_like(permutation);
  no_grad::arange(tape, permutation.elements()).reset();
  const auto bytes = static_cast<double>(permutation.bytes());
  tape.kernels.add(aten::kArange, OperatorClass::kMovement, permutation.dtype(), 0, bytes);
  tape.kernels.add(aten::kIndexPutInPlace, OperatorClass::kMovement, permutation.dtype(), 0, 3 * bytes,
                   KernelKind::kStrided);
  return inverse;
}

std::span<const OperatorRow> place_rows() { return kRows; }

Tensor put_at_places(const Tensor& x, std::span<const Tensor> indices, const Tensor& values) {
  Tape& tape = x.tape();
  Tensor number;  // python_variable_indexing.cpp: a number becomes a tensor on the card, for the call
  const bool fills = indices.size() == 1 && indices.front().dtype() == DType::kBool;
  if (!values.defined() && !fills) number = tape.empty({}, x.dtype(), aten::kScalarTensor);
  Node* node = record_put(x, indices, values, false);
  move_kernel(aten::kIndexPutImpl, values.defined() ? values : fills ? x : number);
  return finish(node, tape.detach(x));
}

}  // namespace memcalc
