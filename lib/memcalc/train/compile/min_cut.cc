#include "memcalc/train/compile/min_cut.h"

#include <algorithm>

namespace memcalc::compile {

void Network::connect(int from, int to, std::int64_t capacity) {
  edges_.push_back({to, first_[static_cast<std::size_t>(from)], capacity});
  first_[static_cast<std::size_t>(from)] = static_cast<int>(edges_.size()) - 1;
  edges_.push_back({from, first_[static_cast<std::size_t>(to)], 0});
  first_[static_cast<std::size_t>(to)] = static_cast<int>(edges_.size()) - 1;
}

bool Network::level(int source, int sink) {
  level_.assign(first_.size(), -1);
  std::vector<int> queue{source};
  level_[static_cast<std::size_t>(source)] = 0;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (int e = first_[static_cast<std::size_t>(queue[i])]; e >= 0; e = edges_[static_cast<std::size_t>(e)].next) {
      const Edge& edge = edges_[static_cast<std::size_t>(e)];
      if (edge.capacity == 0 || level_[static_cast<std::size_t>(edge.to)] >= 0) continue;
      level_[static_cast<std::size_t>(edge.to)] = level_[static_cast<std::size_t>(queue[i])] + 1;
      queue.push_back(edge.to);
    }
  }
  return level_[static_cast<std::size_t>(sink)] >= 0;
}

std::int64_t Network::push(int node, int sink, std::int64_t limit) {
  if (node == sink) return limit;
  std::int64_t sent = 0;
  for (int& e = at_[static_cast<std::size_t>(node)]; e >= 0; e = edges_[static_cast<std::size_t>(e)].next) {
    Edge& edge = edges_[static_cast<std::size_t>(e)];
    if (edge.capacity == 0 || level_[static_cast<std::size_t>(edge.to)] != level_[static_cast<std::size_t>(node)] + 1) {
      continue;
    }
    const std::int64_t flow = push(edge.to, sink, std::min(limit - sent, edge.capacity));
    if (flow == 0) continue;
    edges_[static_cast<std::size_t>(e)].capacity -= flow;
    edges_[static_cast<std::size_t>(e) ^ 1U].capacity += flow;
    sent += flow;
    if (sent == limit) return sent;
  }
  level_[static_cast<std::size_t>(node)] = -1;
  return sent;
}

std::vector<bool> Network::sink_side(int source, int sink) {
  while (level(source, sink)) {
    at_ = first_;
    push(source, sink, kUnbounded);
  }
  std::vector<bool> reaches(first_.size(), false);
  std::vector<int> queue{sink};
  reaches[static_cast<std::size_t>(sink)] = true;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (int e = first_[static_cast<std::size_t>(queue[i])]; e >= 0; e = edges_[static_cast<std::size_t>(e)].next) {
      const int from = edges_[static_cast<std::size_t>(e)].to;
      if (reaches[static_cast<std::size_t>(from)] || edges_[static_cast<std::size_t>(e) ^ 1U].capacity == 0) continue;
      reaches[static_cast<std::size_t>(from)] = true;
      queue.push_back(from);
    }
  }
  return reaches;
}

}  // namespace memcalc::compile
