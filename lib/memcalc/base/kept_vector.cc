#include "memcalc/base/kept_vector.h"

#include <algorithm>
#include <array>
#include <bit>
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace memcalc {
namespace {

// Below this the heap gives the same pages again by itself.
constexpr std::size_t kSmallestKept = std::size_t{32} << 10;

// From here on a buffer is asked for in pages of this size, which Linux may give: a long trace has hundreds of
// megabytes, and to fault them in by small pages takes as long as to replay them.
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSmallestHuge = 4 * kHugePage;

void* allocated(std::size_t size) {
  if (size < kSmallestHuge) return ::operator new(size);
  void* memory = ::operator new(size, std::align_val_t(kHugePage));
#ifdef __linux__
  (void)::madvise(memory, size, MADV_HUGEPAGE);
#endif
  return memory;
}

void freed(void* memory, std::size_t size) noexcept {
  if (size < kSmallestHuge) return ::operator delete(memory);
  ::operator delete(memory, std::align_val_t(kHugePage));
}

struct Buffer {
  void* memory = nullptr;
  std::size_t bytes = 0;
};

// Constant-initialised and without a destructor: usable in every order of destruction at the end of a thread.
struct Kept {
  std::array<Buffer, 32> buffers{};
  std::size_t count = 0;
  std::size_t bytes = 0;
  bool closed = false;
};
thread_local Kept kept;

struct FreeAtThreadEnd {
  FreeAtThreadEnd() = default;
  FreeAtThreadEnd(const FreeAtThreadEnd&) = delete;
  FreeAtThreadEnd& operator=(const FreeAtThreadEnd&) = delete;
  ~FreeAtThreadEnd() {
    for (std::size_t i = 0; i < kept.count; ++i) freed(kept.buffers[i].memory, kept.buffers[i].bytes);
    kept.count = 0;
    kept.closed = true;
  }
};

// Buffers of like size serve each other: all have the size of a power of two.
std::size_t whole_size(std::size_t bytes) { return bytes < kSmallestKept ? bytes : std::bit_ceil(bytes); }

}  // namespace

void* take_buffer(std::size_t bytes) {
  const std::size_t size = whole_size(bytes);
  const auto end = kept.buffers.begin() + static_cast<std::ptrdiff_t>(kept.count);
  const auto found =
      std::find_if(kept.buffers.begin(), end, [&](const Buffer& buffer) { return buffer.bytes == size; });
  if (found == end) return allocated(size);
  void* memory = found->memory;
  *found = kept.buffers[--kept.count];
  kept.bytes -= size;
  return memory;
}

void give_buffer(void* buffer, std::size_t bytes) noexcept {
  const std::size_t size = whole_size(bytes);
  if (size < kSmallestKept || size > kMostKeptBytes - std::min(kept.bytes, kMostKeptBytes) ||
      kept.count == kept.buffers.size() || kept.closed) {
    freed(buffer, size);
    return;
  }
  thread_local const FreeAtThreadEnd free_at_thread_end;
  kept.buffers[kept.count++] = {buffer, size};
  kept.bytes += size;
}

}  // namespace memcalc
