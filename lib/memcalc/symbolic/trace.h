// Trace: what a run asks of the memory allocator, in order. The symbolic step writes it; alloc/ replays it.
// It knows nothing of models.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "memcalc/base/bytes.h"
#include "memcalc/base/kept_vector.h"

namespace memcalc {

/// What a block of memory is for. Every block has exactly one; docs/categories.md defines them.
enum class Category : std::uint8_t {
  kWeights,          // parameters and buffers of the module
  kAutocastCopies,   // 16-bit copies of float32 weights while an autocast region or its graph holds them
  kGradients,        // what ends up in .grad
  kOptimizerStates,  // moments, momentum buffers, step counters on the device, loss-scaler scalars
  kActivations,      // saved by autograd for backward
  kTemporaries,      // everything else that an operator or a Python variable holds for a while
  kInputs,           // input ids, masks, labels
  kWorkspaces,       // cuBLAS, cuBLASLt, cuDNN scratch
  kGatheredWeights,  // full parameters that sharding put together for a while
  kCommunication,    // buffers of collectives: gradient buckets, what is gathered, reduced or sent
  kKeyValueCache,    // inference: keys and values of earlier tokens
};
inline constexpr std::size_t kCategoryCount = 11;

/// "weights", "autocast_copies", …: the key in JSON.
[[nodiscard]] std::string_view name_of(Category category);

/// Named as the truth traces name them. Of generation, the prompt's forward pass is kForward, that of every later token
/// kDecode. Where all stages of a job count, kPrepare is what happens between the model's construction and the loop.
enum class Phase : std::uint8_t {
  kBuild,
  kZero,
  kForward,
  kBackward,
  kDelete,
  kOptimizer,
  kDecode,
  kEvaluation,
  kPrepare,
  kMerge,
  kSave,
};
inline constexpr std::size_t kPhaseCount = 11;

/// "build", "zero", "forward", "backward", "del", "optimizer", "decode", "evaluation", "prepare", "merge", "save".
[[nodiscard]] std::string_view name_of(Phase phase);

/// The classes by which FLOPs and time are reported.
enum class OperatorClass : std::uint8_t {
  kContraction,
  kNormalization,
  kElementwise,
  kMovement,
  kOptimizer,
  kCommunication,
};
inline constexpr std::size_t kOperatorClassCount = 6;

[[nodiscard]] std::string_view name_of(OperatorClass operator_class);

/// An operator's identity: one static constant beside the operator's code. Compared by address.
struct Operator {
  const char* name;  // "aten::mm", "MmBackward0"
};

/// The CUDA streams that ask for memory. The allocator never hands a block of one to another.
enum class CudaStream : std::uint8_t {
  kDefault,
  kAllGatherCopyIn,  // FSDP2; of FSDP1 the one on which shards are cast
  kAllGather,        // of FSDP1 the one on which parameters are unsharded
  kReduceScatter,    // of FSDP1 the one of its post-backward
  kAllReduce,
  kPointToPoint,  // pipelines
  kCopy,          // to and from host memory
};
inline constexpr std::size_t kStreamCount = 7;

/// FSDP2 makes its streams (kAllGatherCopyIn to kAllReduce) once for each root; those of the `root`-th of a rank.
[[nodiscard]] constexpr CudaStream stream_of_root(CudaStream stream, std::int64_t root) {
  constexpr std::int64_t kFirst = static_cast<std::int64_t>(CudaStream::kAllGatherCopyIn);
  constexpr std::int64_t kStreamsOfRoot = static_cast<std::int64_t>(CudaStream::kAllReduce) - kFirst + 1;
  if (root == 0) return stream;
  const std::int64_t place = static_cast<std::int64_t>(stream) - kFirst;
  return static_cast<CudaStream>(static_cast<std::int64_t>(kStreamCount) + (root - 1) * kStreamsOfRoot + place);
}

/// vLLM's packed broadcast makes two streams for each update of a server's weights; one of the `update`-th.
[[nodiscard]] constexpr CudaStream stream_of_update(std::int64_t update, std::int64_t buffer) {
  return static_cast<CudaStream>(static_cast<std::int64_t>(kStreamCount) + 2 * update + buffer);
}

/// kReturn: other streams are done with a block that was freed before (Block::waits_for_streams).
enum class EventKind : std::uint8_t { kAllocate, kFree, kEmptyCache, kReturn };

using BlockId = std::int32_t;  // index into Trace::blocks
inline constexpr BlockId kNoBlock = -1;

/// One request.
struct Event {
  const Operator* op = nullptr;    // the innermost operator that asked; null: a Python variable died
  const Operator* node = nullptr;  // the autograd node or optimizer around it; null in forward
  BlockId block = kNoBlock;        // none for kEmptyCache
  EventKind kind = EventKind::kAllocate;
  Phase phase = Phase::kBuild;
  std::int16_t step = -1;  // 0, 1, 2; -1 while the model is built

  /// A block changes hands: the other kinds do not change what is allocated.
  [[nodiscard]] bool moves_block() const { return kind == EventKind::kAllocate || kind == EventKind::kFree; }
};

struct Block {
  Bytes requested = 0;  // what the operator asked for; the allocator rounds
  Category category = Category::kTemporaries;
  CudaStream stream = CudaStream::kDefault;
  /// Tensor.record_stream: once freed it counts as free, but is handed out again only after its kReturn.
  bool waits_for_streams = false;
};

struct Trace {
  KeptVector<Block> blocks;
  KeptVector<Event> events;
};

}  // namespace memcalc
