// MIRRORS(torch, "_inductor/ir.py", "2.11.0")
// MIRRORS(torch, "_inductor/scheduler.py", "2.11.0")
#include "memcalc/train/compile/schedule.h"

#include <algorithm>
#include <string_view>
#include <utility>

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
    schedule.launches.push_back({i, takes_over(i, at, is_backward), std::move(dying[at])});
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

}  // namespace memcalc::compile
