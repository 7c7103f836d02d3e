// MIRRORS(torch, "_inductor/ir.py", "2.11.0")
// MIRRORS(torch, "_inductor/scheduler.py", "2.11.0")
#include "memcalc/train/compile/schedule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

#include "memcalc/train/compile/peak_order.h"

namespace memcalc::compile {

namespace {

constexpr std::string_view kPaddingName = "aten::constant_pad_nd";

class Scheduler {
 public:
  Scheduler(const JointGraph& graph, std::span<const NodeIndex> results, std::span<const NodeIndex> given)
      : graph_(graph),
        given_(static_cast<std::size_t>(graph.size()), false),
        result_(given_.size(), false),
        returned_(given_.size(), false),
        placed_(given_.size(), false),
        realized_(given_.size(), false),
        is_needed_(given_.size(), false),
        reads_(given_.size()) {
    for (const NodeIndex each : given) given_[index(each)] = given_[index(graph.storage_of(each))] = true;
    for (const NodeIndex each : results) result_[index(graph.storage_of(each))] = true;
    for (const NodeIndex each : graph.outputs) returned_[index(graph.storage_of(each))] = true;
    for (const NodeIndex each : results) find_needed(each);
    std::sort(needed_.begin(), needed_.end());
    for (const NodeIndex each : needed_) is_needed_[index(each)] = true;
  }

  [[nodiscard]] Schedule run(std::span<const NodeIndex> given, bool is_backward);

 private:
  static std::size_t index(NodeIndex i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] const GraphNode& node(NodeIndex i) const { return graph_[i]; }
  [[nodiscard]] bool is_given(NodeIndex i) const {
    return given_[index(i)] || node(i).kind == NodeKind::kParameter || node(i).kind == NodeKind::kInput;
  }

  void find_needed(NodeIndex from);
  /// Puts a node behind what it reads. Values that are computed again come right before their first reader, as
  /// reordering_to_mimic_autograd_engine puts them.
  void place(NodeIndex i);
  /// What only backward reads of a value, such as its conversion, is written by the kernel that reads it or makes it
  /// (scheduler.py fuses what reads the same buffers), so the value itself can die in forward.
  void place_what_backward_reads(NodeIndex i);
  [[nodiscard]] bool is_padding(NodeIndex i) const;
  void decide(NodeIndex i);
  [[nodiscard]] bool must_exist(NodeIndex i) const;
  [[nodiscard]] NodeIndex takes_over(NodeIndex i, std::size_t at, bool is_backward) const;

