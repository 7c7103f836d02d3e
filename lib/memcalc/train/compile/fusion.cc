#include "memcalc/train/compile/fusion.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/compiled_code.h"
#include "memcalc/train/compile/added_products.h"
#include "memcalc/train/compile/reduction_splits.h"
#include "memcalc/train/compile/rules.h"

namespace memcalc::compile {

namespace {

constexpr Operator kSeeds{"inductor_seeds"};
constexpr std::size_t kMostFused = 64;  // config.max_fusion_size
constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

std::size_t index(NodeIndex i) { return static_cast<std::size_t>(i); }

/// A buffer that a launch reads, and how many bytes of it at most: a slice or a table's rows are not all of it.
struct Read {
  NodeIndex buffer = kNone;
  Bytes bytes = 0;
};

// Instructions of a lane for each element. Machine code that Triton 3.6 makes of inductor's kernels for sm_90 without a
// card (torch 2.11, 2026-11-30) has 120 of dropout, a residual and a layer norm, 136 of softmax and dropout, 35 of
// GPT-2's gelu and 43 of its gradient, 38 and 52 of BERT's, 31 and 129 of the joined gradients of q, k and v with 16
// and 12 heads. kNarrowAccess: of log-softmax's gradient over 50,257 words, 1,030 us in a step.
constexpr double kDraw = 85, kTanh = 20, kErf = 28, kGeluGradient = 47, kExponential = 6, kOther = 1.5, kReduced = 4;
constexpr double kAccess = 1.5, kNarrowAccess = 13, kDividedAccess = 26;

double instructions_of(const GraphNode& node) {
  const auto is = [&](const AtenOperator& op) { return node.op == &op || node.op == &op.node; };
  if (node.op == &kInductorRandom) return kDraw;
  if (is(aten::kTanh)) return node.after_tangents ? kOther : kTanh;  // its derivative reads the result
  if (is(aten::kErf)) return kErf;
  if (is(aten::kGelu)) return kGeluGradient;
  if (is(aten::kExp) || is(aten::kSilu) || is(aten::kSigmoid)) return kExponential;
  return kOther;
}

bool is_random(const GraphNode& node) { return node.op == &kInductorRandom; }

/// Reads as many bytes as it gives.
bool gathers(const GraphNode& node) {
  if (node.op == nullptr) return false;
  const std::string_view name = node.op->name;
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  return has("embedding") || has("gather") || has("index") || has("nll_loss");
}

/// What a kernel's loops go over.
enum class Loops : std::uint8_t {
  kElements,
  kRows,      // reduces each row
  kColumns,   // reduces across rows: gradients of biases and of norms' weights
  kPartials,  // sums what the first kernel of a divided reduction left
};

/// How one node is computed.
struct Iteration {
  Loops loops = Loops::kElements;
  std::int64_t elements = 0;  // gone over
  std::int64_t results = 0;   // of a reduction

  [[nodiscard]] bool operator==(const Iteration& other) const {
    return loops == other.loops && elements == other.elements && results == other.results;
  }
  [[nodiscard]] std::int64_t reduced() const { return results > 0 ? elements / results : 1; }
};

constexpr std::int32_t kNoGroup = -1;

struct Group {
  Iteration iteration;
  std::vector<NodeIndex> members;
  std::vector<Read> reads;
  std::int32_t depth = 0;
  double instructions = 0;              // of all lanes, but what reads and writes
  Bytes partials = 0;                   // float32 sums of parts, which it writes or (kPartials) reads
  std::int32_t summed_by = kNoGroup;    // kPartials: the first kernel
  std::int32_t taken_along = kNoGroup;  // kColumns: by this kernel over rows
  bool moved = false;                   // into another
  bool takes_columns = false;           // kRows: such a one
};

class Fusion {
 public:
  Fusion(const JointGraph& graph, const Schedule& schedule, std::span<const NodeIndex> given,
         std::span<const NodeIndex> results, std::int64_t multiprocessors)
      : graph_(graph),
        multiprocessors_(multiprocessors),
        is_buffer_(index(graph.size()), false),
        is_result_(is_buffer_.size(), false),
        group_of_(is_buffer_.size(), kNoGroup),
        last_reader_(is_buffer_.size(), kNoGroup),
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
    for (Group& each : groups_) take_along(each);
  }

