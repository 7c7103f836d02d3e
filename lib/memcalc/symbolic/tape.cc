#include "memcalc/symbolic/tape.h"

#include <algorithm>
#include <utility>

#include "memcalc/symbolic/capture.h"
#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/layout.h"

namespace memcalc {

namespace {
constexpr Operator kCublasWorkspace{"cublas_workspace"};
constexpr Operator kCublasLtWorkspace{"cublaslt_workspace"};
constexpr Operator kParameter{"parameter"};

bool was_released(const Node& node) {
  return node.edge_count == 0 && node.saved_count == 0 && node.output_count == 0 && node.variable == nullptr;
}
}  // namespace

Tape::Tape(const DeviceSpec& device) : device(device) {
  constexpr std::size_t kUsualEvents = 16384;  // a step of a 7B model has about half as many
  trace.events.reserve(kUsualEvents);
  trace.blocks.reserve(kUsualEvents / 2);
  block_references_.reserve(kUsualEvents / 2);
}

Tape::~Tape() {
  // Members hold tensors that point back here; what dies from now on is no event of the run.
  closing_ = true;
  workspaces_.clear();
  cast_cache_.clear();
  checkpoint = FrameHandle();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (was_released(node)) continue;  // most were, and hold nothing
    for (SavedTensor& saved : node.saved) saved.reset();
    for (Tensor& gradient : node.buffer) gradient.reset();
    node.edges = {};
    node.owner.reset();
    node.kept.reset();
    node.edge_count = node.saved_count = node.output_count = 0;
    node.variable = nullptr;
    node.context = nullptr;
  }
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
  if (closing_) return;
  const BlockId block = impl->block;
  const NodeId grad_fn = impl->grad_fn;
  impl->grad.reset();
  impl->block = kNoBlock;
  impl->grad_fn = kNoNode;
  free_impls_.push_back(impl);
  if (grad_fn != kNoNode) release_node(grad_fn);  // TensorImpl.cpp, release_resources: autograd_meta_ before storage_
  if (block != kNoBlock) release_block(block);
}

void Tape::release_block(BlockId block) {
  if (--block_references_[static_cast<std::size_t>(block)] == 0) free_event(block);
}

Tensor Tape::empty(const Shape& shape, DType dtype, const Operator& op, Category category) {
  Tensor tensor = empty_strided(shape, contiguous_strides(shape), dtype, op);
  if (category != Category::kTemporaries) set_category(tensor, category);
  return tensor;
}

Tensor Tape::empty_strided(const Shape& shape, const Shape& strides, DType dtype, const Operator& op) {
  TensorImpl* impl = new_impl();
  impl->dtype = dtype;
  impl->shape = shape;
  impl->strides = strides;
  impl->elements = shape.elements();
  const Bytes bytes = checked_multiply(impl->elements, size_of(dtype));
  if (bytes > 0 && !on_meta_device) {
    impl->block = static_cast<BlockId>(trace.blocks.size());
    trace.blocks.push_back({bytes, Category::kTemporaries, stream});
    block_references_.resize(trace.blocks.size(), 1);  // a schedule may have copied blocks into the trace
    allocate_event(impl->block, &op);
  }
  return Tensor(impl);
}

Tensor Tape::placeholder() {
  TensorImpl* impl = new_impl();
  impl->block = static_cast<BlockId>(trace.blocks.size());
  impl->elements = 0;
  trace.blocks.push_back({});
  block_references_.resize(trace.blocks.size(), 1);
  return Tensor(impl);
}

Tensor Tape::alias(const Tensor& base, const Shape& shape, const Shape& strides, bool is_view) {
  TensorImpl* impl = new_impl();
  impl->dtype = base.dtype();
  impl->shape = shape;
  impl->strides = strides;
  impl->elements = base.rank() == shape.rank && base.shape() == shape ? base.elements() : shape.elements();
  impl->is_view = is_view || base.impl()->is_view;
  if (is_view) ++pending_views;
  impl->block = base.impl()->block;
  if (impl->block != kNoBlock) ++block_references_[static_cast<std::size_t>(impl->block)];
  return Tensor(impl);
}

