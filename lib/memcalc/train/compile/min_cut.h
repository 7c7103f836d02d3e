// The smallest cut between two nodes of a network (Dinic's algorithm).
#pragma once

#include <cstdint>
#include <vector>

namespace memcalc::compile {

class Network {
 public:
  static constexpr std::int64_t kUnbounded = INT64_MAX / 4;

  explicit Network(int nodes) : first_(static_cast<std::size_t>(nodes), -1) {}
  void connect(int from, int to, std::int64_t capacity);
  /// Saturates the network from `source` to `sink`. True for the nodes that can still reach the sink: of several
  /// smallest cuts the one nearest to it, as networkx gives it.
  [[nodiscard]] std::vector<bool> sink_side(int source, int sink);

 private:
  struct Edge {
    int to;
    int next;
    std::int64_t capacity;
  };
  [[nodiscard]] bool level(int source, int sink);
  std::int64_t push(int node, int sink, std::int64_t limit);

  std::vector<int> first_, level_, at_;
  std::vector<Edge> edges_;
};

}  // namespace memcalc::compile
