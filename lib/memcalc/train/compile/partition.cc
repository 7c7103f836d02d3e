#include "memcalc/train/compile/partition.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <set>

#include "memcalc/train/compile/min_cut.h"

namespace memcalc::compile {

namespace {

constexpr int kFarFromBackward = 1'000'000'000;

class Partitioner {
 public:
  explicit Partitioner(const JointGraph& graph) : graph_(graph), count_(static_cast<std::size_t>(graph.size())) {
    find_required();
    measure_distances();
    ban();
  }

  [[nodiscard]] std::vector<NodeIndex> saved() const;

 private:
  [[nodiscard]] const GraphNode& node(NodeIndex i) const { return graph_[i]; }
  [[nodiscard]] bool is_view(NodeIndex i) const { return node(i).kind == NodeKind::kView; }
  [[nodiscard]] bool required(NodeIndex i) const { return order_[static_cast<std::size_t>(i)] >= 0; }
  [[nodiscard]] int order(NodeIndex i) const { return order_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] bool is_leaf(NodeIndex i) const {
    return node(i).kind == NodeKind::kParameter || node(i).kind == NodeKind::kInput;
  }
  [[nodiscard]] bool is_fusible(NodeIndex producer, NodeIndex user) const {
    return node(user).concatenates || (node(producer).recomputable && node(user).recomputable);
  }

  /// ban_recomputation_if_allowed
  [[nodiscard]] bool may_ban(NodeIndex i) const { return !is_view(i) && node(i).recompute != Recompute::kPreferred; }

  void find_required();
  void measure_distances();
  void ban();
  void ban_used_far_apart();
  void ban_long_chains();
  [[nodiscard]] bool should_ban(NodeIndex i) const;
  [[nodiscard]] bool is_materialized_in_backward(NodeIndex i) const;
  [[nodiscard]] int first_unfusible(const std::vector<NodeIndex>& start, int last_order) const;
  [[nodiscard]] std::int64_t weight(NodeIndex i) const;
  [[nodiscard]] std::vector<bool> read_in_backward(const std::vector<bool>& is_saved) const;

