// How a search over many estimates is run: on how many threads, who is told how far it is, who may stop it.
// Covered by tests/unit/search_control_test.cc.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

namespace memcalc {

struct SearchControl {
  unsigned threads = 0;                                    // 0: as many as the machine runs at once
  std::function<void(std::size_t, std::size_t)> progress;  // (done, in all so far known); one call at a time
  const std::atomic<bool>* stop = nullptr;                 // set by another thread or a signal handler: finish early
  [[nodiscard]] bool stopped() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
};

/// Calls work(0) … work(count - 1), shared between threads; each index is worked on once, in any order, so that work
/// must write to its own place only. Returns false where it was stopped before every index had its turn.
/// An exception of the lowest index that threw one is thrown again after all threads have ended.
bool for_each_index(std::size_t count, const SearchControl& control, const std::function<void(std::size_t)>& work);

}  // namespace memcalc
