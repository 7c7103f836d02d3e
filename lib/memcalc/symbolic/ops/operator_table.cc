#include "memcalc/symbolic/ops/operator_table.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

#include "memcalc/base/error.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {
namespace {

template <typename Visit>
void for_each_row(const Visit& visit) {
  for (const std::span<const OperatorRow> rows :
       {pointwise_rows(), function_rows(), view_rows(), shape_rows(), reduction_rows(), scan_rows(), factory_rows(),
        layer_rows(), product_rows(), loss_rows(), norm_rows(), image_rows(), recurrent_rows(), scatter_rows(),
        place_rows(), spectrum_rows(), region_rows(), system_rows(), factorisation_rows()}) {
    for (const OperatorRow& row : rows) visit(row);
  }
}

/// Operators by the names of torch functions, for as long as the process lives: kernels and events point to them, also
/// once the thread that ran the step is gone.
class OpaqueOperators {
 public:
  const Operator& of(std::string_view name) {
    const std::lock_guard lock(mutex_);
    auto found = operators_.find(name);
    if (found == operators_.end()) {
      found = operators_.emplace(name, Operator{}).first;
      found->second.name = found->first.c_str();
    }
    return found->second;
  }

  [[nodiscard]] bool has(const Operator& op) {
    const std::lock_guard lock(mutex_);
    const auto found = operators_.find(std::string_view(op.name));
    return found != operators_.end() && &found->second == &op;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Operator, std::less<>> operators_;  // whose nodes stay where they are
};

OpaqueOperators& opaque_operators() {
  static OpaqueOperators operators;
  return operators;
}

constexpr Operator kOpaqueBackward{"OpaqueBackward"};

void opaque_backward(BackwardCall& call) {
  for (int i = 0; i < call.node.edge_count; ++i) {
    if (!call.needs(i)) continue;
    const Tensor& input = call.saved(i);
    call.set(i, call.tape.empty(input.shape(), input.dtype(), kOpaqueBackward));
  }
}

}  // namespace

bool changes_in_place(std::string_view name) {
  return name == "__setitem__" || (name.ends_with('_') && !name.ends_with("__"));
}

bool is_opaque(const Operator& op) { return opaque_operators().has(op); }

const OperatorRow* find_operator(std::string_view name) {
  static const auto kTable = [] {
    std::unordered_map<std::string_view, const OperatorRow*> table;
    for_each_row([&](const OperatorRow& row) { table.emplace(row.name, &row); });
    return table;
  }();
  const auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

std::vector<std::string_view> operator_names() {
  std::vector<std::string_view> names;
  for_each_row([&](const OperatorRow& row) { names.push_back(row.name); });
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

void OperatorRow::run(RecordedCall& call) const {
  if (call.given_count() == 0 && !changes_in_place(name)) return rule(call);
  try {
    rule(call);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported || !call.was_refused()) throw;
    call.tape.autograd.abandon_pending_node();
    call.results.clear();
    opaque_row(call);
  }
}

void opaque_row(RecordedCall& call) {
  const std::vector<Tensor> inputs = call.all_tensors();
  std::vector<const Tensor*> differentiated;
  for (const Tensor& each : inputs) {
    if (each.requires_grad()) differentiated.push_back(&each);
  }
  const bool in_place = changes_in_place(call.name()) && !inputs.empty();
  const auto has_gradient = [](DType dtype) { return is_floating(dtype) || dtype == DType::kComplex64; };
  bool differentiates = in_place;
  for (std::size_t i = 0; i < call.given_count(); ++i) differentiates |= has_gradient(call.given(i).dtype);
  if (!differentiates) differentiated.clear();
  // A node has no more edges: of more tensors the last ones get no gradient here.
  if (std::ssize(differentiated) > kMaxEdges) differentiated.resize(kMaxEdges);
  if (call.given_count() > kMaxOutputs) call.refuse("so many tensors");
  const Operator& op = opaque_operators().of(call.name());
  Node* node = call.tape.autograd.record(kOpaqueBackward, opaque_backward, differentiated.data(),
                                         static_cast<int>(differentiated.size()));
  if (node != nullptr) {
    for (const Tensor* each : differentiated) call.tape.autograd.save(*node, *each);
  }
  double bytes = 0;
  for (const Tensor& each : inputs) bytes += static_cast<double>(each.bytes());
  for (std::size_t i = 0; !in_place && i < call.given_count(); ++i) {
    const GivenResult& given = call.given(i);
    Tensor result = call.tape.empty(given.shape, given.dtype, op);
    bytes += static_cast<double>(result.bytes());
    if (has_gradient(given.dtype)) call.tape.autograd.set_history(node, result);
    call.returns(std::move(result));
  }
  call.tape.kernels.add(op, OperatorClass::kElementwise, DType::kFloat32, 0, bytes);
  if (!in_place) return;
  // In place: the first argument on its storage, with what it has become.
  const Tensor& changed = inputs.front();
  Tensor result = call.tape.detach(changed);
  if (node != nullptr) call.tape.autograd.set_history(node, result);
  if (call.name() == "__setitem__") return call.replace(changed, result);
  call.returns(std::move(result));
}

}  // namespace memcalc
