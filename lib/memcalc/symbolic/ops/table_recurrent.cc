// Rows of the operator table that run over the steps of a sequence.
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/recurrent.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {
namespace {

/// torch.lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
template <RecurrentCell cell>
void recurrent_row(RecordedCall& call) {
  if (call.slot(2).kind != BoundArgument::Kind::kList) call.refuse("packed sequences");
  if (call.tensor(0).rank() != 3) call.refuse("an input without samples");
  std::vector<Tensor> states;
  if (call.slot(1).kind == BoundArgument::Kind::kList) {
    states = call.tensors(1);
  } else {
    states.push_back(call.tensor(1));
  }
  const RecurrentOptions options{.cell = cell,
                                 .has_biases = call.boolean_or(3, true),
                                 .layers = call.integer_or(4, 1),
                                 .dropout = call.tape.modes.training ? call.number_or(5, 0) : 0,
                                 .bidirectional = call.boolean_or(7, false),
                                 .batch_first = call.boolean_or(8, false)};
  for (Tensor& result : recurrent(call.tensor(0), states, call.tensors(2), options)) call.returns(std::move(result));
}

constexpr char kSignature[] = "input hx params has_biases num_layers dropout train bidirectional batch_first";

constexpr OperatorRow kRows[] = {
    {"lstm", kSignature, recurrent_row<RecurrentCell::kLstm>},
    {"gru", kSignature, recurrent_row<RecurrentCell::kGru>},
    {"rnn_tanh", kSignature, recurrent_row<RecurrentCell::kPlain>},
    {"rnn_relu", kSignature, recurrent_row<RecurrentCell::kPlain>},
};

}  // namespace

std::span<const OperatorRow> recurrent_rows() { return kRows; }

}  // namespace memcalc
