#include "memcalc/symbolic/ops/view.h"

#include <algorithm>
#include <memory>

#include "memcalc/base/error.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/channels_last.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/split_part.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

void move_kernel(Tape& tape, const Operator& op, const Tensor& result, KernelKind kind = KernelKind::kStrided) {
  tape.kernels.add(op, OperatorClass::kMovement, result.dtype(), 0, 2.0 * static_cast<double>(result.bytes()), kind,
                   static_cast<double>(result.elements()));
}

/// slice_backward and select_backward: zeros, then the gradient copied into its place.
void zeros_and_copy(Tape& tape, const Operator& op, const Tensor& zeros, const Tensor& part) {
  tape.kernels.add(op, OperatorClass::kMovement, zeros.dtype(), 0, static_cast<double>(zeros.bytes()),
                   KernelKind::kVectorized, static_cast<double>(zeros.elements()));
  move_kernel(tape, op, part);
}

/// `details`: what stands in the payload behind the sizes of x.
template <typename Payload = InputShape, typename... Details>
Tensor record_view(const AtenOperator& op, BackwardFunction backward, const Arg& x, const Shape& shape,
                   const Shape& strides, const Details&... details) {
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(op, backward, inputs, 1);
  if (node != nullptr) node->payload.set(Payload{x->shape(), details...});
  Tensor* temporary = x.sole_owner();
  // Without a node the view has no history, so a tensor that has one cannot become it.
  if (temporary != nullptr && node == nullptr && temporary->requires_grad()) temporary = nullptr;
  Tensor result =
      temporary != nullptr ? tape.become_view(*temporary, shape, strides) : tape.alias(*x, shape, strides, true);
  tape.autograd.set_history(node, result);
  return result;
}

Shape infer_shape(Shape shape, std::int64_t elements) {
  std::int64_t known = 1;
  int unknown = -1;
  for (int i = 0; i < shape.rank; ++i) {
    if (shape[i] < 0) {
      unknown = i;
    } else {
      known *= shape[i];
    }
  }
  if (unknown >= 0) shape[unknown] = known == 0 ? 0 : elements / known;
  if (shape.elements() != elements) throw Error(ErrorCode::kInternal, "view changes the number of elements");
  return shape;
}

void reshape_backward(BackwardCall& call) {
  call.set(0, reshape(call.take_gradient(), call.payload<InputShape>().shape));
}

Shape swap_dims(Shape shape, int dim0, int dim1) {
  std::swap(shape[dim0], shape[dim1]);
  return shape;
}

void transpose_backward(BackwardCall& call) {
  const auto& payload = call.payload<TransposePayload>();
  const int dim0 = payload.dim0, dim1 = payload.dim1;
  call.set(0, transpose(call.take_gradient(), dim0, dim1));
}

void expand_backward(BackwardCall& call) {
  const Shape& input = call.payload<InputShape>().shape;
  if (call.gradient().shape() == input) return call.set(0, call.gradient());
  call.set(0, sum_to(call.gradient(), input));
}

void slice_backward(BackwardCall& call) {
  Tensor result = call.tape.empty(call.payload<InputShape>().shape, call.gradient().dtype(), aten::kSliceBackward);
  zeros_and_copy(call.tape, aten::kSliceBackward, result, call.gradient());
  call.set(0, std::move(result));
}

void select_backward(BackwardCall& call) {
  Tensor result = call.tape.empty(call.payload<InputShape>().shape, call.gradient().dtype(), aten::kSelectBackward);
  zeros_and_copy(call.tape, aten::kSelectBackward, result, call.gradient());
  call.set(0, std::move(result));
}

/// The type of the gradients that have arrived.
DType gradients_dtype(const BackwardCall& call) {
  for (int i = 0; i < call.node.output_count; ++i) {
    if (call.gradient(i).defined()) return call.gradient(i).dtype();
  }
  return DType::kFloat32;
}

struct SplitPayload {
  Shape input;
  int dim = 0;
  std::array<std::int64_t, kUsualOutputs> sizes{};  // of the parts, along `dim`
  std::unique_ptr<std::int64_t[]> further_sizes;    // of parts beyond these