  /// Their kernels, in order.
  [[nodiscard]] KernelList kernels() const;
  /// The kernel that writes a launch's buffer; kNoGroup: one of its own.
  [[nodiscard]] std::int32_t kernel_of_launch(NodeIndex node) const;

 private:
  static constexpr Bytes kPartialBytes = 4;  // sums are float32

  void add(NodeIndex i);
  void read(NodeIndex at, Bytes limit, NodeIndex reader, std::vector<Read>& reads);
  [[nodiscard]] std::int64_t elements_of(NodeIndex at, Bytes bytes) const { return bytes / size_of(graph_[at].dtype); }
  [[nodiscard]] Iteration iteration_of(NodeIndex i, const std::vector<Read>& reads) const;
  [[nodiscard]] std::int32_t joined(const Iteration& iteration, std::int32_t depth, const std::vector<Read>& reads,
                                    std::int32_t but = kNoGroup) const;
  [[nodiscard]] std::int32_t into_rows(std::int32_t number, const Iteration& iteration, std::int32_t depth,
                                       const std::vector<Read>& reads);
  [[nodiscard]] std::int32_t joined_columns(const Iteration& iteration, std::int32_t depth,
                                            const std::vector<Read>& reads) const;
  [[nodiscard]] bool is_whole(const Read& read, std::int64_t elements) const {
    return elements_of(read.buffer, read.bytes) == elements;
  }
  [[nodiscard]] bool share_whole_read(const std::vector<Read>& a, const std::vector<Read>& b,
                                      std::int64_t elements) const;
  [[nodiscard]] std::int32_t beside_variance(const GraphNode& mean, std::int32_t first) const;
  std::int32_t add_group(const Iteration& iteration, std::int32_t depth);
  void add_reads(Group& group, const std::vector<Read>& reads) const;
  void take_along(Group& columns);
  [[nodiscard]] Kernel kernel_of(const Group& group, const std::vector<bool>& read_outside) const;
  [[nodiscard]] std::vector<bool> read_outside() const;

  [[nodiscard]] Group& group(std::int32_t number) { return groups_[static_cast<std::size_t>(number)]; }
  [[nodiscard]] const Group& group(std::int32_t number) const { return groups_[static_cast<std::size_t>(number)]; }

