// Memory: the blocks that a run asks for, who still holds each, and the trace of its requests. It knows neither
// tensors' shapes nor autograd. Covered by tests/unit/memory_test.cc.
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/symbolic/cublas_workspaces.h"
#include "memcalc/symbolic/host_copies.h"
#include "memcalc/symbolic/moment.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// Is told of scratch memory while requests are no events.
class ScratchMeter {
 public:
  virtual ~ScratchMeter() = default;
  virtual void scratch(Bytes bytes) = 0;
};

class Memory {
 public:
  /// Pre: the moment outlives it.
  Memory(const CublasWorkspaces& workspaces, const Moment& moment);

  // --- blocks and who holds them
  /// A new block with one owner, requested by `op`; none on the meta device. Pre: bytes > 0.
  [[nodiscard]] BlockId allocate(Bytes bytes, const Operator& op, Category category = Category::kTemporaries);
  /// Stands for a block of an earlier step: only its free is an event.
  [[nodiscard]] BlockId placeholder();
  /// One owner more.
  void hold(BlockId block) { ++owners_[static_cast<std::size_t>(block)]; }
  /// One owner less; the last one frees it.
  void release(BlockId block) {
    if (--owners_[static_cast<std::size_t>(block)] == 0) free(block);
  }
  [[nodiscard]] bool is_held(BlockId block) const { return owners_[static_cast<std::size_t>(block)] > 0; }
  [[nodiscard]] bool has_one_owner(BlockId block) const { return owners_[static_cast<std::size_t>(block)] == 1; }
  /// Nothing where there is no block: a tensor without elements.
  void set_category(BlockId block, Category category);
  /// A temporary that is saved for backward counts as an activation from then on.
  void mark_saved(BlockId block);

  // --- streams
  /// Tensor.record_stream: once freed, the block is not handed out again before streams_done().
  void record_stream(BlockId block);
  /// The other streams are done with a block that waited for them. Pre: it is free.
  void streams_done(BlockId block);

  // --- storages that are freed and allocated again under the tensors that share them (untyped_storage().resize_)
  /// An empty one: a block that is never requested itself. It has one owner, beside the storage.
  [[nodiscard]] BlockId resizable_storage();
  /// Pre: empty.
  void fill_storage(BlockId storage, Bytes bytes, const Operator& op, Category category);
  /// Pre: filled. The block that was freed.
  BlockId empty_storage(BlockId storage);

  // --- what is no tensor
  /// Memory that an operator holds for a moment: requested and returned at once.
  void scratch(Bytes bytes, const Operator& op, Category category = Category::kTemporaries);
  /// The workspaces that cuBLAS, and cuBLASLt where it fuses the bias, take at a thread's first call.
  void use_cublas(bool with_lt);
  /// That of another stream on which the thread's handle works.
  void use_cublas_on_stream();
  /// The thread that ran forward is gone: autograd's takes its handle over, the next forward's makes another.
  void forward_thread_ended();
  /// torch.cuda.empty_cache()
  void empty_cache();
  /// A tensor of `bytes` is copied to pinned host memory.
  void count_host_copy(Bytes bytes);

  /// Ends the run: what dies from now on is no event.
  void stop() { stopped_ = true; }
  [[nodiscard]] bool is_stopped() const { return stopped_; }

  Trace trace;
  HostCopies host_copies;   // of this forward pass
  Bytes managed_bytes = 0;  // taken with cudaMallocManaged: no event of the allocator

 private:
  friend class OnMetaDevice;
  friend class UnrecordedRequests;

  [[nodiscard]] BlockId request(Bytes bytes, const Operator& op, Category category);
  [[nodiscard]] BlockId new_block(Block block);
  void free(BlockId block);
  void add_event(EventKind kind, BlockId block, const Operator* op, const Operator* node);
  [[nodiscard]] BlockId& block_of(BlockId storage);

  const CublasWorkspaces workspaces_;
  const Moment& moment_;
  std::vector<std::int32_t> owners_;                   // by block
  std::vector<std::pair<BlockId, BlockId>> storages_;  // resizable ones, upwards, and the block that fills each
  // By thread: forward's, autograd's. Handles, and so workspaces, belong to threads.
  std::array<bool, 2> cublas_used_{}, cublaslt_used_{};
  ScratchMeter* meter_ = nullptr;  // set: requests are no events
  bool on_meta_device_ = false;
  bool stopped_ = false;
};

/// with torch.device("meta"): tensors that are made get no storage, as where from_pretrained builds a model, or lie on
/// the host. `there`: else on the card.
class OnMetaDevice {
 public:
  explicit OnMetaDevice(Memory& memory, bool there = true)
      : memory_(memory), before_(std::exchange(memory.on_meta_device_, there)) {}
  ~OnMetaDevice() { memory_.on_meta_device_ = before_; }
  OnMetaDevice(const OnMetaDevice&) = delete;
  OnMetaDevice& operator=(const OnMetaDevice&) = delete;

 private:
  Memory& memory_;
  bool before_;
};

/// Until the scope ends, requests for memory are no events; `meter` is told of scratch memory.
class UnrecordedRequests {
 public:
  UnrecordedRequests(Memory& memory, ScratchMeter& meter)
      : memory_(memory), before_(std::exchange(memory.meter_, &meter)) {}
  ~UnrecordedRequests() { memory_.meter_ = before_; }
  UnrecordedRequests(const UnrecordedRequests&) = delete;
  UnrecordedRequests& operator=(const UnrecordedRequests&) = delete;

 private:
  Memory& memory_;
  ScratchMeter* before_;
};

}  // namespace memcalc