  [[nodiscard]] std::int64_t size(int part) const {
    const auto i = static_cast<std::size_t>(part);
    return i < sizes.size() ? sizes[i] : further_sizes[i - sizes.size()];
  }
};

/// A part that nothing was made of has no gradient: zeros stand for it.
void split_backward(BackwardCall& call) {
  const DType dtype = gradients_dtype(call);
  const auto& payload = call.payload<SplitPayload>();
  std::vector<Tensor> zeros;
  for (int i = 0; i < call.node.output_count; ++i) {
    if (call.gradient(i).defined()) continue;
    Shape part = payload.input;
    part[payload.dim] = payload.size(i);
    zeros.push_back(call.tape.empty(part, dtype, aten::kZeros));
  }
  std::vector<const Tensor*> parts;
  for (int i = 0; i < call.node.output_count; ++i) {
    if (call.gradient(i).defined()) parts.push_back(&call.gradient(i));
  }
  for (const Tensor& each : zeros) parts.push_back(&each);
  Tensor result = empty_of_parts(parts, payload.input, dtype, aten::kCat);
  move_kernel(call.tape, aten::kCat, result, joined_kind(parts));
  call.set(0, std::move(result));
  for (Tensor& each : zeros) each.reset();
}

/// torch.stack of the parts. A part that nothing was made of is a zero that is expanded.
void unbind_backward(BackwardCall& call) {
  const DType dtype = gradients_dtype(call);
  std::vector<Tensor> zeros;
  for (int i = 0; i < call.node.output_count; ++i) {
    if (!call.gradient(i).defined()) zeros.push_back(call.tape.empty({}, dtype, aten::kZeros));
  }
  Tensor result = call.tape.empty(call.payload<InputShape>().shape, dtype, aten::kStack);
  move_kernel(call.tape, aten::kStack, result);
  call.set(0, std::move(result));
  for (Tensor& each : zeros) each.reset();
}

void clone_backward(BackwardCall& call) { call.set(0, call.gradient()); }

struct CatPayload {
  int dim = 0;
  std::int64_t first = 0, second = 0;  // sizes along `dim`; the last part has the rest
};

void cat_backward(BackwardCall& call) {
  const auto& payload = call.payload<CatPayload>();
  const int dim = payload.dim;
  const std::int64_t first = payload.first;
  const Tensor& gradient = call.gradient();
  if (call.node.edge_count == 1) return call.set(0, slice(gradient, dim, 0, gradient.size(dim)));
  const std::int64_t second = gradient.size(dim) - first;
  if (call.needs(0)) call.set(0, slice(gradient, dim, 0, first));
  if (call.needs(1)) call.set(1, slice(gradient, dim, first, second));
}

void cat3_backward(BackwardCall& call) {
  const auto& [dim, first, second] = call.payload<CatPayload>();
  const Tensor& gradient = call.gradient();
  if (call.needs(0)) call.set(0, slice(gradient, dim, 0, first));
  if (call.needs(1)) call.set(1, slice(gradient, dim, first, second));
  if (call.needs(2)) call.set(2, slice(gradient, dim, first + second, gradient.size(dim) - first - second));
}

void cat4_backward(BackwardCall& call) {
  const auto& payload = call.payload<CatPayload>();
  const std::int64_t part = payload.first;
  for (int i = 0; i < 4; ++i) {
    if (call.needs(i)) call.set(i, slice(call.gradient(), payload.dim, i * part, part));
  }
}

void permute_backward(BackwardCall& call) {
  const auto& places = call.payload<PermutePayload>().places;
  const Tensor& gradient = call.gradient();
  Shape shape, strides;
  shape.rank = strides.rank = gradient.rank();
  for (int i = 0; i < shape.rank; ++i) {
    const int from = places[static_cast<std::size_t>(i)];
    shape[i] = gradient.size(from);
    strides[i] = gradient.strides()[from];
  }
  call.set(0, call.tape.alias(gradient, shape, strides, true));
}

}  // namespace

Tensor view(Arg x, Shape shape) {
  const OperatorCall call(x);
  shape = infer_shape(shape, x->elements());
  const auto strides = view_strides(x->shape(), x->strides(), shape);
  if (!strides) throw Error(ErrorCode::kInternal, "view needs a copy");
  return record_view(aten::kView, reshape_backward, x, shape, *strides);
}

