#include "memcalc/symbolic/checkpoint.h"

#include "memcalc/symbolic/host_work.h"

namespace memcalc {

FrameHandle::FrameHandle(CheckpointFrame* frame) : frame_(frame) {
  if (frame_ != nullptr) ++frame_->references_;
}

void FrameHandle::release() {
  if (--frame_->references_ == 0) delete frame_;
}

void SavedTensor::forget() {
  frame->forget(slot);
  frame = FrameHandle();
}

CheckpointFrame::~CheckpointFrame() {
  for (std::size_t i = positional_count_; i < kept_.size(); ++i) kept_[i].reset();
  for (std::size_t i = 0; i < positional_count_; ++i) kept_[i].reset();
}

bool CheckpointFrame::keeps_output(ListedOperator op) {
  if (recomputes_ == Recomputes::kAll) return false;
  return op != ListedOperator::kMm || ++products_ % 2 != 0;
}

void CheckpointFrame::store(ListedOperator op, const Tensor& output) {
  std::vector<Tensor>& outputs = stored_[static_cast<std::size_t>(op)].outputs;
  if (!output.defined()) return outputs.emplace_back(), void();
  outputs.push_back(output.tape().detach(output));
  output.tape().memory.mark_saved(output.block());
}

Tensor CheckpointFrame::recall(ListedOperator op) {
  Stored& stored = stored_[static_cast<std::size_t>(op)];
  return std::move(stored.outputs[stored.next++]);
}

Tensor CheckpointFrame::run() {
  Tape& tape = kept_.front().tape();
  autocast_ = tape.modes.autocast.dtype;
  arguments_on_host_ = tape.modes.offload_saved;  // _NoopSaveInputs: positional arguments are saved as autograd saves
  KeptTensors arguments;
  for (std::size_t i = 0; arguments_on_host_ && i < kept_.size(); ++i) {
    arguments.push_back(kept_[i]);
    if (i < positional_count_ && kept_[i].defined()) kept_[i] = tape.to_host(kept_[i]);
  }
  const Scoped in_frame(tape.modes.checkpoint, FrameHandle(this));  // numbers what autograd saves
  record_host_work(tape, HostWork::kCheckpointForward);
  Tensor result = region_(arguments_on_host_ ? arguments : kept_);
  record_host_work(tape, HostWork::kPackedTensor, static_cast<std::int64_t>(wanted_.size()));
  return result;
}

void CheckpointFrame::pack(const Tensor& tensor, SavedTensor& saved) {
  if (!recomputing_) {
    saved.frame = FrameHandle(this);
    saved.slot = static_cast<std::int32_t>(wanted_.size());
    wanted_.push_back(true);
    return;
  }
  Tape& tape = tensor.tape();
  std::vector<Tensor>& recomputed = recomputed_.back().tensors;
  recomputed.push_back(wanted_[recomputed.size()] ? tape.detach(tensor) : Tensor());
  saved.tensor = tape.detach(tensor);
  tape.memory.mark_saved(tensor.block());
  if (recomputed.size() == wanted_.size()) {
    // The exception's traceback keeps Python's locals alive until autocast's exit has emptied its cache.
    tape.modes.autocast.clear_cache();
    throw StopRecomputation{};
  }
}

Tensor CheckpointFrame::unpack(SavedTensor& saved) {
  Tape& tape = kept_.front().tape();
  if (recomputed_.empty() || recomputed_.back().backward != tape.autograd.call()) {
    recomputing_ = true;
    recomputed_.push_back({tape.autograd.call(), {}});
    recomputed_.back().tensors.reserve(wanted_.size());
    recompute(tape);
  }
  return std::move(recomputed_.back().tensors[static_cast<std::size_t>(saved.slot)]);
}

void CheckpointFrame::forget(std::int32_t slot) {
  const auto i = static_cast<std::size_t>(slot);
  wanted_[i] = false;
  for (Recomputation& each : recomputed_) {
    if (i < each.tensors.size()) each.tensors[i].reset();
  }
}

void CheckpointFrame::recompute(Tape& tape) {
  const Scoped in_frame(tape.modes.checkpoint, FrameHandle(this));  // numbers what autograd saves
  products_ = 0;
  KeptTensors arguments;
  for (std::size_t i = 0; arguments_on_host_ && i < kept_.size(); ++i) {
    const bool on_host = i < positional_count_ && kept_[i].defined();
    arguments.push_back(on_host ? tape.from_host(kept_[i]) : kept_[i]);
  }
  const EnableGrad enable_grad(tape.modes);
  const Recomputing recomputing(tape.moment);
  // A region of its own. The engine's thread counts no other around it, so that its end empties the weight cache.
  const Autocasting autocasting(tape.modes.autocast, autocast_);
  record_host_work(tape, HostWork::kCheckpointBackward);
  record_host_work(tape, HostWork::kUnpackedTensor, static_cast<std::int64_t>(wanted_.size()));
  try {
    const Tensor result = region_(arguments_on_host_ ? arguments : kept_);
  } catch (const StopRecomputation&) {
    // The usual end: nothing after the last saved tensor is needed.
    tape.autograd.abandon_pending_node();
  }
}

Tensor run_checkpointed(KeptTensors kept, std::size_t positional_count, CheckpointFrame::Region region,
                        Recomputes recomputes) {
  const FrameHandle frame(new CheckpointFrame(std::move(kept), positional_count, std::move(region), recomputes));
  return frame->run();
}

}  // namespace memcalc
