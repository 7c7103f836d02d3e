// Tape: the autograd graph and the memory of a symbolic run. It owns tensors, nodes and storages, records every
// allocation and free into a Trace, and runs backward as torch/csrc/autograd/engine.cpp does: a node's gradients
// wait in its input buffer until all have arrived; of the ready nodes the one recorded last runs first.
// Covered by tests/unit/tape_test.cc.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/float8.h"
#include "memcalc/symbolic/host_copies.h"
#include "memcalc/symbolic/kernel_list.h"
#include "memcalc/symbolic/pool.h"
#include "memcalc/symbolic/tensor.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

class BackwardCall;
class CheckpointFrame;
class GraphCapture;
class LayerHooks;
class ModuleHooks;
class RegionCompiler;

using BackwardFunction = void (*)(BackwardCall&);

struct Edge {
  NodeId node = kNoNode;
  std::uint8_t input = 0;
};

/// Counts the saved tensors that refer to a checkpointed region, so that it dies with the last of them. Not atomic: a
/// tape belongs to one thread.
class FrameHandle {
 public:
  FrameHandle() = default;
  explicit FrameHandle(CheckpointFrame* frame);
  FrameHandle(const FrameHandle& other) : FrameHandle(other.frame_) {}
  FrameHandle(FrameHandle&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  FrameHandle& operator=(FrameHandle other) noexcept {
    std::swap(frame_, other.frame_);
    return *this;
  }
  ~FrameHandle() {
    if (frame_ != nullptr) release();
  }
  [[nodiscard]] explicit operator bool() const { return frame_ != nullptr; }
  [[nodiscard]] CheckpointFrame* operator->() const { return frame_; }

 private:
  void release();

  CheckpointFrame* frame_ = nullptr;
};

/// A saved tensor: the tensor itself, its copy in host memory, or, inside a checkpointed region, its number there.
struct SavedTensor {
  Tensor tensor;
  FrameHandle frame;
  std::int32_t slot = -1;
  bool on_host = false;

  void reset() {
    tensor.reset();
    if (frame) forget();
    on_host = false;
  }

 private:
  void forget();
};

/// What a node's forward outputs look like: an incoming gradient is summed or cast to it. Of several outputs the first;
/// where the others have other shapes (a split into unequal parts), none of them was broadcast.
struct OutputMetadata {
  Shape shape;
  DType dtype = DType::kFloat32;
};

inline constexpr int kMaxEdges = 4;
inline constexpr int kMaxSaved = 8;
inline constexpr int kMaxOutputs = 3;

struct Node {
  const Operator* name = nullptr;
  BackwardFunction backward = nullptr;
  NodeId id = kNoNode;
  std::uint64_t sequence = 0;
  std::int32_t references = 0;
  std::int32_t dependencies = 0;  // edges that still have to deliver; counted at the start of backward
  std::uint8_t edge_count = 0;
  std::uint8_t saved_count = 0;
  std::uint8_t output_count = 0;
  bool visited = false;
  bool recomputed = false;
  bool outputs_differ = false;     // in shape
  bool sums_anew = false;          // gradients that meet at its output are DTensors, which are not added in place
  std::uint8_t computes = 0xff;    // a bit for each edge: whether this backward pass wants its gradient
  bool defers = false;             // the gradients of its weights to backward_weights()
  std::int32_t hook = -1;          // before its backward; of AccumulateGrad after it
  TensorImpl* variable = nullptr;  // AccumulateGrad only
  std::array<Edge, kMaxEdges> edges;
  std::array<SavedTensor, kMaxSaved> saved;
  OutputMetadata output;
  std::array<Tensor, kMaxOutputs> buffer;  // gradients that have arrived
  // What a backward needs to know beside tensors; the meaning is the operator's own.
  Shape shape;
  std::array<std::int64_t, 4> attributes{};
  const void* context = nullptr;
  std::shared_ptr<void> owner;  // of the context, where the node owns it
  Tensor kept;                  // what a Python autograd.Function keeps on its ctx: lives as long as the graph
};

/// A node through which gradients pass to an input, while those of its weights wait (pipelining/_backward.py, a
/// param_group).
struct DeferredNode {
  NodeId node = kNoNode;
  Tensor gradient;                 // of its output
  Tensor summed;                   // sum([gradient]) in Python, a copy
  std::vector<Tensor> of_weights;  // dweights
};

/// Autocast's weight cache: a leaf and its 16-bit copy each.
using CastCache = std::vector<std::pair<TensorImpl*, Tensor>>;

/// Operator context for one call: releases temporary arguments when the operator returns, and records its node.
class OperatorCall;

class Tape {
 public:
  explicit Tape(const DeviceSpec& device);
  ~Tape();
  Tape(const Tape&) = delete;  // tensors point back to their tape
  Tape& operator=(const Tape&) = delete;