  const JointGraph& graph_;
  std::vector<bool> given_, result_;
  std::vector<bool> returned_;  // to Python, by the forward
  std::vector<bool> placed_, realized_;
  std::vector<bool> is_needed_;
  bool is_backward_ = false;
  std::vector<NodeIndex> needed_, order_, launched_;
  std::vector<std::vector<NodeIndex>> reads_;  // buffers behind each node's expression
  std::vector<std::ptrdiff_t> last_read_;      // by node: the last launch that reads its buffer; -1: none
};

void Scheduler::find_needed(NodeIndex from) {
  std::vector<NodeIndex> open{from};
  while (!open.empty()) {
    const NodeIndex at = open.back();
    open.pop_back();
    if (is_given(at) || placed_[index(at)]) continue;
    placed_[index(at)] = true;
    needed_.push_back(at);
    for (const NodeIndex input : node(at).inputs) open.push_back(input);
  }
}

void Scheduler::place(NodeIndex i) {
  if (is_given(i) || placed_[index(i)]) return;
  placed_[index(i)] = true;
  for (const NodeIndex input : node(i).inputs) place(input);
  order_.push_back(i);
  if (!is_backward_) place_what_backward_reads(i);
  if (!is_padding(i)) return;
  for (const NodeIndex user : node(node(i).inputs.front()).users) {
    if (is_padding(user) && is_needed_[index(user)]) place(user);
  }
}

void Scheduler::place_what_backward_reads(NodeIndex i) {
  if (graph_.tangents.empty()) return;
  const auto is_there = [this](NodeIndex input) { return is_given(input) || placed_[index(input)]; };
  for (const NodeIndex user : node(i).users) {
    const bool traced_for_backward = user > graph_.tangents.front();
    const bool follows = node(user).kind == NodeKind::kView || node(user).kind == NodeKind::kPointwise;
    if (!traced_for_backward || !follows || !is_needed_[index(user)]) continue;
    const auto& inputs = node(user).inputs;
    if (std::all_of(inputs.begin(), inputs.end(), is_there)) place(user);
  }
}

/// The copy that a padded product reads (rules_kernels.cc). Two of one gradient are one kernel (scheduler.py fuses what
/// reads the same buffer in the same way), so both exist from then on.
bool Scheduler::is_padding(NodeIndex i) const {
  return node(i).kind == NodeKind::kPointwise && node(i).inputs.size() == 1 && node(i).op->name == kPaddingName &&
         node(i).bytes > node(node(i).inputs.front()).bytes;
}

/// Whether some reader, through views, cannot take the value as an expression.
bool Scheduler::must_exist(NodeIndex i) const {
  if (result_[index(i)]) return true;
  std::vector<NodeIndex> open{i};
  while (!open.empty()) {
    const NodeIndex at = open.back();
    open.pop_back();
    for (const NodeIndex user : node(at).users) {
      if (!placed_[index(user)] || given_[index(user)]) continue;
      const NodeKind kind = node(user).kind;
      if (kind == NodeKind::kExtern || kind == NodeKind::kTuple) return true;
      if (kind == NodeKind::kView) open.push_back(user);
    }
  }
  return false;
}

void Scheduler::decide(NodeIndex i) {
  std::vector<NodeIndex>& reads = reads_[index(i)];
  if (node(i).kind == NodeKind::kItem) {  // written by the kernel that read these
    reads = reads_[index(node(i).inputs.front())];
    realized_[index(i)] = true;
    return;
  }
  for (const NodeIndex input : node(i).inputs) {
    const NodeIndex storage = graph_.storage_of(input);
    const NodeIndex source = is_given(input) ? storage : input;
    if (is_given(source) || realized_[index(source)]) {
      if (std::find(reads.begin(), reads.end(), source) == reads.end()) reads.push_back(source);
    } else {
      for (const NodeIndex each : reads_[index(source)]) {
        if (std::find(reads.begin(), reads.end(), each) == reads.end()) reads.push_back(each);
      }
    }
  }
  const NodeKind kind = node(i).kind;
  if (kind == NodeKind::kView) {
    realized_[index(i)] = false;
    return;
  }
  if (kind != NodeKind::kPointwise) {
    realized_[index(i)] = true;
    return;
  }
  // ir.py, StorageBox: realize_reads_threshold and realize_acc_reads_threshold.
  constexpr std::size_t kMostReadsWhereReused = 4, kMostReads = 8;
  const auto users = static_cast<std::size_t>(
      std::count_if(node(i).users.begin(), node(i).users.end(), [&](NodeIndex user) { return placed_[index(user)]; }));
  realized_[index(i)] =
      must_exist(i) || reads.size() > kMostReads || (users > 1 && reads.size() > kMostReadsWhereReused);
}

/// A pointwise kernel writes over a buffer of the same size that dies with it (scheduler.py, decide_inplace_update).
NodeIndex Scheduler::takes_over(NodeIndex i, std::size_t at, bool is_backward) const {
  if (node(i).kind != NodeKind::kPointwise) return kNone;
  for (const NodeIndex read : reads_[index(i)]) {
    const bool leaf = node(read).kind == NodeKind::kParameter || node(read).kind == NodeKind::kInput;
    if (leaf || result_[index(read)] || node(read).bytes != node(i).bytes) continue;
    if (given_[index(read)] && (!is_backward || returned_[index(read)])) continue;
    if (last_read_[index(read)] == static_cast<std::ptrdiff_t>(at)) return read;
  }
  return kNone;
}

Schedule Scheduler::run(std::span<const NodeIndex> given, bool is_backward) {
  is_backward_ = is_backward;
  std::fill(placed_.begin(), placed_.end(), false);
  // What depends on tangents comes in its order; the rest is placed where it is read.
  for (const NodeIndex i : needed_) {
    if (!is_backward || node(i).after_tangents) place(i);
  }
  for (const NodeIndex i : needed_) place(i);
  for (const NodeIndex i : order_) decide(i);
  last_read_.assign(given_.size(), -1);
  for (const NodeIndex i : order_) {
    if (!realized_[index(i)]) continue;
    launched_.push_back(i);
    const auto at = static_cast<std::ptrdiff_t>(launched_.size()) - 1;
    for (const NodeIndex read : reads_[index(i)]) last_read_[index(read)] = at;
    if (last_read_[index(i)] < 0) last_read_[index(i)] = at;
  }
  Schedule schedule;
  std::vector<std::vector<NodeIndex>> dying(launched_.size());
  for (NodeIndex i = 0; i < graph_.size(); ++i) {
    const bool buffer = realized_[index(i)] || (is_given(i) && node(i).kind != NodeKind::kParameter);
    if (!buffer || result_[index(i)] || node(i).kind == NodeKind::kTuple) continue;
    if (last_read_[index(i)] >= 0) dying[static_cast<std::size_t>(last_read_[index(i)])].push_back(i);
  }
  for (std::size_t at = 0; at < launched_.size(); ++at) {
    const NodeIndex i = launched_[at];
    schedule.launches.push_back({i, takes_over(i, at, is_backward), reads_[index(i)], std::move(dying[at])});
  }
  for (const NodeIndex each : given) {
    const NodeIndex storage = graph_.storage_of(each);
    if (last_read_[index(storage)] < 0) schedule.never_read.push_back(storage);
  }
  return schedule;
}

}  // namespace

Schedule make_schedule(const JointGraph& graph, std::span<const NodeIndex> results, std::span<const NodeIndex> given,
                       bool is_backward) {
  return Scheduler(graph, results, given).run(given, is_backward);
}

namespace {

/// Launches by kernel, in the order in which the kernels begin.
std::vector<std::vector<std::size_t>> launches_by_kernel(std::span<const std::int32_t> kernels, std::size_t first) {
  std::vector<std::vector<std::size_t>> all;
  std::vector<std::int32_t> place;  // by kernel's number
  for (std::size_t at = first; at < kernels.size(); ++at) {
    const auto number = static_cast<std::size_t>(kernels[at]);
    if (number >= place.size()) place.resize(number + 1, -1);
    if (place[number] < 0) {
      place[number] = static_cast<std::int32_t>(all.size());
      all.emplace_back();
    }
    all[static_cast<std::size_t>(place[number])].push_back(at);
  }
  return all;
}

/// What the kernels of a part read and write, and their order.
class KernelOrder {
 public:
  KernelOrder(const ScheduledPart& part, const Schedule& schedule, std::span<const std::int32_t> kernels,
              std::size_t first)
      : part_(part),
        schedule_(schedule),
        launches_(launches_by_kernel(kernels, first)),
        buffer_of_(static_cast<std::size_t>(part.graph.size()), -1),
        is_result_(buffer_of_.size(), false),
        is_returned_(buffer_of_.size(), false),
        is_given_(buffer_of_.size(), false) {
    for (const NodeIndex each : part.results) is_result_[at(part.graph.storage_of(each))] = true;
    for (const NodeIndex each : part.graph.outputs) is_returned_[at(part.graph.storage_of(each))] = true;
    for (const NodeIndex each : part.given) is_given_[at(part.graph.storage_of(each))] = true;
    for (std::size_t i = 0; i < first; ++i) is_given_[at(schedule.launches[i].node)] = true;
    add_kernels();
  }

