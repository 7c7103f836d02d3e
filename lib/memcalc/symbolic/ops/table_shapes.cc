// Rows of the operator table over shapes that families do not call: diagonals, triangles, stacks, parts, edges that are
// padded by values. Sources: aten/src/ATen/native/TensorShape.cpp, TensorConversions.cpp, TriangularOps.cpp, PadNd.cpp
// and tools/autograd/derivatives.yaml of torch 2.11.
// MIRRORS(torch, "TensorShape.cpp", "2.11.0")
// MIRRORS(torch, "PadNd.cpp", "2.11.0")
#include <algorithm>
#include <vector>

#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/copy_slices.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/padding.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/triangle.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {
namespace {

void append(Shape& shape, std::int64_t size) { shape.dims[static_cast<std::size_t>(shape.rank++)] = size; }

// --- diagonals and triangles
// ------------------------------------------------------------------------------------------

/// Sizes and strides of x.diagonal(offset, first, second).
std::pair<Shape, Shape> diagonal_of(const Tensor& x, std::int64_t offset, int first, int second) {
  std::pair<Shape, Shape> found;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == first || i == second) continue;
    append(found.first, x.size(i));
    append(found.second, x.strides()[i]);
  }
  const std::int64_t rows = x.size(first) + std::min<std::int64_t>(offset, 0);
  const std::int64_t columns = x.size(second) - std::max<std::int64_t>(offset, 0);
  append(found.first, std::max<std::int64_t>(std::min(rows, columns), 0));
  append(found.second, x.strides()[first] + x.strides()[second]);
  return found;
}

void diagonal_backward(BackwardCall& call) {  // diagonal_backward: zeros, into whose diagonal the gradient is copied
  const Shape& input = call.payload<InputShape>().shape;
  call.set(0, filled(call.tape, input, call.gradient().dtype(), aten::kDiagonalBackward));
}

Tensor diagonal(const Tensor& x, std::int64_t offset, int first, int second) {
  Node* node = record(aten::kDiagonal, diagonal_backward, {&x});
  if (node != nullptr) node->payload.set(InputShape{x.shape()});
  const auto [shape, strides] = diagonal_of(x, offset, first, second);
  return finish(node, x.tape().alias(x, shape, strides, true));
}

void diagonal_row(RecordedCall& call) {  // input offset dim1 dim2
  const Tensor& x = call.tensor(0);
  const int first = call.dimension(2, x.rank(), 0), second = call.dimension(3, x.rank(), 1);
  if (first == second) call.refuse("one dimension twice");
  call.returns(diagonal(x, call.integer_or(1, 0), first, second));
}

struct DiagonalPayload {
  std::int64_t offset = 0;
  int first = 0, second = 1;
};

/// at::diag_embed: zeros, into whose diagonal the input is copied; its gradient is the diagonal, a view.
Tensor embedded(const Tensor& x, std::int64_t offset, int first, int second) {
  Node* node = record(aten::kDiagEmbed,
                      [](BackwardCall& back) {
                        const auto& [by, one, other] = back.payload<DiagonalPayload>();
                        const auto [shape, strides] = diagonal_of(back.gradient(), by, one, other);
                        back.set(0, back.tape.alias(back.gradient(), shape, strides, true));
                      },
                      {&x});
  if (node != nullptr) node->payload.set(DiagonalPayload{offset, first, second});
  const std::int64_t side = x.size(-1) + (offset < 0 ? -offset : offset);
  Shape shape;
  for (int i = 0, from = 0; i <= x.rank(); ++i) append(shape, i == first || i == second ? side : x.size(from++));
  return finish(node, filled(x.tape(), shape, x.dtype(), aten::kDiagEmbed));
}

void diag_embed_row(RecordedCall& call) {  // input offset dim1 dim2
  const Tensor& x = call.tensor(0);
  if (x.rank() == 0 || x.rank() == kMaxDims) call.refuse("so many dimensions");
  const int rank = x.rank() + 1;
  call.returns(
      embedded(x, call.integer_or(1, 0), call.dimension(2, rank, rank - 2), call.dimension(3, rank, rank - 1)));
}