  // --- tensors
  /// A new storage of `shape`, requested by `op`. Zero elements request nothing.
  [[nodiscard]] Tensor empty(const Shape& shape, DType dtype, const Operator& op,
                             Category category = Category::kTemporaries);
  [[nodiscard]] Tensor empty_strided(const Shape& shape, const Shape& strides, DType dtype, const Operator& op);
  /// Another tensor on the same storage, without autograd history.
  [[nodiscard]] Tensor alias(const Tensor& base, const Shape& shape, const Shape& strides, bool is_view);
  /// alias(), as a view, that reuses the handle of a temporary: the base would die with the operator.
  [[nodiscard]] Tensor become_view(Tensor& temporary, const Shape& shape, const Shape& strides);
  [[nodiscard]] Tensor detach(const Tensor& base) { return alias(base, base.shape(), base.strides(), false); }
  /// A module's parameter: a leaf whose gradient is kept if `trainable`.
  [[nodiscard]] Tensor parameter(const Shape& shape, DType dtype, bool trainable = true);
  /// parameter.requires_grad_(trainable), of one that was made trainable.
  void set_trainable(const Tensor& parameter, bool trainable) { parameter.impl()->requires_grad = trainable; }
  /// tensor.requires_grad_() of a result without history: a leaf, whose gradient lives as long as the graph.
  void require_gradient(const Tensor& tensor);
  /// tensor.data = tensor.data.to(dtype): new storage, then the old one dies. Keeps what autograd knows of a parameter.
  void convert(const Tensor& tensor, DType dtype, const Operator& op);
  /// A parameter that becomes one of another shape and type in its place: the storage of `from`, which dies, and what
  /// autograd knows of it; its own storage dies before.
  void replace_parameter(const Tensor& parameter, Tensor& from);
  /// Its gradient may have another shape than the parameter has on this rank (a DTensor of another layout).
  void accept_whole_gradient(const Tensor& parameter);
  /// Gives a tensor that was made on the meta device the storage of `from`, which dies.
  void take_storage(const Tensor& tensor, Tensor& from);
  /// Stands for a tensor of an earlier step: no allocation, only its free is recorded.
  [[nodiscard]] Tensor placeholder();
  /// Scratch memory that an operator holds for a moment: requested and returned at once.
  void scratch(Bytes bytes, const Operator& op, Category category = Category::kTemporaries);
  void set_category(const Tensor& tensor, Category category);
  /// tensor.record_stream(…): once freed its memory is not handed out again before streams_done().
  void record_stream(const Tensor& tensor);
  /// The other streams are done with a block that waited for them. Pre: it is free.
  void streams_done(BlockId block);
  /// Whether some tensor still lies on it.
  [[nodiscard]] bool is_held(BlockId block) const { return block_references_[static_cast<std::size_t>(block)] > 0; }

  // --- storages that are freed and allocated again under the tensors that share them (untyped_storage().resize_)
  /// Frees the storage of `tensor`, which nothing else shares, and gives it one that can be resized; it is empty.
  void make_resizable(const Tensor& tensor);
  /// A tensor on a resizable storage that is empty.
  [[nodiscard]] Tensor empty_resizable(const Shape& shape, DType dtype);
  /// Pre: empty.
  void fill_storage(const Tensor& tensor, const Operator& op, Category category);
  /// Pre: filled. The block that was freed.
  BlockId empty_storage(const Tensor& tensor);
  /// A later step of the same kind does not ask for this one, though it is freed.
  void only_once(const Tensor& tensor) { blocks_only_once.push_back(tensor.impl()->block); }

