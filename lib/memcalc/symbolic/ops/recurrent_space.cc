// MIRRORS(torch, "aten/src/ATen/native/cudnn/RNN.cpp", "2.11.0")
#include "memcalc/symbolic/ops/recurrent_space.h"

#include <algorithm>
#include <array>

namespace memcalc {

namespace {

/// In hidden states of one direction: for each step, and beside these for each layer.
struct States {
  std::int64_t of_step, of_layer;
};
using ByDirections = std::array<States, 2>;  // of one and of both

/// Of RecurrentCell. The gates of each step stand for themselves where the kernels are not those of small states.
constexpr ByDirections kForward[] = {{{{1, 10}, {14, 24}}}, {{{1, 5}, {12, 14}}}, {{{1, 3}, {8, 10}}}};
constexpr ByDirections kBackward[] = {{{{3, 11}, {6, 26}}}, {{{3, 5}, {6, 14}}}, {{{3, 5}, {6, 14}}}};
constexpr ByDirections kSmallForward[] = {{{{21, 8}, {30, 18}}}, {{{16, 4}, {24, 10}}}, {{{6, 4}, {12, 10}}}};
constexpr ByDirections kSmallBackward[] = {{{{15, 12}, {18, 26}}}, {{{17, 6}, {20, 14}}}, {{{12, 6}, {15, 14}}}};

std::int64_t gates_of(RecurrentCell cell) {
  return cell == RecurrentCell::kLstm ? 4 : cell == RecurrentCell::kGru ? 3 : 1;
}

/// With a projection no kernel is that of small states, and beside each layer's states are such as are projected.
struct Projected {
  States states;
  std::int64_t of_step, of_layer;  // in projected states
};
constexpr std::array<Projected, 2> kProjectedForward{{{{1, 8}, 1, 2}, {{14, 24}, 0, 0}}};
constexpr std::array<Projected, 2> kProjectedBackward{{{{3, 8}, 0, 2}, {{4, 18}, 4, 8}}};

/// RNN.cpp, use_rnn_persist_small_h. In bfloat16 cuDNN takes the standard kernels all the same.
bool has_small_state(const RecurrentShape& s, bool backward) {
  if (s.dtype == DType::kBFloat16 || s.projected > 0) return false;
  const bool plain = s.cell == RecurrentCell::kPlain;
  return s.hidden <= (backward ? (plain ? 256 : 128) : (plain ? 384 : 192));
}

/// Steps whose gradients are held at a time where several layers of one direction run beside each other.
std::int64_t steps_of_piece(const RecurrentShape& s) {
  const std::int64_t steps = s.batch == 1     ? 32 * (s.layers + 1)
                             : s.batch <= 8   ? 16 * (s.layers + 1)
                             : s.steps >= 128 ? 8 * (s.layers + 1)
                                              : 4 * (s.layers + 2);
  return std::min(s.steps, steps);
}

std::int64_t matrix_elements(const RecurrentShape& s) {
  const std::int64_t directions = s.bidirectional ? 2 : 1;
  const std::int64_t columns = s.inputs + s.state_width() + (s.layers - 1) * (directions + 1) * s.state_width();
  const std::int64_t gates = checked_multiply(directions * gates_of(s.cell) * s.hidden, columns);
  return checked_add(gates, checked_multiply(s.layers * directions, s.hidden * s.projected));
}

Bytes aligned(Bytes bytes) { return ceil_div(bytes, Bytes{32}) * 32; }

}  // namespace

Bytes recurrent_workspace(const RecurrentShape& s, RecurrentPass pass) {
  const auto cell = static_cast<std::size_t>(s.cell);
  const std::size_t both = s.bidirectional ? 1 : 0;
  const std::int64_t directions = s.bidirectional ? 2 : 1;
  const Bytes element = size_of(s.dtype);
  const Bytes state = checked_multiply(s.batch * s.hidden, element);
  const Bytes input = checked_multiply(checked_multiply(s.steps, s.batch * s.inputs), element);
  const auto states = [&](std::int64_t number) { return checked_multiply(state, number); };
  const auto projected = [&](const Projected& of) {
    return checked_multiply(s.batch * s.projected * element, of.of_step * s.steps + of.of_layer * s.layers);
  };

  const bool small = has_small_state(s, pass == RecurrentPass::kBackward);
  const bool projects = s.projected > 0;
  const States forward = projects ? kProjectedForward[both].states : (small ? kSmallForward : kForward)[cell][both];
  std::int64_t number = forward.of_step * s.steps + forward.of_layer * s.layers;
  if (!small && !s.bidirectional) number += gates_of(s.cell) * std::min<std::int64_t>(s.steps, 256);
  if (s.dropout && !s.bidirectional && pass != RecurrentPass::kInference) number += s.steps;
  Bytes most = checked_add(checked_add(states(number), projected(kProjectedForward[both])), input);
  if (pass != RecurrentPass::kInference) {  // forward asks for what backward takes, too
    const States backward =
        projects ? kProjectedBackward[both].states : (small ? kSmallBackward : kBackward)[cell][both];
    number = backward.of_step * s.steps + backward.of_layer * s.layers;
    if (s.layers > 1) {
      const bool in_pieces = !small && !s.bidirectional;
      number += in_pieces ? steps_of_piece(s) - s.steps : directions * s.steps;
    }
    const Bytes wider = checked_multiply(s.bidirectional ? 4 : 1, std::max(input, states(s.steps)));
    const Bytes held = checked_add(states(number), projected(kProjectedBackward[both]));
    most = std::max(most, checked_add(checked_add(held, checked_multiply(2, input)), wider));
  }
  constexpr Bytes kOfEachStream = Bytes{8} << 20, kHead = 256;  // cuBLAS's, for each layer and direction
  const Bytes streams = checked_multiply(kOfEachStream, s.layers * directions);
  const Bytes weights = checked_multiply(matrix_elements(s), element);
  return checked_add(checked_add(streams, weights), checked_add(most, kHead + aligned(8 * s.batch)));
}

Bytes recurrent_reserve(const RecurrentShape& s) {
  const std::int64_t directions = s.bidirectional ? 2 : 1;
  const std::int64_t rows = checked_multiply(s.steps * directions, s.batch);
  const std::int64_t outputs = checked_multiply(rows, s.state_width());
  const Bytes unit = checked_multiply(checked_multiply(rows, s.hidden), size_of(s.dtype));
  // Of each layer the gates and the cell; of a GRU's the three gates and three more. What the next layer reads. What
  // is projected stands before and behind the projection.
  const std::int64_t kept = s.cell == RecurrentCell::kLstm  ? (s.projected > 0 ? 6 : 5)
                            : s.cell == RecurrentCell::kGru ? 6
                                                            : 1;
  Bytes reserve = aligned(checked_multiply(s.layers * kept, unit));
  if (s.projected > 0) reserve = checked_add(reserve, checked_multiply(s.layers * outputs, size_of(s.dtype)));
  reserve = checked_add(reserve, aligned(checked_multiply(s.layers - 1, unit)));
  if (s.dropout) {  // a bit for each number that may be dropped
    const Bytes mask = aligned(ceil_div(outputs, std::int64_t{8}));
    reserve = checked_add(reserve, checked_multiply((s.layers - 1) * directions, mask));
  }
  constexpr Bytes kHead = 256;
  return checked_add(reserve, kHead);
}

}  // namespace memcalc
