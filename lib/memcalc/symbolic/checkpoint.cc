#include "memcalc/symbolic/checkpoint.h"

namespace memcalc {

bool CheckpointFrame::pack(const Tensor& tensor, SavedTensor& saved) {
  if (!recomputing_) {
    saved.frame = shared_from_this();
    saved.slot = saved_in_forward_++;
    return true;
  }
  Tape& tape = tensor.tape();
  recomputed_.push_back(tape.detach(tensor));
  tape.set_category(tensor, tape.trace.blocks[static_cast<std::size_t>(tensor.impl()->block)].category ==
                                    Category::kTemporaries
                                ? Category::kActivations
                                : tape.trace.blocks[static_cast<std::size_t>(tensor.impl()->block)].category);
  saved.tensor = tape.detach(tensor);
  if (++recomputed_count_ == saved_in_forward_) throw StopRecomputation{};
  return true;
}

Tensor CheckpointFrame::unpack(Tape& tape, SavedTensor& saved) {
  if (!done_) {
    done_ = true;
    recomputing_ = true;
    recomputed_.reserve(static_cast<std::size_t>(saved_in_forward_));
    const CheckpointScope scope(tape, shared_from_this());
    const bool grad_before = std::exchange(tape.grad_enabled, true);
    const bool recomputing_before = std::exchange(tape.recomputing, true);
    try {
      recompute_(tape);
    } catch (const StopRecomputation&) {
      // The usual end: nothing after the last saved tensor is needed.
      tape.abandon_pending_node();
    }
    tape.grad_enabled = grad_before;
    tape.recomputing = recomputing_before;
  }
  return std::move(recomputed_[static_cast<std::size_t>(saved.slot)]);
}

}  // namespace memcalc
