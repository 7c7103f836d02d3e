// nn.LSTM, nn.GRU and nn.RNN as cuDNN computes them: torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu.
#pragma once

#include <span>
#include <vector>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

enum class RecurrentCell : std::uint8_t { kLstm, kGru, kPlain };

struct RecurrentOptions {
  RecurrentCell cell = RecurrentCell::kLstm;
  bool has_biases = true;
  std::int64_t layers = 1;
  double dropout = 0;  // between layers
  bool bidirectional = false;
  bool batch_first = false;
};

/// Output [T, N, H · directions] (or [N, T, …]), the last hidden state and, of an LSTM, the last cell state. `weights`:
/// of each layer and direction W_ih, W_hh and, with biases, b_ih, b_hh: views of one storage
/// (nn.RNNBase.flatten_parameters). float16 under autocast, whatever its type.
[[nodiscard]] std::vector<Tensor> recurrent(const Tensor& x, std::span<const Tensor> states,
                                            std::span<const Tensor> weights, const RecurrentOptions& options);

/// nn.RNNBase.flatten_parameters: one storage takes the place of theirs, unless they are bfloat16, which
/// torch.backends.cudnn does not take for its own: then each call makes one. Leaves `weights` empty.
void flatten_parameters(Tape& tape, RecurrentCell cell, std::vector<Tensor>& weights);

}  // namespace memcalc
