#include "memcalc/symbolic/memory.h"

#include <algorithm>
#include <utility>

#include "memcalc/base/error.h"

namespace memcalc {

namespace {
constexpr Operator kCublasWorkspace{"cublas_workspace"};
constexpr Operator kCublasLtWorkspace{"cublaslt_workspace"};

/// For good.
void take_workspace(Memory& memory, Bytes bytes, const Operator& op) {
  if (bytes > 0) (void)memory.allocate(bytes, op, Category::kWorkspaces);
}
}  // namespace

Memory::Memory(const CublasWorkspaces& workspaces, const Moment& moment) : workspaces_(workspaces), moment_(moment) {
  constexpr std::size_t kUsualEvents = 16384;  // a step of a 7B model has about half as many
  trace.events.reserve(kUsualEvents);
  trace.blocks.reserve(kUsualEvents / 2);
  owners_.reserve(kUsualEvents / 2);
}

void Memory::add_event(EventKind kind, BlockId block, const Operator* op, const Operator* node) {
  trace.events.push_back({op, node, block, kind, moment_.phase, static_cast<std::int16_t>(moment_.step)});
}

BlockId Memory::new_block(Block block) {
  const auto id = static_cast<BlockId>(trace.blocks.size());
  trace.blocks.push_back(block);
  const auto known = static_cast<std::size_t>(id);
  if (owners_.size() != known) owners_.resize(known, 1);  // a schedule may have copied blocks into the trace
  owners_.push_back(1);
  return id;
}

BlockId Memory::allocate(Bytes bytes, const Operator& op, Category category) {
  return on_meta_device_ ? kNoBlock : request(bytes, op, category);
}

BlockId Memory::request(Bytes bytes, const Operator& op, Category category) {
  const BlockId block = new_block({bytes, category, moment_.stream});
  if (meter_ == nullptr) add_event(EventKind::kAllocate, block, &op, moment_.node);
  return block;
}

BlockId Memory::placeholder() { return new_block({}); }

void Memory::free(BlockId block) {
  if (stopped_ || meter_ != nullptr) return;
  add_event(EventKind::kFree, block, nullptr, moment_.node);
}

void Memory::set_category(BlockId block, Category category) {
  if (block != kNoBlock) trace.blocks[static_cast<std::size_t>(block)].category = category;
}

void Memory::mark_saved(BlockId block) {
  if (block == kNoBlock) return;
  Category& category = trace.blocks[static_cast<std::size_t>(block)].category;
  if (category == Category::kTemporaries) category = Category::kActivations;
}

void Memory::record_stream(BlockId block) {
  if (block != kNoBlock) trace.blocks[static_cast<std::size_t>(block)].waits_for_streams = true;
}

void Memory::streams_done(BlockId block) { add_event(EventKind::kReturn, block, nullptr, moment_.node); }

BlockId Memory::resizable_storage() {
  const BlockId storage = placeholder();
  hold(storage);  // the storage itself is never dropped, only emptied
  storages_.emplace_back(storage, kNoBlock);
  return storage;
}

BlockId& Memory::block_of(BlockId storage) {
  // Storages are numbered upwards, so the list is sorted.
  const auto found = std::lower_bound(storages_.begin(), storages_.end(), storage,
                                      [](const auto& each, BlockId wanted) { return each.first < wanted; });
  if (found == storages_.end() || found->first != storage) {
    throw Error(ErrorCode::kInternal, "a storage that cannot be resized");
  }
  return found->second;
}

void Memory::fill_storage(BlockId storage, Bytes bytes, const Operator& op, Category category) {
  block_of(storage) = request(bytes, op, category);
}

BlockId Memory::empty_storage(BlockId storage) {
  const BlockId block = std::exchange(block_of(storage), kNoBlock);
  if (block == kNoBlock) throw Error(ErrorCode::kInternal, "a storage is emptied twice");
  release(block);
  return block;
}

void Memory::scratch(Bytes bytes, const Operator& op, Category category) {
  if (bytes <= 0) return;
  if (meter_ != nullptr) return meter_->scratch(bytes);
  if (const BlockId block = allocate(bytes, op, category); block != kNoBlock) release(block);
}

void Memory::use_cublas(bool with_lt) {
  if (meter_ != nullptr) return;
  const std::size_t thread = moment_.phase == Phase::kBackward ? 1 : 0;
  if (!std::exchange(cublas_used_[thread], true)) take_workspace(*this, workspaces_.cublas, kCublasWorkspace);
  if (with_lt && !std::exchange(cublaslt_used_[thread], true)) {
    take_workspace(*this, workspaces_.cublaslt, kCublasLtWorkspace);
  }
}

// CublasHandlePool.cpp: each stream on which a handle works has a workspace of its own.
void Memory::use_cublas_on_stream() { take_workspace(*this, workspaces_.cublas, kCublasWorkspace); }

// aten/src/ATen/cuda/detail/DeviceThreadHandles.h: a pool of handles, to which a thread that ends gives its own back.
void Memory::forward_thread_ended() {
  cublas_used_ = {false, cublas_used_[0]};
  cublaslt_used_ = {false, cublaslt_used_[0]};
}

void Memory::empty_cache() { add_event(EventKind::kEmptyCache, kNoBlock, nullptr, nullptr); }

void Memory::count_host_copy(Bytes bytes) {
  ++host_copies.count;
  host_copies.bytes = checked_add(host_copies.bytes, bytes);
  // CachingHostAllocator.h: blocks are powers of two.
  host_copies.pinned_bytes = checked_add(host_copies.pinned_bytes, power_of_two_from(bytes));
}

}  // namespace memcalc
