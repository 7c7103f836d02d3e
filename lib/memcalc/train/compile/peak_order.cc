#include "memcalc/train/compile/peak_order.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

namespace memcalc::compile {

namespace {

using Order = std::vector<std::int32_t>;

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

/// The kernels with what each waits for and what waits for it (MemoryPlanningInfoForNode and ...ForBuffer).
class Planning {
 public:
  Planning(std::span<const PlannedKernel> kernels, std::span<const PlannedBuffer> buffers)
      : kernels_(kernels),
        buffers_(buffers),
        readers_(buffers.size()),
        before_(kernels.size()),
        after_(kernels.size()),
        sizes_(kernels.size(), 0) {
    for (std::int32_t k = 0; k < count(); ++k) {
      for (const std::int32_t each : kernel(k).writes) sizes_[index(k)] += buffer(each).bytes;
      for (const std::int32_t each : kernel(k).reads) {
        readers_[index(each)].push_back(k);
        const std::int32_t writer = buffer(each).writer;
        if (writer < 0 || writer == k) continue;
        std::vector<std::int32_t>& before = before_[index(k)];
        if (std::find(before.begin(), before.end(), writer) != before.end()) continue;
        before.push_back(writer);
        after_[index(writer)].push_back(k);
      }
    }
  }

  [[nodiscard]] Bytes peak_of(const Order& order) const;
  [[nodiscard]] Order least_peak_first() const;
  [[nodiscard]] Order breadth_first() const;
  [[nodiscard]] Order depth_first() const;
  [[nodiscard]] Order as_they_begin() const;
  [[nodiscard]] std::int32_t count() const { return static_cast<std::int32_t>(kernels_.size()); }

 private:
  [[nodiscard]] Order visited(const std::vector<Bytes>& keys) const;
  [[nodiscard]] const PlannedKernel& kernel(std::int32_t k) const { return kernels_[index(k)]; }
  [[nodiscard]] const PlannedBuffer& buffer(std::int32_t b) const { return buffers_[index(b)]; }

  std::span<const PlannedKernel> kernels_;
  std::span<const PlannedBuffer> buffers_;
  std::vector<Order> readers_;         // by buffer
  std::vector<Order> before_, after_;  // by kernel
  std::vector<Bytes> sizes_;           // by kernel: what it writes
};

/// estimate_peak_memory: what a kernel writes is there before it ends, what it reads last is there until then.
Bytes Planning::peak_of(const Order& order) const {
  std::vector<std::int32_t> step(kernels_.size());
  for (std::size_t at = 0; at < order.size(); ++at) step[index(order[at])] = static_cast<std::int32_t>(at);
  std::vector<Bytes> change(order.size() + 1, 0);
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    const PlannedBuffer& each = buffers_[b];
    const std::int32_t made = each.writer < 0 ? 0 : step[index(each.writer)];
    change[index(made)] += each.bytes;
    if (each.is_result) continue;
    std::int32_t last = made;
    for (const std::int32_t reader : readers_[b]) last = std::max(last, step[index(reader)]);
    change[index(last) + 1] -= each.bytes;
  }
  Bytes live = 0, peak = 0;
  for (const Bytes each : change) peak = std::max(peak, live += each);
  return peak;
}

/// topological_sort_lpmf: of the kernels that could run, where some fit under the most that was ever needed, the one
/// that leaves least behind; else the smallest.
Order Planning::least_peak_first() const {
  std::vector<std::int32_t> waits(kernels_.size()), uses(buffers_.size());
  std::vector<Bytes> frees(kernels_.size(), 0);
  Bytes live = 0, results = 0;
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    uses[b] = static_cast<std::int32_t>(readers_[b].size()) + (buffers_[b].is_result ? 1 : 0);
    if (buffers_[b].writer < 0) live += buffers_[b].bytes;
    if (buffers_[b].is_result) results += buffers_[b].bytes;
  }
  Bytes most = std::max(live, results);
  std::set<std::int32_t> ready;
  for (std::int32_t k = 0; k < count(); ++k) {
    waits[index(k)] = static_cast<std::int32_t>(before_[index(k)].size());
    if (waits[index(k)] == 0) ready.insert(k);
    for (const std::int32_t each : kernel(k).reads) {
      if (uses[index(each)] == 1) frees[index(k)] += buffer(each).bytes;
    }
    for (const std::int32_t each : kernel(k).writes) {
      if (uses[index(each)] == 0) frees[index(k)] += buffer(each).bytes;
    }
  }
  Order order;
  while (!ready.empty()) {
    const Bytes gap = most - live;
    const auto key = [&](std::int32_t k) {
      const Bytes size = sizes_[index(k)];
      return std::tuple(size > gap ? size : 0, size - frees[index(k)], k);
    };
    const std::int32_t next =
        *std::min_element(ready.begin(), ready.end(), [&](std::int32_t a, std::int32_t b) { return key(a) < key(b); });
    ready.erase(next);
    order.push_back(next);
    live += sizes_[index(next)];
    most = std::max(most, live);
    live -= frees[index(next)];
    for (const std::int32_t each : after_[index(next)]) {
      if (--waits[index(each)] == 0) ready.insert(each);
    }
    for (const std::int32_t each : kernel(next).reads) {
      if (--uses[index(each)] != 1) continue;
      for (const std::int32_t reader : readers_[index(each)]) frees[index(reader)] += buffer(each).bytes;
    }
  }
  return order;
}