  const JointGraph& graph_;
  std::size_t count_;
  std::vector<int> order_;     // among what the forward's outputs need; -1: not needed for them
  std::vector<int> distance_;  // operators between a value and the backward pass
  std::vector<bool> banned_;   // from being computed again
};

void Partitioner::find_required() {
  std::vector<bool> needed(count_, false);
  for (const NodeIndex output : graph_.outputs) needed[static_cast<std::size_t>(output)] = true;
  for (NodeIndex i = graph_.size() - 1; i >= 0; --i) {
    if (!needed[static_cast<std::size_t>(i)]) continue;
    for (const NodeIndex input : node(i).inputs) needed[static_cast<std::size_t>(input)] = true;
  }
  order_.assign(count_, -1);
  int next = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    // Every input of the forward pass counts, whether its outputs need it or not.
    if (needed[i]) order_[i] = next++;
  }
}

void Partitioner::measure_distances() {
  distance_.assign(count_, 0);
  for (NodeIndex i = graph_.size() - 1; i >= 0; --i) {
    if (!required(i)) continue;
    int nearest = kFarFromBackward;
    for (const NodeIndex user : node(i).users) {
      nearest = std::min(nearest, distance_[static_cast<std::size_t>(user)] + 1);
    }
    distance_[static_cast<std::size_t>(i)] = nearest;
  }
}

bool Partitioner::is_materialized_in_backward(NodeIndex i) const {
  if (is_view(i)) return false;
  std::vector<NodeIndex> open{i};
  while (!open.empty()) {
    const NodeIndex at = open.back();
    open.pop_back();
    for (const NodeIndex user : node(at).users) {
      if (!required(user) && !is_fusible(at, user)) return true;
      if (is_view(user)) open.push_back(user);
    }
  }
  return false;
}

bool Partitioner::should_ban(NodeIndex i) const {
  if (is_leaf(i)) return true;
  if (node(i).kind == NodeKind::kItem) return false;
  if (node(i).recompute == Recompute::kMustSave) return true;
  if (!node(i).recomputable || is_materialized_in_backward(i)) return true;
  const int distance = distance_[static_cast<std::size_t>(i)];
  constexpr int kMostDistance = 1000;  // max_dist_from_bw, of which the test asks for less than 1000, too
  if (distance < 1000 && distance > kMostDistance) return true;
  // What is a quarter of its operands or less, as a sum, is cheap to keep.
  Bytes operands = 0;
  for (const NodeIndex input : node(i).inputs) operands += node(input).bytes;
  return node(i).bytes * 4 < operands;
}

void Partitioner::ban() {
  banned_.assign(count_, false);
  for (NodeIndex i = 0; i < graph_.size(); ++i) {
    const bool forward = required(i) || is_leaf(i);
    if (forward && may_ban(i) && should_ban(i)) banned_[static_cast<std::size_t>(i)] = true;
  }
  ban_used_far_apart();
  ban_long_chains();
}

int Partitioner::first_unfusible(const std::vector<NodeIndex>& start, int last_order) const {
  using Step = std::tuple<int, NodeIndex, bool>;  // order, node, was it fused into
  std::set<Step> open;
  for (const NodeIndex each : start) open.emplace(order(each), each, true);
  while (!open.empty()) {
    const auto [at_order, at, fusible] = *open.begin();
    open.erase(open.begin());
    if (!fusible) return at_order;
    for (const NodeIndex user : node(at).users) {
      if (required(user) && order(user) <= last_order) open.emplace(order(user), user, is_fusible(at, user));
    }
  }
  return last_order;
}

/// A value that is read both nearby and behind something that cannot be fused: what reads it there is kept.
void Partitioner::ban_used_far_apart() {
  for (NodeIndex i = 0; i < graph_.size(); ++i) {
    if (!required(i)) continue;
    std::vector<NodeIndex> users;
    int last = -1;
    for (const NodeIndex user : node(i).users) {
      if (!required(user)) continue;
      users.push_back(user);
      last = std::max(last, order(user));
    }
    if (users.empty()) continue;
    const int limit = first_unfusible(users, last);
    for (const NodeIndex user : users) {
      if (order(user) > limit && is_fusible(i, user) && may_ban(user)) banned_[static_cast<std::size_t>(user)] = true;
    }
  }
}

/// Chains of fusible operators are cut after a hundred.
void Partitioner::ban_long_chains() {
  constexpr int kLongest = 100;
  std::vector<bool> visited(count_, false);
  using Step = std::pair<int, NodeIndex>;
  for (NodeIndex start = 0; start < graph_.size(); ++start) {
    if (!required(start)) continue;
    std::priority_queue<Step, std::vector<Step>, std::greater<>> open;
    open.emplace(order(start), start);
    while (!open.empty()) {
      const NodeIndex at = open.top().second;
      open.pop();
      if (visited[static_cast<std::size_t>(at)]) continue;
      visited[static_cast<std::size_t>(at)] = true;
      if (order(at) > order(start) + kLongest && open.empty()) {
        if (may_ban(at)) banned_[static_cast<std::size_t>(at)] = true;
        break;
      }
      for (const NodeIndex user : node(at).users) {
        if (required(user) && is_fusible(at, user) && !banned_[static_cast<std::size_t>(user)]) {
          open.emplace(order(user), user);
        }
      }
    }
  }
}

std::int64_t Partitioner::weight(NodeIndex i) const {
  if (node(i).kind == NodeKind::kParameter && node(i).is_static) return 0;  // treat_parameters_as_free_to_save
  if (node(i).kind == NodeKind::kTuple) return Network::kUnbounded;
  const double closeness = std::pow(1.1, std::max(std::min(distance_[static_cast<std::size_t>(i)], 100), 1));
  const auto bytes = static_cast<std::int64_t>(static_cast<double>(std::max<Bytes>(node(i).bytes, 1)) * closeness);
  const auto& users = node(i).users;
  const bool vanishes =
      !is_leaf(i) && std::all_of(users.begin(), users.end(), [&](NodeIndex user) { return is_fusible(i, user); });
  return vanishes ? 2 * bytes : bytes;  // to be kept it would have to be written first
}

/// What gradients are computed from, where what is saved is not computed again.
std::vector<bool> Partitioner::read_in_backward(const std::vector<bool>& is_saved) const {
  std::vector<bool> read(count_, false);
  std::vector<NodeIndex> open = graph_.handed_over;
  for (const auto& [parameter, gradient] : graph_.gradients) open.push_back(gradient);
  for (const NodeIndex gradient : graph_.input_gradients) {
    if (gradient != kNone) open.push_back(gradient);
  }
  while (!open.empty()) {
    const auto at = static_cast<std::size_t>(open.back());
    open.pop_back();
    if (read[at]) continue;
    read[at] = true;
    if (is_saved[at]) continue;
    for (const NodeIndex input : graph_[static_cast<NodeIndex>(at)].inputs) open.push_back(input);
  }
  return read;
}

std::vector<NodeIndex> Partitioner::saved() const {
  const int source = 2 * static_cast<int>(count_);
  const int sink = source + 1;
  const auto in = [](NodeIndex i) { return 2 * i; };
  const auto out = [](NodeIndex i) { return 2 * i + 1; };
  Network network(sink + 1);
  std::vector<bool> is_gradient(count_, false);
  for (const auto& [parameter, gradient] : graph_.gradients) is_gradient[static_cast<std::size_t>(gradient)] = true;
  for (const NodeIndex gradient : graph_.input_gradients) {
    if (gradient != kNone) is_gradient[static_cast<std::size_t>(gradient)] = true;
  }
  for (NodeIndex i = 0; i < graph_.size(); ++i) {
    if (node(i).after_tangents || node(i).recompute == Recompute::kPreferred) {
      network.connect(in(i), sink, Network::kUnbounded);
      continue;
    }
    if (is_gradient[static_cast<std::size_t>(i)]) network.connect(out(i), sink, Network::kUnbounded);
    if (banned_[static_cast<std::size_t>(i)]) network.connect(source, in(i), Network::kUnbounded);
    network.connect(in(i), out(i), weight(i));
    for (const NodeIndex user : node(i).users) network.connect(out(i), in(user), Network::kUnbounded);
  }
  const std::vector<bool> sink_side = network.sink_side(source, sink);
  std::vector<bool> is_cut(count_, false);
  for (NodeIndex i = 0; i < graph_.size(); ++i) {
    if (node(i).after_tangents) continue;
    is_cut[static_cast<std::size_t>(i)] =
        !sink_side[static_cast<std::size_t>(in(i))] && sink_side[static_cast<std::size_t>(out(i))];
  }
  // _extract_fwd_bwd_modules: operands of what may be computed again are cut, but what nothing reads is not handed on.
  const std::vector<bool> read = read_in_backward(is_cut);
  std::vector<NodeIndex> result;
  for (NodeIndex i = 0; i < graph_.size(); ++i) {
    if (is_cut[static_cast<std::size_t>(i)] && read[static_cast<std::size_t>(i)]) result.push_back(i);
  }
  return result;
}

}  // namespace

std::vector<NodeIndex> partition(const JointGraph& graph) { return Partitioner(graph).saved(); }

}  // namespace memcalc::compile
