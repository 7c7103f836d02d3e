// What Timeline goes through with all that a host does, for the card alone: the power limit needs it before there are
// seconds for a timeline.
#include "memcalc/cost/exposed_collectives.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "memcalc/cost/collective.h"

namespace memcalc {

namespace {

class TwoStreams {
 public:
  TwoStreams(const KernelList& kernels, const LinkRates& links) : links_(links), ends_(kernels.size()) {}

  void compute(const Kernel& kernel, double seconds) {
    const double longer = contention_of(kernel, links_);
    const double beside = std::clamp((communication_ - compute_) / (1 + longer), 0.0, seconds);
    compute_ += seconds + beside * longer;
  }
  /// How long a gather that the next kernel needs is waited for.
  double communicate(const Kernel& kernel, std::size_t number, double seconds) {
    const bool gathers = is_needed_at_once(kernel);
    const bool holds_up = gathers && kernel.as<work::Communication>()->awaited_after == 0;
    const double made = gathers ? uses_[holds_up ? 1 : 0] : compute_;
    const double longer = contention_of(kernel, links_), begin = std::max(communication_, made);
    const double beside = holds_up ? std::clamp((compute_ - begin) / (1 + longer), 0.0, seconds) : seconds;
    ends_[number] = communication_ = begin + seconds + beside * longer;
    return holds_up ? use(number) : 0;
  }
  /// What was gathered is used from now on.
  double use(std::size_t gathered) {
    const double waited = wait(ends_[gathered]);
    uses_ = {compute_, uses_[0]};
    return waited;
  }
  double wait_for_all() { return wait(communication_); }

 private:
  double wait(double until) {
    const double waited = std::max(until - compute_, 0.0);
    compute_ += waited;
    return waited;
  }

  const LinkRates& links_;
  std::vector<double> ends_;  // of collectives
  double compute_ = 0, communication_ = 0;
  std::array<double, 2> uses_{};  // since when what was gathered last is used, and what was before it
};

}  // namespace

std::vector<double> exposed_collectives(const KernelList& kernels, const std::vector<double>& seconds,
                                        const LinkRates& links) {
  if (std::none_of(kernels.begin(), kernels.end(), runs_beside)) return {};
  std::vector<double> exposed(kernels.size());
  std::vector<std::size_t> awaited(kernels.size());  // its number, from one on
  TwoStreams streams(kernels, links);
  Phase phase = Phase::kZero;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const Kernel& kernel = kernels[i];
    if (awaited[i] > 0) exposed[i] += streams.use(awaited[i] - 1);
    if (kernel.phase != phase && kernel.phase == Phase::kOptimizer) exposed[i] += streams.wait_for_all();
    phase = kernel.phase;
    if (runs_beside(kernel)) {
      exposed[i] += streams.communicate(kernel, i, seconds[i]);
      const auto after = static_cast<std::size_t>(kernel.as<work::Communication>()->awaited_after);
      if (after > 0 && i + after < kernels.size()) awaited[i + after] = i + 1;
    } else if (kernel.stream == CudaStream::kDefault) {
      streams.compute(kernel, seconds[i]);
    }
  }
  exposed.back() += streams.wait_for_all();
  return exposed;
}

}  // namespace memcalc