  // --- autograd
  /// Makes a node over the inputs that need a gradient; null where none does or gradients are off.
  [[nodiscard]] Node* record(const Operator& name, BackwardFunction backward, const Tensor* const* inputs, int count);
  void save(Node& node, const Tensor& tensor);
  /// ctx.name = tensor in an autograd.Function: neither checkpointing nor backward lets it go, only the graph's end.
  void keep(Node& node, const Tensor& tensor);
  /// What autograd saves counts as an activation from then on.
  void mark_saved(const Tensor& tensor);
  /// Makes `output` the next output of `node`; without a node nothing. A former history is let go.
  void set_history(Node* node, Tensor& output);
  void backward(const Tensor& root, Tensor root_gradient);
  /// stage_backward_input of torch.distributed.pipelining: the gradient of `input` alone; the graph is kept. What the
  /// gradients of `weights` need waits in the result, in the order of the weights.
  [[nodiscard]] std::vector<DeferredNode> backward_input(const Tensor& root, Tensor root_gradient, const Tensor& input,
                                                         const std::vector<Tensor>& weights);
  /// stage_backward_weight: node by node, whose graph may die once its turn is over.
  void backward_weights(std::vector<DeferredNode>& deferred);
  /// tensor.detach_()
  void forget_history(const Tensor& tensor);
  [[nodiscard]] Tensor unpack(SavedTensor& saved);
  /// torch.autograd.graph.save_on_cpu: a copy in pinned host memory, and back. No event of the trace but what the card
  /// needs for the copy.
  [[nodiscard]] Tensor to_host(const Tensor& tensor);
  [[nodiscard]] Tensor from_host(const Tensor& copy);
  /// tensor.register_hook: before the backward of the operator that made it; of a leaf with its gradient.
  void before_backward_of(const Tensor& output, std::function<void()> hook);
  /// A post hook of the parameter's AccumulateGrad: each time that its gradient has arrived.
  void after_gradient_of(const Tensor& parameter, std::function<void()> hook);
  /// Variable._execution_engine.queue_callback: once, when this backward pass is done.
  void at_end_of_backward(std::function<void()> callback) { final_callbacks_.push_back(std::move(callback)); }
  /// Forgets a node whose operator was stopped before it made its output.
  void abandon_pending_node();

  // --- what surrounds an operator
  void allocate_event(BlockId block, const Operator* op);
  void free_event(BlockId block);
  void empty_cache();
  void kernel(const Operator& op, OperatorClass operator_class, DType dtype, double flops, double bytes,
              KernelKind kind = KernelKind::kVectorized, double elements = 0);
  /// C[batch, m, n] += A[batch, m, k] B[batch, k, n].
  void contraction(const Operator& op, DType dtype, std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                   KernelKind kind = KernelKind::kMatrixProduct, Transposed transposed = Transposed::kNone);
  /// The kernel recorded last, to say more of it; null where none is recorded.
  [[nodiscard]] Kernel* last_kernel() { return record_kernels && !kernels.empty() ? &kernels.back() : nullptr; }
  /// The host reads a number from the card, so it waits for it (.item(), bool(tensor)).
  void synchronize(const Operator& op);
  /// `rows` in as many groups, however long each, multiplied or summed over by matrices [k, n] of their own.
  void grouped_contraction(const Operator& op, DType dtype, std::int64_t groups, std::int64_t rows, std::int64_t k,
                           std::int64_t n);
  /// A collective of `group_size` ranks; `bytes` as in Kernel::collective_bytes.
  void collective(const Operator& op, Collective kind, DType dtype, Bytes bytes, std::int64_t group_size);
  /// Ends the run: what dies from now on is no event.
  void stop() { closing_ = true; }
  /// The workspaces that cuBLAS, and cuBLASLt where it fuses the bias, take at a thread's first call.
  void use_cublas(bool with_lt);
  /// The thread that ran forward is gone: autograd's takes its handle over, the next forward's makes another.
  void forward_thread_ended();

