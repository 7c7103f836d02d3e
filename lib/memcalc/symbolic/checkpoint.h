// torch.utils.checkpoint, non-reentrant (torch/utils/checkpoint.py): inside the region autograd saves numbers
// instead of tensors. The first unpack in backward runs the region again, stops at the last tensor that was saved
// (early stop), and hands each tensor out once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "memcalc/symbolic/tape.h"

namespace memcalc {

using KeptTensors = std::vector<Tensor>;

class CheckpointFrame {
 public:
  using Region = std::function<Tensor(const KeptTensors&)>;

  /// The first `positional_count` of `kept` are positional arguments, which die after the keyword arguments.
  CheckpointFrame(KeptTensors kept, std::size_t positional_count, Region region)
      : kept_(std::move(kept)), positional_count_(positional_count), region_(std::move(region)) {}
  ~CheckpointFrame();
  CheckpointFrame(const CheckpointFrame&) = delete;
  CheckpointFrame& operator=(const CheckpointFrame&) = delete;

  /// Runs the region for the first time.
  [[nodiscard]] Tensor run();
  /// Numbers a tensor that autograd wants to save (forward), or keeps it (recomputation).
  void pack(const Tensor& tensor, SavedTensor& saved);
  [[nodiscard]] Tensor unpack(SavedTensor& saved);
  /// The node that saved this tensor has died: recomputation will not keep it (checkpoint.py, weak_holders).
  void forget(std::int32_t slot) { wanted_[static_cast<std::size_t>(slot)] = false; }

 private:
  friend class FrameHandle;

  void recompute(Tape& tape);

  std::int32_t references_ = 0;

  KeptTensors kept_;
  std::size_t positional_count_;
  Region region_;
  std::optional<DType> autocast_;
  std::vector<bool> wanted_;  // of what forward saved: a node that could ask for it is still there
  bool recomputing_ = false;
  std::vector<Tensor> recomputed_;
};

/// Thrown through the region's second forward when its last needed tensor has been made.
struct StopRecomputation {};

/// use_reentrant=True: what the node in a region's place needs to run it again.
struct ReentrantRegion {
  CheckpointFrame::Region run;
  KeptTensors keywords;  // and positional arguments that were not given
  std::optional<DType> autocast;
};

[[nodiscard]] Tensor run_checkpointed_reentrant(const KeptTensors& kept, std::size_t positional_count,
                                                CheckpointFrame::Region region);

[[nodiscard]] Tensor run_checkpointed(KeptTensors kept, std::size_t positional_count, CheckpointFrame::Region region);

}  // namespace memcalc
