#include "memcalc/train/optimizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_memory.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/train/optimizers/host_step.h"
#include "memcalc/train/optimizers/lists.h"
#include "memcalc/train/optimizers/looped_step.h"
#include "memcalc/train/optimizers/offload.h"

namespace memcalc {

namespace {

constexpr Operator kStep{"Optimizer.step"};

/// Two optimizers, stepped one after the other: one for the matrices, one for everything else.
std::vector<ParameterGroup> by_rank(const std::vector<ParameterGroup>& groups) {
  std::vector<ParameterGroup> split(2);
  for (const ParameterGroup& group : groups) {
    for (const Parameter* each : group) split[each->tensor.rank() == 2 ? 0 : 1].push_back(each);
  }
  return split;
}

ParameterGroup with_gradient(const ParameterGroup& group) {
  ParameterGroup result;
  result.reserve(group.size());
  std::copy_if(group.begin(), group.end(), std::back_inserter(result),
               [](const Parameter* each) { return each->tensor.impl()->grad.defined(); });
  return result;
}

}  // namespace

OptimizerSteps::OptimizerSteps(Tape& tape, const RunSpec& run, std::vector<ParameterGroup> groups)
    : run_(run),
      rule_(rule_of(optimizer_on_card(run.training()))),
      groups_(std::move(groups)),
      memory_(tape, run.training().loop),
      data_parallel_(run.parallel.data_parallel),
      tensor_parallel_(run.parallel.tensor),
      expert_parallel_(run.parallel.framework() == Framework::kTorch ? run.parallel.expert : 1) {
  if (run.training().offload_gradients) drop_offloaded_gradients(groups_);
  if (run.training().offload_optimizer) {
    for (const ParameterGroup& group : groups_) {
      std::copy_if(group.begin(), group.end(), std::back_inserter(on_host_),
                   [](const Parameter* each) { return is_offloaded(each->tensor.elements()); });
    }
    groups_ = without_offloaded(groups_);
  }
  if (rule_.splits_by_rank) groups_ = by_rank(groups_);
  if (rule_.replaces_state) {
    std::size_t count = 0;
    for (const ParameterGroup& group : groups_) count += group.size();
    memory_.reserve_replaced(count);
  }
  if (rule_.construct != nullptr) {
    for (const ParameterGroup& group : groups_) rule_.construct(memory_, group);
  }
  if (rule_.move_to_device != nullptr && run.uses_trainer()) {
    for (const ParameterGroup& group : groups_) rule_.move_to_device(memory_, group);
  }
}

// torchao/optim/cpu_offload.py, step(): of each parameter, as its gradient has come (beside backward, on a stream of
// its own), an optimizer of its own steps, and the new weights go to the card beside the next one's step.
void OptimizerSteps::step_on_host() {
  std::int64_t elements = 0;
  for (const Parameter* each : on_host_) elements += each->tensor.elements();
  if (elements == 0) return;
  record_host_memory_work(memory_.tape, HostMemoryWork::kTensorStep, static_cast<double>(on_host_.size()));
  record_host_step(memory_.tape, run_, elements, size_of(on_host_.front()->tensor.dtype()));
}

void OptimizerSteps::step() {
  memory_.tape.moment.node = &kStep;
  step_on_host();
  memory_.begin_step();
  for (const ParameterGroup& group : groups_) {
    const ParameterGroup stepped = with_gradient(group);
    if (stepped.empty()) continue;
    rule_.step(memory_, stepped);
    record_host_work(memory_.tape, HostWork::kOptimizerTensor, static_cast<std::int64_t>(stepped.size()));
    record_cost(stepped);
  }
  memory_.end_step();
  memory_.tape.moment.node = nullptr;
}

void OptimizerSteps::record_cost(const ParameterGroup& group) {
  ParameterGroup tensors, dtensors;
  for (const Parameter* each : group) (is_dtensor(*each) ? dtensors : tensors).push_back(each);
  record_cost(tensors, false);
  record_cost(dtensors, true);
}

// fully_shard's parameters are DTensors, and those of the Linears that parallelize_module split, unless DDP made plain
// tensors of them.
bool OptimizerSteps::is_dtensor(const Parameter& parameter) const {
  if (data_parallel_ == DataParallel::kDdp) return false;
  if (data_parallel_ == DataParallel::kFsdp2) return true;
  if (parameter.name.find(".experts.") != std::string::npos) return expert_parallel_ > 1;
  return tensor_parallel_ > 1 && parameter.tensor.rank() == 2 &&
         parameter.name.find_first_of("0123456789") != std::string::npos;
}

void OptimizerSteps::record_cost(const ParameterGroup& group, bool of_dtensors) {
  if (is_looped(rule_.optimizer)) {
    for (const Parameter* each : group) record_looped_step(rule_, each->tensor);
    return;
  }
  if (rule_.record_kernels != nullptr) {
    for (const Parameter* each : group) rule_.record_kernels(rule_, *each, memory_.loop);
    return;
  }
  for (const ParameterGroup& params : by_dtype(group)) {
    double elements = 0;
    for (const Parameter* each : params) elements += static_cast<double>(each->tensor.elements());
    const DType dtype = params.front()->tensor.dtype();
    memory_.tape.kernels.add(kStep, OperatorClass::kOptimizer, dtype, rule_.flops * elements,
                             rule_.bytes_moved(static_cast<double>(size_of(dtype))) * elements,
                             KernelKind::kMultiTensor, elements);
    if (Kernel* kernel = memory_.tape.kernels.last()) {
      const auto tensors = static_cast<std::int64_t>(params.size());
      kernel->work = work::TensorList{.tensors = tensors, .of_dtensors = of_dtensors};
      if (rule_.operators > 0) {
        kernel->launches = static_cast<std::int32_t>(std::min<std::int64_t>(tensors * rule_.operators, 1 << 30));
      }
    }
  }
}

void OptimizerSteps::record_unscale() {
  for (const ParameterGroup& group : groups_) {
    for (const ParameterGroup& params : by_dtype(with_gradient(group))) {
      list_kernel(memory_.tape, aten::kAmpForeachNonFiniteCheckAndUnscale, params, 2);
    }
  }
}

void OptimizerSteps::zero_grad() {
  for (const Parameter* each : on_host_) each->tensor.impl()->grad.reset();
  for (const ParameterGroup& group : groups_) {
    for (const Parameter* each : group) each->tensor.impl()->grad.reset();
    record_host_work(memory_.tape, HostWork::kZeroedTensor, static_cast<std::int64_t>(group.size()));
  }
}

}  // namespace memcalc
