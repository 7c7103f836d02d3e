// ParameterCoordinator: which shared-out parameters are gathered when, and when they are let go (ZeRO-3):
// deepspeed/runtime/zero/partitioned_param_coordinator.py (PartitionedParameterCoordinator, 0.19.8). The first forward
// and backward pass gather what each module needs; they are recorded, and from then on parameters are also gathered
// ahead. It counts elements and knows nothing of memory. Covered by tests/unit/parameter_coordinator_test.cc.
// MIRRORS(deepspeed, "runtime/zero/partitioned_param_coordinator.py", "0.19.8")
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace memcalc {

class ParameterCoordinator {
 public:
  /// In elements.
  struct Limits {
    std::int64_t prefetch_bucket = 0;
    std::int64_t max_live = 0;
    std::int64_t max_reuse_distance = 0;
  };

  /// What is done with parameters, which are told by their place in `elements`.
  class Memory {
   public:
    virtual ~Memory() = default;
    /// One collective, on its way; in ascending order.
    virtual void gather(std::span<const int> parameters) = 0;
    /// What one gather() brought is there.
    virtual void arrive(std::span<const int> parameters) = 0;
    /// Modules have asked for all of it: the handle of the collective dies.
    virtual void forget(std::span<const int> /*parameters*/) {}
    virtual void release(int parameter) = 0;
  };

  ParameterCoordinator(std::vector<std::int64_t> elements, std::vector<bool> persists, Limits limits, Memory& memory);

  /// The number of a module that holds `parameters` itself.
  [[nodiscard]] int add_module(std::vector<int> parameters);

  /// register_external_parameter: one that `module` reads without calling the module that holds it, and which has been
  /// gathered for that. From now on `module` is taken to need it.
  void add_external(int module, int parameter);
  [[nodiscard]] bool is_available(int parameter) const {
    return states_[static_cast<std::size_t>(parameter)].status == Status::kAvailable;
  }

  /// reset_step: before a forward pass.
  void begin_pass();
  /// Its parameters get no gradient: what a recomputed layer fetched of them is let go by the module whose backward
  /// asked for the recomputation (update_recompute_parameters).
  void set_frozen(int parameter) { states_[static_cast<std::size_t>(parameter)].is_frozen = true; }
  /// fetch_sub_module: before a module's forward or backward. `recomputing`: a forward inside the backward pass.
  void fetch(int module, bool backward, bool recomputing = false);
  /// release_sub_module: after it.
  void release(int module, bool backward);
  /// release_backward_leftovers: modules whose input needs no gradient never end their backward.
  void release_leftovers();
  /// release_and_reset_all: before the optimizer's step.
  void release_all();
  /// Parameters that were gathered beside these passes.
  void set_available(int parameter) { states_[static_cast<std::size_t>(parameter)].status = Status::kAvailable; }
  /// All that was gathered is let go, and what the passes fetched is forgotten (_invalidate_trace).
  void begin_anew();
  /// Whether some module of the last passes fetched it.
  [[nodiscard]] bool was_fetched(int parameter) const {
    return states_[static_cast<std::size_t>(parameter)].was_fetched;
  }

 private:
  enum class Status : std::uint8_t { kPartitioned, kInFlight, kAvailable };
  enum class Trace : std::uint8_t { kInvalid, kRecording, kComplete };
  static constexpr std::int64_t kNever = -10'000'000'000;

  struct State {
    Status status = Status::kPartitioned;
    bool was_fetched = false;
    bool is_frozen = false;
    int gather = -1;                    // the gather that brings it, until it is asked for (InflightParamRegistry)
    std::int64_t fetched_for = kNever;  // most_recent_step_id_param_fetched_for
    std::vector<int> active;            // modules
    std::vector<std::size_t> uses;      // steps of the complete trace
  };
  [[nodiscard]] State& state(int parameter) { return states_[static_cast<std::size_t>(parameter)]; }
  [[nodiscard]] std::int64_t elements(int parameter) const { return elements_[static_cast<std::size_t>(parameter)]; }
  [[nodiscard]] const std::vector<int>& parameters_of(int module) const {
    return modules_[static_cast<std::size_t>(module)];
  }

  void check_trace(int module);
  void forget_trace();
  void complete_trace();
  void wait_for_all();
  void gather(std::vector<int> parameters);
  void wait(int parameter);
  void take_from_gather(int parameter);
  void prefetch(const std::vector<int>& fetched);
  [[nodiscard]] bool is_kept(int parameter);
  void release_parameter(int parameter);
  [[nodiscard]] std::vector<int> take_recomputed(int module);

  const std::vector<std::int64_t> elements_;
  const std::vector<bool> persists_;
  const Limits limits_;
  Memory& memory_;
  std::vector<State> states_;
  std::vector<std::vector<int>> modules_;
  std::unordered_map<int, std::vector<int>> recomputed_;  // ds_recompute_parameters of modules in backward
  struct Gather {
    std::vector<int> parameters;
    std::size_t not_asked_for = 0;
  };
  std::vector<Gather> gathers_;  // of this pass

  Trace trace_ = Trace::kInvalid;
  std::vector<int> module_order_;
  std::vector<std::int64_t> before_;                           // elements of the modules before each step of the order
  std::vector<std::pair<int, std::int64_t>> parameter_order_;  // with the step that uses it
  std::size_t queue_ = 0;                                      // next in parameter_order_
  std::size_t step_ = 0;
  std::int64_t available_ = 0;  // elements that were gathered and not let go
  std::vector<int> in_backward_;
};

}  // namespace memcalc
