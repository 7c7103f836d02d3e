// MIRRORS(torch, "Copy.cu", "2.11.0")
// MIRRORS(torch, "TensorImpl.cpp", "2.11.0")
#include "memcalc/symbolic/tape.h"

#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"

namespace memcalc {

namespace {
constexpr Operator kParameter{"parameter"};
}  // namespace

Tape::Tape(const DeviceSpec& device, const Behaviors& behaviors) : device(device), behaviors(behaviors) {}

Tape::~Tape() {
  // Members hold tensors that point back here; what dies from now on is no event of the run.
  memory.stop();
  autograd.clear();
  modes = Modes();
  for (std::size_t i = 0; i < impls_.size(); ++i) impls_[i].grad.reset();
}

bool Tensor::is_contiguous() const { return memcalc::is_contiguous(shape(), strides()); }

TensorImpl* Tape::new_impl() {
  TensorImpl* impl = nullptr;
  if (free_impls_.empty()) {
    impl = &impls_.grow();
    impl->block = kNoBlock;
    impl->grad_fn = kNoNode;
    impl->cached_cast = -1;
  } else {
    impl = free_impls_.back();
    free_impls_.pop_back();
  }
  // Shape, strides and dtype are the caller's; release() has reset what is left here of a recycled one.
  impl->requires_grad = impl->is_view = impl->is_parameter = impl->drops_gradient = impl->has_partial_gradient = false;
  impl->graph_value = -1;
  impl->output_index = 0;
  impl->grad_accumulator = kNoNode;
  impl->tape = this;
  impl->references = 1;
  return impl;
}

void Tape::release(TensorImpl* impl) {
  if (memory.is_stopped()) return;
  const BlockId block = impl->block;
  const NodeId grad_fn = impl->grad_fn;
  impl->grad.reset();
  impl->block = kNoBlock;
  impl->grad_fn = kNoNode;
  free_impls_.push_back(impl);
  if (grad_fn != kNoNode)
    autograd.release(grad_fn);  // TensorImpl.cpp, release_resources: autograd_meta_ before storage_
  if (block != kNoBlock) memory.release(block);
}

Tensor Tape::empty(const Shape& shape, DType dtype, const Operator& op, Category category) {
  return new_tensor(shape, contiguous_strides(shape), dtype, op, category);
}

Tensor Tape::empty_strided(const Shape& shape, const Shape& strides, DType dtype, const Operator& op) {
  return new_tensor(shape, strides, dtype, op, Category::kTemporaries);
}

Tensor Tape::new_tensor(const Shape& shape, const Shape& strides, DType dtype, const Operator& op, Category category) {
  TensorImpl* impl = new_impl();
  impl->dtype = dtype;
  impl->shape = shape;
  impl->strides = strides;
  impl->elements = shape.elements();
  const Bytes bytes = checked_multiply(impl->elements, size_of(dtype));
  if (bytes > 0) impl->block = memory.allocate(bytes, op, category);
  return Tensor(impl);
}

Tensor Tape::placeholder() {
  TensorImpl* impl = new_impl();
  impl->block = memory.placeholder();
  impl->elements = 0;
  return Tensor(impl);
}

Tensor Tape::alias(const Tensor& base, const Shape& shape, const Shape& strides, bool is_view) {
  TensorImpl* impl = new_impl();
  impl->dtype = base.dtype();
  impl->shape = shape;
  impl->strides = strides;
  impl->elements = base.rank() == shape.rank && base.shape() == shape ? base.elements() : shape.elements();
  impl->is_view = is_view || base.impl()->is_view;
  if (is_view) kernels.pass_view();
  impl->block = base.impl()->block;
  if (impl->block != kNoBlock) memory.hold(impl->block);
  return Tensor(impl);
}

Tensor Tape::become_view(Tensor& temporary, const Shape& shape, const Shape& strides) {
  TensorImpl& impl = *temporary.impl();
  impl.shape = shape;
  impl.strides = strides;
  impl.elements = shape.elements();
  impl.is_view = true;
  kernels.pass_view();
  return std::move(temporary);
}

Tensor Tape::parameter(const Shape& shape, DType dtype, bool trainable) {
  Tensor tensor = empty(shape, dtype, kParameter, Category::kWeights);
  TensorImpl& impl = *tensor.impl();
  impl.is_parameter = true;
  impl.requires_grad = trainable;
  if (trainable) autograd.add_accumulator(tensor);
  return tensor;
}

void Tape::take_storage(const Tensor& tensor, Tensor& from) {
  tensor.impl()->block = std::exchange(from.impl()->block, kNoBlock);
  from.reset();
}

void Tape::replace_parameter(const Tensor& parameter, Tensor& from) {
  TensorImpl& impl = *parameter.impl();
  const TensorImpl& part = *from.impl();
  const BlockId before = std::exchange(impl.block, part.block);
  if (impl.block != kNoBlock) memory.hold(impl.block);
  impl.dtype = part.dtype;
  impl.shape = part.shape;
  impl.strides = part.strides;
  impl.elements = part.elements;
  if (OutputMetadata* expected = autograd.expected_gradient(impl)) *expected = {impl.shape, impl.dtype};
  if (before != kNoBlock) memory.release(before);
  from.reset();
}

void Tape::convert(const Tensor& tensor, DType dtype, const Operator& op) {
  Tensor copy = empty(tensor.shape(), dtype, op, Category::kWeights);
  TensorImpl& impl = *tensor.impl();
  std::swap(impl.block, copy.impl()->block);
  std::swap(impl.dtype, copy.impl()->dtype);
  if (OutputMetadata* expected = autograd.expected_gradient(impl)) expected->dtype = dtype;
}

Tensor Tape::empty_resizable(const Shape& shape, DType dtype) {
  TensorImpl* impl = new_impl();
  impl->block = memory.resizable_storage();
  impl->dtype = dtype;
  impl->shape = shape;
  impl->strides = contiguous_strides(shape);
  impl->elements = shape.elements();
  return Tensor(impl);
}

Tensor Tape::to_host(const Tensor& tensor) {
  // Copy.cu, copy_requires_temporaries: the host's copy is contiguous, so another layout is made so on the card first.
  if (!tensor.is_contiguous()) memory.scratch(tensor.bytes(), aten::kClone);
  const Bytes bytes = tensor.bytes();
  memory.count_host_copy(bytes);
  kernels.pinned_copy(aten::kToCopy, tensor.dtype(), bytes, KernelKind::kCopyToHost);
  TensorImpl* copy = new_impl();
  copy->dtype = tensor.dtype();
  copy->shape = tensor.shape();
  copy->strides = contiguous_strides(tensor.shape());
  copy->elements = tensor.elements();
  copy->requires_grad = tensor.requires_grad();
  return Tensor(copy);
}

Tensor Tape::from_host(const Tensor& copy) {
  Tensor tensor = empty(copy.shape(), copy.dtype(), aten::kToCopy, Category::kActivations);
  kernels.pinned_copy(aten::kToCopy, tensor.dtype(), tensor.bytes(), KernelKind::kCopyToDevice);
  tensor.impl()->requires_grad = copy.requires_grad();
  return tensor;
}

}  // namespace memcalc