  const JointGraph& graph_;
  std::int64_t multiprocessors_;
  std::vector<bool> is_buffer_, is_result_;
  std::vector<std::int32_t> group_of_;     // by buffer: which group writes it
  std::vector<std::int32_t> last_reader_;  // by buffer: the group that read it last, sums over columns aside
  std::vector<std::int32_t> depth_;        // by buffer: kernels of another kind on the way to it
  std::vector<NodeIndex> seen_;            // by node: the launch whose expression was followed through it last
  std::vector<Group> groups_;
  std::vector<std::int32_t> columns_;  // groups that sum columns
  std::vector<NodeIndex> added_;       // products that add a gradient
  double instructions_ = 0;            // of the expression that is followed
  bool draws_ = false;                 // random numbers
};

/// Follows the expression that `reader` inlines to the buffers behind it. Constants, positions and random numbers are
/// made where they are used.
void Fusion::read(NodeIndex at, Bytes limit, NodeIndex reader, std::vector<Read>& reads) {
  const GraphNode& node = graph_[at];
  if (!is_buffer_[index(at)] && node.kind == NodeKind::kView) {
    return read(node.inputs.front(), std::min(limit, node.bytes), reader, reads);
  }
  if (is_buffer_[index(at)]) {
    const Bytes bytes = std::min(limit, node.bytes);
    const auto known = std::find_if(reads.begin(), reads.end(), [&](const Read& each) { return each.buffer == at; });
    if (known == reads.end()) {
      reads.push_back({at, bytes});
    } else {
      known->bytes = std::max(known->bytes, bytes);
    }
    return;
  }
  draws_ = draws_ || is_random(node);
  if (std::exchange(seen_[index(at)], reader) == reader) return;
  instructions_ += instructions_of(node) * static_cast<double>(elements_of(at, node.bytes));
  const Bytes gathered = gathers(node) ? std::min(limit, node.bytes) : limit;
  for (const NodeIndex input : node.inputs) read(input, gathered, reader, reads);
}

/// A reduction goes over its operand. One of few elements is written out (config.unroll_reductions_threshold).
Iteration Fusion::iteration_of(NodeIndex i, const std::vector<Read>& reads) const {
  constexpr std::int64_t kWrittenOut = 8;
  const GraphNode& node = graph_[i];
  const std::int64_t results = elements_of(i, node.bytes);
  if (node.kind != NodeKind::kReduction) return {Loops::kElements, results, 0};
  std::int64_t elements = results;
  for (const NodeIndex input : node.inputs) elements = std::max(elements, elements_of(input, graph_[input].bytes));
  if (node.inputs.empty()) {
    for (const Read& each : reads) elements = std::max(elements, elements_of(each.buffer, each.bytes));
  }
  if (results > 0 && elements / results < kWrittenOut) return {Loops::kElements, results, 0};
  return {node.across_rows ? Loops::kColumns : Loops::kRows, elements, results};
}

/// The latest group that it shares data with and whose loops it fits in, if nothing but fused kernels lies between.
std::int32_t Fusion::joined(const Iteration& iteration, std::int32_t depth, const std::vector<Read>& reads,
                            std::int32_t but) const {
  std::int32_t best = kNoGroup;
  const auto fits = [&](const Iteration& of) {
    if (iteration.loops == Loops::kRows) {
      return of == iteration ||
             (of.loops == Loops::kElements && (of.elements == iteration.elements || of.elements == iteration.results));
    }
    if (of.loops == Loops::kElements) return of.elements == iteration.elements;
    if (of.loops == Loops::kRows && of.elements == iteration.elements) return true;
    return of.results == iteration.elements;  // what becomes of the sums
  };
  for (const Read& each : reads) {
    for (const std::int32_t candidate : {group_of_[index(each.buffer)], last_reader_[index(each.buffer)]}) {
      if (candidate <= best || candidate == but) continue;
      const Group& other = group(candidate);
      // What is made of nothing, such as a mask of random numbers, can wait for its reader.
      const bool in_time = other.depth == depth || other.reads.empty();
      if (fits(other.iteration) && in_time && other.members.size() < kMostFused) best = candidate;
    }
  }
  return best;
}

bool Fusion::share_whole_read(const std::vector<Read>& a, const std::vector<Read>& b, std::int64_t elements) const {
  return std::any_of(a.begin(), a.end(), [&](const Read& each) {
    return is_whole(each, elements) && std::any_of(b.begin(), b.end(), [&](const Read& other) {
             return other.buffer == each.buffer && is_whole(other, elements);
           });
  });
}

/// What reads rows that one kernel makes and a mask of random numbers that waits for it: that kernel draws the mask,
/// too.
std::int32_t Fusion::into_rows(std::int32_t number, const Iteration& iteration, std::int32_t depth,
                               const std::vector<Read>& reads) {
  if (number == kNoGroup || !group(number).reads.empty() || iteration.loops != Loops::kElements) return number;
  const std::int32_t rows = joined(iteration, depth, reads, number);
  if (rows == kNoGroup || group(rows).iteration.loops != Loops::kRows ||
      group(rows).iteration.elements != iteration.elements) {
    return number;
  }
  for (const NodeIndex each : group(number).members) {
    group_of_[index(each)] = rows;
    group(rows).members.push_back(each);
  }
  group(rows).instructions += group(number).instructions;
  group(number).members.clear();
  group(number).moved = true;
  return rows;
}

/// Sums over columns stay apart from what makes their operand: it is written row by row. Those of one operand are one
/// kernel.
std::int32_t Fusion::joined_columns(const Iteration& iteration, std::int32_t depth,
                                    const std::vector<Read>& reads) const {
  constexpr std::size_t kLookedAt = 16;
  for (std::size_t i = columns_.size(); i-- > (columns_.size() > kLookedAt ? columns_.size() - kLookedAt : 0);) {
    const Group& other = group(columns_[i]);
    if (other.iteration == iteration && other.depth == depth && other.members.size() < kMostFused &&
        share_whole_read(reads, other.reads, iteration.elements)) {
      return columns_[i];
    }
  }
  return kNoGroup;
}

/// var_mean is one reduction with two results: the second kernel of the variance of the same operand, whose first one
/// is `first`.
std::int32_t Fusion::beside_variance(const GraphNode& mean, std::int32_t first) const {
  if (mean.op != &aten::kMean) return kNoGroup;
  for (std::size_t g = groups_.size(); g-- > static_cast<std::size_t>(first);) {
    if (groups_[g].summed_by != first) continue;
    const GraphNode& other = graph_[groups_[g].members.front()];
    if (other.op == &aten::kVarMean && other.inputs == mean.inputs) return static_cast<std::int32_t>(g);
  }
  return kNoGroup;
}

std::int32_t Fusion::add_group(const Iteration& iteration, std::int32_t depth) {
  Group& made = groups_.emplace_back();
  made.iteration = iteration;
  made.depth = depth;
  return static_cast<std::int32_t>(groups_.size()) - 1;
}

void Fusion::add_reads(Group& group, const std::vector<Read>& reads) const {
  for (const Read& each : reads) {
    const auto known = std::find_if(group.reads.begin(), group.reads.end(),
                                    [&](const Read& other) { return other.buffer == each.buffer; });
    if (known == group.reads.end()) {
      group.reads.push_back(each);
    } else {
      known->bytes = std::max(known->bytes, each.bytes);
    }
  }
}

void Fusion::add(NodeIndex i) {
  const GraphNode& node = graph_[i];
  std::vector<Read> reads;
  instructions_ = 0;
  std::size_t of_first = 0;
  for (const NodeIndex input : node.inputs) {
    read(input, gathers(node) ? node.bytes : kUnlimited, i, reads);
    if (of_first == 0) of_first = reads.size();
  }
  draws_ = draws_ || is_random(node);
  std::int32_t depth = 0;
  for (const Read& each : reads) depth = std::max(depth, depth_[index(each.buffer)]);
  const bool fuses = node.kind == NodeKind::kPointwise || node.kind == NodeKind::kReduction;
  depth_[index(i)] = depth + (fuses || node.kind == NodeKind::kItem ? 0 : 1);
  if (is_added_product(node)) added_.push_back(i);
  if (!fuses) return;
  const Iteration iteration = iteration_of(i, reads);
  const bool columns = iteration.loops == Loops::kColumns;
  std::int32_t number = columns ? joined_columns(iteration, depth, reads) : joined(iteration, depth, reads);
  const std::int64_t parts =
      iteration.results == 0 ? 1
                             : parts_of_reduction(iteration.reduced(), iteration.results, columns, multiprocessors_);
  const Bytes partials = parts > 1 ? checked_multiply(checked_multiply(parts, iteration.results), kPartialBytes) : 0;
  if (!columns) number = into_rows(number, iteration, depth, reads);
  if (number == kNoGroup) {
    number = add_group(iteration, depth);
    if (columns) columns_.push_back(number);
  }
  if (iteration.loops == Loops::kRows) group(number).iteration = iteration;
  group(number).depth = depth;
  const auto results = static_cast<double>(elements_of(i, node.bytes));
  group(number).instructions +=
      instructions_ +
      (iteration.results > 0 ? kReduced * static_cast<double>(iteration.elements) : instructions_of(node) * results);
  if (node.joins_views) {
    group(number).instructions += kDividedAccess * results * static_cast<double>(reads.size() - of_first);
  }
  add_reads(group(number), reads);
  if (!columns) {
    for (const Read& each : reads) last_reader_[index(each.buffer)] = number;
  }
  const std::int32_t beside = parts > 1 ? beside_variance(node, number) : kNoGroup;
  if (beside != kNoGroup) {
    number = beside;
  } else if (parts > 1) {
    group(number).partials += partials;
    const std::int32_t second = add_group({Loops::kPartials, parts * iteration.results, iteration.results}, depth);
    group(second).partials = partials;
    group(second).summed_by = number;
    number = second;
  }
  group(number).members.push_back(i);
  group_of_[index(i)] = number;
}

/// MixOrderReduction: the kernel over rows of the same operands computes the sums over their columns, too.
void Fusion::take_along(Group& columns) {
  if (columns.iteration.loops != Loops::kColumns) return;
  const Iteration& of = columns.iteration;
  if (!takes_columns_along(of.reduced(), of.results)) return;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Group& rows = groups_[g];
    const Iteration mixed{Loops::kRows, of.elements, of.reduced()};
    if (!(rows.iteration == mixed) || rows.depth != columns.depth) continue;
    const bool depends = std::any_of(columns.reads.begin(), columns.reads.end(), [&](const Read& each) {
      return group_of_[index(each.buffer)] == static_cast<std::int32_t>(g);
    });
    if (depends || !share_whole_read(rows.reads, columns.reads, of.elements)) continue;
    columns.taken_along = static_cast<std::int32_t>(g);
    add_reads(groups_[g], columns.reads);
    groups_[g].takes_columns = true;
    return;
  }
}