Tensor reshape(Arg x, Shape shape) {
  const OperatorCall call(x);
  shape = infer_shape(shape, x->elements());
  const auto strides = view_strides(x->shape(), x->strides(), shape);
  if (strides) return record_view(aten::kView, reshape_backward, x, shape, *strides);
  return unsafe_view(contiguous(*x), shape);
}

Tensor unsafe_view(Arg x, const Shape& shape) {
  const OperatorCall call(x);
  const bool of_view = x->impl()->is_view;
  Tensor result = record_view(aten::kUnsafeView, reshape_backward, x, shape, contiguous_strides(shape));
  result.impl()->is_view = of_view;  // autograd holds no base of it: a gradient that lies so is summed in place
  return result;
}

Tensor transpose(Arg x, int dim0, int dim1) {
  const OperatorCall call(x);
  return record_view<TransposePayload>(aten::kTranspose, transpose_backward, x, swap_dims(x->shape(), dim0, dim1),
                                       swap_dims(x->strides(), dim0, dim1), dim0, dim1);
}

Tensor t(Arg x) {
  const OperatorCall call(x);
  return record_view<TransposePayload>(aten::kT, transpose_backward, x, swap_dims(x->shape(), 0, 1),
                                       swap_dims(x->strides(), 0, 1), 0, 1);
}

Tensor expand(Arg x, Shape shape) {
  const OperatorCall call(x);
  Shape strides;
  strides.rank = shape.rank;
  for (int i = 0; i < shape.rank; ++i) {
    const int own = i - (shape.rank - x->rank());
    if (own >= 0 && shape[i] < 0) shape[i] = x->size(own);
    strides[i] = own < 0 || (x->size(own) == 1 && shape[i] != 1) ? 0 : x->strides()[own];
  }
  return record_view(aten::kExpand, expand_backward, x, shape, strides);
}

Tensor unsqueeze(Arg x, int dim) {
  const OperatorCall call(x);
  Shape shape, strides;
  shape.rank = strides.rank = x->rank() + 1;
  if (dim < 0) dim += shape.rank;
  for (int i = 0; i < shape.rank; ++i) {
    if (i == dim) {
      shape[i] = 1;
      strides[i] = dim < x->rank() ? x->size(dim) * x->strides()[dim] : 1;
    } else {
      shape[i] = x->size(i < dim ? i : i - 1);
      strides[i] = x->strides()[i < dim ? i : i - 1];
    }
  }
  return record_view(aten::kUnsqueeze, reshape_backward, x, shape, strides);
}

Tensor slice(Arg x, int dim, std::int64_t start, std::int64_t length, std::int64_t step) {
  const OperatorCall call(x);
  if (dim < 0) dim += x->rank();
  if (start == 0 && length == x->size(dim))
    return record_view(aten::kView, reshape_backward, x, x->shape(), x->strides());
  Shape shape = x->shape(), strides = x->strides();
  shape[dim] = length;
  strides[dim] *= step;
  return record_view(aten::kSlice, slice_backward, x, shape, strides);
}

Tensor slice_whole(Arg x, int /*dim*/) {  // its backward needs the sizes of x alone
  const OperatorCall call(x);
  return record_view(aten::kSlice, slice_backward, x, x->shape(), x->strides());
}

Tensor open_slices(Tensor x, std::initializer_list<int> dims) {
  if (!x.tape().behaviors.open_slices_are_views) return x;
  for (const int dim : dims) x = slice_whole(std::move(x), dim);
  return x;
}

Tensor select(Arg x, int dim) {
  const OperatorCall call(x);
  Shape shape, strides;
  shape.rank = strides.rank = x->rank() - 1;
  for (int i = 0; i < shape.rank; ++i) {
    shape[i] = x->size(i < dim ? i : i + 1);
    strides[i] = x->strides()[i < dim ? i : i + 1];
  }
  return record_view(aten::kSelect, select_backward, x, shape, strides);
}

