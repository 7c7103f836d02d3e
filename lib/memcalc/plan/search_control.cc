#include "memcalc/plan/search_control.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace memcalc {
namespace {

class SharedWork {
 public:
  SharedWork(std::size_t count, const SearchControl& control, const std::function<void(std::size_t)>& work)
      : count_(count), control_(control), work_(work) {}

  void take_part() {
    while (!control_.stopped()) {
      const std::size_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= count_) return;
      try {
        work_(index);
      } catch (...) {
        remember(index);
      }
      finish_one();
    }
  }

  /// After all threads have ended.
  [[nodiscard]] bool finish() const {
    if (failure_) std::rethrow_exception(failure_);
    return done_ == count_;
  }

 private:
  void remember(std::size_t index) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (index >= failed_index_) return;
    failed_index_ = index;
    failure_ = std::current_exception();
  }

  void finish_one() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++done_;
    if (control_.progress) control_.progress(done_, count_);
  }

  std::size_t count_;
  const SearchControl& control_;
  const std::function<void(std::size_t)>& work_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;
  std::size_t done_ = 0;
  std::size_t failed_index_ = std::numeric_limits<std::size_t>::max();
  std::exception_ptr failure_;
};

}  // namespace

bool for_each_index(std::size_t count, const SearchControl& control, const std::function<void(std::size_t)>& work) {
  if (count == 0) return true;
  SharedWork shared(count, control, work);
  const unsigned machine = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t wanted = control.threads == 0 ? machine : control.threads;
  const std::size_t helpers = std::min(wanted, count) - 1;
  std::vector<std::thread> threads;
  threads.reserve(helpers);
  try {
    for (std::size_t i = 0; i < helpers; ++i) threads.emplace_back([&shared] { shared.take_part(); });
  } catch (const std::system_error&) {
    // The machine starts no more threads: those that run do the work.
  }
  shared.take_part();
  for (std::thread& thread : threads) thread.join();
  return shared.finish();
}

}  // namespace memcalc
