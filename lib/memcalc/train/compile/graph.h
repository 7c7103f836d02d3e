// The joint graph of torch.compile: forward and backward of a training step in the operators that AOTAutograd traces
// and decomposes to. Nodes are in the order in which they were traced, so inputs come before their users.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/symbolic/capture.h"
#include "memcalc/symbolic/tensor.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc::compile {

using NodeIndex = std::int32_t;
inline constexpr NodeIndex kNone = -1;

enum class NodeKind : std::uint8_t {
  kParameter,  // a weight or buffer of the module
  kInput,      // of the batch, or a tangent
  kView,       // another shape of its first input's storage
  kPointwise,  // inductor inlines it into what reads it
  kReduction,  // inductor fuses it, and stores its result
  kExtern,     // a kernel of its own: a product, a convolution, a scatter
  kTuple,      // one with several results, each of which is a kItem
  kItem,
};

struct GraphNode {
  NodeKind kind = NodeKind::kPointwise;
  bool recomputable = false;  // functorch/partitioners.py, get_default_op_list
  bool concatenates = false;  // aten.cat, into which anything may be fused
  bool joins_views = false;   // parts of rows that are no multiple of a block; all but the first are views
  bool fuses_bias = false;    // a product that calls cuBLASLt
  bool calls_cublas = false;
  bool after_tangents = false;  // depends on a tangent
  bool across_rows = false;     // a reduction: over the leading dimensions, as the gradient of a bias is
  bool is_static = true;        // a parameter that lives as long as the model, so that keeping it is free
  Recompute recompute = Recompute::kAsItLikes;
  DType dtype = DType::kFloat32;
  std::int32_t checkpoint = 0;  // CapturedOperator
  Bytes bytes = 0;
  Bytes scratch = 0;  // that its kernel takes for a moment
  const Operator* op = nullptr;
  std::vector<NodeIndex> inputs{};
  std::vector<NodeIndex> users{};
};

class JointGraph {
 public:
  /// A node over `inputs`; an equal one that exists is returned instead (fx_graph_cse), unless it is `distinct`.
  NodeIndex add(GraphNode node, bool distinct = false);

  [[nodiscard]] const GraphNode& operator[](NodeIndex i) const { return nodes_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] GraphNode& operator[](NodeIndex i) { return nodes_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] NodeIndex size() const { return static_cast<NodeIndex>(nodes_.size()); }
  /// The node whose storage a view, or a view of a view, shows.
  [[nodiscard]] NodeIndex storage_of(NodeIndex i) const {
    while ((*this)[i].kind == NodeKind::kView) i = (*this)[i].inputs.front();
    return i;
  }

  /// What the compiled forward returns to Python, the tangent that backward gets for each (kNone: it has none), and
  /// all of these in order.
  std::vector<NodeIndex> outputs;
  std::vector<NodeIndex> tangent_of_output;
  std::vector<NodeIndex> tangents;
  /// Gradients at which one graph's backward ends and the next begins: AOTAutograd's backward(ctx, *flat_args) holds
  /// what it was given until it returns.
  std::vector<NodeIndex> handed_over;
  /// Of each argument of the compiled function its node and its gradient; kNone where there is none.
  std::vector<NodeIndex> inputs, input_gradients;
  /// The gradient of each parameter that has one.
  std::vector<std::pair<TensorImpl*, NodeIndex>> gradients;

 private:
  using Key = std::tuple<const Operator*, NodeKind, Bytes, DType, std::vector<NodeIndex>>;
  std::vector<GraphNode> nodes_;
  std::map<Key, NodeIndex> known_;
};

}  // namespace memcalc::compile