std::vector<bool> Fusion::read_outside() const {
  std::vector<bool> outside(is_buffer_.size(), false);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const Read& each : groups_[g].reads) {
      if (group_of_[index(each.buffer)] != static_cast<std::int32_t>(g)) outside[index(each.buffer)] = true;
    }
  }
  for (NodeIndex i = 0; i < graph_.size(); ++i) {  // what a product reads exists
    const NodeKind kind = graph_[i].kind;
    if (kind != NodeKind::kExtern && kind != NodeKind::kTuple) continue;
    for (const NodeIndex input : graph_[i].inputs) outside[index(graph_.storage_of(input))] = true;
  }
  return outside;
}

/// Rows whose length is no multiple of 16 bytes are read and written element by element.
double access_of(const Iteration& iteration, DType dtype) {
  constexpr Bytes kWide = 16;
  const bool narrow = iteration.loops == Loops::kRows && iteration.reduced() * size_of(dtype) % kWide != 0;
  return narrow ? kNarrowAccess : kAccess;
}

/// Rows fill blocks of a power of two elements, long ones several (triton_heuristics.py, persistent_reduction).
double lanes_of_element(const Iteration& iteration) {
  constexpr std::int64_t kLongest = 1024;
  if (iteration.loops != Loops::kRows) return 1;
  const std::int64_t width = iteration.reduced();
  const std::int64_t lanes = width > kLongest
                                 ? round_up(width, kLongest)
                                 : static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(width)));
  return static_cast<double>(lanes) / static_cast<double>(width);
}

