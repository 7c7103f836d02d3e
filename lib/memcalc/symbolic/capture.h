// GraphCapture: writes down the operators of a forward pass with what they read, save and make, as torch.compile's
// tracers do. While a tape has one, nothing that it does is an event of the trace. Covered by
// tests/unit/compile_test.cc.
// MIRRORS(torch, "_higher_order_ops/wrap.py", "2.11.0")
// MIRRORS(torch, "fx/experimental/proxy_tensor.py", "2.11.0")
// MIRRORS(torch, "utils/checkpoint.py", "2.11.0")
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "memcalc/spec/float8.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/memory.h"
#include "memcalc/symbolic/tensor.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

struct Node;

/// A tensor of the captured pass.
struct CapturedValue {
  Shape shape;
  DType dtype = DType::kFloat32;
  TensorImpl* parameter = nullptr;  // a leaf; else null
  std::int32_t maker = -1;          // the operator that made it; -1: it was there, or was made without history
};

/// What a checkpoint around an operator asks of the partitioner (torch/utils/checkpoint.py, CheckpointPolicy).
enum class Recompute : std::uint8_t { kAsItLikes, kMustSave, kPreferred };

struct CapturedOperator {
  const Operator* name = nullptr;  // of its autograd node: "AddmmBackward0"
  CompileRule rule = CompileRule::kKernel;
  bool selective = false;       // checkpointing around it
  bool differentiable = false;  // some input needs a gradient
  std::vector<std::int32_t> inputs;
  std::vector<bool> needs_gradient;  // by input
  std::vector<std::int32_t> outputs;
  std::vector<std::int32_t> saved;
  Bytes backward_scratch = 0;  // that its derivative takes for a moment
  Recompute recompute = Recompute::kAsItLikes;
  std::size_t first_kernel = 0;  // of the tape's list, up to the next operator's
  std::int32_t checkpoint = 0;   // the region that it ran in (ac_graph_id); 0: none
};

class GraphCapture final : public ScratchMeter {
 public:
  /// An operator begins, or (`op` is null) a function of its own. It may call others before it says what it made.
  void record(const Operator& name, const AtenOperator* op, const Tensor* const* inputs, int count,
              bool differentiable);
  /// The node that the operator begun last got.
  void opened(const Node& node);
  void save(const Node& node, const Tensor& tensor);
  /// The operator of `node`, or the last that got none, made this.
  void set_output(const Node* node, const Tensor& output);
  /// Backward has come to the node of an operator.
  void evaluating(const Node& node);
  void scratch(Bytes bytes) override;
  /// Python runs between what made this and what reads it: two graphs, and the second hands its gradient to the first.
  void break_graph(const Tensor& tensor) { breaks.push_back(value_of(tensor)); }
  /// Operators from here on run in a checkpointed region, which torch.compile traces as such
  /// (torch/_higher_order_ops/wrap.py, TagActivationCheckpoint); until leave_checkpoint().
  void enter_checkpoint(Recomputes recomputes);
  void leave_checkpoint() { recomputes_.reset(); }
  /// The traced function gets this tensor: it was there before, and its gradient is a result.
  void add_input(const Tensor& tensor) { inputs.push_back(value_of(tensor)); }
  /// The number of a tensor; it gets one where it has none.
  [[nodiscard]] std::int32_t value_of(const Tensor& tensor);

  std::vector<CapturedValue> values;
  std::vector<CapturedOperator> operators;
  std::vector<std::int32_t> breaks;
  std::vector<std::int32_t> inputs;  // beside parameters and what the batch has; of a whole model: none
  std::optional<DType> autocast;     // of the region that the pass ran in
  Float8 float8 = Float8::kNone;     // of its products
  bool tf32 = false;                 // of its products of float32

 private:
  std::vector<std::int32_t> operator_of_node_;  // by NodeId; -1: none
  std::int32_t evaluated_ = -1;
  std::optional<Recomputes> recomputes_;  // of the checkpointed region under way
  std::int32_t checkpoints_ = 0;
  std::int64_t products_ = 0;               // of that region
  std::vector<std::int32_t> without_node_;  // operators begun that have no node and made nothing yet
};

/// Until the scope ends, `capture` writes down what runs on the tape, nothing of which is an event of its trace. A
/// tracer casts without autocast's weight cache (proxy_tensor.py, disable_autocast_cache): what was cast before stays
/// out.
class Capturing {
 public:
  Capturing(Tape& tape, GraphCapture& capture)
      : modes_(tape.modes), unrecorded_(tape.memory, capture), cast_before_(modes_.autocast.take_cache()) {
    modes_.capture = &capture;
  }
  ~Capturing() {
    modes_.capture = nullptr;
    modes_.autocast.give_back(std::move(cast_before_));
  }
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;

 private:
  Modes& modes_;
  UnrecordedRequests unrecorded_;
  Autocast::Cache cast_before_;
};

/// A checkpointed region of a captured pass.
class CapturedCheckpoint {
 public:
  CapturedCheckpoint(GraphCapture& capture, Recomputes recomputes) : capture_(capture) {
    capture.enter_checkpoint(recomputes);
  }
  ~CapturedCheckpoint() { capture_.leave_checkpoint(); }
  CapturedCheckpoint(const CapturedCheckpoint&) = delete;
  CapturedCheckpoint& operator=(const CapturedCheckpoint&) = delete;

 private:
  GraphCapture& capture_;
};

}  // namespace memcalc