namespace {

void expect_few(std::int64_t parts) {
  if (parts <= kMaxOutputs) return;
  throw Error(ErrorCode::kUnsupported, "a tensor is split into more than 8 parts, which is not modelled");
}

std::vector<Tensor> split_into(const AtenOperator& op, const Tensor& x, int dim, const std::int64_t* sizes, int parts) {
  if (x.requires_grad()) expect_few(parts);
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(op, split_backward, inputs, 1);
  if (dim < 0) dim += x.rank();
  if (node != nullptr) {
    SplitPayload payload{.input = x.shape(), .dim = dim, .sizes = {}, .further_sizes = nullptr};
    const int usual = std::min(parts, kUsualOutputs);
    std::copy_n(sizes, usual, payload.sizes.begin());
    if (parts > usual) {
      payload.further_sizes = std::make_unique<std::int64_t[]>(static_cast<std::size_t>(parts - usual));
      std::copy(sizes + usual, sizes + parts, payload.further_sizes.get());
    }
    node->payload.set(std::move(payload));
  }
  Shape shape = x.shape();
  std::vector<Tensor> results;
  for (int i = 0; i < parts; ++i) {
    shape[dim] = sizes[i];
    results.push_back(tape.alias(x, shape, x.strides(), true));
    tape.autograd.set_history(node, results.back());
  }
  return results;
}

}  // namespace

std::optional<Shape> split_part_shape(const Node& node, int output) {
  if (node.backward != split_backward) return std::nullopt;
  const auto& payload = node.payload.get<SplitPayload>();
  Shape part = payload.input;
  part[payload.dim] = payload.size(output);
  return part;
}

std::vector<Tensor> split(Arg x, int dim, int parts) {
  const OperatorCall call(x);
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts), x->size(dim) / parts);
  return split_into(aten::kSplit, *x, dim, sizes.data(), parts);
}

std::vector<Tensor> split(Arg x, int dim, const std::array<std::int64_t, 3>& sizes) {
  const OperatorCall call(x);
  return split_into(aten::kSplitWithSizes, *x, dim, sizes.data(), 3);
}

std::pair<Tensor, Tensor> split_last(const Tensor& x, std::int64_t first) {
  const std::array<std::int64_t, 2> sizes = {first, x.size(-1) - first};
  std::vector<Tensor> parts = split_into(aten::kSplitWithSizes, x, -1, sizes.data(), 2);
  return {std::move(parts[0]), std::move(parts[1])};
}

std::vector<Tensor> split_with_sizes(const Tensor& x, int dim, std::span<const std::int64_t> sizes) {
  return split_into(aten::kSplitWithSizes, x, dim, sizes.data(), static_cast<int>(sizes.size()));
}

std::vector<Tensor> unbind(const Tensor& x, int dim) {
  if (x.requires_grad()) expect_few(x.size(dim));
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kUnbind, unbind_backward, inputs, 1);
  if (node != nullptr) node->payload.set(InputShape{x.shape()});
  Shape shape, strides;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == dim) continue;
    shape.dims[static_cast<std::size_t>(shape.rank++)] = x.size(i);
    strides.dims[static_cast<std::size_t>(strides.rank++)] = x.strides()[i];
  }
  std::vector<Tensor> results;
  for (std::int64_t i = 0; i < x.size(dim); ++i) {
    results.push_back(tape.alias(x, shape, strides, true));
    tape.autograd.set_history(node, results.back());
  }
  return results;
}

Tensor squeeze(Arg x, int dim) {
  const OperatorCall call(x);
  Shape shape, strides;
  for (int i = 0; i < x->rank(); ++i) {
    if (i == dim) continue;
    shape.dims[static_cast<std::size_t>(shape.rank++)] = x->size(i);
    strides.dims[static_cast<std::size_t>(strides.rank++)] = x->strides()[i];
  }
  return record_view(aten::kSqueeze, reshape_backward, x, shape, strides);
}

Tensor clone(Arg x) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(aten::kClone, clone_backward, inputs, 1);
  Tensor result = tape.empty_strided(x->shape(), like_strides(x->shape(), x->strides()), x->dtype(), aten::kClone);
  move_kernel(tape, aten::kClone, result,
              x->strides() == result.strides() ? KernelKind::kVectorized : KernelKind::kStrided);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor contiguous(Arg x) {
  const OperatorCall call(x);
  return x->is_contiguous() ? *x : contiguous_copy(*x);
}

