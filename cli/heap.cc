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
  const auto begin = reinterpret_cast<std::uintptr_t>(::sbrk(0));
  ::mallopt(M_MMAP_THRESHOLD, kMostInHeap);
  ::mallopt(M_TOP_PAD, kReserve);
  void* volatile block = std::malloc(kHugePage / 2);  // more than is left: the heap grows by this and the reserve
  std::free(block);                                   // volatile: without it the compiler leaves both calls out
  const std::uintptr_t from = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t to = reinterpret_cast<std::uintptr_t>(::sbrk(0)) / kHugePage * kHugePage;
  if (from < to) (void)::madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#endif
}

}  // namespace memcalc::cli