Tensor Tape::become_view(Tensor& temporary, const Shape& shape, const Shape& strides) {
  TensorImpl& impl = *temporary.impl();
  impl.shape = shape;
  impl.strides = strides;
  impl.elements = shape.elements();
  impl.is_view = true;
  ++pending_views;
  return std::move(temporary);
}

Tensor Tape::parameter(const Shape& shape, DType dtype, bool trainable) {
  Tensor tensor = empty(shape, dtype, kParameter, Category::kWeights);
  TensorImpl& impl = *tensor.impl();
  impl.is_parameter = true;
  impl.requires_grad = trainable;
  if (trainable) {
    impl.grad_accumulator = new_node();
    Node& node = nodes_[static_cast<std::size_t>(impl.grad_accumulator)];
    node.references = 1;  // owned by the parameter, for the whole run
    node.variable = tensor.impl();
    node.sequence = UINT64_MAX;  // engine.cpp: AccumulateGrad runs as soon as it is ready
    node.output_count = 1;
    node.outputs_differ = false;
    node.output = {shape, dtype};
  }
  return tensor;
}

void Tape::require_gradient(const Tensor& tensor) {
  TensorImpl& impl = *tensor.impl();
  impl.requires_grad = true;
  impl.grad_accumulator = new_node();
  Node& node = nodes_[static_cast<std::size_t>(impl.grad_accumulator)];
  node.references = 0;
  node.variable = &impl;
  node.saved_count = 1;
  node.saved[0].tensor = tensor;  // accumulate_grad.h: the node owns its variable, the variable only points back
  node.sequence = UINT64_MAX;
  node.output_count = 1;
  node.output = {impl.shape, impl.dtype};
}

void Tape::take_storage(const Tensor& tensor, Tensor& from) {
  tensor.impl()->block = std::exchange(from.impl()->block, kNoBlock);
  from.reset();
}

void Tape::replace_parameter(const Tensor& parameter, Tensor& from) {
  TensorImpl& impl = *parameter.impl();
  const TensorImpl& part = *from.impl();
  const BlockId before = std::exchange(impl.block, part.block);
  if (impl.block != kNoBlock) ++block_references_[static_cast<std::size_t>(impl.block)];
  impl.dtype = part.dtype;
  impl.shape = part.shape;
  impl.strides = part.strides;
  impl.elements = part.elements;
  if (impl.grad_accumulator != kNoNode) {
    nodes_[static_cast<std::size_t>(impl.grad_accumulator)].output = {impl.shape, impl.dtype};
  }
  if (before != kNoBlock) release_block(before);
  from.reset();
}

void Tape::accept_whole_gradient(const Tensor& parameter) {
  nodes_[static_cast<std::size_t>(parameter.impl()->grad_accumulator)].outputs_differ = true;
}

void Tape::keep(Node& node, const Tensor& tensor) {
  node.kept = tensor;
  mark_saved(tensor);
}

void Tape::convert(const Tensor& tensor, DType dtype, const Operator& op) {
  Tensor copy = empty(tensor.shape(), dtype, op, Category::kWeights);
  TensorImpl& impl = *tensor.impl();
  std::swap(impl.block, copy.impl()->block);
  std::swap(impl.dtype, copy.impl()->dtype);
  if (impl.grad_accumulator != kNoNode) nodes_[static_cast<std::size_t>(impl.grad_accumulator)].output.dtype = dtype;
}

void Tape::scratch(Bytes bytes, const Operator& op, Category category) {
  if (bytes <= 0) return;
  if (capture != nullptr) return capture->scratch(bytes);
  const Tensor block = empty({bytes}, DType::kUInt8, op, category);
}

void Tape::set_category(const Tensor& tensor, Category category) {
  if (tensor.impl()->block != kNoBlock) {
    trace.blocks[static_cast<std::size_t>(tensor.impl()->block)].category = category;
  }
}

