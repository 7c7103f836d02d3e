#include "heap.h"

#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace memcalc::cli {

// glibc has this as a tunable of the environment alone (malloc/hugetlb, 2.35), which is read before main().
void use_huge_pages() {
#ifdef __GLIBC__
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  constexpr int kReserve = 4 * static_cast<int>(kHugePage), kMostInHeap = 32 << 20;  // the most that glibc takes
  ::mallopt(M_MMAP_THRESHOLD, kMostInHeap);
  ::mallopt(M_TOP_PAD, kReserve);
  // What lies before the first whole huge page is taken and never touched: the heap grows by it and the reserve. It
  // ends before that page, of which malloc would touch the first bytes, and Linux gives no huge page in the place of a
  // small one.
  constexpr std::size_t kSmallPage = std::size_t{4} << 10, kInitialHeap = std::size_t{256} << 10;
  const auto begin = reinterpret_cast<std::uintptr_t>(::sbrk(0));
  const std::uintptr_t from = (begin + kInitialHeap + kHugePage - 1) / kHugePage * kHugePage;
  static void* volatile before = nullptr;
  before = std::malloc(from - begin - kSmallPage);
  const std::uintptr_t to = reinterpret_cast<std::uintptr_t>(::sbrk(0)) / kHugePage * kHugePage;
  if (before != nullptr && from < to) (void)::madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#endif
}

}  // namespace memcalc::cli
