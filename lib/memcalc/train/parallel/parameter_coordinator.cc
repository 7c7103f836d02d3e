#include "memcalc/train/parallel/parameter_coordinator.h"

#include <algorithm>
#include <utility>

namespace memcalc {

ParameterCoordinator::ParameterCoordinator(std::vector<std::int64_t> elements, std::vector<bool> persists,
                                           Limits limits, Memory& memory)
    : elements_(std::move(elements)),
      persists_(std::move(persists)),
      limits_(limits),
      memory_(memory),
      states_(elements_.size()) {}

int ParameterCoordinator::add_module(std::vector<int> parameters) {
  std::sort(parameters.begin(), parameters.end());
  modules_.push_back(std::move(parameters));
  return static_cast<int>(modules_.size()) - 1;
}

void ParameterCoordinator::add_external(int module, int parameter) {
  std::vector<int>& needed = modules_[static_cast<std::size_t>(module)];
  if (std::find(needed.begin(), needed.end(), parameter) == needed.end()) needed.push_back(parameter);
  std::sort(needed.begin(), needed.end());
  state(parameter).status = Status::kAvailable;
  state(parameter).was_fetched = true;
}

void ParameterCoordinator::begin_pass() {
  wait_for_all();
  if (trace_ == Trace::kRecording) {
    complete_trace();
  } else if (trace_ == Trace::kInvalid) {
    trace_ = Trace::kRecording;
  }
  queue_ = 0;
  step_ = 0;
  available_ = 0;
  gathers_.clear();
  for (State& each : states_) each.fetched_for = kNever;
}

void ParameterCoordinator::complete_trace() {
  trace_ = Trace::kComplete;
  std::int64_t before = 0;
  for (std::size_t step = 0; step < module_order_.size(); ++step) {
    before_.push_back(before);
    for (const int parameter : parameters_of(module_order_[step])) {
      parameter_order_.emplace_back(parameter, static_cast<std::int64_t>(step));
      state(parameter).uses.push_back(step);
      before += elements(parameter);
    }
  }
}

// trace_prologue: a module that is not the recorded one ends the trace.
void ParameterCoordinator::check_trace(int module) {
  if (trace_ != Trace::kComplete) return;
  if (step_ < module_order_.size() && module_order_[step_] == module) return;
  forget_trace();
}

void ParameterCoordinator::begin_anew() {
  forget_trace();
  for (State& each : states_) each.status = Status::kPartitioned;
}

void ParameterCoordinator::forget_trace() {
  trace_ = Trace::kInvalid;
  module_order_.clear();
  before_.clear();
  parameter_order_.clear();
  for (State& each : states_) {
    each.uses.clear();
    each.fetched_for = kNever;
  }
  wait_for_all();
}

// _clean_inflight_param_registry
void ParameterCoordinator::wait_for_all() {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const int parameter = static_cast<int>(i);
    if (states_[i].gather < 0) continue;
    take_from_gather(parameter);
    release_parameter(parameter);
  }
}

void ParameterCoordinator::gather(std::vector<int> parameters) {
  std::sort(parameters.begin(), parameters.end());
  for (const int parameter : parameters) {
    state(parameter).status = Status::kInFlight;
    state(parameter).gather = static_cast<int>(gathers_.size());
    available_ += elements(parameter);
  }
  memory_.gather(parameters);
  const std::size_t count = parameters.size();
  gathers_.push_back({.parameters = std::move(parameters), .not_asked_for = count});
}

void ParameterCoordinator::wait(int parameter) {
  const std::vector<int>& together = gathers_[static_cast<std::size_t>(state(parameter).gather)].parameters;
  memory_.arrive(together);
  for (const int each : together) state(each).status = Status::kAvailable;
}

void ParameterCoordinator::take_from_gather(int parameter) {
  if (state(parameter).gather < 0) return;
  if (state(parameter).status == Status::kInFlight) wait(parameter);
  Gather& gather = gathers_[static_cast<std::size_t>(std::exchange(state(parameter).gather, -1))];
  if (--gather.not_asked_for == 0) memory_.forget(gather.parameters);
}

namespace {

void add_once(std::vector<int>& numbers, int number) {
  if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) numbers.push_back(number);
}

}  // namespace