  const DeviceSpec& device;
  Trace trace;
  KernelList kernels;
  std::vector<BlockId> blocks_only_once;
  Bytes managed_bytes = 0;  // taken with cudaMallocManaged: no event of the allocator
  bool record_kernels = false;
  std::int64_t kernel_repeats = 1;  // how often what runs now runs in a step
  std::int32_t pending_views = 0;   // operators without a kernel since the last one
  std::int32_t pending_nodes = 0;   // autograd nodes evaluated since the last kernel
  Phase phase = Phase::kBuild;
  CudaStream stream = CudaStream::kDefault;  // the current stream
  LayerHooks* layer_hooks = nullptr;         // what a wrapper does around each layer of the model
  ModuleHooks* module_hooks = nullptr;       // and around each module that holds parameters
  RegionCompiler* compiler = nullptr;        // of layers, and of the loss
  /// Tensor parallelism whose plan splits the sequence between the layers' products: over how many ranks; 1: none. With
  /// `loss_parallel` the logits stay split by vocabulary.
  std::int64_t split_sequence_ranks = 1;
  bool loss_parallel = false;
  bool on_dtensors = false;  // nodes that are recorded are of DTensors (Node::sums_anew)
  int step = -1;
  bool grad_enabled = true;
  bool training = true;                    // model.train(); else model.eval(): no dropout, fixed statistics of batches
  bool allow_tf32 = false;                 // torch.backends.cudnn.allow_tf32
  std::optional<DType> autocast;           // the 16-bit type inside an autocast region
  const Operator* current_node = nullptr;  // what the trace names as the caller of operators
  FrameHandle checkpoint;                  // region whose saved tensors are numbered instead of kept
  bool recomputing = false;
  bool on_meta_device = false;             // tensors are made without storage: from_pretrained builds a model so
  bool has_dynamic_map = false;            // bitsandbytes has put its map of 8-bit codes on the card
  std::int64_t backward_call = 0;          // which one is under way: the engine's graph task
  std::int64_t checkpointable_layers = 0;  // that have run in this forward pass
  std::int64_t context_ranks = 1;          // that share each sequence: attention gathers keys and values
  std::int64_t context_rank = 0;           // this one
  bool context_rotates = false;            // or passes them on, rank by rank
  std::int64_t sequence_ranks = 1;         // the same by Ulysses: attention exchanges heads for positions
  bool offload_saved = false;              // what autograd saves goes to host memory
  Float8 float8 = Float8::kNone;           // of the products that are captured
  GraphCapture* capture = nullptr;         // writes down the graph; meanwhile nothing is an event of the trace
  HostCopies host_copies;                  // of this forward pass

  /// Autocast's weight cache: 16-bit copies of float32 leaves, for as long as the region is open.
  [[nodiscard]] const Tensor* find_cached_cast(const TensorImpl& weight) const;
  void cache_cast(TensorImpl& weight, const Tensor& copy);
  void clear_cast_cache();
  /// Leaves the cache empty until it is given back.
  [[nodiscard]] CastCache take_cast_cache();
  void give_back_cast_cache(CastCache cache);

 private:
  friend class Tensor;
  friend class BackwardCall;

  [[nodiscard]] TensorImpl* new_impl();
  void release(TensorImpl* impl);
  void release_block(BlockId block);
  [[nodiscard]] BlockId& block_of_storage(const Tensor& tensor);
  [[nodiscard]] std::int32_t add_hook(std::function<void()> hook);
  [[nodiscard]] NodeId new_node();
  void release_node(NodeId id);
  [[nodiscard]] Edge gradient_edge(const Tensor& tensor);
  void count_dependencies(NodeId root);
  void run_ready(NodeId first);
  void evaluate(NodeId id);
  void collect_accumulators(NodeId from, std::vector<NodeId>& found);
  void backward_weight(DeferredNode& deferred);
  void validate(const Edge& edge, Tensor& gradient);
  void deliver(const Edge& edge, Tensor gradient);
  void accumulate_gradient(Node& node, Tensor gradient);
  void push_ready(NodeId id);

