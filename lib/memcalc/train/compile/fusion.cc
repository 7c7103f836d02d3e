#include "memcalc/train/compile/fusion.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/symbolic/compiled_code.h"
#include "memcalc/train/compile/rules.h"

namespace memcalc::compile {

namespace {

constexpr Operator kPointwiseKernel{"triton_poi_fused"}, kReductionKernel{"triton_red_fused"};
constexpr std::size_t kMostFused = 64;  // config.max_fusion_size
constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

std::size_t index(NodeIndex i) { return static_cast<std::size_t>(i); }

/// A buffer that a launch reads, and how many bytes of it at most: a slice or a table's rows are not all of it.
struct Read {
  NodeIndex buffer = kNone;
  Bytes bytes = 0;
};

/// Reads as many bytes as it gives.
bool gathers(const GraphNode& node) {
  if (node.op == nullptr) return false;
  const std::string_view name = node.op->name;
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  return has("embedding") || has("gather") || has("index") || has("nll_loss");
}

struct Group {
  std::vector<NodeIndex> members;
  std::vector<Read> reads;
  double elements = 0;
  std::int32_t depth = 0;
  bool reduces = false;
};

class Fusion {
 public:
  Fusion(const JointGraph& graph, const Schedule& schedule, std::span<const NodeIndex> given,
         std::span<const NodeIndex> results)
      : graph_(graph),
        is_buffer_(index(graph.size()), false),
        is_result_(is_buffer_.size(), false),
        group_of_(is_buffer_.size(), -1),
        last_reader_(is_buffer_.size(), -1),
        depth_(is_buffer_.size(), 0),
        seen_(is_buffer_.size(), kNone) {
    for (NodeIndex i = 0; i < graph.size(); ++i) {
      const NodeKind kind = graph[i].kind;
      is_buffer_[index(i)] = kind == NodeKind::kParameter || kind == NodeKind::kInput;
    }
    for (const NodeIndex each : given) is_buffer_[index(each)] = is_buffer_[index(graph.storage_of(each))] = true;
    for (const Launch& each : schedule.launches) is_buffer_[index(each.node)] = true;
    for (const NodeIndex each : results) is_result_[index(graph.storage_of(each))] = true;
    for (const Launch& each : schedule.launches) add(each.node);
  }

  /// Their kernels, in order.
  [[nodiscard]] KernelList kernels() const;

 private:
  void add(NodeIndex i);
  void read(NodeIndex at, Bytes limit, NodeIndex reader, std::vector<Read>& reads);
  [[nodiscard]] double iterated(NodeIndex i, const std::vector<Read>& reads) const;
  [[nodiscard]] std::int32_t joined(double elements, std::int32_t depth, const std::vector<Read>& reads) const;

