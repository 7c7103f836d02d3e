// A std::vector whose large buffers a thread keeps for its next one. An estimate fills a few megabytes of flat arrays
// and drops them; given back to the system they come as fresh pages, and the page faults cost a fifth of the estimate.
// Covered by tests/unit/kept_vector_test.cc.
#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <vector>

namespace memcalc {

/// Raw memory of at least `bytes`, from what this thread kept or else from the heap. Give it back with the same size.
[[nodiscard]] void* take_buffer(std::size_t bytes);
void give_buffer(void* buffer, std::size_t bytes) noexcept;

/// What take_buffer and give_buffer keep for a thread at most; more goes back to the heap.
inline constexpr std::size_t kMostKeptBytes = std::size_t{16} << 20;

template <typename T>
struct KeptAllocator {
  using value_type = T;

  KeptAllocator() = default;
  template <typename U>
  KeptAllocator(const KeptAllocator<U>& /*other*/) {}  // NOLINT(google-explicit-constructor): allocators convert

  [[nodiscard]] T* allocate(std::size_t count) {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(take_buffer(count * sizeof(T)));
  }
  void deallocate(T* buffer, std::size_t count) noexcept { give_buffer(buffer, count * sizeof(T)); }

  friend bool operator==(const KeptAllocator& /*a*/, const KeptAllocator& /*b*/) { return true; }
};

template <typename T>
using KeptVector = std::vector<T, KeptAllocator<T>>;

}  // namespace memcalc
