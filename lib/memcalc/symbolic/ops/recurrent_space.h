// What cuDNN asks for beside the results of a recurrent network: cudnnGetRNNTempSpaceSizes.
#pragma once

#include "memcalc/base/bytes.h"
#include "memcalc/base/dtype.h"
#include "memcalc/symbolic/ops/recurrent.h"

namespace memcalc {

/// A recurrent network over samples of equal length, as cuDNN sees it.
struct RecurrentShape {
  RecurrentCell cell = RecurrentCell::kLstm;
  DType dtype = DType::kFloat32;
  std::int64_t steps = 1, batch = 1, inputs = 1, hidden = 1, layers = 1;
  bool bidirectional = false, dropout = false;
  std::int64_t projected = 0;  // the width of an LSTM's states where they are projected (proj_size)

  [[nodiscard]] std::int64_t state_width() const { return projected > 0 ? projected : hidden; }
};

enum class RecurrentPass : std::uint8_t { kInference, kForward, kBackward };

/// While the pass runs. Of 784 random networks on an H100 (cuDNN 9.19, tests/measured/recurrent_h100.jsonl.gz) the
/// sizes are exact in one layer and in both directions; in several layers of one direction 15 % of them are a few
/// percent off: into how many pieces cuDNN cuts the steps is not known there. Projected ones: eight more on an H200
/// (operator_streams_h200.jsonl.gz), all exact.
[[nodiscard]] Bytes recurrent_workspace(const RecurrentShape& shape, RecurrentPass pass);

/// From forward to backward; exact in all of them.
[[nodiscard]] Bytes recurrent_reserve(const RecurrentShape& shape);

}  // namespace memcalc
