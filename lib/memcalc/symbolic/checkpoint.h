// torch.utils.checkpoint, non-reentrant (torch/utils/checkpoint.py): inside the region autograd saves numbers
// instead of tensors. The first unpack in backward runs the region again, stops at the last tensor that was saved
// (early stop), and hands each tensor out once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "memcalc/symbolic/tape.h"

namespace memcalc {

class CheckpointFrame : public std::enable_shared_from_this<CheckpointFrame> {
 public:
  /// `recompute` runs the region on the same inputs; its result is thrown away.
  explicit CheckpointFrame(std::function<void(Tape&)> recompute) : recompute_(std::move(recompute)) {}

  /// Numbers a tensor that autograd wants to save (forward), or keeps it (recomputation). True: taken care of.
  [[nodiscard]] bool pack(const Tensor& tensor, SavedTensor& saved);
  [[nodiscard]] Tensor unpack(Tape& tape, SavedTensor& saved);

 private:
  std::function<void(Tape&)> recompute_;
  std::int32_t saved_in_forward_ = 0;
  bool recomputing_ = false;
  std::int32_t recomputed_count_ = 0;
  bool done_ = false;
  std::vector<Tensor> recomputed_;
};

/// Numbers what autograd saves from here to the end of the scope.
class CheckpointScope {
 public:
  CheckpointScope(Tape& tape, std::shared_ptr<CheckpointFrame> frame)
      : tape_(tape), outer_(std::exchange(tape.checkpoint, std::move(frame))) {}
  ~CheckpointScope() { tape_.checkpoint = std::move(outer_); }
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  Tape& tape_;
  std::shared_ptr<CheckpointFrame> outer_;
};

/// Thrown through the region's second forward when its last needed tensor has been made.
struct StopRecomputation {};

}  // namespace memcalc