/// topological_sort_bfs: the one whose predecessors ran first.
Order Planning::breadth_first() const {
  std::vector<std::int32_t> waits(kernels_.size()), place(kernels_.size(), -1);
  using Waiting = std::pair<Order, std::int32_t>;
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> ready;
  const auto add = [&](std::int32_t k) {
    Order places;
    for (const std::int32_t each : before_[index(k)]) places.push_back(place[index(each)]);
    std::sort(places.begin(), places.end());
    ready.emplace(std::move(places), k);
  };
  for (std::int32_t k = 0; k < count(); ++k) {
    waits[index(k)] = static_cast<std::int32_t>(before_[index(k)].size());
    if (waits[index(k)] == 0) add(k);
  }
  Order order;
  while (!ready.empty()) {
    const std::int32_t next = ready.top().second;
    ready.pop();
    place[index(next)] = static_cast<std::int32_t>(order.size());
    order.push_back(next);
    for (const std::int32_t each : after_[index(next)]) {
      if (--waits[index(each)] == 0) add(each);
    }
  }
  return order;
}

/// Kernels by their keys, each behind what it waits for, of which the least comes first, too.
Order Planning::visited(const std::vector<Bytes>& keys) const {
  const auto sooner = [&](std::int32_t a, std::int32_t b) {
    return std::pair(keys[index(a)], a) < std::pair(keys[index(b)], b);
  };
  Order visits(kernels_.size());
  std::iota(visits.begin(), visits.end(), 0);
  std::sort(visits.begin(), visits.end(), sooner);
  std::vector<bool> seen(kernels_.size(), false);
  Order order;
  std::vector<std::pair<std::int32_t, Order>> open;  // a kernel, and what it still waits for, the next one last
  const auto enter = [&](std::int32_t k) {
    if (seen[index(k)]) return;
    seen[index(k)] = true;
    Order waits = before_[index(k)];
    std::sort(waits.begin(), waits.end(), [&](std::int32_t a, std::int32_t b) { return sooner(b, a); });
    open.emplace_back(k, std::move(waits));
  };
  for (const std::int32_t k : visits) {
    enter(k);
    while (!open.empty()) {
      Order& waits = open.back().second;
      if (waits.empty()) {
        order.push_back(open.back().first);
        open.pop_back();
        continue;
      }
      const std::int32_t next = waits.back();
      waits.pop_back();
      enter(next);
    }
  }
  return order;
}

/// topological_sort_schedule, with which fusion ends: in the order in which the kernels begin.
Order Planning::as_they_begin() const { return visited(std::vector<Bytes>(kernels_.size(), 0)); }

/// topological_sort_dfs: those that read and write least.
Order Planning::depth_first() const {
  std::vector<Bytes> with_reads(sizes_);
  for (std::int32_t k = 0; k < count(); ++k) {
    for (const std::int32_t each : kernel(k).reads) with_reads[index(k)] += buffer(each).bytes;
  }
  return visited(with_reads);
}

}  // namespace

std::vector<std::int32_t> order_for_peak_memory(std::span<const PlannedKernel> kernels,
                                                std::span<const PlannedBuffer> buffers) {
  const Planning planning(kernels, buffers);
  Order breadth_first = planning.breadth_first();
  if (breadth_first.size() < kernels.size()) return {};  // two wait for each other
  Order best = planning.as_they_begin();
  Bytes least = planning.peak_of(best);
  for (Order each : {planning.least_peak_first(), std::move(breadth_first), planning.depth_first()}) {
    const Bytes peak = planning.peak_of(each);
    if (peak >= least) continue;
    least = peak;
    best = std::move(each);
  }
  return best;
}

}  // namespace memcalc::compile