void ParameterCoordinator::fetch(int module, bool backward, bool recomputing) {
  check_trace(module);
  if (trace_ == Trace::kRecording) module_order_.push_back(module);
  if (backward) add_once(in_backward_, module);
  const std::vector<int>& needed = parameters_of(module);
  std::vector<int> missing;
  for (const int parameter : needed) {
    if (state(parameter).status == Status::kPartitioned) missing.push_back(parameter);
  }
  if (!missing.empty()) gather(std::move(missing));
  for (const int parameter : needed) {
    std::vector<int>& active = state(parameter).active;
    add_once(active, module);
    if (recomputing && !in_backward_.empty() && state(parameter).is_frozen) {
      add_once(recomputed_[in_backward_.back()], parameter);
      add_once(active, in_backward_.back());
    }
    state(parameter).was_fetched = true;
    take_from_gather(parameter);
  }
  if (trace_ == Trace::kComplete) prefetch(needed);
  ++step_;
}

void ParameterCoordinator::prefetch(const std::vector<int>& fetched) {
  const auto step = static_cast<std::int64_t>(step_);
  const auto pop = [this] {
    const auto [parameter, used_at] = parameter_order_[queue_++];
    state(parameter).fetched_for = std::max(state(parameter).fetched_for, used_at);
    return parameter;
  };
  const auto in_queue =
      std::count_if(fetched.begin(), fetched.end(), [&](int parameter) { return state(parameter).fetched_for < step; });
  for (std::int64_t popped = 0; popped < in_queue && queue_ < parameter_order_.size(); ++popped) (void)pop();

  if (limits_.prefetch_bucket == 0) return;
  const std::int64_t most = std::min(limits_.max_live - available_, limits_.prefetch_bucket);
  std::vector<int> ahead;
  std::int64_t count = 0;
  while (queue_ < parameter_order_.size() && count < most) {
    const int parameter = pop();
    if (state(parameter).status != Status::kPartitioned) continue;
    if (std::find(ahead.begin(), ahead.end(), parameter) != ahead.end()) continue;
    ahead.push_back(parameter);
    count += elements(parameter);
  }
  if (!ahead.empty()) gather(std::move(ahead));
}

// __params_to_release, of one parameter of a module that is done: it is kept where a later use was passed over because
// it was there, or comes before max_reuse_distance elements of other modules.
bool ParameterCoordinator::is_kept(int parameter) {
  if (trace_ != Trace::kComplete) return false;
  if (persists_[static_cast<std::size_t>(parameter)]) return true;
  const State& each = state(parameter);
  if (each.fetched_for > static_cast<std::int64_t>(step_)) return true;
  const auto next = std::lower_bound(each.uses.begin(), each.uses.end(), step_);
  if (next == each.uses.end()) return false;
  return before_[*next] - before_[step_] < limits_.max_reuse_distance;
}

/// What a recomputation fetched on behalf of a module that is in backward.
std::vector<int> ParameterCoordinator::take_recomputed(int module) {
  const auto found = recomputed_.find(module);
  if (found == recomputed_.end()) return {};
  std::vector<int> parameters = std::move(found->second);
  recomputed_.erase(found);
  return parameters;
}

void ParameterCoordinator::release(int module, bool backward) {
  if (backward) std::erase(in_backward_, module);
  std::vector<int> let_go;
  for (const int parameter : parameters_of(module)) {
    if (!is_kept(parameter)) let_go.push_back(parameter);
  }
  for (const int parameter : parameters_of(module)) std::erase(state(parameter).active, module);
  for (const int parameter : backward ? take_recomputed(module) : std::vector<int>{}) {
    std::erase(state(parameter).active, module);
    if (!persists_[static_cast<std::size_t>(parameter)]) add_once(let_go, parameter);
  }
  for (const int parameter : let_go) release_parameter(parameter);
}

void ParameterCoordinator::release_leftovers() {
  while (!in_backward_.empty()) {
    const int module = in_backward_.back();
    in_backward_.pop_back();
    std::vector<int> parameters = parameters_of(module);
    for (const int recomputed : take_recomputed(module)) add_once(parameters, recomputed);
    for (const int parameter : parameters) {
      std::erase(state(parameter).active, module);
      if (!persists_[static_cast<std::size_t>(parameter)]) release_parameter(parameter);
    }
  }
}

void ParameterCoordinator::release_all() {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const int parameter = static_cast<int>(i);
    take_from_gather(parameter);
    states_[i].active.clear();
    release_parameter(parameter);
  }
}

void ParameterCoordinator::release_parameter(int parameter) {
  State& each = state(parameter);
  if (each.status != Status::kAvailable || !each.active.empty()) return;
  memory_.release(parameter);
  each.status = Status::kPartitioned;
  available_ -= elements(parameter);
}

}  // namespace memcalc