  /// None where kernels wait for each other: what memcalc fuses inductor cannot have fused so.
  [[nodiscard]] std::vector<Launch> launches() const;

 private:
  static std::size_t at(NodeIndex i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] bool may_die(NodeIndex buffer) const {
    return !is_result_[at(buffer)] && part_.graph[buffer].kind != NodeKind::kParameter;
  }
  /// memory.py, is_nonfreeable_buffers: not what the forward was given ("primals_…").
  [[nodiscard]] bool is_freeable(NodeIndex given) const {
    const auto& tangents = part_.graph.tangents;
    const NodeKind kind = part_.graph[given].kind;
    if (kind == NodeKind::kInput) return std::find(tangents.begin(), tangents.end(), given) != tangents.end();
    return kind != NodeKind::kParameter;
  }
  void add_kernels();
  [[nodiscard]] NodeIndex takes_over(const Launch& launch, std::span<const NodeIndex> dying,
                                     std::span<const std::size_t> beside) const;

  const ScheduledPart& part_;
  const Schedule& schedule_;
  std::vector<std::vector<std::size_t>> launches_;  // by kernel
  std::vector<std::int32_t> buffer_of_;             // by node
  std::vector<bool> is_result_, is_returned_, is_given_;
  std::vector<PlannedKernel> kernels_;
  std::vector<PlannedBuffer> buffers_;
};

void KernelOrder::add_kernels() {
  kernels_.resize(launches_.size());
  for (std::size_t k = 0; k < launches_.size(); ++k) {
    for (const std::size_t each : launches_[k]) {
      const NodeIndex node = schedule_.launches[each].node;
      buffer_of_[at(node)] = static_cast<std::int32_t>(buffers_.size());
      kernels_[k].writes.push_back(buffer_of_[at(node)]);
      buffers_.push_back({part_.graph[node].bytes, static_cast<std::int32_t>(k), is_result_[at(node)]});
    }
  }
  for (std::size_t k = 0; k < launches_.size(); ++k) {
    for (const std::size_t each : launches_[k]) {
      for (const NodeIndex read : schedule_.launches[each].reads) {
        std::int32_t& buffer = buffer_of_[at(read)];
        if (buffer < 0) {
          if (!is_given_[at(read)] || !is_freeable(read)) continue;
          buffer = static_cast<std::int32_t>(buffers_.size());
          buffers_.push_back({part_.graph[read].bytes, -1, is_result_[at(read)]});
        }
        std::vector<std::int32_t>& reads = kernels_[k].reads;
        const bool own = buffers_[static_cast<std::size_t>(buffer)].writer == static_cast<std::int32_t>(k);
        if (!own && std::find(reads.begin(), reads.end(), buffer) == reads.end()) reads.push_back(buffer);
      }
    }
  }
}

/// scheduler.py, decide_inplace_update: a pointwise launch takes over what it alone of its kernel reads last.
NodeIndex KernelOrder::takes_over(const Launch& launch, std::span<const NodeIndex> dying,
                                  std::span<const std::size_t> beside) const {
  const GraphNode& node = part_.graph[launch.node];
  if (node.kind != NodeKind::kPointwise) return kNone;
  for (const NodeIndex read : launch.reads) {
    if (part_.graph[read].kind == NodeKind::kInput) continue;  // Python holds it, too
    if (part_.graph[read].bytes != node.bytes || std::find(dying.begin(), dying.end(), read) == dying.end()) continue;
    if (is_given_[at(read)] && (!part_.is_backward || is_returned_[at(read)])) continue;
    const auto reads_it = [&](std::size_t other) {
      const std::vector<NodeIndex>& reads = schedule_.launches[other].reads;
      return std::find(reads.begin(), reads.end(), read) != reads.end();
    };
    if (std::count_if(beside.begin(), beside.end(), reads_it) == 1) return read;
  }
  return kNone;
}

std::vector<Launch> KernelOrder::launches() const {
  const std::vector<std::int32_t> order = order_for_peak_memory(kernels_, buffers_);
  std::vector<std::ptrdiff_t> last(buffer_of_.size(), -1);  // by node: the last kernel in order that reads it
  for (std::size_t place = 0; place < order.size(); ++place) {
    for (const std::size_t each : launches_[static_cast<std::size_t>(order[place])]) {
      const Launch& launch = schedule_.launches[each];
      last[at(launch.node)] = std::max(last[at(launch.node)], static_cast<std::ptrdiff_t>(place));
      for (const NodeIndex read : launch.reads) last[at(read)] = static_cast<std::ptrdiff_t>(place);
    }
  }
  std::vector<std::vector<NodeIndex>> dying(order.size());
  for (std::size_t i = 0; i < last.size(); ++i) {
    const auto node = static_cast<NodeIndex>(i);
    if (last[i] >= 0 && may_die(node)) dying[static_cast<std::size_t>(last[i])].push_back(node);
  }
  std::vector<Launch> result;
  for (std::size_t place = 0; place < order.size(); ++place) {
    const std::vector<std::size_t>& of_kernel = launches_[static_cast<std::size_t>(order[place])];
    std::vector<NodeIndex>& dead = dying[place];
    for (const std::size_t each : of_kernel) {
      Launch launch = schedule_.launches[each];
      launch.in_place = takes_over(launch, dead, of_kernel);
      launch.dead_after.clear();
      std::erase(dead, launch.in_place);
      result.push_back(std::move(launch));
    }
    result.back().dead_after = std::move(dead);
  }
  return result;
}

}  // namespace

Schedule reordered(const ScheduledPart& part, Schedule schedule, std::span<const std::int32_t> kernels,
                   std::size_t first) {
  std::vector<Launch> launches = KernelOrder(part, schedule, kernels, first).launches();
  if (launches.size() + first < schedule.launches.size()) return schedule;
  schedule.launches.resize(first);
  std::move(launches.begin(), launches.end(), std::back_inserter(schedule.launches));
  return schedule;
}

}  // namespace memcalc::compile
