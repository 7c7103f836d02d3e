// Rows of the operator table that normalise by statistics of their input.
#include "memcalc/symbolic/ops/batch_norm.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {
namespace {

void layer_norm_row(RecordedCall& call) {
  const int dims = call.has(1) ? static_cast<int>(call.integers(1).size()) : 1;
  if (!call.has(2) && call.has(3)) call.refuse("a bias and no weight");
  call.returns(layer_norm(call.tensor(0), call.tensor_or_none(2), call.tensor_or_none(3), dims));
}

void rms_norm_row(RecordedCall& call) {
  if (call.integers(1).size() != 1) call.refuse("more than one dimension");
  call.returns(rms_norm(call.tensor(0), call.tensor_or_none(2)));
}

void group_norm_row(RecordedCall& call) {
  if (!call.has(2) && call.has(3)) call.refuse("a bias and no weight");
  call.returns(group_norm(call.tensor(0), call.tensor_or_none(2), call.tensor_or_none(3), call.integer(1)));
}

/// F.batch_norm and F.instance_norm keep running statistics in place, which asks for nothing. A norm that is in eval()
/// within a model that trains uses them.
void batch_norm_row(RecordedCall& call) {
  if (!call.has(3) && call.has(4)) call.refuse("a bias and no weight");
  bool& training = call.tape.modes.training;
  const Scoped of_norm(training, training && call.boolean_or(5, false));
  call.returns(batch_norm(call.tensor(0), call.tensor_or_none(3), call.tensor_or_none(4)));
}

void instance_norm_row(RecordedCall& call) {
  if (!call.has(3) && call.has(4)) call.refuse("a bias and no weight");
  if (call.has(1)) call.refuse("running statistics");
  call.returns(instance_norm(call.tensor(0), call.tensor_or_none(3), call.tensor_or_none(4)));
}

constexpr OperatorRow kRows[] = {
    {"layer_norm", "input normalized_shape weight bias eps cudnn_enable", layer_norm_row},
    {"rms_norm", "input normalized_shape weight eps", rms_norm_row},
    {"group_norm", "input num_groups weight bias eps cudnn_enabled", group_norm_row},
    {"batch_norm", "input running_mean running_var weight bias training momentum eps", batch_norm_row},
    {"instance_norm", "input running_mean running_var weight bias use_input_stats momentum eps", instance_norm_row},
};

}  // namespace

std::span<const OperatorRow> norm_rows() { return kRows; }

}  // namespace memcalc