  std::vector<std::int32_t> block_references_;
  Pool<TensorImpl> impls_;  // recycled through the free list
  std::vector<TensorImpl*> free_impls_;
  Pool<Node> nodes_;
  std::vector<NodeId> free_nodes_;
  std::vector<NodeId> release_stack_;
  bool releasing_ = false;
  std::vector<std::pair<std::uint64_t, NodeId>> ready_;  // a heap: largest sequence first
  std::vector<NodeId> visit_stack_;
  std::vector<NodeId> visited_;
  NodeId pending_node_ = kNoNode;  // recorded, its output not made yet
  std::uint64_t next_sequence_ = 0;
  CastCache cast_cache_;
  std::array<bool, 2> cublas_used_{};  // by thread: forward, autograd
  std::array<bool, 2> cublaslt_used_{};
  std::vector<Tensor> workspaces_;
  std::vector<std::pair<BlockId, BlockId>> resizable_;  // storage (a block that is never allocated), its block now
  std::vector<std::function<void()>> hooks_;
  std::vector<std::function<void()>> final_callbacks_;
  int backward_depth_ = 0;
  std::int64_t backward_calls_ = 0;
  std::vector<DeferredNode>* deferred_ = nullptr;  // of the backward_input() under way, which keeps the graph
  bool closing_ = false;
};

/// What a backward function sees: the incoming gradients, the saved tensors, and which inputs need a gradient.
class BackwardCall {
 public:
  BackwardCall(Tape& owner, Node& evaluated) : tape(owner), node(evaluated) {}

  [[nodiscard]] bool needs(int input) const {
    return node.edges[static_cast<std::size_t>(input)].node != kNoNode && (node.computes >> input & 1) != 0;
  }
  [[nodiscard]] const Tensor& gradient(int output = 0) const { return gradients[static_cast<std::size_t>(output)]; }
  /// The gradient itself, where the result is a view of it.
  [[nodiscard]] Tensor take_gradient() { return std::move(gradients[0]); }
  [[nodiscard]] const Tensor& saved(int i) const { return unpacked[static_cast<std::size_t>(i)]; }
  /// A gradient that nobody needs dies here.
  void set(int input, Tensor gradient) {
    if (needs(input)) results[static_cast<std::size_t>(input)] = std::move(gradient);
  }

  Tape& tape;
  Node& node;
  std::array<Tensor, kMaxOutputs> gradients;
  std::array<Tensor, kMaxSaved> unpacked;  // the backward function's locals: they die when it returns
  std::array<Tensor, kMaxEdges> results;
};

/// Stands at the top of every operator: drops temporary arguments when the operator returns.
class OperatorCall {
 public:
  template <typename... Args>
  explicit OperatorCall(const Args&... arguments) : arguments_{&arguments...}, count_(sizeof...(arguments)) {}
  ~OperatorCall() {
    for (std::size_t i = 0; i < count_; ++i) arguments_[i]->release();
  }
  OperatorCall(const OperatorCall&) = delete;
  OperatorCall& operator=(const OperatorCall&) = delete;

 private:
  std::array<const Arg*, 5> arguments_{};
  std::size_t count_;
};

/// with torch.cuda.stream(…)
class OnStream {
 public:
  OnStream(Tape& tape, CudaStream stream) : tape_(tape), before_(std::exchange(tape.stream, stream)) {}
  ~OnStream() { tape_.stream = before_; }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  Tape& tape_;
  CudaStream before_;
};

/// Turns recording off for a scope, as torch.no_grad does.
class NoGrad {
 public:
  explicit NoGrad(Tape& tape) : tape_(tape), before_(tape.grad_enabled) { tape.grad_enabled = false; }
  ~NoGrad() { tape_.grad_enabled = before_; }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  Tape& tape_;
  bool before_;
};

inline void Tensor::reset() {
  if (impl_ == nullptr) return;
  TensorImpl* impl = std::exchange(impl_, nullptr);
  if (--impl->references == 0) impl->tape->release(impl);
}

}  // namespace memcalc