void diag_row(RecordedCall& call) {  // input diagonal
  const Tensor& x = call.tensor(0);
  if (x.rank() == 1) return call.returns(embedded(x, call.integer_or(1, 0), 0, 1));
  if (x.rank() != 2) call.refuse("so many dimensions");
  Node* node = record(aten::kDiag, diagonal_backward, {&x});  // diagonal_copy
  if (node != nullptr) node->payload.set(InputShape{x.shape()});
  const auto [shape, strides] = diagonal_of(x, call.integer_or(1, 0), 0, 1);
  call.returns(finish(node, filled(call.tape, shape, x.dtype(), aten::kDiag)));
}

void tril_row(RecordedCall& call) { call.returns(lower_triangle(call.tensor(0))); }  // input diagonal
void triu_row(RecordedCall& call) { call.returns(upper_triangle(call.tensor(0))); }

void eye_row(RecordedCall& call) {  // n m dtype device
  const std::int64_t rows = call.integer(0);
  const Shape shape{rows, call.integer_or(1, rows)};
  const DType dtype = call.dtype(2).value_or(DType::kFloat32);
  if (call.text_or(3, "cpu").starts_with("cuda")) {
    return call.returns(filled(call.tape, shape, dtype, aten::kEye));
  }
  const OnMetaDevice on_host(call.tape.memory);
  call.returns(call.tape.empty(shape, dtype, aten::kEye));
}

// --- stacks and parts
// -------------------------------------------------------------------------------------------------

/// at::atleast_1d, _2d and _3d: a vector becomes a row, of three dimensions one in the middle.
Tensor at_least(Tensor x, int rank) {
  if (rank >= 1 && x.rank() == 0) x = reshape(x, {1});
  if (rank >= 2 && x.rank() == 1) x = unsqueeze(x, 0);
  if (rank >= 3 && x.rank() == 2) x = unsqueeze(x, 2);
  return x;
}

template <int rank>
void at_least_row(RecordedCall& call) {
  call.returns(at_least(call.tensor(0), rank));
}

Tensor joined(const std::vector<Tensor>& parts, int dim) {
  return parts.size() == 2 ? cat(parts[0], parts[1], dim) : concatenate(parts, dim);
}

/// hstack, vstack, dstack: at least so many dimensions, joined along one.
template <int rank, int dim>
void stack_row(RecordedCall& call) {
  std::vector<Tensor> parts = call.tensors(0);
  if (parts.empty()) call.refuse("nothing");
  for (Tensor& part : parts) part = at_least(part, rank);
  const bool of_vectors = rank == 1 && parts.front().rank() == 1;  // hstack
  call.returns(joined(parts, of_vectors ? 0 : dim));
}

void column_stack_row(RecordedCall& call) {
  std::vector<Tensor> parts = call.tensors(0);
  if (parts.empty()) call.refuse("nothing");
  for (Tensor& part : parts) {
    if (part.rank() <= 1) part = reshape(part, {part.elements(), 1});
  }
  call.returns(joined(parts, 1));
}

/// tensor_split: a slice for each part; the first ones are larger by one.
void split_into(RecordedCall& call, const Tensor& x, int dim) {
  if (call.slot(1).kind == BoundArgument::Kind::kList) {
    std::int64_t from = 0;
    std::vector<std::int64_t> places = call.integers(1);
    places.push_back(x.size(dim));
    for (std::int64_t to : places) {
      to = std::clamp(to < 0 ? to + x.size(dim) : to, from, x.size(dim));
      call.returns(slice(x, dim, from, to - from));
      from = to;
    }
    return;
  }
  const std::int64_t parts = call.integer(1);
  if (parts < 1) call.refuse("no parts");
  std::int64_t from = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    const std::int64_t length = x.size(dim) / parts + (i < x.size(dim) % parts ? 1 : 0);
    call.returns(slice(x, dim, from, length));
    from += length;
  }
}

void tensor_split_row(RecordedCall& call) {  // input sections dim
  const Tensor& x = call.tensor(0);
  split_into(call, x, call.dimension(2, x.rank(), 0));
}
void hsplit_row(RecordedCall& call) { split_into(call, call.tensor(0), call.tensor(0).rank() == 1 ? 0 : 1); }
void vsplit_row(RecordedCall& call) { split_into(call, call.tensor(0), 0); }
void dsplit_row(RecordedCall& call) { split_into(call, call.tensor(0), 2); }