Kernel Fusion::kernel_of(const Group& group, const std::vector<bool>& read_outside) const {
  const auto number = static_cast<std::int32_t>(&group - groups_.data());
  const bool reduces = group.iteration.loops != Loops::kElements;
  Bytes bytes = group.partials;
  double accesses = 0;
  const auto add = [&](NodeIndex at, Bytes moved) {
    bytes += moved;
    accesses += static_cast<double>(elements_of(at, moved)) * access_of(group.iteration, graph_[at].dtype);
  };
  for (const Read& each : group.reads) {
    if (group_of_[index(each.buffer)] != number) add(each.buffer, each.bytes);
  }
  for (const NodeIndex each : group.members) {
    if (is_result_[index(each)] || read_outside[index(each)]) add(each, graph_[each].bytes);
  }
  Kernel kernel;
  kernel.op = group.takes_columns ? &kFusedBothWays : reduces ? &kFusedReduction : &kFusedPointwise;
  kernel.operator_class = reduces ? OperatorClass::kNormalization : OperatorClass::kElementwise;
  kernel.kind = KernelKind::kVectorized;
  if (!group.members.empty()) kernel.dtype = graph_[group.members.front()].dtype;
  kernel.bytes = static_cast<double>(bytes);
  kernel.elements = (group.instructions + accesses) * lanes_of_element(group.iteration);
  kernel.node = &kCompiledCode;
  return kernel;
}

/// Sums that another kernel takes along, and the second half of a divided sum, are taken to be with the first.
std::int32_t Fusion::kernel_of_launch(NodeIndex node) const {
  std::int32_t number = group_of_[index(node)];
  if (number == kNoGroup) return kNoGroup;
  if (group(number).summed_by != kNoGroup) number = group(number).summed_by;
  return group(number).taken_along != kNoGroup ? group(number).taken_along : number;
}

