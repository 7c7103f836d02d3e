// What a backward function asks to find its saved tensors.
#pragma once

#include <cstddef>

#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// Whether an input needed a gradient when the node was recorded, which decides what was saved. BackwardCall::needs()
/// is narrower: whether this backward pass wants that gradient (split_backward.cc).
[[nodiscard]] inline bool was_recorded(const BackwardCall& call, int input) {
  return call.node.edges[static_cast<std::size_t>(input)].node != kNoNode;
}

}  // namespace memcalc