void Tape::record_stream(const Tensor& tensor) {
  if (tensor.impl()->block == kNoBlock) return;
  trace.blocks[static_cast<std::size_t>(tensor.impl()->block)].waits_for_streams = true;
}

void Tape::streams_done(BlockId block) {
  trace.events.push_back({nullptr, current_node, block, EventKind::kReturn, phase, static_cast<std::int16_t>(step)});
}

void Tape::make_resizable(const Tensor& tensor) {
  TensorImpl& impl = *tensor.impl();
  const BlockId before = std::exchange(impl.block, kNoBlock);
  if (before != kNoBlock) release_block(before);
  const Tensor resizable = empty_resizable(impl.shape, impl.dtype);
  impl.block = resizable.impl()->block;
  ++block_references_[static_cast<std::size_t>(impl.block)];
}

Tensor Tape::empty_resizable(const Shape& shape, DType dtype) {
  Tensor tensor = placeholder();
  TensorImpl& impl = *tensor.impl();
  impl.dtype = dtype;
  impl.shape = shape;
  impl.strides = contiguous_strides(shape);
  impl.elements = shape.elements();
  ++block_references_[static_cast<std::size_t>(impl.block)];  // the storage itself is never dropped, only emptied
  resizable_.emplace_back(impl.block, kNoBlock);
  return tensor;
}

BlockId& Tape::block_of_storage(const Tensor& tensor) {
  // Storages are numbered upwards, so the list is sorted.
  const auto found = std::lower_bound(resizable_.begin(), resizable_.end(), tensor.impl()->block,
                                      [](const auto& each, BlockId storage) { return each.first < storage; });
  if (found == resizable_.end() || found->first != tensor.impl()->block) {
    throw Error(ErrorCode::kInternal, "a storage that cannot be resized");
  }
  return found->second;
}

void Tape::fill_storage(const Tensor& tensor, const Operator& op, Category category) {
  BlockId& block = block_of_storage(tensor);
  block = static_cast<BlockId>(trace.blocks.size());
  trace.blocks.push_back({tensor.bytes(), category, stream});
  block_references_.resize(trace.blocks.size(), 1);
  allocate_event(block, &op);
}

BlockId Tape::empty_storage(const Tensor& tensor) {
  const BlockId block = std::exchange(block_of_storage(tensor), kNoBlock);
  if (block == kNoBlock) throw Error(ErrorCode::kInternal, "a storage is emptied twice");
  release_block(block);
  return block;
}

void Tape::allocate_event(BlockId block, const Operator* op) {
  if (capture != nullptr) return;
  trace.events.push_back({op, current_node, block, EventKind::kAllocate, phase, static_cast<std::int16_t>(step)});
}

void Tape::free_event(BlockId block) {
  if (closing_ || capture != nullptr) return;
  trace.events.push_back({nullptr, current_node, block, EventKind::kFree, phase, static_cast<std::int16_t>(step)});
}

void Tape::empty_cache() {
  trace.events.push_back({nullptr, nullptr, kNoBlock, EventKind::kEmptyCache, phase, static_cast<std::int16_t>(step)});
}

void Tape::kernel(const Operator& op, OperatorClass operator_class, DType dtype, double flops, double bytes,
                  KernelKind kind, double elements) {
  if (!record_kernels) return;
  Kernel& kernel = kernels.emplace_back();
  kernel.op = &op;
  kernel.node = current_node;
  kernel.operator_class = operator_class;
  kernel.phase = phase;
  kernel.stream = stream;
  kernel.recomputed = recomputing;
  kernel.repeats = kernel_repeats;
  kernel.dtype = dtype;
  kernel.flops = flops;
  kernel.bytes = bytes;
  kernel.kind = kind;
  kernel.elements = elements > 0 ? elements : bytes / (2.0 * static_cast<double>(size_of(dtype)));
  kernel.views = std::exchange(pending_views, 0);
  kernel.nodes = std::exchange(pending_nodes, 0);
}

void Tape::synchronize(const Operator& op) {
  kernel(op, OperatorClass::kMovement, DType::kFloat32, 0, 0, KernelKind::kSynchronize);
}