KernelList Fusion::kernels() const {
  const std::vector<bool> outside = read_outside();
  KernelList kernels;
  if (draws_) {  // one seed for each place that draws
    Kernel& seeds = kernels.emplace_back();
    seeds.op = &kSeeds;
    seeds.kind = KernelKind::kRandom;
    seeds.dtype = DType::kInt64;
    seeds.node = &kCompiledCode;
  }
  for (const NodeIndex each : added_) {  // at::addmm: the other gradient is copied into the result first
    Kernel& copy = kernels.emplace_back();
    copy.op = &aten::kCopy;
    copy.operator_class = OperatorClass::kMovement;
    copy.kind = KernelKind::kVectorized;
    copy.dtype = graph_[each].dtype;
    copy.bytes = 2.0 * static_cast<double>(graph_[each].bytes);
    copy.elements = static_cast<double>(elements_of(each, graph_[each].bytes));
    copy.node = &kCompiledCode;
  }
  for (const Group& each : groups_) {
    if (each.moved) continue;
    const bool columns = each.iteration.loops == Loops::kColumns;
    const Group* first = each.summed_by == kNoGroup ? nullptr : &group(each.summed_by);
    const bool along =
        (columns && each.taken_along != kNoGroup) || (first != nullptr && first->taken_along != kNoGroup);
    if (!along) {
      kernels.push_back(kernel_of(each, outside));
      continue;
    }
    // Python sums each workspace, and casts what is not float32; what becomes of the sums is a kernel of its own.
    std::size_t others = each.members.size();
    for (const NodeIndex member : each.members) {
      if (graph_[member].kind != NodeKind::kReduction) continue;
      --others;
      const std::int64_t results = elements_of(member, graph_[member].bytes);
      const std::int64_t rows = (columns ? each : *first).iteration.reduced();
      Kernel& sum = kernels.emplace_back(kernel_of(each, outside));
      sum.op = &aten::kSum;  // PyTorch's
      sum.kind = KernelKind::kColumnSum;
      sum.dtype = DType::kFloat32;
      sum.launches = graph_[member].dtype == DType::kFloat32 ? 1 : 2;
      sum.elements = static_cast<double>(workspace_rows(rows, multiprocessors_) * results);
      sum.bytes = (sum.elements + static_cast<double>(results)) * static_cast<double>(kPartialBytes);
    }
    if (others > 0) {
      Kernel& rest = kernels.emplace_back(kernel_of(each, outside));
      rest.op = &kFusedPointwise;
      rest.operator_class = OperatorClass::kElementwise;
      rest.kind = KernelKind::kVectorized;
      rest.elements = static_cast<double>(each.iteration.results);
      rest.bytes = rest.elements * static_cast<double>(2 * kPartialBytes);
    }
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
  const bool turns = product->transposed == Transposed::kFirst;
  const std::int64_t multiple = padding_multiple(kernel.dtype, product->tf32);
  if (!is_padded(multiple, product->m, product->k, product->n, turns)) return;
  for (std::int64_t* side : {&product->m, &product->k, &product->n}) *side = round_up(*side, multiple);
}

/// Whether only pointwise operators of forward read a value, through whatever views (_inductor/utils.py,
/// is_pointwise_use).
bool is_read_by_pointwise_ones(const JointGraph& graph, NodeIndex at) {
  const auto& users = graph[at].users;
  return std::all_of(users.begin(), users.end(), [&](NodeIndex each) {
    const GraphNode& user = graph[each];
    if (user.kind == NodeKind::kView) return is_read_by_pointwise_ones(graph, each);
    return user.after_tangents || (user.kind == NodeKind::kPointwise && !user.concatenates);
  });
}

/// Which of forward's products with a bias leave it to the kernel that reads their result, in order of the model: those
/// that have one that is not in 16 bits, and that the graph does not return, for Python or for backward (fx_passes/
/// post_grad.py, unfuse_bias_add_to_pointwise). cuBLAS has quicker kernels for a product alone.
std::vector<bool> products_without_bias(const JointGraph& graph, const Schedule& schedule,
                                        std::span<const NodeIndex> results) {
  std::vector<NodeIndex> products;
  for (const Launch& each : schedule.launches) {
    if (graph[each.node].fuses_bias) products.push_back(each.node);
  }
  std::sort(products.begin(), products.end());
  std::vector<bool> without;
  for (const NodeIndex product : products) {
    const bool is_returned =
        std::any_of(results.begin(), results.end(), [&](NodeIndex each) { return graph.storage_of(each) == product; });
    without.push_back(!is_returned && size_of(graph[product].dtype) > 2 && is_read_by_pointwise_ones(graph, product));
  }
  return without;
}

/// The 16-bit type of backward's products under autocast, those of unfused attention too, which forward and eager mode
/// multiply in float32 (rules_kernels.cc, product_backward_of). Nothing where some have another, or where forward's are
/// computed again among them.
std::optional<DType> half_of_backward(const JointGraph& graph, const Schedule& schedule, const KernelList& eager) {
  std::optional<DType> half;
  std::ptrdiff_t products = 0;
  for (const Launch& each : schedule.launches) {
    const GraphNode& node = graph[each.node];
    if (!node.calls_cublas) continue;
    if (!node.after_tangents || !is_half(node.dtype)) return std::nullopt;
    half = node.dtype;
    ++products;
  }
  const auto is_product = [](const Kernel& kernel) { return kernel.kind == KernelKind::kMatrixProduct; };
  return std::count_if(eager.begin(), eager.end(), is_product) == products ? half : std::nullopt;
}

void multiply_in(DType half, Kernel& kernel) {
  if (kernel.kind != KernelKind::kMatrixProduct || kernel.dtype != DType::kFloat32) return;
  kernel.bytes *= static_cast<double>(size_of(half)) / static_cast<double>(size_of(kernel.dtype));
  kernel.dtype = half;
}

}  // namespace