  const JointGraph& graph_;
  std::vector<bool> is_buffer_, is_result_;
  std::vector<std::int32_t> group_of_;     // by buffer: which group writes it; -1: none
  std::vector<std::int32_t> last_reader_;  // by buffer: the group that read it last
  std::vector<std::int32_t> depth_;        // by buffer: kernels of another kind on the way to it
  std::vector<NodeIndex> seen_;            // by node: the launch whose expression was followed through it last
  std::vector<Group> groups_;
};

/// Follows the expression that `reader` inlines to the buffers behind it.
void Fusion::read(NodeIndex at, Bytes limit, NodeIndex reader, std::vector<Read>& reads) {
  const GraphNode& node = graph_[at];
  if (!is_buffer_[index(at)] && node.kind == NodeKind::kView) {
    return read(node.inputs.front(), std::min(limit, node.bytes), reader, reads);
  }
  if (is_buffer_[index(at)] || node.inputs.empty()) {
    const Bytes bytes = std::min(limit, node.bytes);
    const auto known = std::find_if(reads.begin(), reads.end(), [&](const Read& each) { return each.buffer == at; });
    if (known == reads.end()) {
      reads.push_back({at, bytes});
    } else {
      known->bytes = std::max(known->bytes, bytes);
    }
    return;
  }
  if (std::exchange(seen_[index(at)], reader) == reader) return;
  const Bytes gathered = gathers(node) ? std::min(limit, node.bytes) : limit;
  for (const NodeIndex input : node.inputs) read(input, gathered, reader, reads);
}

/// Elements that its loops go over: of a reduction those of its largest operand.
double Fusion::iterated(NodeIndex i, const std::vector<Read>& reads) const {
  const auto elements_of = [&](NodeIndex at, Bytes bytes) {
    return static_cast<double>(bytes) / static_cast<double>(size_of(graph_[at].dtype));
  };
  double elements = elements_of(i, graph_[i].bytes);
  if (graph_[i].kind != NodeKind::kReduction) return elements;
  for (const Read& each : reads) elements = std::max(elements, elements_of(each.buffer, each.bytes));
  return elements;
}

/// The latest group of this size that it shares data with, if nothing but fused kernels lies between; -1: none.
std::int32_t Fusion::joined(double elements, std::int32_t depth, const std::vector<Read>& reads) const {
  std::int32_t best = -1;
  for (const Read& each : reads) {
    for (const std::int32_t candidate : {group_of_[index(each.buffer)], last_reader_[index(each.buffer)]}) {
      if (candidate <= best) continue;
      const Group& group = groups_[static_cast<std::size_t>(candidate)];
      const bool alike = group.elements == elements || (group.reduces && elements <= group.elements);
      if (alike && group.depth == depth && group.members.size() < kMostFused) best = candidate;
    }
  }
  return best;
}

void Fusion::add(NodeIndex i) {
  const GraphNode& node = graph_[i];
  std::vector<Read> reads;
  for (const NodeIndex input : node.inputs) read(input, gathers(node) ? node.bytes : kUnlimited, i, reads);
  std::int32_t depth = 0;
  for (const Read& each : reads) depth = std::max(depth, depth_[index(each.buffer)]);
  const bool fuses = node.kind == NodeKind::kPointwise || node.kind == NodeKind::kReduction;
  depth_[index(i)] = depth + (fuses || node.kind == NodeKind::kItem ? 0 : 1);
  if (!fuses) return;
  const double elements = iterated(i, reads);
  std::int32_t number = joined(elements, depth, reads);
  if (number < 0) {
    number = static_cast<std::int32_t>(groups_.size());
    Group& made = groups_.emplace_back();
    made.elements = elements;
    made.depth = depth;
  }
  Group& group = groups_[static_cast<std::size_t>(number)];
  group.members.push_back(i);
  group.reduces = group.reduces || node.kind == NodeKind::kReduction;
  group.elements = std::max(group.elements, elements);
  group_of_[index(i)] = number;
  for (const Read& each : reads) {
    last_reader_[index(each.buffer)] = number;
    const auto known = std::find_if(group.reads.begin(), group.reads.end(),
                                    [&](const Read& other) { return other.buffer == each.buffer; });
    if (known == group.reads.end()) {
      group.reads.push_back(each);
    } else {
      known->bytes = std::max(known->bytes, each.bytes);
    }
  }
}

KernelList Fusion::kernels() const {
  std::vector<bool> read_outside(is_buffer_.size(), false);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const Read& each : groups_[g].reads) {
      if (group_of_[index(each.buffer)] != static_cast<std::int32_t>(g)) read_outside[index(each.buffer)] = true;
    }
  }
  for (NodeIndex i = 0; i < graph_.size(); ++i) {  // what a product reads exists
    const NodeKind kind = graph_[i].kind;
    if (kind != NodeKind::kExtern && kind != NodeKind::kTuple) continue;
    for (const NodeIndex input : graph_[i].inputs) read_outside[index(graph_.storage_of(input))] = true;
  }
  KernelList kernels;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    Bytes bytes = 0;
    for (const Read& each : group.reads) {
      if (group_of_[index(each.buffer)] != static_cast<std::int32_t>(g)) bytes += each.bytes;
    }
    for (const NodeIndex each : group.members) {
      if (is_result_[index(each)] || read_outside[index(each)]) bytes += graph_[each].bytes;
    }
    Kernel& kernel = kernels.emplace_back();
    kernel.op = group.reduces ? &kReductionKernel : &kPointwiseKernel;
    kernel.operator_class = group.reduces ? OperatorClass::kNormalization : OperatorClass::kElementwise;
    kernel.kind = group.reduces ? KernelKind::kRowwise : KernelKind::kVectorized;
    kernel.dtype = graph_[group.members.front()].dtype;
    kernel.bytes = static_cast<double>(bytes);
    kernel.elements = group.elements;
    kernel.node = &kCompiledCode;
  }
  return kernels;
}

/// Which eager kernels are calls in the generated code, too.
bool stays(const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::kMatrixProduct:
    case KernelKind::kGroupedProduct:
    case KernelKind::kCudnnAttention:
    case KernelKind::kFlashAttention:
    case KernelKind::kEfficientAttention:
    case KernelKind::kConvolution:
    case KernelKind::kDepthwiseConvolution:
    case KernelKind::kEmbeddingBackward:
    case KernelKind::kSynchronize:
    case KernelKind::kCopyToDevice:
    case KernelKind::kCopyToHost: return true;
    case KernelKind::kPartOfPrevious: return kernel.as<work::OfHost>() == nullptr;
    default: return kernel.communicates();
  }
}

/// A product as generated code calls it: its sides are padded where inductor does so.
void pad_sides(Kernel& kernel) {
  auto* product = std::get_if<work::Product>(&kernel.work);
  if (product == nullptr || product->batch != 1) return;
  if (!is_padded(kernel.dtype, product->m, product->k, product->n)) return;
  for (std::int64_t* side : {&product->m, &product->k, &product->n}) *side = round_up(*side, kPaddedTo);
}

}  // namespace

KernelList fused_kernels(const JointGraph& graph, const Schedule& schedule, std::span<const NodeIndex> given,
                         std::span<const NodeIndex> results, const KernelList& eager) {
  KernelList fused = Fusion(graph, schedule, given, results).kernels();
  std::array<double, kOperatorClassCount> flops{};
  KernelList kernels;
  for (const Kernel& kernel : eager) {
    if (!stays(kernel)) {
      flops[static_cast<std::size_t>(kernel.operator_class)] += kernel.flops;
      continue;
    }
    Kernel& kept = kernels.emplace_back(kernel);
    kept.node = &kCompiledCode;
    kept.views = kept.nodes = 0;
    pad_sides(kept);
  }
  for (Kernel& kernel : fused) {
    double& of_class = flops[static_cast<std::size_t>(kernel.operator_class)];
    kernel.flops = std::exchange(of_class, 0);
    if (!eager.empty()) kernel.phase = eager.back().phase;
    kernels.push_back(kernel);
  }
  return kernels;
}

}  // namespace memcalc::compile