void Tape::contraction(const Operator& op, DType dtype, std::int64_t batch, std::int64_t m, std::int64_t n,
                       std::int64_t k, KernelKind kind, Transposed transposed) {
  if (!record_kernels) return;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double elements = real(m) * real(k) + real(k) * real(n) + real(m) * real(n);
  kernel(op, OperatorClass::kContraction, dtype, 2.0 * real(batch) * real(m) * real(n) * real(k),
         real(batch) * elements * real(size_of(dtype)), kind);
  Kernel& last = kernels.back();
  last.transposed = transposed;
  // Attention's kernels do not ask whether TF32 is allowed.
  const bool asks = kind == KernelKind::kMatrixProduct || kind == KernelKind::kConvolution;
  last.flag = asks && allow_tf32 && dtype == DType::kFloat32;
  last.batch = batch;
  last.m = m;
  last.n = n;
  last.k = k;
}

void Tape::grouped_contraction(const Operator& op, DType dtype, std::int64_t groups, std::int64_t rows, std::int64_t k,
                               std::int64_t n) {
  if (!record_kernels) return;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double elements = real(rows) * (real(k) + real(n)) + real(groups) * real(k) * real(n);
  kernel(op, OperatorClass::kContraction, dtype, 2.0 * real(rows) * real(k) * real(n), elements * real(size_of(dtype)),
         KernelKind::kGroupedProduct);
  Kernel& last = kernels.back();
  last.batch = groups;
  last.m = ceil_div(rows, groups);  // of an average group
  last.n = n;
  last.k = k;
}

void Tape::collective(const Operator& op, Collective kind, DType dtype, Bytes bytes, std::int64_t group_size) {
  if (!record_kernels) return;
  kernel(op, OperatorClass::kCommunication, dtype, 0, 0);
  Kernel& last = kernels.back();
  last.collective = kind;
  last.collective_bytes = static_cast<double>(bytes);
  last.group_size = group_size;
}

void Tape::use_cublas(bool with_lt) {
  // Handles, and so workspaces, belong to threads: forward runs in the caller's, backward in autograd's.
  if (capture != nullptr) return;
  const std::size_t thread = phase == Phase::kBackward ? 1 : 0;
  if (!cublas_used_[thread]) {
    cublas_used_[thread] = true;
    workspaces_.push_back(
        empty({device.cublas_workspace_bytes}, DType::kUInt8, kCublasWorkspace, Category::kWorkspaces));
  }
  if (with_lt && !cublaslt_used_[thread]) {
    cublaslt_used_[thread] = true;
    workspaces_.push_back(
        empty({device.cublaslt_workspace_bytes}, DType::kUInt8, kCublasLtWorkspace, Category::kWorkspaces));
  }
}

// aten/src/ATen/cuda/detail/DeviceThreadHandles.h: a pool of handles, to which a thread that ends gives its own back.
void Tape::forward_thread_ended() {
  cublas_used_ = {false, cublas_used_[0]};
  cublaslt_used_ = {false, cublaslt_used_[0]};
}

const Tensor* Tape::find_cached_cast(const TensorImpl& weight) const {
  return weight.cached_cast < 0 ? nullptr : &cast_cache_[static_cast<std::size_t>(weight.cached_cast)].second;
}

void Tape::cache_cast(TensorImpl& weight, const Tensor& copy) {
  weight.cached_cast = static_cast<std::int32_t>(cast_cache_.size());
  cast_cache_.emplace_back(&weight, copy);
}

CastCache Tape::take_cast_cache() {
  for (auto& [weight, copy] : cast_cache_) weight->cached_cast = -1;
  return std::exchange(cast_cache_, {});
}

void Tape::give_back_cast_cache(CastCache cache) {
  clear_cast_cache();
  for (auto& [weight, copy] : cache) cache_cast(*weight, copy);
}

void Tape::clear_cast_cache() {
  for (auto& [weight, copy] : cast_cache_) {
    weight->cached_cast = -1;
    copy.reset();
  }
  cast_cache_.clear();
}

}  // namespace memcalc
