// torch.utils.checkpoint, non-reentrant (torch/utils/checkpoint.py): inside the region autograd saves numbers
// instead of tensors. The first unpack in a backward call runs the region again, stops at the last tensor that was
// saved (early stop), and hands each tensor out once. A selective region keeps the outputs of some operators
// (create_selective_checkpoint_contexts) and does not run those again.
// MIRRORS(torch, "utils/checkpoint.py", "2.11.0")
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "memcalc/symbolic/tape.h"

namespace memcalc {

using KeptTensors = std::vector<Tensor>;

/// What is computed again in backward.
enum class Recomputes : std::uint8_t { kAll, kSelected };

/// The operators that a selective region may keep: torchtitan's list (its activation_checkpoint.py). Of the products
/// every second is computed again.
enum class ListedOperator : std::uint8_t { kMm, kFusedAttention };
inline constexpr std::size_t kListedOperators = 2;

class CheckpointFrame {
 public:
  using Region = std::function<Tensor(const KeptTensors&)>;

  /// The first `positional_count` of `kept` are positional arguments, which die after the keyword arguments.
  CheckpointFrame(KeptTensors kept, std::size_t positional_count, Region region, Recomputes recomputes)
      : kept_(std::move(kept)),
        positional_count_(positional_count),
        region_(std::move(region)),
        recomputes_(recomputes) {}
  ~CheckpointFrame();
  CheckpointFrame(const CheckpointFrame&) = delete;
  CheckpointFrame& operator=(const CheckpointFrame&) = delete;

  /// Runs the region for the first time.
  [[nodiscard]] Tensor run();
  /// Numbers a tensor that autograd wants to save (forward), or keeps it (recomputation).
  void pack(const Tensor& tensor, SavedTensor& saved);
  [[nodiscard]] Tensor unpack(SavedTensor& saved);
  /// The node that saved this tensor has died: recomputation will not keep it (checkpoint.py, weak_holders), nor does
  /// what one kept for it live on.
  void forget(std::int32_t slot);

  /// The policy's answer for the next call of a listed operator.
  [[nodiscard]] bool keeps_output(ListedOperator op);
  [[nodiscard]] bool recomputing() const { return recomputing_; }
  [[nodiscard]] Recomputes recomputes() const { return recomputes_; }
  /// Keeps an output in the first run; hands the outputs out again, in order, in the second.
  void store(ListedOperator op, const Tensor& output);
  [[nodiscard]] Tensor recall(ListedOperator op);

 private:
  friend class FrameHandle;

  struct Stored {
    std::vector<Tensor> outputs;
    std::size_t next = 0;
  };

  /// Each call of backward recomputes for itself (checkpoint.py, by graph task), and what it did not ask for stays.
  struct Recomputation {
    std::int64_t backward = 0;  // Autograd::call()
    std::vector<Tensor> tensors;
  };

  void recompute(Tape& tape);

  std::int32_t references_ = 0;

  KeptTensors kept_;
  std::size_t positional_count_;
  Region region_;
  std::optional<DType> autocast_;
  std::vector<bool> wanted_;  // of what forward saved: a node that could ask for it is still there
  bool recomputing_ = false;
  bool arguments_on_host_ = false;
  std::vector<Recomputation> recomputed_;
  Recomputes recomputes_;
  std::int64_t products_ = 0;  // of this run of the region
  std::array<Stored, kListedOperators> stored_;
};

/// Thrown through the region's second forward when its last needed tensor has been made.
struct StopRecomputation {};

/// use_reentrant=True: what the node in a region's place needs to run it again.
struct ReentrantRegion {
  CheckpointFrame::Region run;
  std::vector<bool> given;  // of the positional arguments: the others are None
  KeptTensors keywords;
  std::optional<DType> autocast;
};

[[nodiscard]] Tensor run_checkpointed_reentrant(const KeptTensors& kept, std::size_t positional_count,
                                                CheckpointFrame::Region region);

/// Unsloth's checkpoints (unsloth_zoo gradient_checkpointing.py, UnslothCheckpointFunction): reentrant; an input of
/// more than 2 MiB waits in host memory, but for that of the last layer from the second pass on.
[[nodiscard]] Tensor run_checkpointed_by_unsloth(const Tensor& input, CheckpointFrame::Region region);

[[nodiscard]] Tensor run_checkpointed(KeptTensors kept, std::size_t positional_count, CheckpointFrame::Region region,
                                      Recomputes recomputes = Recomputes::kAll);

[[nodiscard]] inline bool in_selective_region(const Tape& tape) {
  return tape.modes.checkpoint && tape.modes.checkpoint->recomputes() == Recomputes::kSelected;
}

/// The outputs of a listed operator's kernel: of its first run, where a selective region around it has kept them.
template <std::size_t kCount, typename Kernel>
[[nodiscard]] std::array<Tensor, kCount> run_or_recall(Tape& tape, ListedOperator op, Kernel kernel) {
  if (!tape.modes.checkpoint || !tape.modes.checkpoint->keeps_output(op)) return kernel();
  const FrameHandle frame = tape.modes.checkpoint;
  std::array<Tensor, kCount> outputs;
  if (frame->recomputing()) {
    for (Tensor& output : outputs) output = frame->recall(op);
    return outputs;
  }
  outputs = kernel();
  for (const Tensor& output : outputs) frame->store(op, output);
  return outputs;
}

}  // namespace memcalc