Tensor contiguous_copy(Arg x) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(aten::kClone, clone_backward, inputs, 1);
  Tensor result = tape.empty(x->shape(), x->dtype(), aten::kClone);
  move_kernel(tape, aten::kClone, result, copy_kind(*x, result));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor cat(Arg a, Arg b, int dim) {
  const OperatorCall call(a, b);
  Tape& tape = a->tape();
  const Tensor* inputs[] = {&*a, &*b};
  Node* node = tape.autograd.record(aten::kCat, cat_backward, inputs, 2);
  Shape shape = a->shape();
  shape[dim] += b->size(dim);
  if (node != nullptr) {
    node->payload.set(CatPayload{.dim = dim < 0 ? dim + shape.rank : dim, .first = a->size(dim)});
  }
  const DType dtype = a->dtype() == b->dtype() ? a->dtype() : DType::kFloat32;
  Tensor result = empty_of_parts({&*a, &*b}, shape, dtype, aten::kCat);
  move_kernel(tape, aten::kCat, result, joined_kind({&*a, &*b}));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor cat3(const Tensor& a, const Tensor& b, const Tensor& c, int dim) {
  Tape& tape = a.tape();
  const Tensor* inputs[] = {&a, &b, &c};
  Node* node = tape.autograd.record(aten::kCat, cat3_backward, inputs, 3);
  if (node != nullptr) node->payload.set(CatPayload{.dim = dim, .first = a.size(dim), .second = b.size(dim)});
  Shape shape = a.shape();
  shape[dim] += b.size(dim) + c.size(dim);
  const DType dtype = a.dtype() == c.dtype() ? a.dtype() : DType::kFloat32;
  Tensor result = empty_of_parts({&a, &b, &c}, shape, dtype, aten::kCat);
  move_kernel(tape, aten::kCat, result, joined_kind({&a, &b, &c}));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor cat4(const std::array<Tensor, 4>& parts, int dim) {
  Tape& tape = parts[0].tape();
  const Tensor* inputs[] = {&parts[0], &parts[1], &parts[2], &parts[3]};
  Node* node = tape.autograd.record(aten::kCat, cat4_backward, inputs, 4);
  Shape shape = parts[0].shape();
  shape[dim] *= 4;
  if (node != nullptr) node->payload.set(CatPayload{.dim = dim, .first = parts[0].size(dim)});
  Tensor result = empty_of_parts({&parts[0], &parts[1], &parts[2], &parts[3]}, shape, parts[0].dtype(), aten::kCat);
  move_kernel(tape, aten::kCat, result, joined_kind({&parts[0], &parts[1], &parts[2], &parts[3]}));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor every_second(Arg x, int dim) {
  const OperatorCall call(x);
  return slice(*x, dim, 0, x->size(dim) / 2, 2);
}

Tensor permute(Arg x, std::span<const int> order) {
  const OperatorCall call(x);
  Shape shape, strides;
  std::array<int, kMaxDims> places{};  // the inverse order
  for (const int dim : order) {
    places[static_cast<std::size_t>(dim)] = shape.rank;
    shape.dims[static_cast<std::size_t>(shape.rank++)] = x->size(dim);
    strides.dims[static_cast<std::size_t>(strides.rank++)] = x->strides()[dim];
  }
  return record_view<PermutePayload>(aten::kPermute, permute_backward, *x, shape, strides, places);
}

Tensor cat_with_empty(Arg x, DType dtype) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(aten::kCat, cat_backward, inputs, 1);
  if (node != nullptr) node->payload.set(CatPayload{});
  Tensor result = tape.empty(x->shape(), dtype, aten::kCat);
  move_kernel(tape, aten::kCat, result, KernelKind::kTurned);  // parts of two shapes: no layout makes it quick
  tape.autograd.set_history(node, result);
  return result;
}

Tensor new_parameter(const Tensor& x) {
  Tensor parameter = x.tape().detach(x);
  parameter.impl()->is_parameter = true;
  x.tape().autograd.require_gradient(parameter);
  return parameter;
}

}  // namespace memcalc