void broadcast_row(RecordedCall& call) {  // *tensors
  const std::vector<Tensor> tensors = call.tensors(0);
  Shape shape;
  for (const Tensor& each : tensors) shape = broadcast_shapes(shape, each.shape());
  for (const Tensor& each : tensors) call.returns(expand(each, shape));
}

void ravel_row(RecordedCall& call) { call.returns(reshape(call.tensor(0), {call.tensor(0).elements()})); }

void sum_to_size_row(RecordedCall& call) {  // input *size
  const Tensor& x = call.tensor(0);
  const Shape shape = call.shape(1);
  const int leading = x.rank() - shape.rank;
  unsigned reduced = 0;
  for (int i = 0; i < x.rank(); ++i) {
    if (i < leading || (shape[i - leading] == 1 && x.size(i) != 1)) reduced |= 1U << i;
  }
  call.returns(reduced == 0 ? x : view(sum(x, reduced, true), shape));
}

void flip_row(RecordedCall& call) { call.returns(flip(call.tensor(0))); }

void rot90_row(RecordedCall& call) {  // input k dims
  const Tensor& x = call.tensor(0);
  const std::vector<std::int64_t> dims = call.has(2) ? call.integers(2) : std::vector<std::int64_t>{0, 1};
  const auto place = [&](std::size_t i) { return static_cast<int>(dims[i] < 0 ? dims[i] + x.rank() : dims[i]); };
  const std::int64_t turns = ((call.integer_or(1, 1) % 4) + 4) % 4;
  if (turns == 0) return call.returns(clone(x));
  call.returns(turns == 2 ? flip(x) : transpose(flip(x), place(0), place(1)));
}

/// x.H, x.mH of real numbers: a view.
void adjoint_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (x.dtype() == DType::kComplex64 || x.rank() < 2) call.refuse("complex numbers");
  call.returns(transpose(x, x.rank() - 2, x.rank() - 1));
}

/// fft.fftshift: a roll.
void shift_row(RecordedCall& call) { call.returns(roll_once(call.tensor(0))); }

void channel_shuffle_row(RecordedCall& call) {  // input groups
  const Tensor& x = call.tensor(0);
  if (x.rank() < 3 || x.rank() >= kMaxDims) call.refuse("so few dimensions");
  const std::int64_t groups = call.integer(1);
  Shape grouped{x.size(0), groups, x.size(1) / groups};
  for (int i = 2; i < x.rank(); ++i) append(grouped, x.size(i));
  call.returns(reshape(contiguous(transpose(reshape(x, grouped), 1, 2)), x.shape()));
}

// --- views in place
// ---------------------------------------------------------------------------------------------------

void unsqueeze_in_place_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  call.returns(unsqueeze(x, call.dimension(1, x.rank() + 1, 0)));
}
void squeeze_in_place_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  if (!call.has(1)) call.refuse("no dimension");
  const int dim = call.dimension(1, x.rank(), 0);
  call.returns(x.size(dim) == 1 ? squeeze(x, dim) : x);
}
void transpose_in_place_row(RecordedCall& call) {
  const Tensor& x = call.tensor(0);
  call.returns(transpose(x, call.dimension(1, x.rank(), 0), call.dimension(2, x.rank(), 1)));
}
void t_in_place_row(RecordedCall& call) {
  call.returns(call.tensor(0).rank() < 2 ? call.tensor(0) : t(call.tensor(0)));
}

// --- edges
// ------------------------------------------------------------------------------------------------------------

Shape padded_shape(const Tensor& x, const std::vector<std::int64_t>& sizes) {
  Shape shape = x.shape();
  for (std::size_t i = 0; i + 1 < sizes.size(); i += 2) {
    shape[x.rank() - 1 - static_cast<int>(i / 2)] += sizes[i] + sizes[i + 1];
  }
  return shape;
}

