// What the host and the card hand each other in the middle of a program of Python.
#pragma once

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// Python reads numbers that `op` made: x.item(), x.tolist(), x.cpu(), bool(x). The host waits for the card.
inline void read_on_host(Tape& tape, const Operator& op = aten::kItem) { tape.kernels.synchronize(op); }
inline void read_on_host(const Tensor& x, const Operator& op = aten::kItem) { read_on_host(x.tape(), op); }

/// A tensor of the host, x.to("cuda"): a part of what is trained on.
[[nodiscard]] inline Tensor moved_to_card(Tape& tape, const Shape& shape, DType dtype) {
  return tape.empty(shape, dtype, aten::kToCopy, Category::kInputs);
}

}  // namespace memcalc