KernelList fused_kernels(const JointGraph& graph, const Schedule& schedule, std::span<const NodeIndex> given,
                         std::span<const NodeIndex> results, const KernelList& eager, std::int64_t multiprocessors) {
  KernelList fused = Fusion(graph, schedule, given, results, multiprocessors).kernels();
  std::array<double, kOperatorClassCount> flops{};
  const std::vector<bool> without_bias = products_without_bias(graph, schedule, results);
  const auto have_bias =
      std::count_if(eager.begin(), eager.end(), [](const Kernel& each) { return each.op == &aten::kAddmm; });
  auto product = without_bias.begin();
  const std::optional<DType> half = half_of_backward(graph, schedule, eager);
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
    if (half) multiply_in(*half, kept);
    if (kept.op != &aten::kAddmm || have_bias != std::ssize(without_bias)) continue;  // products of checkpoints
    if (*product++) kept.op = &aten::kMm;
  }
  for (Kernel& kernel : fused) {
    double& of_class = flops[static_cast<std::size_t>(kernel.operator_class)];
    kernel.flops = std::exchange(of_class, 0);
    if (!eager.empty()) kernel.phase = eager.back().phase;
    kernels.push_back(kernel);
  }
  return kernels;
}

std::vector<std::int32_t> kernels_of_launches(const JointGraph& graph, const Schedule& schedule,
                                              std::span<const NodeIndex> given, std::span<const NodeIndex> results,
                                              std::int64_t multiprocessors) {
  const Fusion fusion(graph, schedule, given, results, multiprocessors);
  std::map<std::pair<bool, std::int32_t>, std::int32_t> numbers;  // of fused kernels and of those of their own
  std::vector<std::int32_t> kernels;
  for (const Launch& each : schedule.launches) {
    const std::int32_t fused = fusion.kernel_of_launch(each.node);
    // What a kernel with several results writes is its own.
    const bool is_item = graph[each.node].kind == NodeKind::kItem;
    const NodeIndex own = is_item ? graph[each.node].inputs.front() : each.node;
    const std::pair key(fused != kNoGroup, fused != kNoGroup ? fused : own);
    kernels.push_back(numbers.try_emplace(key, static_cast<std::int32_t>(numbers.size())).first->second);
  }
  return kernels;
}

}  // namespace memcalc::compile
