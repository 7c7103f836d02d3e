// The clocks of a step: the host issues kernels one after the other, each stream of the card runs them in order, and
// whichever is behind decides. Covered by tests/unit/cost_test.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memcalc/cost/distinct_kernels.h"
#include "memcalc/cost/issue_times.h"
#include "memcalc/cost/step_time.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// Whether a kernel of the card stands for it, and not the host's work or a part of the kernel before.
[[nodiscard]] bool runs_on_card(const Kernel& kernel);

/// Seconds of each kernel of a step by itself, with the gap before it. `waiting`: of a pipeline's stage, what it waits
/// for the others over what it computes. `issuing`: of the same kernels with autograd.
[[nodiscard]] std::vector<double> seconds_of(const DistinctKernels& kernels, const DeviceSpec& device,
                                             const DeviceRates& rates, IssueTimes& issuing, double waiting = 0);

/// How many times an average host's time the slowest of some ranks takes, whose times have this standard deviation over
/// their mean: at their collectives the others wait for it.
[[nodiscard]] double slowest_of(std::int64_t ranks, double spread);

/// Of steps of which `share` are `generating`, which begin with what the others live on.
[[nodiscard]] StepTime mean_of(const StepTime& generating, const StepTime& other, double share);

class Timeline {
 public:
  /// What the clocks ask of a kernel.
  struct Issue {
    /// Where it runs.
    enum class Way : std::uint8_t {
      kHost,     // nowhere: the host's own work
      kCompute,  // launched on the compute stream
      kBeside,   // a copy on a stream of its own: FSDP's
      kBlocks,   // a collective, as those below are, between the kernels of the compute stream
      kGathers,  // one beside them, for which the next kernel waits, or that which `awaits` it
      kReduces,  // the same, or the optimizer
    };
    double seconds = 0;  // of a launch; of what is not launched on the compute stream altogether
    double longer = 0;   // beside a collective, by this share; a collective beside kernels
    double delays = 0;   // an all-reduce beside it, by this share of its time
    double passes = 1;   // that the host issues by themselves
    std::int32_t launches = 1;
    std::int32_t waits_for = 0;  // with `waits`: for so many kernels; 0: for all that were issued
    std::int32_t awaits = -1;    // the number of the collective that the compute stream waits for first; -1: none
    Way way = Way::kHost;
    Phase phase = Phase::kForward;
    TimeClass time_class = TimeClass::kElementwise;
    bool waits = false;             // the host does before it goes on
    bool waits_until_done = false;  // for this one: a copy of pageable memory
    bool is_waited_for = false;
    bool is_awaited = false;  // by a kernel that `awaits` it
    bool is_on_bus = false;   // and not in multiprocessors
    bool uses_tensor_cores = false;
    bool is_all_reduce = false;
  };

  /// `seconds`: of each kernel (seconds_of). `issuing`: of the same kernels. `before`: that the host takes before each,
  /// beyond its rates; empty: none. Pre: all four outlive the timeline.
  Timeline(const DistinctKernels& kernels, const std::vector<double>& seconds, const DeviceSpec& device,
           const DeviceRates& rates, IssueTimes& issuing, std::span<const double> before = {});

  /// The steady step on a host: it begins from a standing start, where the card has nothing to do until the host has
  /// issued the first kernel, and the third is told. Of processes whose threads are quick or slow, the middle.
  [[nodiscard]] StepTime steady(const HostRates& host) const;

  /// How long that step is in a process whose threads are quick on the first host, and slow on the second.
  [[nodiscard]] std::array<double, 2> extreme_steps(const HostRates& quickest, const HostRates& slowest) const;

  /// A call of a model, from an idle card until the caller has waited for all that it issued.
  [[nodiscard]] StepTime call(const HostRates& host) const;
  /// Of such calls on the quickest and on the slowest host, whose rates say in which state their one thread is.
  [[nodiscard]] std::array<double, 2> extreme_calls(const HostRates& quickest, const HostRates& slowest) const;

  /// How long the compute stream waits for collectives in front of each kernel, at a gather for this; of the last
  /// kernel, behind it, too. A step of a host that takes no time.
  [[nodiscard]] std::vector<double> waits_for_collectives() const;

  /// Whether the host waits for all of the card within a step of which parts are gathered beside the kernels.
  [[nodiscard]] bool gathers_without_lead() const { return gathers_ && waits_; }

 private:
  template <std::size_t kHosts>
  friend class Clocks;

  const KernelList& kernels_;
  const std::vector<double>& seconds_;
  IssueTimes& issuing_;
  std::span<const double> before_;
  std::vector<Issue> issues_;  // of each kernel
  std::size_t queue_kernels_;  // launches that wait at most
  bool gathers_ = false;       // beside the kernels
  bool waits_ = false;         // the host does, for all that the card has, within a step
  double slowest_;             // the slowest rank's host: its seconds over those of an average one
};

}  // namespace memcalc
