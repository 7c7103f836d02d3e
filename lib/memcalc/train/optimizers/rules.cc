#include "memcalc/train/optimizers/rules.h"

#include <algorithm>
#include <array>
#include <string>

#include "memcalc/base/error.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {

namespace {

using Table = std::array<const OptimizerRule*, kOptimizerCount>;

Table make_table() {
  Table table{};
  for (const auto rules :
       {adam_rules(), nadam_rules(), radam_rules(), adamax_rules(), sgd_rules(), adagrad_rules(), rmsprop_rules(),
        adafactor_rules(), torch_adafactor_rules(), muon_rules(), bitsandbytes_rules(), torchao_rules()}) {
    for (const OptimizerRule& rule : rules) table[static_cast<std::size_t>(rule.optimizer)] = &rule;
  }
  return table;
}

}  // namespace

const OptimizerRule& rule_of(Optimizer optimizer) {
  static const Table table = make_table();
  const OptimizerRule* rule = table[static_cast<std::size_t>(optimizer)];
  if (rule == nullptr) throw Error(ErrorCode::kInternal, "no rule for " + std::string(name_of(optimizer)));
  return *rule;
}

Tensor OptimizerMemory::state(const Shape& shape, DType dtype, const Operator& op) {
  if (next_state_ == states_.size()) {
    states_.push_back(tape.empty(shape, dtype, op, Category::kOptimizerStates));
  }
  return states_[next_state_++];
}

void OptimizerMemory::shared_state(int index, const Shape& shape, DType dtype, const Operator& op) {
  Tensor& state = shared_.at(static_cast<std::size_t>(index));
  if (!state.defined()) state = tape.empty(shape, dtype, op, Category::kOptimizerStates);
}

void OptimizerMemory::managed_state(Bytes bytes) {
  if (first_step) tape.memory.managed_bytes = checked_add(tape.memory.managed_bytes, bytes);
}

Tensor& OptimizerMemory::replaced_state() { return replaced_[next_replaced_++]; }

void StateBytes::add(const StateBytes& other) {
  tensors = checked_add(tensors, other.tensors);
  scalars = checked_add(scalars, other.scalars);
  managed = checked_add(managed, other.managed);
  tables = std::max(tables, other.tables);
}

}  // namespace memcalc