/// PadNd.cpp, _pad_circular: the input in the middle of the result, then each edge from the result itself.
Tensor padded_in_circles(const Tensor& x, const std::vector<std::int64_t>& sizes) {
  Tape& tape = x.tape();
  const Shape shape = padded_shape(x, sizes);
  Tensor whole = tape.empty(shape, x.dtype(), aten::kNewEmpty);
  const auto put = [&](const Tensor& view, const Tensor& source) {
    const bool follows = tape.modes.grad_enabled && (whole.requires_grad() || source.requires_grad());
    if (follows) whole = copy_into_view(whole, view, source);
  };
  const auto part = [&](const Tensor& of, int dim, std::int64_t from, std::int64_t length) {
    const NoGrad no_grad(tape.modes);
    return slice(of, dim, from, length);
  };
  Tensor middle = whole;
  for (std::size_t i = 0; i + 1 < sizes.size(); i += 2) {
    const int dim = x.rank() - 1 - static_cast<int>(i / 2);
    middle = part(middle, dim, sizes[i], x.size(dim));
  }
  put(middle, x);
  middle.reset();
  for (std::size_t i = 0; i + 1 < sizes.size(); i += 2) {
    const int dim = x.rank() - 1 - static_cast<int>(i / 2);
    const std::int64_t before = sizes[i], behind = sizes[i + 1];
    if (before > 0) put(part(whole, dim, 0, before), slice(whole, dim, shape[dim] - before - behind, before));
    if (behind > 0) put(part(whole, dim, shape[dim] - behind, behind), slice(whole, dim, before, behind));
  }
  return whole;
}

/// F.pad: sizes from the last dimension on, before and behind. "reflect" and "replicate" keep their input.
void pad_row(RecordedCall& call) {  // input pad mode value
  const Tensor& x = call.tensor(0);
  const std::vector<std::int64_t> sizes = call.integers(1);
  const std::string_view mode = call.text_or(2, "constant");
  if (mode == "constant") return call.returns(pad_to(x, padded_shape(x, sizes)));
  if (std::any_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size < 0; }))
    call.refuse("less than none");
  if (mode == "circular") return call.returns(padded_in_circles(x, sizes));
  call.returns(padded_by_mode(x, padded_shape(x, sizes)));
}

constexpr OperatorRow kRows[] = {
    {"diagonal", "input offset dim1 dim2", diagonal_row},
    {"diag_embed", "input offset dim1 dim2", diag_embed_row},
    {"diag", "input diagonal", diag_row},
    {"tril", "input diagonal", tril_row},
    {"triu", "input diagonal", triu_row},
    {"eye", "n m dtype device layout requires_grad", eye_row},
    {"atleast_1d", "input", at_least_row<1>},
    {"atleast_2d", "input", at_least_row<2>},
    {"atleast_3d", "input", at_least_row<3>},
    {"hstack", "tensors", stack_row<1, 1>},
    {"vstack", "tensors", stack_row<2, 0>},
    {"row_stack", "tensors", stack_row<2, 0>},
    {"dstack", "tensors", stack_row<3, 2>},
    {"column_stack", "tensors", column_stack_row},
    {"tensor_split", "input indices_or_sections dim", tensor_split_row},
    {"hsplit", "input indices_or_sections", hsplit_row},
    {"vsplit", "input indices_or_sections", vsplit_row},
    {"dsplit", "input indices_or_sections", dsplit_row},
    {"broadcast_tensors", "*tensors", broadcast_row},
    {"ravel", "input", ravel_row},
    {"sum_to_size", "input *size", sum_to_size_row},
    {"fliplr", "input", flip_row},
    {"flipud", "input", flip_row},
    {"rot90", "input k dims", rot90_row},
    {"H", "input", adjoint_row},
    {"mH", "input", adjoint_row},
    {"adjoint", "input", adjoint_row},
    {"fftshift", "input dim", shift_row},
    {"ifftshift", "input dim", shift_row},
    {"fft_fftshift", "input dim", shift_row},
    {"fft_ifftshift", "input dim", shift_row},
    {"channel_shuffle", "input groups", channel_shuffle_row},
    {"unsqueeze_", "input dim", unsqueeze_in_place_row},
    {"squeeze_", "input dim", squeeze_in_place_row},
    {"transpose_", "input dim0 dim1", transpose_in_place_row},
    {"t_", "input", t_in_place_row},
    {"pad", "input pad mode value", pad_row},
};

}  // namespace

std::span<const OperatorRow> shape_rows() { return kRows; }

Tensor padded_by_mode(const Tensor& x, const Shape& shape) {
  Node* node =
      record(aten::kPadMode,
             [](BackwardCall& back) {
               back.set(0, filled(back.tape, back.saved(0).shape(), back.gradient().dtype(), aten::kPadModeBackward));
             },
             {&x}, {&x});
  return finish(node, filled(x.tape(), shape, x.dtype(), aten::kPadMode));
}

}  // namespace memcalc
