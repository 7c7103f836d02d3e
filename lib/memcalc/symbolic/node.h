// Node: an operator's place in the autograd graph: what it saved, where its gradients go, which have arrived.
// MIRRORS(torch, "distributed/pipelining/_backward.py", "2.11.0")
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "memcalc/symbolic/node_payload.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

class BackwardCall;
struct AtenOperator;
class CheckpointFrame;

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
inline constexpr int kUsualOutputs = 3;  // of a node; parts of a split may be more
inline constexpr int kMaxOutputs = 255;

struct Node {
  const Operator* name = nullptr;
  const AtenOperator* op = nullptr;  // null: AccumulateGrad, or a function of its own
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
  std::array<Tensor, kUsualOutputs> buffer;  // gradients that have arrived
  std::vector<Tensor> further_buffer;        // those of further outputs
  NodePayload payload;
  Tensor kept;  // what a Python autograd.Function keeps on its ctx: lives as long as the graph

  /// The gradient of an output, as far as it has arrived.
  [[nodiscard]] Tensor& arrived(int out) {
    const auto i = static_cast<std::size_t>(out);
    return i < buffer.size() ? buffer[i] : further_buffer[i - buffer.size()];
  }
};

/// A node through which gradients pass to an input, while those of its weights wait (pipelining/_backward.py, a
/// param_group).
struct DeferredNode {
  NodeId node = kNoNode;
  Tensor gradient;                 // of its output
  Tensor summed;                   // sum([gradient]) in Python, a copy
  std::vector<Tensor> of_weights;  // dweights
};

}  // namespace memcalc
